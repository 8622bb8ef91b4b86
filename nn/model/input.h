/* The input of a stack: tokens or patches become rows; for the files of this folder. */
#ifndef NN_MODEL_INPUT_H
#define NN_MODEL_INPUT_H

#include "model/model.h"

typedef struct nn_input {
    const nn_input_config *config;
    const nn_blocks_config *blocks;
    int64_t at[NN_PART_KINDS]; /* where its parts start in the parameters; -1: not there */
    const float *parameters;
    float *waves;         /* (positions,W): sinusoidal positions, or NULL */
    float *patches;       /* (B*patches,pixels) */
    float *embedded;      /* (B*patches,M), or (B*T,W) before norm and product; and its gradient */
    float *normed, *kept; /* (B*T,W), (B*T,2) */
    float *dnormed;       /* (B*T,W) */
    float *memory;
    int64_t B, T; /* of the last call */
    nn_sequences sequences;
} nn_input;

/* For up to `rows` rows, of `batch` sequences. False if there is not enough memory. */
bool nn_input_create(nn_input *in, const nn_description *d, bool decoder, const float *parameters, int64_t batch,
                     int64_t rows, bool training);
void nn_input_free(nn_input *in);

/* x (B*T,M) from the sequences; and, from dx, onto the gradients of the parameters. False with the reason in the
 * context. dx may be written over. */
bool nn_input_forward(nn_input *in, mha_context *ctx, float *x, const nn_sequences *sequences, int64_t B, int64_t T);
bool nn_input_backward(nn_input *in, mha_context *ctx, const float *dx, float *gradients);

#endif
