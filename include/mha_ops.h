/* mha_ops: the operations of a transformer around attention, forward and backward.
 *
 * A complete program: the norm of two rows, then GELU. Build it with  cc ops.c $(pkg-config --cflags --libs mha)
 *
 *     #include <mha_ops.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         enum { ROWS = 2, WIDTH = 4 };
 *         float x[ROWS * WIDTH] = {1, 2, 3, 4, 0, 0, 1, 1}, y[ROWS * WIDTH], gain[WIDTH] = {1, 1, 1, 1};
 *         mha_tensor tx = mha_tensor_2d(x, MHA_FLOAT32, ROWS, WIDTH), ty = mha_tensor_2d(y, MHA_FLOAT32, ROWS, WIDTH);
 *         mha_tensor none = MHA_NO_TENSOR;
 *         mha_norm_options norm = MHA_NORM_DEFAULTS;
 *         norm.gain = mha_tensor_1d(gain, MHA_FLOAT32, WIDTH);
 *
 *         mha_context *ctx;
 *         mha_status status = mha_context_create(&ctx, NULL);
 *         if (status) return fprintf(stderr, "%s\n", mha_status_name(status)), 1;
 *         status = mha_norm_forward(ctx, ty, none, tx, &norm);
 *         if (!status) status = mha_activation_forward(ctx, ty, none, ty, MHA_GELU);
 *         if (status) fprintf(stderr, "%s\n", mha_context_error(ctx));
 *         for (int i = 0; !status && i < ROWS * WIDTH; i++) printf("%g ", (double)y[i]);
 *         mha_context_free(ctx);
 *         return status != MHA_OK;
 *     }
 *
 * What is here:
 *
 *     1  Norm          LayerNorm and RMS norm, also with a residual sum in the same pass
 *     2  Sums          of two tensors, of the rows of a matrix
 *     3  Activation    with its slope, and gated
 *     4  Embedding     of token ids
 *     5  Loss          cross-entropy
 *     6  Dropout       of numbers, and of whole sequences (stochastic depth)
 *     7  Random        numbers from a key and a counter
 *
 * Contexts, tensors, statuses and options are those of mha.h, whose rules hold. W is the width of a row; `rows` is
 * usually B*T. Unless stated otherwise, tensors are float32 and dense, and an output may overlap nothing else.
 *
 * Gradients of parameters are added to what is there: clear them first. Gradients of inputs overwrite it, or are added
 * on request.
 *
 * The results of a row do not depend on the other rows. NaN and infinity propagate as in ordinary arithmetic. */
#ifndef MHA_OPS_H
#define MHA_OPS_H

#include "mha.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1 · Norm --------------------------------------------------------------------------------------------------- */

typedef struct mha_norm_options {
    size_t size;     /* of this struct */
    mha_norm kind;   /* MHA_NORM_LAYER or MHA_NORM_RMS */
    float epsilon;   /* added to the variance or mean square; above 0 */
    mha_tensor gain; /* (W): factor of each column */
    mha_tensor bias; /* (W): summand of each column; or none */
} mha_norm_options;

/* clang-format off */
#define MHA_NORM_DEFAULTS {sizeof(mha_norm_options), MHA_NORM_LAYER, 1e-5f, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

MHA_API void mha_norm_defaults(mha_norm_options *options, size_t size);

/* y = (x - mean) * inverse * gain + bias for each row: mha_norm of mha.h has the formulas
 *
 *   y (rows,W)   x (rows,W)   kept (rows,2) or none
 *
 * kept receives mean (0 in an RMS norm) and inverse (1 / the root), for the backward pass. y may be x.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_norm_forward(mha_context *ctx, mha_tensor y, mha_tensor kept, mha_tensor x,
                                    const mha_norm_options *options);

/* x += r (rows,W), then y = norm(x), in one pass. y may not be x. Returns as mha_norm_forward. */
MHA_API mha_status mha_norm_forward_add(mha_context *ctx, mha_tensor y, mha_tensor kept, mha_tensor x, mha_tensor r,
                                        const mha_norm_options *options);

