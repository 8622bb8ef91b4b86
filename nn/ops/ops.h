/* The operations of a transformer around attention, forward and backward: products with weights, norms, activations,
 * the loss. Numbers are float32, arrays are dense and row-major, shapes are in parentheses. `rows` is usually B*T
 * tokens.
 *
 * Gradients of parameters are ADDED to the previous contents: clear them first. Gradients of inputs are written, or
 * added on request, which saves a pass over the gradient of a residual stream.
 *
 * Results are bitwise identical for any number of threads and, except for products, for every instruction set. Arrays
 * may not overlap unless stated. Arguments are not checked: the code that builds a model has checked them. NaN and
 * infinity propagate as in ordinary arithmetic. */
#ifndef NN_OPS_OPS_H
#define NN_OPS_OPS_H

#include "ops/workspace.h"
#include <mha.h>

/* ---- Linear (linear.c) ------------------------------------------------------------------------------------------ */

/* y (rows,N) = activation(x (rows,K) w^T + b)    or, with `add`,    y = activation(y + x w^T + b)
 *
 *   w (N,K)   b (N) or none
 *
 * Tensors of rank 2 of any float type and stride; bfloat16 x and w use the matrix engine, if available. Returns the
 * same as mha_matmul. */
mha_status nn_linear_forward(mha_context *ctx, mha_tensor y, mha_tensor x, mha_tensor w, mha_tensor b,
                             mha_activation activation, bool add);

/* The gradients of a linear layer to compute; a zeroed member is not computed. */
typedef struct nn_linear_gradients {
    mha_tensor dx; /* (rows,K)   dy w, */
    bool add;      /*            added to the previous contents */
    mha_tensor dw; /* (N,K)      += dy^T x */
    float *db;     /* (N)        += the sum of the rows of dy */
} nn_linear_gradients;

/* From dy (rows,N), the gradient of x w^T + b (before an activation). If db is given, dy must be float32 with dense
 * rows. Returns the same as mha_matmul. */
mha_status nn_linear_backward(mha_context *ctx, nn_workspace *workspace, const nn_linear_gradients *gradients,
                              mha_tensor dy, mha_tensor x, mha_tensor w);

/* ---- Norm (norm.c) ---------------------------------------------------------------------------------------------- */

typedef enum nn_norm_kind {
    NN_LAYER_NORM, /* y = (x - mean) / sqrt(variance + epsilon) * gain + bias */
    NN_RMS_NORM    /* y = x / sqrt(mean of squares + epsilon) * gain, + bias if there is one */
} nn_norm_kind;

typedef struct nn_norm {
    nn_norm_kind kind;
    int64_t width;
    float epsilon;     /* above 0 */
    const float *gain; /* (width) */
    const float *bias; /* (width) or NULL */
} nn_norm;

/* y (rows,width) from x (rows,width). kept (rows,2) receives the values for backward: the mean (0 for an RMS norm) and
 * the inverse root. */
void nn_norm_forward(mha_context *ctx, const nn_norm *norm, float *y, float *kept, const float *x, int64_t rows);

/* x += r, y = norm(x), in one pass: the end of one residual branch and the start of the next. */
void nn_norm_forward_add(mha_context *ctx, const nn_norm *norm, float *y, float *kept, float *x, const float *r,
                         int64_t rows);

/* x (count) += r (count): the end of a residual branch that no norm follows. */
void nn_add(mha_context *ctx, float *x, const float *r, int64_t count);

typedef struct nn_norm_gradients {
    float *dx;    /* (rows,width), */
    bool add;     /* added to the previous contents */
    float *dgain; /* (width) += ; NULL: not computed */
    float *dbias; /* (width) += ; NULL: not computed */
} nn_norm_gradients;

/* From dy (rows,width), and the x and kept of the forward call. Returns MHA_OK or MHA_NO_MEMORY. */
mha_status nn_norm_backward(mha_context *ctx, nn_workspace *workspace, const nn_norm *norm,
                            const nn_norm_gradients *gradients, const float *dy, const float *x, const float *kept,
                            int64_t rows);

/* ---- Activation (activation.c) ---------------------------------------------------------------------------------- */

