/* What the kernels of the layer and of mha_ops.h are told; the same for the host and the device. Tensors have four axes, of
 * which missing ones are the last and have the size 1. */
#ifndef MHA_CUDA_OPS_H
#define MHA_CUDA_OPS_H

#include "general.h"

enum {
    MHA_CUDA_THREADS = 256,      /* of a block of all these kernels */
    MHA_CUDA_CHUNK = 64,         /* rows of a partial sum: bits do not depend on how work is cut up */
    MHA_CUDA_UPLOAD_BYTES = 3072 /* that a launch takes along */
};

/* ---- rows.cu ---------------------------------------------------------------------------------------------------- */

typedef struct mha_cuda_fill {
    mha_cuda_view to;
    float value;
} mha_cuda_fill;

typedef struct mha_cuda_upload {
    unsigned char *to;
    int32_t bytes;
    unsigned char data[MHA_CUDA_UPLOAD_BYTES];
} mha_cuda_upload;

/* clear, places, append: core/backend.h. */
typedef struct mha_cuda_sequences {
    mha_cuda_view to, from;
    mha_cuda_view lengths, starts; /* integers, or none; `lengths` are the ends of places and append */
    int32_t axis;
} mha_cuda_sequences;

/* gate and gate_back; clean, whose dy is `other`; average_heads. */
typedef struct mha_cuda_pair {
    mha_cuda_view to, from, other;
    const float *gates;
    float *sums;
} mha_cuda_pair;

/* Partial sums of the columns of y (rows,columns): (chunks,columns). */
typedef struct mha_cuda_column_sums {
    mha_cuda_view y;
    float *partials;
    int64_t chunks;
} mha_cuda_column_sums;

/* to (columns) += the sum of partials (chunks,pitch) over chunks, in float64. */
typedef struct mha_cuda_add_sums {
    float *to;
    const float *partials;
    int64_t stride, chunks, pitch, columns;
} mha_cuda_add_sums;

/* ---- norm.cu ---------------------------------------------------------------------------------------------------- */

enum { MHA_CUDA_NORM_NARROW = 1024 }; /* numbers of a unit that one warp normalises; more take a block */

/* Units of (B,H,T,D): rows, or all heads of a position. Row n is head n % H of position n / H. */
typedef struct mha_cuda_norm {
    mha_cuda_view to, from, residual, dy;
    float *kept;  /* (units,2): mean and inverse root; or NULL */
    float *about; /* backward, (units,4): mean, inverse root (negative: dy is zero), mean of g, mean of g h */
    const float *gain, *bias;
    int64_t units;
    int32_t together; /* heads of a unit */
    int32_t own;      /* gains from a head to the next; 0: all heads have the same */
    float epsilon;
    int32_t centred, add;
    float *partials; /* (chunks,pitch): sums of dgain and, behind them, of dbias */
    int64_t chunks;
    int32_t gains, pitch;
} mha_cuda_norm;

/* ---- rotary.cu -------------------------------------------------------------------------------------------------- */

/* Frequencies: numbers, or powers of a ratio (high + low). */
typedef struct mha_cuda_angles {
    double high, low, multiplier;
    mha_cuda_view values; /* or none */
    int32_t known;        /* whether positions beyond the tables have angles */
} mha_cuda_angles;

typedef struct mha_cuda_rotary {
    mha_cuda_view to, from; /* (B,H,T,D) */
    mha_cuda_view cos, sin; /* (P,w/2), or (B,T,w/2) if `rows` */
    mha_cuda_view places;   /* (B,T) or none: first + t */
    mha_cuda_angles angles;
    int64_t first;
    int32_t pairs, rows, interleaved, inverse;
} mha_cuda_rotary;

/* ---- extra_keys.cu ---------------------------------------------------------------------------------------------- */

typedef struct mha_cuda_extra_keys {
    mha_cuda_general g;
    const float *bias_k, *bias_v; /* (G,D), (G,E); or NULL */
    mha_cuda_view weights;        /* (B,H,Tq,Tk + count), or none */
    int32_t count;
    float *dbias_k, *dbias_v; /* or NULL */
    double *shares;           /* (rows of q, 2): of the learned key: the gradient of its score, and its weight */
} mha_cuda_extra_keys;

/* ---- ops.cu: numbers are float32 and dense ---------------------------------------------------------------------- */

typedef struct mha_cuda_activation {
    float *h, *slope; /* slope: or NULL */
    const float *z;
    int64_t count;      /* numbers; of h, with gates */
    int64_t width;      /* of h, with gates */
    mha_cuda_view to;   /* activate_result: h in any type */
    int32_t activation; /* mha_activation */
} mha_cuda_activation;

typedef struct mha_cuda_dropout {
    float *to;
    const float *from;
    int64_t sequences, size;     /* numbers of a sequence */
    uint64_t seed, stream, path; /* sequences whose number is less are dropped */
    uint32_t below;
    float kept;
} mha_cuda_dropout;

typedef struct mha_cuda_embedding {
    float *y;                       /* or dtable */
    const float *table, *positions; /* or dy; positions: or NULL */
    mha_cuda_view ids;              /* (B,T) */
    int64_t words, width;
    float scale;
    int32_t add;
} mha_cuda_embedding;

/* What the labels of a loss are like, and its sums. */
typedef struct mha_cuda_loss_sums {
    int64_t counted, bad; /* bad: 1 + the number of a label outside its range, or 0 */
    double loss;
    int64_t correct;
} mha_cuda_loss_sums;

typedef struct mha_cuda_loss {
    float *dlogits; /* or NULL */
    const float *logits;
    mha_cuda_view labels;
    double *losses; /* (rows) */
    int32_t *right; /* (rows) */
    mha_cuda_loss_sums *sums;
    int64_t rows, classes;
    float smoothing;
} mha_cuda_loss;

#endif