/* Gradients of a loss. */
typedef struct mha_norm_gradients {
    mha_tensor x;    /* (rows,W) */
    bool accumulate; /* add to x; false: overwrite it */
    mha_tensor gain; /* (W), added to; none: not computed */
    mha_tensor bias; /* (W), added to; none: not computed */
} mha_norm_gradients;

/* clang-format off */
#define MHA_NORM_NO_GRADIENTS {MHA_NO_TENSOR, false, MHA_NO_TENSOR, MHA_NO_TENSOR}
/* clang-format on */

/* The gradients of mha_norm_forward, from dy (rows,W) and the x and kept of that call. gradients->x may be dy unless
 * it accumulates. A row of zeros in dy gives zeros, even if x is NaN. Returns as mha_norm_forward, or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_norm_backward(mha_context *ctx, const mha_norm_gradients *gradients, mha_tensor dy, mha_tensor x,
                                     mha_tensor kept, const mha_norm_options *options);

/* ---- 2 · Sums --------------------------------------------------------------------------------------------------- */

/* x += r. Rank 1 to 4, the same sizes, any float types, any strides.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_add(mha_context *ctx, mha_tensor x, mha_tensor r);

/* sum (N) += sum of the rows of y (rows,N): the gradient of a bias. y has any float type and any strides. Up to 64
 * rows are added in float64; more are added in float32, 64 at a time, and these sums in float64.
 * Returns as mha_add, or MHA_NO_MEMORY. */
MHA_API mha_status mha_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y);

/* ---- 3 · Activation --------------------------------------------------------------------------------------------- */

/* h = activation(z), slope = activation'(z), which replaces z in the backward pass
 *
 *   h, z (rows,N)   slope (rows,N) or none
 *
 * h or slope may be z. For |z| <= 1e9 the error of h is at most 2e-7 or 3u relative, that of slope 4e-7.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_activation_forward(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z,
                                          mha_activation activation);

/* dh (rows,N) = dh * slope, which is dz. Returns as mha_activation_forward. */
MHA_API mha_status mha_activation_backward(mha_context *ctx, mha_tensor dh, mha_tensor slope);

/* h = activation(a) * b, where a row of z is a, then b; slope = the derivatives by a, then by b
 *
 *   h (rows,N)   z (rows,2N)   slope (rows,2N) or none
 *
 * slope may be z. Returns as mha_activation_forward. */
MHA_API mha_status mha_gated_forward(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z,
                                     mha_activation activation);

/* slope (rows,2N) = dz, from slope and dh (rows,N). Returns as mha_activation_forward. */
MHA_API mha_status mha_gated_backward(mha_context *ctx, mha_tensor slope, mha_tensor dh);

/* ---- 4 · Embedding ---------------------------------------------------------------------------------------------- */

typedef struct mha_embedding_options {
    size_t size;          /* of this struct */
    float scale;          /* factor of the table's rows; finite */
    bool accumulate;      /* add to what y holds, for example for a table of token types */
    mha_tensor positions; /* (T,W): rows that are added by position; or none */
} mha_embedding_options;

/* clang-format off */
#define MHA_EMBEDDING_DEFAULTS {sizeof(mha_embedding_options), 1.0f, false, MHA_NO_TENSOR}
/* clang-format on */

MHA_API void mha_embedding_defaults(mha_embedding_options *options, size_t size);

/* y[b,t] = scale * table[ids[b,t]] + positions[t]
 *
 *   y (B,T,W)   table (V,W)   ids (B,T), MHA_INT32 or MHA_INT64 with any strides, from 0 to V - 1
 *
 * `options` NULL means MHA_EMBEDDING_DEFAULTS. Returns MHA_OK, MHA_BAD_ARGUMENT (also for an id outside the table),
 * MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_embedding_forward(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                                         const mha_embedding_options *options);

/* dtable[ids[b,t]] += scale * dy[b,t], row after row; dpositions[t] += sum over b of dy[b,t], in float64
 *
 *   dtable (V,W) or none   dpositions (T,W) or none   dy (B,T,W)   ids (B,T)
 *
 * Of the options only the scale is used. Returns as mha_embedding_forward. */
