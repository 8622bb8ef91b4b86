/* What the general kernels are told; the same for the host and the device. */
#ifndef MHA_CUDA_GENERAL_H
#define MHA_CUDA_GENERAL_H

#include "view.h"

/* Numbers that are kept of every row, in float64. */
enum {
    MHA_CUDA_ROW_REFERENCE, /* as in mha_attention_extras.softmax */
    MHA_CUDA_ROW_SUM,
    MHA_CUDA_ROW_DELTA, /* dout . out, summed as the products of tiles are */
    MHA_CUDA_ROW_WORTH, /* the same, summed in float64 */
    MHA_CUDA_ROW_SINK,  /* its part of the gradients of sinks and slopes */
    MHA_CUDA_ROW_SLOPE,
    MHA_CUDA_ROW_NUMBERS
};

/* Tiles of all general kernels, and columns of results that a block computes. */
enum { MHA_CUDA_GENERAL_TILE = 64, MHA_CUDA_GENERAL_THREADS = 256, MHA_CUDA_GENERAL_COLUMNS = 128 };

/* Rows and keys of a tile of the kernels for float32, and, for a forward kernel of `width` columns, bytes of Q, K and V, of weights and
 * of numbers of rows, and blocks that fit into a multiprocessor. A backward kernel has Q, dO, K and V; of one pair of these, and of
 * weights, it has MHA_CUDA_F32_LINES. */
enum { MHA_CUDA_F32_TILE = 64 };
#define MHA_CUDA_F32_SHARED(width) (4 * MHA_CUDA_F32_TILE * (3 * (width) + 8 + 48) + 1024)
#define MHA_CUDA_F32_BLOCKS(width) ((width) > 64 ? 2 : 3)
#define MHA_CUDA_F32_LINES(width)  ((width) > 64 ? 128 : 64)
#define MHA_CUDA_F32_SHARED_BACK(width) \
    (4 * (2 * (MHA_CUDA_F32_LINES(width) + MHA_CUDA_F32_TILE) * ((width) + 4) + 48 * MHA_CUDA_F32_LINES(width)) + 4096)
#define MHA_CUDA_F32_BLOCKS_BACK(width) ((width) > 64 ? 1 : 2)

/* Rows of a key head (query heads of its group times Tq) that a decode kernel takes, threads of a block, and, for a kernel of
 * `width` columns, keys of a tile, blocks that fit into a multiprocessor, and tiles of keys and values that each has under way. */
enum { MHA_CUDA_DECODE_ROWS = 16, MHA_CUDA_DECODE_MOST = 8, MHA_CUDA_DECODE_THREADS = 160 };
#define MHA_CUDA_DECODE_TILE(width)   ((width) > 128 ? 32 : 64)
#define MHA_CUDA_DECODE_BLOCKS(width) ((width) > 64 ? 2 : 3)
#define MHA_CUDA_DECODE_STAGES(width) ((width) > 64 ? 3 : 4)

/* The same of a kernel of `d` columns of keys and `e` of values for up to 64 or 128 rows (decode_many.cuh); rows of a block of the kernel
 * that adds up their sums, a warp for each. */
enum { MHA_CUDA_MANY_ROWS = 128, MHA_CUDA_MANY_TILE = 64, MHA_CUDA_MERGE_ROWS = 4 };
#define MHA_CUDA_MANY_THREADS(rows)   ((rows) > 64 ? 384 : 160)
#define MHA_CUDA_MANY_BLOCKS(d, rows) ((rows) > 64 || (d) > 128 ? 1 : 2)
#define MHA_CUDA_MANY_STAGES(d, e, rows)        \
    ((d) <= 64          ? 4                     \
     : (d) <= 128       ? ((rows) > 64 ? 5 : 3) \
     : (d) + (e) <= 320 ? 4                     \
     : (d) <= 192       ? ((rows) > 64 ? 3 : 4) \
     : (rows) > 64      ? 2                     \
                        : 3)

typedef struct mha_cuda_general {
    int32_t B, H, G, share;
    int32_t Tq, Tk, D, E; /* Tq and Tk: what a sequence has at most */
    int32_t rows_of_q;    /* size of axis 2 of q */
    int32_t row_tiles, key_tiles, slices;
    mha_cuda_view q, k, v, out;
    mha_cuda_view lse, softmax;  /* forward: outputs; backward: softmax is an input */
    mha_cuda_view map;           /* (B,H,Tq,Tk) or (B,1,Tq,Tk): weights or scores at `stage`; their mean over heads */
    mha_cuda_view mask, bias;    /* (B,H,Tq,Tk), stride 0 where they broadcast */
    mha_cuda_view slopes, sinks; /* (B,H) and (1,H), stride 0 where they broadcast */
    mha_cuda_view offsets, query_lengths, key_lengths, query_starts, key_starts;
    mha_cuda_view dout, dlse, dq, dk, dv;
    mha_cuda_view dbias, dslopes, dsinks, importance;
    double *rows;       /* (rows of q, ROW_NUMBERS), or NULL */
    const int32_t *any; /* nothing is computed if it is 0; or NULL */
    const int32_t
        *only; /* (B,H,only_tiles) or (B,G,only_tiles): which tiles of rows or keys are computed; or NULL: all */
    int32_t only_tiles, only_shift; /* tile t is number t >> only_shift of them */
    float scale, softcap, kept;
    int32_t causal, align, stage;
    int64_t window_left, window_right; /* -1: unlimited */
    uint64_t dropped;                  /* weights whose number is less are dropped */
    uint64_t seed, stream;
} mha_cuda_general;

#endif
