/* Scores with options become weights and their gradients, for the kernels of backward.cuh. */
#ifndef MHA_CUDA_BACKWARD_OPTIONS_CUH
#define MHA_CUDA_BACKWARD_OPTIONS_CUH

#include "backward_maps.cuh"

namespace
{

/* What a thread knows of a tile of 64 rows: how far its first row stands behind the first of its keys and behind the one 8
 * after it, in their sequence; and how far visible ones do. */
struct facts_of_tile {
    float behind[2]; /* -infinity for keys that are not there */
    float slope, offset, nearest, farthest;
    int rows;    /* from the thread's first on; behind them is padding, whose bias may be anything */
    bool hidden; /* some of it */
};

/* How far row 8 (i / 4) + i % 2 of a thread stands behind key i / 2 % 2 * 8. */
MHA_DEVICE float behind_of(const facts_of_tile &t, int i) { return t.behind[i / 2 % 2] + (i / 4 * 8 + i % 2); }

/* Whether position does not hide it. */
MHA_DEVICE bool is_near(const facts_of_tile &t, int i)
{
    float behind = behind_of(t, i);
    return behind >= t.nearest && behind <= t.farthest && i / 4 * 8 + i % 2 < t.rows;
}

template <typename T>
MHA_DEVICE uint32_t pack_kept(float even, float odd, const uint32_t (&bits)[2], int i)
{
    return pack<T>(bits[0] >> (KEPT + 8 * i) & 1 ? even : 0, bits[1] >> (KEPT + 8 * i) & 1 ? odd : 0);
}

/* Products x = S of 64 rows become weights. Each step has all of them, so that a step with a choice, such as the
 * type of a bias, is chosen once. BITS: there is a mask or dropout. */
template <typename T, int QUERIES, kind KIND, bool BITS>
MHA_DEVICE void weigh(float (&x)[32], const mha_cuda_backward &c, const float *rows, const facts_of_tile &t,
                      const maps_of_tile &maps)
{
    bool bias = KIND == MAPS && c.bias.data, plain = !bias && t.slope == 0;
    bool ramp = KIND != MAPS && !plain && t.nearest + t.offset >= 0; /* all visible keys stand at or before their rows */
    float scale = plain || ramp ? c.scale_log2 : 1, of_key[2] = {0, 0};
    if (ramp) of_key[0] = t.slope * (t.behind[0] + t.offset), of_key[1] = t.slope * (t.behind[1] + t.offset);
    if (bias) add_bias(x, c, maps);
    else if (!plain && !ramp) {
#pragma unroll
        for (int i = 0; i < 32; i++) x[i] *= c.scale_log2;
    }
    if (t.slope != 0 && !ramp) {
#pragma unroll
        for (int i = 0; i < 32; i++) x[i] = fmaf(-t.slope, fabsf(behind_of(t, i) + t.offset), x[i]);
    }
#pragma unroll
    for (int b = 0; b < 8; b++) {
        float2 lse = *(const float2 *)(rows + LSE * QUERIES + 8 * b);
        if (ramp) lse = make_float2(fmaf(t.slope, 8 * b, lse.x), fmaf(t.slope, 8 * b + 1, lse.y));
#pragma unroll
        for (int i = 4 * b; i < 4 * b + 4; i++) {
            float less = i % 2 ? lse.y : lse.x;
            x[i] = exp2_fast(fmaf(x[i], scale, -(KIND == MAPS ? less : less + of_key[i / 2 % 2])));
        }
    }
    if (t.hidden) {
#pragma unroll
        for (int i = 0; i < 32; i++)
            if (!is_near(t, i)) x[i] = 0;
    }
    if constexpr (BITS) {
#pragma unroll
        for (int b = 0; b < 8; b++) {
            uint32_t bits[2];
            bits_of_rows(bits, maps, b);
#pragma unroll
            for (int i = 0; i < 4; i++)
                if (!(bits[i % 2] >> (VISIBLE + i / 2 * 8) & 1)) x[4 * b + i] = 0;
        }
    }
}

/* They become p, and with products y = dP dS. OF_BIAS: the gradient of the bias may be asked for. Where it is not, a branch for it would
 * still keep the steps of this apart, which costs 14 % at D 64. */
template <typename T, int QUERIES, kind KIND, bool BITS, bool OF_BIAS>
MHA_DEVICE void gradients_of_scores(const float (&weight)[32], const float (&y)[32], uint32_t *p, uint32_t *ds, const mha_cuda_backward &c,
                     const float *rows, const maps_of_tile &maps)
{
#pragma unroll
    for (int b = 0; b < 8; b++) {
        float2 delta = *(const float2 *)(rows + DELTA * QUERIES + 8 * b);
        float all[4];
        uint32_t bits[2] = {~0u, ~0u};
        if (BITS) bits_of_rows(bits, maps, b);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float own = y[4 * b + i], less = i % 2 ? delta.y : delta.x;
            if (BITS && !(bits[i % 2] >> (KEPT + i / 2 * 8) & 1)) own = 0;
            all[i] = weight[4 * b + i] * (KIND == MAPS ? fmaf(own, c.kept, -less) : own - less);
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const float *own = weight + 4 * b + 2 * i;
            p[2 * b + i] = BITS ? pack_kept<T>(own[0], own[1], bits, i) : pack<T>(own[0], own[1]);
            ds[2 * b + i] = pack<T>(all[2 * i], all[2 * i + 1]);
        }
        if (OF_BIAS && c.dbias.data) put_bias(all, c, maps, b);
    }
}

