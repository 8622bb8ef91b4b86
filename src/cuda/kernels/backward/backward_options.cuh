/* Scores with options become weights and their gradients, for the kernels of backward.cuh. */
#ifndef MHA_CUDA_BACKWARD_OPTIONS_CUH
#define MHA_CUDA_BACKWARD_OPTIONS_CUH

#include "backward_maps.cuh"

namespace
{

/* What a thread of the kernels with options knows of a tile: how far its first row stands before the first of its keys and
 * before the one 8 after it, and the slope. */
struct options_of_tile {
    float ahead[2], slope; /* -infinity for keys that are not there */
    bool hidden;           /* some of it */
};

/* Element i of a tile, whose product is x: its weight, and by what it goes on to dS: the slope of the cap. */
struct element {
    float weight, capped;
};

template <bool CAP>
MHA_DEVICE element weigh_with_options(const mha_cuda_backward &c, const options_of_tile &t, int i, float x, float lse)
{
    float s = x * c.scale_log2, by = 1, distance = t.ahead[i / 2 % 2] + (i / 4 * 8 + i % 2);
    if (CAP) {
        float r = inverse_fast(1 + exp2_fast(x * c.cap_inverse));
        s = fmaf(c.cap_twice, r, fmaf(x, 0.0f, c.cap)); /* NaN if the product overflowed, which the cap would cover */
        by = 4 * r * (1 - r);
    }
    float weight = exp2_fast(fmaf(-t.slope, fabsf(distance), s) - lse);
    if (t.hidden && !(distance >= c.nearest && distance <= c.farthest)) weight = 0;
    return {weight, weight * by};
}

/* Products x = S and y = dP of 64 rows become weights p and dS. */
template <typename T, int QUERIES, bool CAP>
MHA_DEVICE void meet_with_options(const float (&x)[32], const float (&y)[32], uint32_t *p, uint32_t *ds,
                                  const mha_cuda_backward &c, const float *rows, const options_of_tile &t)
{
    rows += threadIdx.x % 4 * 2;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        float2 lse = *(const float2 *)(rows + LSE * QUERIES + 8 * b), delta = *(const float2 *)(rows + DELTA * QUERIES + 8 * b);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = 4 * b + 2 * i;
            element even = weigh_with_options<CAP>(c, t, at, x[at], lse.x);
            element odd = weigh_with_options<CAP>(c, t, at + 1, x[at + 1], lse.y);
            p[2 * b + i] = pack<T>(even.weight, odd.weight);
            ds[2 * b + i] = pack<T>(even.capped * (y[at] - delta.x), odd.capped * (y[at + 1] - delta.y));
        }
    }
}

/* The same of a tile of a sequence: how far its first row stands behind the first of the thread's keys and behind the one 8
 * after it, in their sequence; and how far visible ones do. */
struct facts_of_tile {
    float behind[2]; /* -infinity for keys that are not there */
    float slope, offset, nearest, farthest;
    bool hidden; /* some of it */
};

/* `add`: what is added to the score, in units of log 2. */
template <bool CAP>
MHA_DEVICE element weigh_in_sequence(const mha_cuda_backward &c, const facts_of_tile &t, int i, float x, float add,
                                     float lse)
{
    float s = fmaf(x, c.scale_log2, add), by = 1, behind = t.behind[i / 2 % 2] + (i / 4 * 8 + i % 2);
    if (CAP) {
        float r = inverse_fast(1 + exp2_fast(x * c.cap_inverse));
        s = fmaf(c.cap_twice, r, fmaf(x, 0.0f, c.cap)) + add; /* NaN if the product overflowed */
        by = 4 * r * (1 - r);
    }
    float weight = exp2_fast(fmaf(-t.slope, fabsf(behind + t.offset), s) - lse);
    /* Rows of padding, whose bias may be anything, have an lse of infinity. */
    if (t.hidden && !(behind >= t.nearest && behind <= t.farthest && lse != INFINITY)) weight = 0;
    return {weight, by};
}

/* Products x = S and y = dP of 64 rows become weights p and dS. BITS: there is a mask or dropout. */
template <typename T, int QUERIES, kind KIND, bool CAP, bool BITS>
MHA_DEVICE void meet_in_sequence(const float (&x)[32], const float (&y)[32], uint32_t *p, uint32_t *ds,
                                 const mha_cuda_backward &c, const float *rows, const facts_of_tile &t,
                                 const maps_of_tile &maps)
{
    int lane = threadIdx.x % 32;
    rows += lane % 4 * 2;
#pragma unroll
    for (int b = 0; b < 8; b++) {
        float2 lse = *(const float2 *)(rows + LSE * QUERIES + 8 * b), delta = *(const float2 *)(rows + DELTA * QUERIES + 8 * b);
        float add[4] = {0, 0, 0, 0}, grow[4];
        uint32_t bits[2] = {~0u, ~0u};
        if (KIND == MAPS) bias_of_rows(add, c, maps, b);
        if (BITS) bits_of_rows(bits, maps, b);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int at = 4 * b + 2 * i;
            element even = weigh_in_sequence<CAP>(c, t, at, x[at], add[2 * i], lse.x);
            element odd = weigh_in_sequence<CAP>(c, t, at + 1, x[at + 1], add[2 * i + 1], lse.y);
            float grow_even = y[at], grow_odd = y[at + 1], kept_even, kept_odd;
            if (BITS && !(bits[0] >> (VISIBLE + 8 * i) & 1)) even.weight = 0;
            if (BITS && !(bits[1] >> (VISIBLE + 8 * i) & 1)) odd.weight = 0;
            kept_even = even.weight, kept_odd = odd.weight;
            if (BITS && !(bits[0] >> (KEPT + 8 * i) & 1)) kept_even = grow_even = 0;
            if (BITS && !(bits[1] >> (KEPT + 8 * i) & 1)) kept_odd = grow_odd = 0;
            p[2 * b + i] = pack<T>(kept_even, kept_odd);
            grow_even = KIND == MAPS ? fmaf(grow_even, c.kept, -delta.x) : grow_even - delta.x;
            grow_odd = KIND == MAPS ? fmaf(grow_odd, c.kept, -delta.y) : grow_odd - delta.y;
            grow[2 * i] = even.weight * grow_even, grow[2 * i + 1] = odd.weight * grow_odd;
            ds[2 * b + i] = pack<T>(grow[2 * i] * even.capped, grow[2 * i + 1] * odd.capped);
        }
        if (KIND == MAPS && c.dbias.data) put_bias(grow, c, maps, b);
    }
}

} // namespace

#endif
