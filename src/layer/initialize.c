/* First values of the parameters. Each part draws from Philox under the layer's seed, with the part's number and the
 * draw's place as the counter: the same bits on every machine, in any order. Only additions, multiplications and square
 * roots are used, which round alike everywhere. */
#include "core/philox.h"
#include "layer/layer.h"

enum { LANES = 4 }; /* numbers from one counter */

/* Numbers LANES*place to LANES*place + 3 of a part: from -1 to 1, exclusive, at odd multiples of 2^-24. */
static void draw(float to[LANES], uint64_t seed, uint32_t part, uint64_t place)
{
    uint32_t c[LANES] = {(uint32_t)place, (uint32_t)(place >> 32), part, 0};
    mha_philox(c, seed);
    for (int n = 0; n < LANES; n++) to[n] = (float)((int32_t)(c[n] >> 8) - (1 << 23)) * 0x1p-23f + 0x1p-24f;
}

/* Writes the numbers of a part, a piece at a time, to where it lies. */
typedef struct writer {
    mha_context *ctx;
    mha_tensor part; /* dense */
    int64_t at, held;
    float piece[256];
} writer;

static void flush(writer *w)
{
    w->ctx->backend->upload(w->ctx, (float *)w->part.data + w->at, w->piece, (size_t)w->held * sizeof *w->piece);
    w->at += w->held;
    w->held = 0;
}

static void write_number(writer *w, float x)
{
    w->piece[w->held++] = x;
    if (w->held == (int64_t)(sizeof w->piece / sizeof *w->piece)) flush(w);
}

static void fill_uniform(mha_context *ctx, mha_tensor part, uint64_t seed, uint32_t number, double bound)
{
    writer w = {.ctx = ctx, .part = part};
    float scale = (float)bound, drawn[LANES];
    for (int64_t i = 0; i < mha_element_count(part); i++) {
        if (i % LANES == 0) draw(drawn, seed, number, (uint64_t)i / LANES);
        write_number(&w, drawn[i % LANES] * scale);
    }
    flush(&w);
}

/* Twelve numbers from -1 to 1 have a variance of 4. */
static void fill_normal(mha_context *ctx, mha_tensor part, uint64_t seed, uint32_t number)
{
    writer w = {.ctx = ctx, .part = part};
    float scale = (float)(sqrt(1.0 / (double)part.size[0]) / 2), drawn[LANES];
    for (int64_t i = 0; i < part.size[0]; i++) {
        float sum = 0;
        for (uint64_t n = 0; n < 3; n++) {
            draw(drawn, seed, number, 3 * (uint64_t)i + n);
            for (int lane = 0; lane < LANES; lane++) sum += drawn[lane];
        }
        write_number(&w, sum * scale);
    }
    flush(&w);
}

static void fill_xavier(mha_context *ctx, mha_tensor weight, uint64_t seed, uint32_t number)
{
    fill_uniform(ctx, weight, seed, number, sqrt(6.0 / (double)(weight.size[0] + weight.size[1])));
}

mha_status mha_layer_initialize(mha_context *ctx, mha_layer *layer, uint64_t seed)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, layer);
    TRY(mha_layer_check_device(ctx, layer));
    if (layer->borrowed)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "layer: is over weights of the caller, which it only reads");
    const mha_layer_parts *p = &layer->parts;
    if (p->in_weight.rank) {
        fill_xavier(ctx, p->in_weight, seed, 0);
    } else {
        fill_xavier(ctx, p->q_weight, seed, 0);
        fill_xavier(ctx, p->k_weight, seed, 1);
        fill_xavier(ctx, p->v_weight, seed, 2);
    }
    if (p->out_weight.rank) fill_uniform(ctx, p->out_weight, seed, 3, sqrt(1.0 / (double)p->out_weight.size[1]));
    if (p->bias_k.rank) {
        fill_normal(ctx, p->bias_k, seed, 4);
        fill_normal(ctx, p->bias_v, seed, 5);
    }
    const mha_tensor zeros[] = {p->in_bias, p->out_bias, p->sinks, p->q_norm_bias, p->k_norm_bias},
                     ones[] = {p->q_norm, p->k_norm, p->gates};
    for (int n = 0; n < 5; n++)
        if (zeros[n].rank) ctx->backend->fill(ctx, zeros[n], 0.0f);
    for (int n = 0; n < 3; n++)
        if (ones[n].rank) ctx->backend->fill(ctx, ones[n], 1.0f);
    mha_layer_unpack(layer);
    return mha_call_end(ctx);
}
