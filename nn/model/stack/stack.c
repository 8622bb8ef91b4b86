/* A stack of blocks: where its parameters and its memory lie. */
#include "model/stack/stack.h"
#include <stdlib.h>
#include <string.h>

/* ---- What both passes need -------------------------------------------------------------------------------------- */

mha_dropout_options nn_stack_drop(const nn_stack *s, int64_t k)
{
    const nn_description *d = s->d;
    int64_t depth = s->config->depth;
    float path = k < 0 || depth < 2 ? 0 : d->drop_path * (float)s->branch[k].block / (float)(depth - 1);
    mha_dropout_options o = MHA_DROPOUT_DEFAULTS;
    if (!s->call->drop) return o;
    o.drop = d->drop, o.path = path, o.seed = s->call->seed;
    o.stream = s->call->stream + ((uint64_t)(s->first_branch + k + 1) << 44);
    return o;
}

mha_tensor nn_stack_factor(const nn_stack *s, mha_context *ctx, uint16_t *home, const float *x, int64_t columns)
{
    int64_t rows = s->B * s->T;
    if (!s->half) return nn_matrix(x, rows, columns);
    mha_tensor_copy(ctx, mha_tensor_1d(home, MHA_BFLOAT16, rows * columns),
                    mha_tensor_1d(x, MHA_FLOAT32, rows * columns));
    return mha_tensor_2d(home, MHA_BFLOAT16, rows, columns);
}

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

static void find_parts(nn_stack *s, const nn_weights *w)
{
    const nn_weight *rest[NN_PART_KINDS];
    for (int64_t l = 0; l < s->config->depth; l++) nn_weights_find(w, s->decoder, l, s->block[l].part);
    nn_weights_find(w, s->decoder, -1, rest);
    s->final_norm = (nn_norm){rest[NN_FINAL_NORM], rest[NN_FINAL_NORM_BIAS]};
    s->relative = rest[NN_RELATIVE];
}

static nn_norm norm_at(const nn_weight *const *part, nn_part_kind gain)
{
    return (nn_norm){part[gain], part[gain + 1]};
}

