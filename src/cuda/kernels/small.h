/* What the kernels of narrow heads and short sequences (kernels/small) are told; the same for the host and the device. */
#ifndef MHA_CUDA_SMALL_H
#define MHA_CUDA_SMALL_H

#include "schedule.h"
#include "view.h"

/* Columns, rows and keys of a head, at most; rows of a warp, or keys of one; and keys that a row goes through at a time, forward. */
enum { MHA_CUDA_SMALL_WIDTH = 32, MHA_CUDA_SMALL_LENGTH = 128, MHA_CUDA_SMALL_ROWS = 16, MHA_CUDA_SMALL_KEYS = 32 };

/* Rows begin at multiples of 16 bytes and have a multiple of 8 numbers. A tensor whose data is NULL is not there: forward, lse alone
 * is asked for without out; backward, a gradient that is not wanted. */
typedef struct mha_cuda_small {
    mha_cuda_rows q, k, v, out;
    mha_cuda_rows dout, dq, dk, dv; /* backward */
    mha_cuda_view lse,
        softmax;      /* float32 (B,H,Tq,1) and (B,H,Tq,2): results, or none; backward: one of them is given */
    float scale;      /* of scores; above 0 */
    float scale_log2; /* the same times log2(e) */
    int32_t Tq, Tk, D, E;
    int32_t G;      /* key heads of a sequence */
    int32_t group;  /* query heads of a key head */
    int32_t offset; /* row i sees keys up to i + offset; Tk where it sees all */

    /* Of sequences that are not alike: then Tq and Tk are what one has at most. */
    int32_t align, causal;
    mha_cuda_limits limits;       /* of the call: other sequences are left out */
    const int32_t *count;         /* how many sequences are not; or NULL */
    int64_t query_rows, key_rows; /* sizes of axis 2 of q and k */
    mha_cuda_view offsets, query_lengths, key_lengths, query_starts, key_starts;
} mha_cuda_small;

#endif