/* h (count) = activation(z) and, unless NULL, slope (count) = activation'(z), which backward needs instead of z. slope
 * or h may be z. Does nothing for MHA_LINEAR. For |z| <= 1e9 the error of h is at most 2e-7 or 3u relative, that of
 * slope 4e-7. */
void nn_activation_forward(mha_context *ctx, mha_activation activation, float *h, float *slope, const float *z,
                           int64_t count);

/* In place: dh (count) becomes dz = dh * slope. */
void nn_activation_backward(mha_context *ctx, float *dh, const float *slope, int64_t count);

/* h (rows,width) = activation(a) * b, where each row of z (rows,2*width) is the concatenation of a and b; and, unless
 * NULL, slope (rows,2*width) = the derivatives with respect to both. slope may be z. */
void nn_gated_forward(mha_context *ctx, mha_activation activation, float *h, float *slope, const float *z, int64_t rows,
                      int64_t width);

/* In place: slope (rows,2*width) becomes dz, from dh (rows,width). */
void nn_gated_backward(mha_context *ctx, float *slope, const float *dh, int64_t rows, int64_t width);

/* ---- Loss (loss.c) ---------------------------------------------------------------------------------------------- */

typedef struct nn_loss {
    double mean;     /* cross-entropy over the rows that have a label; 0 without any */
    int64_t counted; /* rows that have a label */
    int64_t correct; /* rows whose largest logit (the first one in case of a tie) is the label's */
} nn_loss;

/* Cross-entropy against targets that give smoothing / classes to every class and the rest, 1 - smoothing, to the label:
 *
 *     loss = mean over rows of  - sum_c target[c] * log softmax(logits)[c]        dlogits = (softmax - target) / rows
 *
 *   dlogits (rows,classes) or NULL   logits (rows,classes)   labels (rows), below classes; -1: the row is ignored
 *
 * Returns MHA_OK or MHA_NO_MEMORY. */
mha_status nn_cross_entropy(mha_context *ctx, nn_workspace *workspace, nn_loss *loss, float *dlogits,
                            const float *logits, const int32_t *labels, int64_t rows, int64_t classes, float smoothing);

/* ---- Dropout (drop.c) ------------------------------------------------------------------------------------------- */

/* Dropout of the numbers of a residual branch, and stochastic depth, which drops the branch for whole sequences. */
typedef struct nn_drop {
    float drop, path; /* probabilities that a number and a sequence become 0; in [0,1) */
    int64_t tokens;   /* rows of a sequence */
    uint64_t seed, stream;
} nn_drop;

/* to = from * keep(number) / (1 - drop) * keep(sequence) / (1 - path)       each keep is 0 or 1; the factors are multiplied first
 *
 *   to, from (rows,width)   rows: a multiple of tokens; tokens * width at most 2^35
 *
 * `to` may be `from`. The backward pass is the same function: applied to the gradient of `to`, it gives that of `from`.
 * Nothing is stored, since the mask of sequence b depends only on (seed, stream + b, the position within the sequence),
 * not on the rest of the batch. Random numbers have 16 bits: `drop` is rounded to a multiple of 2^-16, `path` to one of
 * 2^-32. With drop 0 no random numbers are drawn per element, and with path 0 as well the function only copies. */
void nn_drop_apply(mha_context *ctx, const nn_drop *d, float *to, const float *from, int64_t rows, int64_t width);

/* ---- Embedding (embedding.c) ------------------------------------------------------------------------------------ */

/* y[row] = table[ids[row]] + positions[row % T]
 *
 *   y (rows,width)   table (vocabulary,width)   positions (T,width) or NULL   ids (rows), from 0 to below vocabulary
 *
 * rows: a multiple of T. A decoder step at position `first` passes positions + first * width. */
void nn_embedding_forward(mha_context *ctx, float *y, const float *table, const float *positions, const int32_t *ids,
                          int64_t rows, int64_t T, int64_t width);

/* dtable[ids[row]] += dy[row], one row after another, and dpositions[row % T] += dy[row], summed in float64; either may
 * be NULL: not computed. */
void nn_embedding_backward(mha_context *ctx, float *dtable, float *dpositions, const float *dy, const int32_t *ids,
                           int64_t rows, int64_t T, int64_t width);

#endif
