/* The layers of a model's attentions: made over its parameters, remade when a rotary embedding changes with the length of
 * sequences, and made a second time without their last product where heads are wanted one by one. */
#include "program/attention.h"
#include "program/run.h"
#include <stdlib.h>
#include <string.h>

mha_layer_options nn_attention_layer_options(const nn_description *d, const nn_blocks_config *c, int64_t l, bool cross)
{
    const nn_attention_config *a = nn_blocks_attention(c, l);
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = c->width;
    o.heads = nn_blocks_heads(c, l);
    o.kv_heads = nn_blocks_kv_heads(c, l);
    o.head_width = nn_blocks_head_width(c);
    o.in_bias = a->in_bias;
    o.out_bias = a->out_bias;
    o.norm_epsilon = a->qk_norm;
    if (a->qk_norm > 0) o.norm = a->qk_norm_kind, o.norm_span = a->qk_norm_span, o.norm_bias = a->qk_norm_bias;
    o.scale = a->scale;
    if (a->scale_by_block) o.scale = (isnan(a->scale) ? 1 / sqrtf((float)o.head_width) : a->scale) / (float)(l + 1);
    o.softcap = a->softcap;
    o.dropout = d->dropout;
    o.compute = d->bfloat16 ? MHA_BFLOAT16 : MHA_FLOAT32;
    if (cross) {
        o.key_width = o.value_width = d->encoder.blocks.width;
        return o;
    }
    o.sinks = a->sinks;
    o.rotary_base = a->rotary_base;
    o.rotary_width = a->rotary_width;
    o.rotary_interleaved = a->rotary_interleaved;
    o.causal = c->causal;
    o.window_left = a->window_left;
    o.window_right = a->window_right;
    return o;
}

static mha_weight weight_of(const nn_weight *w) { return (mha_weight){.values = nn_weight_value(w)}; }

/* The parts of an attention, which come in the order from `first` on. */
static mha_layer_weights layer_weights(const nn_weight *const *part, bool cross)
{
    const nn_weight *const *p = part + (cross ? NN_CROSS_Q : NN_Q);
    const nn_weight *const *norm_bias = part + (cross ? NN_CROSS_Q_NORM_BIAS : NN_Q_NORM_BIAS);
    mha_layer_weights w = MHA_LAYER_WEIGHTS_DEFAULTS;
    w.q_weight = weight_of(p[0]), w.k_weight = weight_of(p[1]), w.v_weight = weight_of(p[2]);
    w.q_bias = nn_weight_value(p[3]), w.k_bias = nn_weight_value(p[4]), w.v_bias = nn_weight_value(p[5]);
    w.out_weight = weight_of(p[6]), w.out_bias = nn_weight_value(p[7]);
    w.q_norm = nn_weight_value(p[8]), w.k_norm = nn_weight_value(p[9]);
    w.q_norm_bias = nn_weight_value(norm_bias[0]), w.k_norm_bias = nn_weight_value(norm_bias[1]);
    if (!cross) w.sinks = nn_weight_value(part[NN_SINKS]);
    return w;
}
_Static_assert(NN_K_NORM - NN_Q == 9 && NN_CROSS_K_NORM - NN_CROSS_Q == 9, "the order of an attention's parts");

static const nn_blocks_config *blocks_of(const nn_description *d, bool decoder)
{
    return decoder ? &d->decoder.blocks : &d->encoder.blocks;
}

/* Scaled frequencies in place of the base. */
static void scale_rotary(const nn_attention_config *a, int64_t regime, mha_layer_options *o, float *frequencies)
{
    int64_t w = o->rotary_width ? o->rotary_width : o->head_width;
    if (!(a->rotary_base > 0) || a->rotary.scaling == NN_ROTARY_AS_IS) return;
    o->rotary_base = 0;
    o->rotary_frequencies = mha_tensor_1d(frequencies, MHA_FLOAT32, w / 2);
    o->rotary_multiplier = (float)nn_rotary_frequencies(frequencies, a, w, regime);
}

static mha_status make_layer(const nn_attentions *all, const nn_attention *a, mha_context *ctx, int64_t regime,
                             mha_layer **layer)
{
    const nn_blocks_config *c = blocks_of(all->d, a->decoder);
    mha_layer_options options = nn_attention_layer_options(all->d, c, a->block, a->cross);
    mha_layer_weights weights = layer_weights(a->part, a->cross);
    float frequencies[NN_ROTARY_MOST];
    if (!a->cross) scale_rotary(nn_blocks_attention(c, a->block), regime, &options, frequencies);
    TRY(mha_layer_create_over(ctx, layer, &options, &weights));
    mha_layer_freeze(*layer, all->frozen); /* until nn_attentions_changed */
    return MHA_OK;
}

/* ---- ALiBi ------------------------------------------------------------------------------------------------------ */

