/* A stack of blocks: where its parameters and its memory lie. */
#include "model/stack.h"
#include <stdlib.h>
#include <string.h>

/* ---- What both passes need -------------------------------------------------------------------------------------- */

mha_norm_options nn_stack_norm(const nn_stack *s, int64_t gain)
{
    const float *p = s->parameters + gain;
    int64_t M = s->config->width;
    return nn_norm_options(s->config->norm, s->config->epsilon, p, nn_stack_norm_has_bias(s) ? p + M : NULL, M);
}

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
    if (!s->halves) return nn_matrix(x, rows, columns);
    mha_tensor_copy(ctx, mha_tensor_1d(home, MHA_BFLOAT16, rows * columns),
                    mha_tensor_1d(x, MHA_FLOAT32, rows * columns));
    return mha_tensor_2d(home, MHA_BFLOAT16, rows, columns);
}

mha_tensor nn_stack_weight(const nn_stack *s, int64_t at, int64_t rows, int64_t columns)
{
    if (!s->halves) return nn_matrix(s->parameters + at, rows, columns);
    return mha_tensor_2d(s->halves + at, MHA_BFLOAT16, rows, columns);
}

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

static void find_parts(nn_stack *s)
{
    nn_part part;
    for (int64_t l = 0; l < s->config->depth; l++)
        for (int n = 0; n < NN_PART_KINDS; n++) s->block[l].at[n] = -1;
    s->final_norm = -1;
    for (nn_parts w = nn_parts_of(s->d); nn_parts_next(&w, &part);) {
        if (part.decoder != s->decoder) continue;
        if (part.block >= 0) s->block[part.block].at[part.kind] = part.first;
        else if (part.kind == NN_FINAL_NORM) s->final_norm = part.first;
    }
}

/* The branches of a block, in order, with the norms that they have. */
static void list_branches(nn_stack *s)
{
    static const struct {
        nn_branch_kind kind;
        nn_part_kind norm, out;
    } all[] = {{NN_BRANCH_SELF, NN_NORM1, NN_NORM1_OUT},
               {NN_BRANCH_CROSS, NN_CROSS_NORM, NN_CROSS_NORM_OUT},
               {NN_BRANCH_MLP, NN_NORM2, NN_NORM2_OUT}};
    const nn_blocks_config *c = s->config;
    bool pair = s->decoder && nn_description_is_pair(s->d);
    int64_t k = 0;
    for (int64_t l = 0; l < c->depth; l++)
        for (int n = 0; n < 3; n++) {
            const int64_t *at = s->block[l].at;
            bool second = c->parallel && all[n].kind == NN_BRANCH_MLP;
            if (all[n].kind == NN_BRANCH_CROSS && !pair) continue;
            nn_branch *b = &s->branch[k];
            *b = (nn_branch){all[n].kind, l,   second ? k - 1 : k, -1, -1, -1, second && c->one_norm, NULL, NULL,
                             NULL,        NULL};
            if (c->place == NN_NORM_BEFORE || c->place == NN_NORM_BOTH) b->norm = b->shares ? -1 : at[all[n].norm];
            if (c->place == NN_NORM_BOTH) b->out_norm = at[all[n].out];
            if (c->place == NN_NORM_AFTER) b->out_norm = at[all[n].norm];
            if (c->place == NN_NORM_BEHIND) b->after = at[all[n].norm];
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
        bool after = k > 0 && s->branch[k - 1].after >= 0;
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
        if (b->norm >= 0) b->n = first ? take(memory, at, M) : b[-1].n;
        if (b->norm >= 0) b->kept = first ? take(memory, at, 2 * s->rows) : b[-1].kept;
        if (b->shares) b->n = b[-1].n;
        if (b->shares && !s->training) b->kept = b[-1].kept;
        if (b->out_norm >= 0) b->raw = first ? take(memory, at, M) : b[-1].raw;
        if (b->out_norm >= 0) b->raw_kept = first ? take(memory, at, 2 * s->rows) : b[-1].raw_kept;
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
    if (s->final_norm >= 0) s->last = take(memory, &at, M), s->last_kept = take(memory, &at, 2 * s->rows);
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
    o.scale = a->scale;
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

static bool make_layer(nn_stack *s, mha_context *ctx, int64_t l, bool cross, float *parameters)
{
    nn_block *b = &s->block[l];
    mha_layer_options options = nn_stack_layer_options(s->d, s->config, l, cross);
    mha_layer **layer = cross ? &b->cross : &b->attention;
    mha_tape **tape = cross ? &b->cross_tape : &b->tape;
    if (mha_layer_create(ctx, layer, &options, parameters + b->at[cross ? NN_CROSS_Q : NN_Q])) return false;
    mha_layer_freeze(*layer, true); /* until nn_stack_changed */
    return !s->training || !mha_tape_create(ctx, tape);
}

static bool make_layers(nn_stack *s, mha_context *ctx, float *parameters)
{
    const nn_description *d = s->d;
    int64_t depth = s->config->depth, first = s->decoder ? d->encoder.blocks.depth : 0;
    bool pair = s->decoder && nn_description_is_pair(d);
    for (int64_t l = 0; l < depth; l++) {
        s->block[l].number = first + l;
        s->block[l].cross_number = first + depth + l;
        if (!make_layer(s, ctx, l, false, parameters)) return false;
        if (pair && !make_layer(s, ctx, l, true, parameters)) return false;
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
    for (int n = 0; n < 2; n++) {
        if (!s->config->attention[n].alibi) continue;
        s->slopes[n] = malloc((size_t)s->config->heads * sizeof(float));
        if (!s->slopes[n]) return false;
        fill_slopes(s->slopes[n], s->config->heads);
    }
    return true;
}

bool nn_stack_create(nn_stack *s, mha_context *ctx, const nn_description *d, bool decoder, float *parameters,
                     int64_t rows, bool training)
{
    const nn_blocks_config *c = decoder ? &d->decoder.blocks : &d->encoder.blocks;
    bool pair = decoder && nn_description_is_pair(d);
    *s = (nn_stack){
        .d = d, .config = c, .decoder = decoder, .training = training, .rows = rows, .parameters = parameters};
    s->branches = (pair ? 3 : 2) * c->depth;
    s->first_branch = pair ? 2 * d->encoder.blocks.depth + 1 : 0;
    s->branch = calloc((size_t)s->branches + 1, sizeof *s->branch);
    s->stage = calloc((size_t)s->branches + 1, sizeof *s->stage);
    s->block = calloc((size_t)c->depth + 1, sizeof *s->block);
    if (!s->branch || !s->stage || !s->block || !make_slopes(s)) return false;
    find_parts(s);
    list_branches(s);
    s->memory = malloc((size_t)(lay_memory(s, NULL) + 1) * sizeof(float)); /* never of nothing */
    if (!s->memory) return false;
    lay_memory(s, s->memory);
    return make_layers(s, ctx, parameters);
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
    free(s->slopes[0]);
    free(s->slopes[1]);
    free(s->branch);
    free(s->stage);
    free(s->block);
    free(s->memory);
    free(s->split);
    free(s->half_split);
}

void nn_stack_changed(nn_stack *s)
{
    for (int64_t l = 0; s->block && l < s->config->depth; l++) {
        mha_layer_freeze(s->block[l].attention, true);
        if (s->block[l].cross) mha_layer_freeze(s->block[l].cross, true);
        if (s->block[l].heads) mha_layer_freeze(s->block[l].heads, true);
    }
}
