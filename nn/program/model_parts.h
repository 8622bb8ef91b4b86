/* What a model is made of; for the files of this folder. */
#ifndef NN_PROGRAM_MODEL_PARTS_H
#define NN_PROGRAM_MODEL_PARTS_H

#include "program/run.h"

typedef struct nn_side {
    int64_t batch, tokens; /* the most sequences of a call; the most tokens of a sequence; 0: there is no such side */
    float *waves;          /* (positions,W): sinusoidal positions; or NULL */
} nn_side;

struct nn_model {
    nn_description d;
    nn_model_options options;
    float *parameters; /* as one block; or NULL */
    nn_weights weights;
    nn_attentions attentions;
    nn_program program[NN_VARIANTS]; /* those that calls have asked for: steps 0 until then */
    nn_memory memory;
    nn_side side[2]; /* encoder, decoder */
    bool fresh;      /* rounded copies of the weights are up to date */
    bool ready;      /* the last call was a forward one that a backward one may follow */
    nn_call call;
    nn_run run;
    nn_tap *tap; /* room for all that a call may want */
};

/* Before the sides of a pass: the call, and which program it needs. Then each side: its sequences, which have had `past`
 * tokens (B; NULL: none) and go through these caches, are checked and take their place. Then the encoder, the decoder and the result, or both. */
mha_status nn_model_start(nn_model *m, mha_context *ctx, const nn_call *call);
mha_status nn_model_set_side(nn_model *m, mha_context *ctx, bool decoder, const nn_batch *batch, const int64_t *past);
mha_status nn_model_run(nn_model *m, mha_context *ctx, bool encoder, bool decoder);

/* The rows of a side after the last run, (B*T,M); the result. */
mha_tensor nn_model_rows(const nn_model *m, bool decoder);
const float *nn_model_result(const nn_model *m);

#endif
