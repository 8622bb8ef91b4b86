/* First values of the parameters. Each part draws from Philox under the layer's seed, with the part's number and the
 * draw's place as the counter: the same bits on every machine, in any order. Only additions, multiplications and square
 * roots are used, which round alike everywhere. */
#include "core/random.h"
#include "layer/layer.h"

enum { LANES = 4 }; /* numbers from one counter */

/* All numbers of a part, which may be none. */
static void fill(mha_tensor part, float x)
{
    float *at = part.data;
    for (int64_t i = 0; part.rank && i < mha_element_count(part); i++) at[i] = x;
}

/* Numbers LANES*place to LANES*place + 3 of a part: from -1 to 1, exclusive, at odd multiples of 2^-24. */
static void draw(float to[LANES], uint64_t seed, uint32_t part, uint64_t place)
{
    uint32_t c[LANES] = {(uint32_t)place, (uint32_t)(place >> 32), part, 0};
    mha_philox(c, seed);
    for (int n = 0; n < LANES; n++) to[n] = (float)((int32_t)(c[n] >> 8) - (1 << 23)) * 0x1p-23f + 0x1p-24f;
}

static void fill_uniform(mha_tensor part, uint64_t seed, uint32_t number, double bound)
{
    float *at = part.data, scale = (float)bound, drawn[LANES];
    for (int64_t i = 0; i < mha_element_count(part); i++) {
        if (i % LANES == 0) draw(drawn, seed, number, (uint64_t)i / LANES);
        at[i] = drawn[i % LANES] * scale;
    }
}

/* Twelve numbers from -1 to 1 have a variance of 4. */
static void fill_normal(mha_tensor part, uint64_t seed, uint32_t number, double deviation)
{
    float *at = part.data, scale = (float)(deviation / 2), drawn[LANES];
    for (int64_t i = 0; i < mha_element_count(part); i++) {
        float sum = 0;
        for (uint64_t n = 0; n < 3; n++) {
            draw(drawn, seed, number, 3 * (uint64_t)i + n);
            for (int lane = 0; lane < LANES; lane++) sum += drawn[lane];
        }
        at[i] = sum * scale;
    }
}

static void fill_xavier(mha_tensor weight, uint64_t seed, uint32_t number)
{
    fill_uniform(weight, seed, number, sqrt(6.0 / (double)(weight.size[0] + weight.size[1])));
}

void mha_layer_initialize(mha_layer *layer, uint64_t seed)
{
    if (!layer) return;
    const mha_layer_parts *p = &layer->parts;
    if (p->in_weight.rank) {
        fill_xavier(p->in_weight, seed, 0);
    } else {
        fill_xavier(p->q_weight, seed, 0);
        fill_xavier(p->k_weight, seed, 1);
        fill_xavier(p->v_weight, seed, 2);
    }
    if (p->out_weight.rank) fill_uniform(p->out_weight, seed, 3, sqrt(1.0 / (double)p->out_weight.size[1]));
    if (p->bias_k.rank) {
        fill_normal(p->bias_k, seed, 4, sqrt(1.0 / (double)p->bias_k.size[0]));
        fill_normal(p->bias_v, seed, 5, sqrt(1.0 / (double)p->bias_v.size[0]));
    }
    fill(p->in_bias, 0.0f);
    fill(p->out_bias, 0.0f);
    fill(p->sinks, 0.0f);
    fill(p->q_norm, 1.0f);
    fill(p->k_norm, 1.0f);
    fill(p->gates, 1.0f);
    mha_layer_unpack(layer);
}
