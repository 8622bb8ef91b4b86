/* What a model is made of; for the files of this folder. */
#ifndef NN_MODEL_MODEL_PARTS_H
#define NN_MODEL_MODEL_PARTS_H

#include "model/input.h"
#include "model/output.h"
#include "model/stack/stack.h"

typedef struct nn_side {
    bool there;
    int64_t batch, tokens; /* the most sequences of a call; the most tokens of a sequence */
    nn_input input;
    nn_stack stack;
} nn_side;

struct nn_model {
    nn_description d;
    nn_model_options options;
    int64_t count;     /* of the parameters */
    float *parameters; /* as one block; or NULL */
    nn_weights weights;
    bool fresh;      /* rounded copies of the weights are up to date */
    bool ready;      /* the last call was a forward one that a backward one may follow */
    nn_side side[2]; /* encoder, decoder */
    nn_output output;
    float *dmemory; /* the gradient by the encoder's rows, where a decoder reads them */
    nn_call call;
};

/* Before the first side of a pass; one side, whose sequences have had `past` tokens (B; NULL: none): its rows after the
 * final norm, or NULL; and the result from those of the last one. */
void nn_model_start(nn_model *m, mha_context *ctx, const nn_call *call);
const float *nn_model_side(nn_model *m, mha_context *ctx, bool decoder, const nn_batch *batch, const int64_t *past);
const float *nn_model_result(nn_model *m, mha_context *ctx, const nn_stack *last, const float *rows);

#endif
