/* Tiles of rows of a batch whose sequences are not alike, for the forward kernels; the same for the host and the device. */
#ifndef MHA_CUDA_SPANS_H
#define MHA_CUDA_SPANS_H

#include "schedule.h"
#include "view.h"

/* A tile of rows of a sequence, in a batch whose sequences are not alike. */
typedef struct mha_cuda_span {
    int32_t row, batch;              /* its first row, counted in the sequence, and the sequence */
    int32_t queries, padded, length; /* rows of the sequence without padding and with it, and its keys */
    int32_t query_row, key_row;      /* where the sequence lies in q and out, and in k and v */
    int32_t query_batch, key_batch;
    int32_t offset, left, right; /* as in forward.h; left and right within [-queries, length] */
} mha_cuda_span;

/* There are lists of tiles for the sequences of the first two methods. What is counted: the tiles of each list, and the sequences of each
 * of the other methods; then whether a tile is lost. */
enum { MHA_CUDA_SPAN_LISTS = 2, MHA_CUDA_SPAN_COUNTS = MHA_CUDA_METHODS + 1, MHA_CUDA_SPAN_LOST = MHA_CUDA_METHODS };

/* What the kernel that finds them is told. */
typedef struct mha_cuda_spans {
    mha_cuda_span
        *lists[MHA_CUDA_SPAN_LISTS]; /* up to B * row_tiles, those with many rows before them first; NULL: not needed */
    int32_t *counts;                 /* MHA_CUDA_SPAN_COUNTS */
    mha_cuda_limits limits;          /* of the call */
    int32_t *lost;                   /* as in forward.h: 0 where there is no tile */
    int32_t B, H, Tq, Tk;            /* Tq and Tk: what a sequence has at most */
    int32_t rows;                    /* of a tile */
    int32_t row_tiles;               /* of Tq rows */
    int32_t align, causal;
    int64_t query_rows, key_rows;      /* sizes of axis 2 of q and k */
    int64_t window_left, window_right; /* -1: unlimited */
    mha_cuda_view offsets, query_lengths, key_lengths, query_starts, key_starts;
} mha_cuda_spans;

enum { MHA_CUDA_SPAN_THREADS = 256 };       /* of a block of the kernel that finds spans */
enum { MHA_CUDA_MAP_BYTES = 64 * 128 * 4 }; /* shared memory for tiles of bias, 64 rows and 128 keys */

/* The same for masks and bits of 64 rows (bits.cuh). */
#define MHA_CUDA_BIT_BYTES(keys) ((size_t)2 * ((keys) / 16 * 68 * 4 + 64 * (keys)))

#endif
