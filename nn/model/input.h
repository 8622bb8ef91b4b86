/* The input of a stack: tokens or patches become rows; for the files of this folder. */
#ifndef NN_MODEL_INPUT_H
#define NN_MODEL_INPUT_H

#include "model/model.h"
#include "model/weights.h"

typedef struct nn_input {
    const nn_input_config *config;
    const nn_blocks_config *blocks;
    const nn_weight *part[NN_PART_KINDS]; /* NULL: not there */
    float *waves;                         /* (positions,W): sinusoidal positions, or NULL */
    float *patches;                       /* (B*patches,pixels) */
    float *embedded;                      /* (B*patches,M), or (B*T,W) before norm and product; and its gradient */
    float *normed, *kept;                 /* (B*T,W), (B*T,2) */
    float *dnormed;                       /* (B*T,W) */
    int32_t *places; /* (B*T): the position of each token, where they do not simply count from the first one */
    float *frames;   /* (frames,3*bins) or (frames,3*M): what a convolution reads */
    float *memory;
    int64_t B, T; /* of the last call */
    nn_sequences sequences;
} nn_input;

/* For up to `rows` rows, of `batch` sequences. False if there is not enough memory. */
bool nn_input_create(nn_input *in, const nn_description *d, bool decoder, const nn_weights *weights, int64_t batch,
                     int64_t rows, bool training);
void nn_input_free(nn_input *in);

/* x (B*T,M) from the sequences; and, from dx, onto the gradients of the parameters. False with the reason in the
 * context. dx may be written over. */
bool nn_input_forward(nn_input *in, mha_context *ctx, float *x, const nn_sequences *sequences, int64_t B, int64_t T);
bool nn_input_backward(nn_input *in, mha_context *ctx, const float *dx, float *gradients);

/* Features (B,bins,2*T) to rows, without positions (frames.c). */
bool nn_frames_forward(nn_input *in, mha_context *ctx, float *x);

#endif