/* The same as the plain kernels have it, dS from weights of 16 bits: for sequences that would have them alone. */
template <typename T, int QUERIES>
MHA_DEVICE void gradients_of_scores_plain(const float (&weight)[32], const float (&y)[32], uint32_t *p, uint32_t *ds, const float *rows)
{
#pragma unroll
    for (int b = 0; b < 8; b++) {
        float2 delta = *(const float2 *)(rows + DELTA * QUERIES + 8 * b);
#pragma unroll
        for (int i = 2 * b; i < 2 * b + 2; i++) {
            p[i] = pack<T>(weight[2 * i], weight[2 * i + 1]);
            float2 own = pair_of<T>::get(p[i]);
            ds[i] = pack<T>(own.x * (y[2 * i] - delta.x), own.y * (y[2 * i + 1] - delta.y));
        }
    }
}

/* With a softcap, of which dS needs the slope: both at once. */
template <typename T, int QUERIES, kind KIND, bool BITS>
MHA_DEVICE void capped_scores_to_gradients(const float (&x)[32], const float (&y)[32], uint32_t *p, uint32_t *ds,
                              const mha_cuda_backward &c, const float *rows, const facts_of_tile &t, const maps_of_tile &maps)
{
#pragma unroll
    for (int b = 0; b < 8; b++) {
        float2 lse = *(const float2 *)(rows + LSE * QUERIES + 8 * b), delta = *(const float2 *)(rows + DELTA * QUERIES + 8 * b);
        float add[4] = {0, 0, 0, 0}, weight[4], all[4], capped[4];
        uint32_t bits[2] = {~0u, ~0u};
        if (KIND == MAPS) bias_of_rows(add, c, maps, b);
        if (BITS) bits_of_rows(bits, maps, b);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float own = x[4 * b + i], last = i % 2 ? lse.y : lse.x, r = inverse_fast(1 + exp2_fast(own * c.cap_inverse));
            /* NaN if the product overflowed, which the cap would cover */
            float s = fmaf(c.cap_twice, r, fmaf(own, 0.0f, c.cap)) + add[i], grown = y[4 * b + i];
            weight[i] = exp2_fast(fmaf(-t.slope, fabsf(behind_of(t, 4 * b + i) + t.offset), s) - last);
            if (t.hidden && !is_near(t, 4 * b + i)) weight[i] = 0;
            if (BITS && !(bits[i % 2] >> (VISIBLE + i / 2 * 8) & 1)) weight[i] = 0;
            if (BITS && !(bits[i % 2] >> (KEPT + i / 2 * 8) & 1)) grown = 0;
            float less = i % 2 ? delta.y : delta.x;
            all[i] = weight[i] * (KIND == MAPS ? fmaf(grown, c.kept, -less) : grown - less);
            capped[i] = all[i] * (4 * r * (1 - r));
        }
#pragma unroll
        for (int i = 0; i < 2; i++) {
            p[2 * b + i] = BITS ? pack_kept<T>(weight[2 * i], weight[2 * i + 1], bits, i)
                                : pack<T>(weight[2 * i], weight[2 * i + 1]);
            ds[2 * b + i] = pack<T>(capped[2 * i], capped[2 * i + 1]);
        }
        if (KIND == MAPS && c.dbias.data) put_bias(all, c, maps, b);
    }
}

} // namespace

#endif