MHA_API mha_status mha_embedding_backward(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy,
                                          mha_tensor ids, const mha_embedding_options *options);

/* ---- 5 · Loss --------------------------------------------------------------------------------------------------- */

typedef struct mha_loss {
    double mean;     /* mean cross-entropy of the rows with a label; 0 without any */
    int64_t counted; /* rows with a label */
    int64_t correct; /* rows whose largest logit, the first of equals, is the label's */
} mha_loss;

typedef struct mha_loss_options {
    size_t size;     /* of this struct */
    float smoothing; /* share of the target that is spread over all classes, from 0 to 1 */
} mha_loss_options;

/* clang-format off */
#define MHA_LOSS_DEFAULTS {sizeof(mha_loss_options), 0.0f}
/* clang-format on */

MHA_API void mha_loss_defaults(mha_loss_options *options, size_t size);

/* Cross-entropy against targets of smoothing / N for each of N classes, and 1 - smoothing more for the label:
 *
 *     loss = mean over rows of  - sum_c target[c] * log softmax(logits)[c]        dlogits = (softmax - target) / rows
 *
 *   dlogits (rows,N) or none   logits (rows,N)   labels (rows), MHA_INT32 or MHA_INT64 with any stride, 0 to N - 1;
 *                                                -1: the row has no label and does not count; its dlogits are 0
 *
 * `options` NULL means MHA_LOSS_DEFAULTS. Returns MHA_OK, MHA_BAD_ARGUMENT (also for a label outside its range),
 * MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_OVERLAP, MHA_TOO_LARGE or MHA_NO_MEMORY. */
MHA_API mha_status mha_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                     mha_tensor labels, const mha_loss_options *options);

/* ---- 6 · Dropout ------------------------------------------------------------------------------------------------ */

typedef struct mha_dropout_options {
    size_t size;     /* of this struct */
    float drop;      /* probability that a number becomes 0, in [0,1) */
    float path;      /* probability that a whole sequence becomes 0 (stochastic depth), in [0,1) */
    uint64_t seed;   /* key of the random numbers */
    uint64_t stream; /* stream of sequence 0; sequence b has stream + b */
} mha_dropout_options;

/* clang-format off */
#define MHA_DROPOUT_DEFAULTS {sizeof(mha_dropout_options), 0.0f, 0.0f, 0, 0}
/* clang-format on */

MHA_API void mha_dropout_defaults(mha_dropout_options *options, size_t size);

/* to = from * keep(number) / (1 - drop) * keep(sequence) / (1 - path)     each keep is 0 or 1; the factors are
 * multiplied first
 *
 *   to, from (B,T,W), T * W at most 2^35
 *
 * `to` may be `from`. The backward pass is the same function: the gradient of `to` in, that of `from` out. The mask of
 * sequence b depends only on seed, s = stream + b and the place in the sequence. With blocks of mha_random_block of
 * key `seed`:
 *
 *   number i     is dropped if half i % 256 / 32 (low half of the first word, its high half, ...) of the block of
 *                counter {s, s >> 32, i / 256 * 32 + i % 32, 6 << 24} is below drop * 2^16, rounded
 *   a sequence   is dropped if the first word of the block of counter {s, s >> 32, 0, 7 << 24} is below path * 2^32
 *
 * `options` NULL means MHA_DROPOUT_DEFAULTS: a copy. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE,
 * MHA_OVERLAP or MHA_TOO_LARGE. */
MHA_API mha_status mha_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options);

/* ---- 7 · Random numbers ----------------------------------------------------------------------------------------- */

/* Four random 32-bit numbers from a key and a counter: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy
 * as 1, 2, 3", 2011). There is no state. block may be counter. Does nothing if either is NULL. */
MHA_API void mha_random_block(uint32_t block[4], uint64_t key, const uint32_t counter[4]);

#ifdef __cplusplus
}
#endif

#endif
