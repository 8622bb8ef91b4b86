/* The output of a model: from the rows of the last stack to logits; for the files of this folder. */
#ifndef NN_MODEL_OUTPUT_H
#define NN_MODEL_OUTPUT_H

#include "model/model.h"
#include "model/weights.h"

typedef struct nn_output {
    const nn_output_config *config;
    const nn_blocks_config *blocks;       /* of the last stack */
    int64_t width, last;                  /* M; of the rows that the product of the logits reads */
    const nn_weight *part[NN_PART_KINDS]; /* NULL: not there */
    const nn_weight *weight;              /* NN_OUTPUT, or the table of tokens */
    float *pooled, *dpooled;              /* (B,M), or (B,2M) */
    float *raw, *changed;                 /* (rows,transform): before and after the norm */
    float *kept;                          /* (rows,2) */
    float *logits,
        *dlogits; /* (rows,classes): rows B with a pool, else B*T. Grown by calls that are not for training */
    int64_t room; /* rows of raw, changed, kept and logits */
    float *drows; /* (B*T,M): the gradient by the rows */
    float *memory, *grown;
    int64_t B, T; /* of the last call */
    const int64_t *lengths, *starts;
    const int64_t *picked; /* rows of which logits are wanted; NULL: all */
    const float *rows;
} nn_output;

bool nn_output_create(nn_output *o, const nn_description *d, const nn_weights *weights, int64_t batch, int64_t rows,
                      bool training);
void nn_output_free(nn_output *o);

/* What the result is read from: rows (B*T,M), or those of sequences that lie one behind another from `starts` on (B+1).
 * picked (count): the rows to compute logits of; NULL: all. */
typedef struct nn_output_rows {
    const float *rows;
    int64_t B, T;
    const int64_t *lengths, *starts, *picked;
    int64_t count;
} nn_output_rows;

/* The result of the model, or NULL; and from its gradient that by the rows, or NULL, with the reason in the context. */
const float *nn_output_forward(nn_output *o, mha_context *ctx, const nn_output_rows *from);
const float *nn_output_backward(nn_output *o, mha_context *ctx, const float *dlogits, float *gradients);

#endif
