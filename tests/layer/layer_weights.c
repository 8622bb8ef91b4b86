#include "layer/layer_weights.h"
#include "support/contexts.h"
#include <stdlib.h>

static mha_type draw_type(rng *r)
{
    static const mha_type types[] = {MHA_FLOAT32, MHA_BFLOAT16, MHA_FLOAT16};
    return types[rng_between(r, 0, 2)];
}

/* Numbers of a dense block go to a store with the same number of elements, and come back rounded. */
static void exchange(store *s, float *numbers)
{
    mha_tensor t = s->view;
    int64_t n[4] = {1, 1, 1, 1}, at = 0;
    for (int axis = 0; axis < t.rank; axis++) n[axis] = t.size[axis];
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                for (int64_t l = 0; l < n[3]; l++) {
                    store_set(s, i, j, k, l, (double)numbers[at]);
                    numbers[at++] = (float)store_get(s, i, j, k, l);
                }
}

static mha_tensor put(layer_weights *w, rng *r, float *numbers, int rank, const int64_t *size)
{
    store *s = &w->stores[w->count++];
    *s = store_make(r, draw_type(r), rank, size, (layout)rng_between(r, LAYOUT_DENSE, LAYOUT_ANY));
    exchange(s, numbers);
    return s->view;
}

/* A part whose rows are those of heads: whole, or split into heads or runs of them; a part without heads has 0 of them. */
static mha_tensor put_part(layer_weights *w, rng *r, mha_tensor part, int64_t heads)
{
    int64_t rows = part.rank ? part.size[0] : 0, columns = part.rank == 2 ? part.size[1] : 0, runs = heads;
    const int64_t plain[2] = {rows, columns};
    if (!part.rank) return part;
    if (heads && rng_chance(r, 0.5)) {
        if (rng_chance(r, 0.5)) runs = rng_between(r, 1, (int)heads);
        while (heads % runs) runs--;
        const int64_t split[3] = {runs, rows / runs, columns};
        return put(w, r, part.data, part.rank + 1, split);
    }
    return put(w, r, part.data, part.rank, plain);
}

/* GPT-NeoX: (H,3,D,M), of which q, k and v are every third row of heads. */
static void put_interleaved(layer_weights *w, rng *r, const mha_layer_parts *parts, int64_t H, int64_t D, int64_t M)
{
    const int64_t size[4] = {H, 3, D, M};
    store *s = &w->stores[w->count++];
    const mha_tensor from[3] = {parts->q_weight, parts->k_weight, parts->v_weight};
    mha_tensor *to[3] = {&w->weights.q_weight.values, &w->weights.k_weight.values, &w->weights.v_weight.values};
    *s = store_make(r, draw_type(r), 4, size, rng_chance(r, 0.5) ? LAYOUT_DENSE : LAYOUT_ANY);
    for (int part = 0; part < 3; part++) {
        float *numbers = from[part].data;
        for (int64_t h = 0; h < H; h++)
            for (int64_t d = 0; d < D; d++)
                for (int64_t m = 0; m < M; m++) {
                    store_set(s, h, part, d, m, (double)numbers[(h * D + d) * M + m]);
                    numbers[(h * D + d) * M + m] = (float)store_get(s, h, part, d, m);
                }
        *to[part] = (mha_tensor){store_at(s, 0, part, 0, 0),
                                 s->view.type,
                                 3,
                                 {H, D, M, 0},
                                 {s->view.stride[0], s->view.stride[2], s->view.stride[3], 0}};
    }
}

static void put_projections(layer_weights *w, rng *r, const mha_layer_parts *parts, const mha_layer_options *o)
{
    bool same = parts->in_weight.rank, alike = o->heads == o->kv_heads && o->head_width == o->value_head_width;
    if (same && alike && rng_chance(r, 0.3)) {
        put_interleaved(w, r, parts, o->heads, o->head_width, o->width);
    } else if (same && rng_chance(r, 0.3)) {
        w->weights.in_weight.values = put_part(w, r, parts->in_weight, 0);
    } else {
        w->weights.q_weight.values = put_part(w, r, parts->q_weight, o->heads);
        w->weights.k_weight.values = put_part(w, r, parts->k_weight, o->kv_heads);
        w->weights.v_weight.values = put_part(w, r, parts->v_weight, o->kv_heads);
    }
    if (parts->in_bias.rank && rng_chance(r, 0.3)) {
        w->weights.in_bias = put_part(w, r, parts->in_bias, 0);
    } else {
        w->weights.q_bias = put_part(w, r, parts->q_bias, o->heads);
        w->weights.k_bias = put_part(w, r, parts->k_bias, o->kv_heads);
        w->weights.v_bias = put_part(w, r, parts->v_bias, o->kv_heads);
    }
    w->weights.out_weight.values = put_part(w, r, parts->out_weight, 0);
    w->weights.out_bias = put_part(w, r, parts->out_bias, 0);
}

layer_weights *layer_weights_make(rng *r, const mha_layer_options *options, float *block)
{
    layer_weights *w = array(1, sizeof *w);
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_layer *layer;
    if (mha_layer_create(ctx, &layer, options, block)) exit(2);
    mha_layer_parts parts = mha_layer_view(layer, block);
    w->weights = (mha_layer_weights)MHA_LAYER_WEIGHTS_DEFAULTS;
    put_projections(w, r, &parts, options);
    w->weights.bias_k = put_part(w, r, parts.bias_k, options->kv_heads);
    w->weights.bias_v = put_part(w, r, parts.bias_v, options->kv_heads);
    bool own = options->norm_span != MHA_NORM_EACH_HEAD;
    w->weights.q_norm = put_part(w, r, parts.q_norm, own ? options->heads : 0);
    w->weights.k_norm = put_part(w, r, parts.k_norm, own ? options->kv_heads : 0);
    w->weights.q_norm_bias = put_part(w, r, parts.q_norm_bias, own ? options->heads : 0);
    w->weights.k_norm_bias = put_part(w, r, parts.k_norm_bias, own ? options->kv_heads : 0);
    w->weights.sinks = put_part(w, r, parts.sinks, 0);
    w->weights.gates = put_part(w, r, parts.gates, 0);
    mha_layer_free(layer);
    mha_context_free(ctx);
    return w;
}

void layer_weights_free(layer_weights *w)
{
    for (int n = 0; w && n < w->count; n++) store_free(&w->stores[n]);
    free(w);
}
