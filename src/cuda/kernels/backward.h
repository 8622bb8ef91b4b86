/* What the backward kernels are told; the same for the host and the device. */
#ifndef MHA_CUDA_BACKWARD_H
#define MHA_CUDA_BACKWARD_H

#include "spans.h"
#include <cuda.h>
#include <stdint.h>

typedef struct mha_cuda_backward {
    CUtensorMap q, d_out; /* (B,H,Tq,D) and (B,H,Tq,E), in boxes of 64 columns */
    CUtensorMap k, v;     /* (B,G,Tk,D) and (B,G,Tk,E) */
    CUtensorMap dk, dv;   /* likewise */
    mha_cuda_rows out, d_o, keys, values, dq;
    float *lse;            /* (B,H,Tq) */
    mha_cuda_view softmax; /* of the forward call, from which lse is computed; or none: lse is there */
    float *
        bounds; /* (B,G,bound_tiles,2): the largest norm of a value, the largest number of a key, infinite if one is not
                         finite */
    float *rows; /* (B,H,tiles,3,rows of a tile): lse in units of log 2, delta, and the power of dQ's integers */
    int32_t *
        sums; /* (B,H,tiles,rows of a tile * width of the kernel): dQ over that power and the scale, in pairs of 64 bits */
    float scale; /* of scores; above 0 */
    int32_t Tq, Tk, H, G, B;
    int32_t D, E;          /* widths: multiples of 8 up to that of the kernel */
    int32_t left, right;   /* row i sees keys from i + left to i + right */
    int32_t offset;        /* for the kernels with options: of rows to keys */
    int32_t row_tiles;     /* of a query head */
    int32_t key_tiles;     /* of a key head */
    int32_t bound_tiles;   /* of a key head, 512 keys each */
    int32_t section;       /* key heads that are worked on together */
    int32_t together;      /* key tiles that begin with the same row tile: with a window all of them do */
    int32_t parts;         /* dQ in order: blocks that share a key head (schedule.h); their sums are (parts,B,H,...) */
    int32_t ordered_tiles; /* likewise: key tiles that a head may have */
    mha_cuda_rows queries, grad_k, grad_v;
    float *powers;       /* (B,G): the power of two of a key head's numbers in the integers of dQ */
    int32_t *lost_heads; /* (B,G): whether a key or a gradient is not finite: the tiles have to be looked at */
    int32_t *lost_keys;  /* (B,G,key_tiles): whether dK or dV of a tile is not finite */
    int32_t sharers;     /* blocks that share a tile of keys (schedule.h), at most */
    int32_t *
        tickets; /* likewise, (B,G,key_tiles,2,2): of its warpgroups, how many have come, and whether sums are there; or NULL */
    float *shares; /* and dK and dV of the first to come: (B,G,key_tiles,...), or (G,key_slots,...) */

    /* For the kernels with options: as in forward.h. */
    float scale_log2; /* of scores, times log2(e) */
    float cap, cap_inverse;
    float cap_twice;         /* -2 cap */
    float nearest, farthest; /* offset - right and offset - left: keys that are so far behind a row are visible */
    const float *slopes;
    int64_t slope_batch, slope_head;
    int32_t
        *lost_rows; /* (B,H,row_tiles): whether dQ of a tile has to be computed again, lost_keys for dK and dV; also if
                           dQ is summed in order */
    int32_t *any;   /* whether anything has */

    /* For the kernels of sequences that are not alike and those with maps. Tiles of all sequences of a head have numbers
     * (schedule.h): bounds are (G,bound_slots,2), rows and sums (H,row_slots,...). */
    mha_cuda_limits limits; /* of the call: blocks leave out sequences of another method */
    int32_t mixed;          /* whether some sequences have sums in order, and others do not */
    int32_t row_slots, key_slots, bound_slots;
    int32_t first_slot, slots;         /* the key tiles of this launch: some of key_slots */
    int32_t align;                     /* mha_align */
    int64_t query_rows, key_rows;      /* sizes of axis 2 of q and k */
    int64_t window_left, window_right; /* -1: unlimited; right is 0 if rows are causal */
    mha_cuda_view offsets, query_lengths, key_lengths, query_starts, key_starts;

    /* For the kernels with maps: as in forward.h. */
    CUtensorMap bias_map;
    mha_cuda_view bias, mask;
    int32_t bias_stages, bias_batch, bias_head;
    int32_t mask_sixteens; /* 16 keys that lie side by side can be read together */
    float kept;
    uint64_t dropped, seed, stream;
    const int32_t *lost_anew; /* (B,H,anew_tiles): rows that another forward pass has lost, 64 together; or NULL */
    int32_t anew_tiles;
    mha_cuda_view dbias; /* as bias, float32, where no two scores of a launch have a number in common; or none */
    int32_t dbias_adds;  /* to what is there */
} mha_cuda_backward;

#endif