/* 2^(-8(h+1)/P) for the P heads below the last power of two, and for those beyond it every other one of 2P. */
static void find_slopes(float *slopes, int64_t H)
{
    int64_t power = 1;
    while (2 * power <= H) power *= 2;
    for (int64_t h = 0; h < H; h++) {
        double at = h < power ? (double)(h + 1) / (double)power : (double)(2 * (h - power) + 1) / (double)(2 * power);
        slopes[h] = (float)exp2(-8 * at);
    }
}

static mha_status make_slopes(nn_attentions *all, mha_context *ctx, bool decoder)
{
    const nn_blocks_config *c = blocks_of(all->d, decoder);
    for (int n = 0; c->depth && n < NN_ATTENTION_KINDS; n++) {
        if (!c->attention[n].alibi) continue;
        float *slopes = all->slopes[decoder][n] = malloc((size_t)c->heads * sizeof(float)),
              scale = c->attention[n].scale;
        if (!slopes) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the slopes of heads");
        find_slopes(slopes, c->heads);
        if (isnan(scale)) scale = 1 / sqrtf((float)nn_blocks_head_width(c));
        for (int64_t h = 0; c->attention[n].alibi_scaled && h < c->heads; h++) slopes[h] *= scale;
    }
    return MHA_OK;
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

mha_status nn_attentions_create(nn_attentions *all, mha_context *ctx, const nn_description *d,
                                const nn_weights *weights, bool training)
{
    *all = (nn_attentions){.d = d, .frozen = weights->whole};
    int64_t count = nn_description_attentions(d);
    all->attention = calloc((size_t)count, sizeof *all->attention);
    if (!all->attention) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the layers of attention");
    for (int side = 0; side < 2; side++) TRY(make_slopes(all, ctx, side));
    for (; all->count < count; all->count++) {
        nn_attention_place place = nn_description_attention(d, all->count);
        nn_attention *a = &all->attention[all->count];
        *a = (nn_attention){.decoder = place.decoder, .cross = place.cross, .block = place.block};
        nn_weights_find(weights, a->decoder, a->block, a->part);
        TRY(make_layer(all, a, ctx, 0, &a->layer));
        if (training) TRY(mha_tape_create(ctx, &a->tape));
    }
    return MHA_OK;
}

void nn_attentions_free(nn_attentions *all)
{
    for (int64_t n = 0; all->attention && n < nn_description_attentions(all->d); n++) {
        mha_layer_free(all->attention[n].layer);
        mha_layer_free(all->attention[n].heads);
        mha_tape_free(all->attention[n].tape);
    }
    for (int n = 0; n < 2 * NN_ATTENTION_KINDS; n++) free(all->slopes[n / NN_ATTENTION_KINDS][n % NN_ATTENTION_KINDS]);
    mha_tape_free(all->tape);
    free(all->attention);
}

void nn_attentions_changed(nn_attentions *all)
{
    for (int64_t n = 0; n < all->count; n++) {
        mha_layer_freeze(all->attention[n].layer, all->frozen);
        if (all->attention[n].heads) mha_layer_freeze(all->attention[n].heads, all->frozen);
    }
}

mha_status nn_attentions_set_tokens(nn_attentions *all, mha_context *ctx, bool decoder, int64_t tokens)
{
    const nn_blocks_config *c = blocks_of(all->d, decoder);
    for (int64_t n = 0; n < all->count; n++) {
        nn_attention *a = &all->attention[n];
        int64_t now = nn_rotary_regime(nn_blocks_attention(c, a->block), tokens);
        if (a->cross || a->decoder != decoder || now == a->regime) continue;
        mha_layer *made = NULL;
        TRY(make_layer(all, a, ctx, now, &made));
        mha_layer_free(a->layer);
        mha_layer_free(a->heads);
        a->layer = made, a->heads = NULL;
        a->regime = now;
    }
    return MHA_OK;
}

static mha_weight same_weight(mha_tensor values) { return (mha_weight){.values = values}; }

mha_status nn_attention_heads(const nn_attentions *all, nn_attention *a, mha_context *ctx)
{
    if (a->heads) return MHA_OK;
    mha_layer_options o = *mha_layer_shape(a->layer);
    mha_layer_parts p = mha_layer_view(a->layer, NULL);
    mha_layer_weights w = MHA_LAYER_WEIGHTS_DEFAULTS;
    o.out_projection = o.out_bias = false, o.out_width = 0;
    w.q_weight = same_weight(p.q_weight), w.k_weight = same_weight(p.k_weight), w.v_weight = same_weight(p.v_weight);
    w.q_bias = p.q_bias, w.k_bias = p.k_bias, w.v_bias = p.v_bias;
    w.q_norm = p.q_norm, w.k_norm = p.k_norm, w.sinks = p.sinks;
    w.q_norm_bias = p.q_norm_bias, w.k_norm_bias = p.k_norm_bias;
    TRY(mha_layer_create_over(ctx, &a->heads, &o, &w));
    mha_layer_freeze(a->heads, all->frozen); /* until nn_attentions_changed */
    return MHA_OK;
}