/* The branches of a block, in order, with the norms that they have. */
static void list_branches(nn_stack *s)
{
    static const struct {
        nn_branch_kind kind;
        nn_part_kind norm, out, scale;
    } all[] = {{NN_BRANCH_SELF, NN_NORM1, NN_NORM1_OUT, NN_SCALE1},
               {NN_BRANCH_CROSS, NN_CROSS_NORM, NN_CROSS_NORM_OUT, NN_CROSS_SCALE},
               {NN_BRANCH_MLP, NN_NORM2, NN_NORM2_OUT, NN_SCALE2}};
    const nn_blocks_config *c = s->config;
    bool pair = s->decoder && nn_description_is_pair(s->d);
    int64_t k = 0;
    for (int64_t l = 0; l < c->depth; l++)
        for (int n = 0; n < 3; n++) {
            const nn_weight *const *part = s->block[l].part;
            bool second = c->parallel && all[n].kind == NN_BRANCH_MLP;
            if (all[n].kind == NN_BRANCH_CROSS && !pair) continue;
            nn_branch *b = &s->branch[k];
            *b = (nn_branch){.kind = all[n].kind,
                             .block = l,
                             .source = second ? k - 1 : k,
                             .scale = part[all[n].scale],
                             .shares = second && c->one_norm};
            bool before = c->place == NN_NORM_BEFORE || c->place == NN_NORM_BOTH;
            if (before && !b->shares) b->norm = norm_at(part, all[n].norm);
            if (c->place == NN_NORM_BOTH) b->out_norm = norm_at(part, all[n].out);
            if (c->place == NN_NORM_AFTER) b->out_norm = norm_at(part, all[n].norm);
            if (c->place == NN_NORM_BEHIND) b->after = norm_at(part, all[n].norm);
            k++;
        }
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

/* Takes `count` floats from *at; without a block it only counts, up to more than memory can have. */
static float *take(float *memory, int64_t *at, int64_t count)
{
    float *here = memory ? memory + *at : NULL;
    if (__builtin_add_overflow(*at, (count + 15) / 16 * 16, at) || *at > PTRDIFF_MAX / 8) *at = PTRDIFF_MAX / 8;
    return here;
}

static uint16_t *take_halves(float *memory, int64_t *at, int64_t count)
{
    return (uint16_t *)take(memory, at, (count + 1) / 2);
}

static void lay_stages(nn_stack *s, float *memory, int64_t *at)
{
    int64_t M = s->rows * s->config->width;
    for (int64_t k = 0; k <= s->branches; k++) {
        nn_stage *g = &s->stage[k];
        bool after = k > 0 && s->branch[k - 1].after.gain;
        if (!s->training && k >= (s->config->place == NN_NORM_BEHIND ? 3 : 2)) {
            *g = g[-2];
            continue;
        }
        g->sum = take(memory, at, M);
        g->x = after ? take(memory, at, M) : g->sum;
        g->kept = after ? take(memory, at, 2 * s->rows) : NULL;
    }
}

static void lay_branches(nn_stack *s, float *memory, int64_t *at)
{
    int64_t M = s->rows * s->config->width;
    for (int64_t k = 0; k < s->branches; k++) {
        nn_branch *b = &s->branch[k];
        bool first = s->training || k == 0;
        first = first || !b[-1].n;
        if (b->norm.gain) b->n = first ? take(memory, at, M) : b[-1].n;
        if (b->norm.gain) b->kept = first ? take(memory, at, 2 * s->rows) : b[-1].kept;
        if (b->shares) b->n = b[-1].n;
        if (b->shares && !s->training) b->kept = b[-1].kept;
        if (b->out_norm.gain) b->raw = first ? take(memory, at, M) : b[-1].raw;
        if (b->out_norm.gain) b->raw_kept = first ? take(memory, at, 2 * s->rows) : b[-1].raw_kept;
    }
}

static int64_t hidden_width(const nn_blocks_config *c) { return c->gated ? 2 * c->mlp : c->mlp; }

static void lay_blocks(nn_stack *s, float *memory, int64_t *at)
{
    const nn_blocks_config *c = s->config;
    int64_t M = s->rows * c->width, H = s->rows * c->mlp;
    for (int64_t l = 0; l < c->depth; l++) {
        nn_block *b = &s->block[l];
        if (!s->training && l > 0) {
            b->z = b[-1].z, b->h = b[-1].h, b->half = b[-1].half, b->half_h = b[-1].half_h;
            continue;
        }
        if (s->training || c->gated) b->z = take(memory, at, s->rows * hidden_width(c));
        b->h = s->d->bfloat16 && l > 0 ? b[-1].h : take(memory, at, H);
        if (s->d->bfloat16) b->half = take_halves(memory, at, M), b->half_h = take_halves(memory, at, H);
    }
}

/* Cuts up the memory; with none it only counts. */
static int64_t lay_memory(nn_stack *s, float *memory)
{
    int64_t M = s->rows * s->config->width, H = s->rows * hidden_width(s->config), at = 0;
    float **gradients[] = {&s->dx, &s->dother, &s->dn, &s->ddropped, &s->dparallel};
    lay_stages(s, memory, &at);
    lay_branches(s, memory, &at);
    lay_blocks(s, memory, &at);
    if (s->final_norm.gain) s->last = take(memory, &at, M), s->last_kept = take(memory, &at, 2 * s->rows);
    for (int n = 0; s->training && n < 5; n++) *gradients[n] = take(memory, &at, M);
    if (s->training) s->dhidden = take(memory, &at, H);
    if (s->training && s->d->bfloat16)
        s->half_d = take_halves(memory, &at, M), s->half_dhidden = take_halves(memory, &at, H);
    return at;
}

/* ---- Layers ----------------------------------------------------------------------------------------------------- */

mha_layer_options nn_stack_layer_options(const nn_description *d, const nn_blocks_config *c, int64_t l, bool cross)
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

static mha_weight weight_of(const nn_weight *w) { return (mha_weight){.values = nn_value(w)}; }

/* The parts of an attention, which come in the order from `first` on. */
static mha_layer_weights layer_weights(const nn_weight *const *part, bool cross)
{
    const nn_weight *const *p = part + (cross ? NN_CROSS_Q : NN_Q);
    const nn_weight *const *norm_bias = part + (cross ? NN_CROSS_Q_NORM_BIAS : NN_Q_NORM_BIAS);
    mha_layer_weights w = MHA_LAYER_WEIGHTS_DEFAULTS;
    w.q_weight = weight_of(p[0]), w.k_weight = weight_of(p[1]), w.v_weight = weight_of(p[2]);
    w.q_bias = nn_value(p[3]), w.k_bias = nn_value(p[4]), w.v_bias = nn_value(p[5]);
    w.out_weight = weight_of(p[6]), w.out_bias = nn_value(p[7]);
    w.q_norm = nn_value(p[8]), w.k_norm = nn_value(p[9]);
    w.q_norm_bias = nn_value(norm_bias[0]), w.k_norm_bias = nn_value(norm_bias[1]);
    if (!cross) w.sinks = nn_value(part[NN_SINKS]);
    return w;
}
_Static_assert(NN_K_NORM - NN_Q == 9 && NN_CROSS_K_NORM - NN_CROSS_Q == 9, "the order of an attention's parts");

static int kind_of(const nn_stack *s, int64_t l) { return l < NN_BLOCKS_MOST ? s->config->block[l].kind : 0; }

/* Scaled frequencies in place of the base. */
static void scale_rotary(const nn_stack *s, int64_t l, mha_layer_options *o, float *frequencies)
{
    const nn_attention_config *a = nn_blocks_attention(s->config, l);
    int64_t w = o->rotary_width ? o->rotary_width : o->head_width;
    if (!(a->rotary_base > 0) || a->rotary.scaling == NN_ROTARY_AS_IS) return;
    o->rotary_base = 0;
    o->rotary_frequencies = mha_tensor_1d(frequencies, MHA_FLOAT32, w / 2);
    o->rotary_multiplier = (float)nn_rotary_frequencies(frequencies, a, w, s->regime[kind_of(s, l)]);
}

static bool make_attention(nn_stack *s, mha_context *ctx, int64_t l, bool cross)
{
    nn_block *b = &s->block[l];
    mha_layer_options options = nn_stack_layer_options(s->d, s->config, l, cross);
    mha_layer_weights weights = layer_weights(b->part, cross);
    mha_layer **layer = cross ? &b->cross : &b->attention;
    float frequencies[NN_ROTARY_MOST];
    if (!cross) scale_rotary(s, l, &options, frequencies);
    if (mha_layer_create_over(ctx, layer, &options, &weights)) return false;
    mha_layer_freeze(*layer, s->frozen); /* until nn_stack_changed */
    return true;
}

bool nn_stack_turn(nn_stack *s, mha_context *ctx, int64_t tokens)
{
    int64_t now[NN_ATTENTION_KINDS];
    for (int n = 0; n < NN_ATTENTION_KINDS; n++) now[n] = nn_rotary_regime(&s->config->attention[n], tokens);
    for (int64_t l = 0; l < s->config->depth; l++) {
        nn_block *b = &s->block[l];
        int kind = kind_of(s, l);
        if (now[kind] == s->regime[kind]) continue;
        int64_t before = s->regime[kind];
        mha_layer *old = b->attention;
        s->regime[kind] = now[kind];
        bool made = make_attention(s, ctx, l, false);
        s->regime[kind] = before;
        if (!made) return b->attention = old, false;
        mha_layer_free(old);
        mha_layer_free(b->heads);
        b->heads = NULL;
    }
    memcpy(s->regime, now, sizeof now);
    return true;
}

static bool make_layer(nn_stack *s, mha_context *ctx, int64_t l, bool cross)
{
    nn_block *b = &s->block[l];
    mha_tape **tape = cross ? &b->cross_tape : &b->tape;
    return make_attention(s, ctx, l, cross) && (!s->training || !mha_tape_create(ctx, tape));
}

static bool make_layers(nn_stack *s, mha_context *ctx)
{
    const nn_description *d = s->d;
    int64_t depth = s->config->depth, first = s->decoder ? d->encoder.blocks.depth : 0;
    bool pair = s->decoder && nn_description_is_pair(d);
    for (int64_t l = 0; l < depth; l++) {
        s->block[l].number = first + l;
        s->block[l].cross_number = first + depth + l;
        if (!make_layer(s, ctx, l, false)) return false;
        if (pair && !make_layer(s, ctx, l, true)) return false;
    }
    return true;
}

/* 2^(-8(h+1)/P) for the P heads below the last power of two, and for those beyond it every other one of 2P. */
static void fill_slopes(float *slopes, int64_t H)
{
    int64_t power = 1;
    while (2 * power <= H) power *= 2;
    for (int64_t h = 0; h < H; h++) {
        double at = h < power ? (double)(h + 1) / (double)power : (double)(2 * (h - power) + 1) / (double)(2 * power);
        slopes[h] = (float)exp2(-8 * at);
    }
}

static bool make_slopes(nn_stack *s)
{
    for (int n = 0; n < NN_ATTENTION_KINDS; n++) {
        if (!s->config->attention[n].alibi) continue;
        s->slopes[n] = malloc((size_t)s->config->heads * sizeof(float));
        if (!s->slopes[n]) return false;
        fill_slopes(s->slopes[n], s->config->heads);
        float scale = s->config->attention[n].scale;
        if (isnan(scale)) scale = 1 / sqrtf((float)nn_blocks_head_width(s->config));
        for (int64_t h = 0; s->config->attention[n].alibi_scaled && h < s->config->heads; h++) s->slopes[n][h] *= scale;
    }
    return true;
}

bool nn_stack_create(nn_stack *s, mha_context *ctx, const nn_description *d, bool decoder, const nn_weights *weights,
                     int64_t rows, bool training)
{
    const nn_blocks_config *c = decoder ? &d->decoder.blocks : &d->encoder.blocks;
    bool pair = decoder && nn_description_is_pair(d);
    *s = (nn_stack){.d = d,
                    .config = c,
                    .decoder = decoder,
                    .training = training,
                    .rows = rows,
                    .half = d->bfloat16,
                    .frozen = weights->whole};
    s->branches = (pair ? 3 : 2) * c->depth;
    s->first_branch = pair ? 2 * d->encoder.blocks.depth + 1 : 0;
    s->branch = calloc((size_t)s->branches + 1, sizeof *s->branch);
    s->stage = calloc((size_t)s->branches + 1, sizeof *s->stage);
    s->block = calloc((size_t)c->depth + 1, sizeof *s->block);
    if (!s->branch || !s->stage || !s->block || !make_slopes(s)) return false;
    find_parts(s, weights);
    list_branches(s);
    s->memory = malloc((size_t)(lay_memory(s, NULL) + 1) * sizeof(float)); /* never of nothing */
    if (!s->memory) return false;
    lay_memory(s, s->memory);
    return (!c->experts || nn_experts_create(s)) && make_layers(s, ctx);
}

void nn_stack_free(nn_stack *s)
{
    for (int64_t l = 0; s->block && l < s->config->depth; l++) {
        mha_layer_free(s->block[l].attention);
        mha_layer_free(s->block[l].cross);
        mha_layer_free(s->block[l].heads);
        mha_tape_free(s->block[l].tape);
        mha_tape_free(s->block[l].cross_tape);
    }
    mha_tape_free(s->tape);
    for (int n = 0; n < NN_ATTENTION_KINDS; n++) free(s->slopes[n]);
    free(s->branch);
    free(s->stage);
    free(s->block);
    free(s->memory);
    free(s->split);
    free(s->half_split);
    free(s->bias);
    nn_experts_free(&s->experts);
}

void nn_stack_changed(nn_stack *s)
{
    for (int64_t l = 0; s->block && l < s->config->depth; l++) {
        mha_layer_freeze(s->block[l].attention, s->frozen);
        if (s->block[l].cross) mha_layer_freeze(s->block[l].cross, s->frozen);
        if (s->block[l].heads) mha_layer_freeze(s->block[l].heads, s->frozen);
    }
}
