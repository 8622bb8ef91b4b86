/* Rotary embedding: a checked call, also with tables that do not have all positions. */
#ifndef MHA_ATTENTION_ROTARY_H
#define MHA_ATTENTION_ROTARY_H

#include "core/tensor.h"

/* Where angles come from that no table has. All zero: nowhere. */
typedef struct mha_frequencies {
    double base;       /* > 0: pair i of n has base^(-i/n) */
    mha_tensor values; /* (w/2), any float type: those of the caller; or none */
    double multiplier; /* of cosines and sines */
} mha_frequencies;

typedef struct mha_rotation {
    mha_context *ctx;
    mha_tensor out, x, cos, sin;
    mha_rotary_options options; /* positions (B,T) if given */
    int64_t width;
    mha_frequencies frequencies; /* for positions that the tables do not have; none: they are refused */
    bool beyond;                 /* there are such positions */
} mha_rotation;

static inline int64_t mha_rotation_position(const mha_rotation *r, int64_t b, int64_t t)
{
    mha_tensor p = r->options.positions;
    if (!p.data) return r->options.first_position + t;
    return ((const int64_t *)p.data)[b * p.stride[0] + t * p.stride[1]];
}

/* Whether the row of (b,t) is not in the tables (P,w/2). */
static inline bool mha_rotation_is_beyond(const mha_rotation *r, int64_t b, int64_t t)
{
    return r->cos.rank == 2 && mha_rotation_position(r, b, t) >= r->cos.size[0];
}

/* mha_rotary_apply with tables (P,w/2) of float32 numbers that were made from these frequencies. Positions from P
 * to 2^40 are legal: their angles are computed, to the bits that a longer table would have. */
mha_status mha_rotary_apply_beyond(mha_context *ctx, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                                   mha_frequencies frequencies, const mha_rotary_options *options);

/* The tables of these frequencies, which are a base or values that are given. */
mha_status mha_rotary_fill(mha_context *ctx, mha_tensor cos, mha_tensor sin, mha_frequencies frequencies);

#endif
