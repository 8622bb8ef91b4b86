#include "nn/model/descriptions.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Descriptions ----------------------------------------------------------------------------------------------- */

/* Rotary embeddings that depend on the length of a sequence change only in encoders: a cache keeps its keys. */
static nn_rotary_config draw_rotary(rng *r, bool decoder)
{
    nn_rotary_config to = {.scaling = (nn_rotary_scaling)rng_between(r, 0, NN_ROTARY_LONG), .multiplier = 1};
    to.factor = rng_chance(r, 0.5) ? 4 : 1.5;
    to.trained = decoder ? 64 : rng_between(r, 2, 12);
    to.slow = 0.05 + 0.2 * (double)rng_between(r, 0, 3), to.fast = to.slow + 1;
    to.truncate = rng_chance(r, 0.5);
    if (rng_chance(r, 0.4)) to.multiplier = 1.2;
    for (int i = 0; i < NN_ROTARY_MOST; i++) to.divisors[0][i] = 1 + 0.1f * (float)i, to.divisors[1][i] = 2 + (float)i;
    return to;
}

static nn_attention_config draw_attention(rng *r, int64_t head_width, bool decoder)
{
    nn_attention_config a = NN_ATTENTION_DEFAULTS;
    if (rng_chance(r, 0.3)) a.window_left = rng_between(r, 0, 5);
    if (rng_chance(r, 0.2)) a.window_right = rng_between(r, 0, 5);
    if (rng_chance(r, 0.2)) a.scale = 0.3f;
    if (rng_chance(r, 0.2)) a.softcap = 3;
    if (rng_chance(r, 0.4)) a.rotary_base = rng_chance(r, 0.5) ? 10000 : 100;
    if (rng_chance(r, 0.4)) a.rotary_width = rng_chance(r, 0.5) ? head_width : 2;
    a.rotary_interleaved = rng_chance(r, 0.5);
    bool wide = (a.rotary_width ? a.rotary_width : head_width) > 2; /* dynamic: w - 2 is divided by */
    if (a.rotary_base > 0 && wide && rng_chance(r, 0.5)) a.rotary = draw_rotary(r, decoder);
    a.scale_by_block = rng_chance(r, 0.2);
    if (rng_chance(r, 0.4)) a.qk_norm = 1e-3f;
    a.qk_norm_kind = rng_chance(r, 0.5) ? MHA_NORM_LAYER : MHA_NORM_RMS;
    a.qk_norm_span = (mha_norm_span)rng_between(r, 0, MHA_NORM_ALL_HEADS);
    a.qk_norm_bias = rng_chance(r, 0.5);
    a.in_bias = rng_chance(r, 0.6);
    a.out_bias = rng_chance(r, 0.6);
    a.alibi = rng_chance(r, 0.25);
    a.sinks = rng_chance(r, 0.25);
    return a;
}

static void draw_heads(nn_blocks_config *b, rng *r, bool decoder)
{
    int64_t D = 2 * rng_between(r, 1, 4);
    b->kv_heads = rng_between(r, 1, 3);
    b->heads = b->kv_heads * rng_between(r, 1, 3);
    b->width = 2 * rng_between(r, 4, 12);
    b->head_width = D;
    if (rng_chance(r, 0.4)) { /* the usual: heads side by side are as wide as a row */
        if (b->heads * D < 8) D = 8;
        b->width = b->heads * D;
        b->head_width = 0;
    }
    if (b->kv_heads == b->heads && rng_chance(r, 0.5)) b->kv_heads = 0;
    for (int n = 0; n < 2; n++) b->attention[n] = draw_attention(r, D, decoder);
    for (int64_t l = 0; l < b->depth; l++) {
        b->block[l].kind = (int32_t)(l % 2);
        if (b->attention[l % 2].alibi || !rng_chance(r, 0.3)) continue;
        b->block[l].kv_heads = (int32_t)rng_between(r, 1, 2);
        b->block[l].heads = b->block[l].kv_heads * (int32_t)rng_between(r, 1, 2);
    }
}

static void draw_blocks(nn_blocks_config *b, rng *r, uint64_t n, bool decoder, bool crosses)
{
    b->depth = rng_between(r, 1, 3);
    draw_heads(b, r, decoder);
    b->mlp = rng_between(r, 5, 30);
    b->gated = rng_chance(r, 0.5);
    b->mlp_bias = rng_chance(r, 0.6);
    b->activation = (mha_activation)(n % (MHA_RELU_SQUARED + 1));
    b->norm = rng_chance(r, 0.4) ? NN_RMS_NORM : NN_LAYER_NORM;
    b->norm_bias = rng_chance(r, 0.7);
    b->epsilon = rng_chance(r, 0.5) ? 1e-5f : 1e-3f;
    b->place = (nn_norm_place)(n % 4);
    b->parallel = b->place == NN_NORM_BEFORE && !crosses && rng_chance(r, 0.6);
    b->one_norm = b->parallel && rng_chance(r, 0.5);
    b->bare_start = b->place == NN_NORM_BEFORE && !b->one_norm && rng_chance(r, 0.3);
    b->final_norm = b->place != NN_NORM_BEHIND && rng_chance(r, 0.7);
    b->causal = rng_chance(r, decoder ? 0.9 : 0.1);
    if (rng_chance(r, 0.3)) b->residual = 0.6f;
}

static void draw_input(nn_input_config *in, rng *r, uint64_t n, bool patches)
{
    in->position_kind = (nn_position_kind)(n % 4);
    if (patches) {
        in->kind = NN_INPUT_PATCHES;
        in->channels = rng_between(r, 1, 3);
        in->patch = rng_between(r, 1, 2);
        in->rows = in->patch * 2;
        in->columns = in->patch * 3;
        in->class_token = rng_chance(r, 0.5);
        return;
    }
    in->vocabulary = rng_between(r, 2, 30);
    if (rng_chance(r, 0.4)) in->token_types = rng_between(r, 1, 3);
    if (rng_chance(r, 0.3)) in->first_position = 2;
    in->positions = 40;
    if (rng_chance(r, 0.3)) in->scale = 1.5f;
    if (rng_chance(r, 0.3)) in->width = 2 * rng_between(r, 4, 8);
    in->width_bias = rng_chance(r, 0.5);
    in->norm = rng_chance(r, 0.3);
}

static void draw_output(nn_description *d, rng *r, uint64_t n)
{
    const nn_stack_config *last = nn_description_last(d);
    nn_output_config *o = &d->output;
    o->classes = rng_chance(r, 0.85) ? rng_between(r, 2, 20) : 0;
    o->pool = o->classes ? (nn_pool)(n / 2 % 4) : NN_POOL_NONE;
    o->tied = o->classes && last->input.kind == NN_INPUT_TOKENS && !last->input.width && rng_chance(r, 0.6);
    if (o->tied) o->classes = last->input.vocabulary;
    o->bias = o->classes && rng_chance(r, 0.5);
    o->scale = rng_chance(r, 0.6) ? 1 : 0.5f;
    o->softcap = rng_chance(r, 0.6) ? 0 : 3;
}

nn_description description_random(rng *r, uint64_t n, stacks which)
{
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    bool pair = which == ENCODER_DECODER;
    if (which != DECODER_ONLY) {
        draw_blocks(&d.encoder.blocks, r, n + n / 7, false, false);
        draw_input(&d.encoder.input, r, n + n / 11, rng_chance(r, 0.35));
    }
    if (which != ENCODER_ONLY) {
        draw_blocks(&d.decoder.blocks, r, n + n / 5, true, pair);
        draw_input(&d.decoder.input, r, n + n / 13, false);
    }
    draw_output(&d, r, n);
    return d;
}

static void add_blocks(nn_blocks_config *b, rng *r)
{
    if (rng_chance(r, 0.5)) {
        b->experts = rng_between(r, 1, 5);
        b->experts_used = rng_between(r, 1, b->experts);
        b->expert_bias = rng_chance(r, 0.5);
        if (b->gated && rng_chance(r, 0.5)) b->clamp = 0.7f;
    }
    b->branch_scale = rng_chance(r, 0.4);
    b->from_norm = b->place == NN_NORM_BEFORE && !b->parallel && rng_chance(r, 0.4);
    if (!rng_chance(r, 0.4)) return;
    b->attention[0].relative_buckets = 2 * rng_between(r, 2, 6);
    b->attention[0].relative_distance = b->attention[0].relative_buckets + rng_between(r, 1, 5);
    for (int64_t l = 0; l < b->depth; l++) b->block[l].heads = b->block[l].kv_heads = 0; /* which share the bias */
}

static void add_input(nn_input_config *in, rng *r, bool decoder)
{
    if (in->kind == NN_INPUT_PATCHES) {
        in->norm = rng_chance(r, 0.3);
        in->distilled = in->class_token && rng_chance(r, 0.6);
    } else if (!decoder && rng_chance(r, 0.3)) {
        in->kind = NN_INPUT_FRAMES;
        in->bins = rng_between(r, 1, 6);
        in->positions = rng_between(r, 1, 7);
        in->first_position = in->vocabulary = in->token_types = in->width = 0;
        in->norm = false, in->scale = 1;
    } else {
        in->width_first = in->width && !in->norm && rng_chance(r, 0.7);
        if (in->first_position && in->position_kind && rng_chance(r, 0.7)) in->padding = 1;
    }
}

nn_description description_random_all(rng *r, uint64_t n, stacks which)
{
    nn_description d = description_random(r, n, which);
    nn_stack_config *const sides[] = {&d.encoder, &d.decoder}, *last = &sides[which != ENCODER_ONLY][0];
    nn_output_config *o = &d.output;
    for (int k = 0; k < 2; k++) {
        if (!sides[k]->blocks.depth) continue;
        add_blocks(&sides[k]->blocks, r);
        add_input(&sides[k]->input, r, k);
    }
    if (o->tied && (last->input.kind || last->input.width)) o->tied = false;
    bool two = nn_input_tokens(&last->input) > 2; /* rows beside the first, in every sequence */
    if (o->classes && two && !o->tied) o->pool = (nn_pool)(NN_POOL_BOTH + n / 3 % 3);
    if (o->classes && o->pool != NN_POOL_TWO && rng_chance(r, 0.5)) {
        if (!o->tied) o->transform = rng_between(r, 2, 15);
        o->transform_bias = rng_chance(r, 0.5), o->transform_norm = rng_chance(r, 0.5);
        o->transform_activation = (mha_activation)(n % (MHA_RELU_SQUARED + 1));
    }
    return d;
}

/* ---- One part at a time ----------------------------------------------------------------------------------------- */

/* What a model has beside two blocks that read tokens at learned positions, and logits of every row. */
static const struct single {
    const char *name;
    nn_input_kind kind;
    bool pair; /* a decoder like the encoder, behind it */
    bool sines, padding, norm, distilled;
    int64_t width; /* of the table of tokens */
    bool width_first;
    int64_t experts, used;
    bool gated, clamp, expert_bias;
    bool relative, causal;
    nn_norm_place place;
    bool scales, parallel, one_norm, from_norm, bare_start;
    nn_pool pool;
    int64_t transform;
    bool transform_norm, tied, no_logits, capped;
} singles[] = {
    {"experts", .experts = 4, .used = 2},
    {"one expert of four, scores with biases", .experts = 4, .used = 1, .expert_bias = true},
    {"all of three experts", .experts = 3, .used = 3},
    {"gated experts", .experts = 4, .used = 2, .gated = true},
    {"gated experts with a clamp", .experts = 4, .used = 2, .gated = true, .clamp = true, .expert_bias = true},
    {"relative positions to both sides", .relative = true},
    {"relative positions of earlier tokens", .relative = true, .causal = true},
    {"relative positions of a pair", .relative = true, .pair = true},
    {"padding, learned positions", .padding = true},
    {"padding, sines", .padding = true, .sines = true},
    {"padding of a pair", .padding = true, .pair = true},
    {"frames, learned positions", .kind = NN_INPUT_FRAMES},
    {"frames, sines", .kind = NN_INPUT_FRAMES, .sines = true},
    {"frames before a decoder", .kind = NN_INPUT_FRAMES, .pair = true},
    {"transform", .transform = 6},
    {"transform and norm", .transform = 6, .transform_norm = true, .pool = NN_POOL_LAST},
    {"transform without logits", .transform = 6, .no_logits = true, .pool = NN_POOL_FIRST},
    {"norm before the logits", .transform_norm = true, .pool = NN_POOL_MEAN},
    {"norm of rows without logits", .transform_norm = true, .no_logits = true},
    {"transform to the width of a tied table", .width = 6, .transform = 6, .transform_norm = true, .tied = true},
    {"product before positions", .width = 6, .width_first = true},
    {"products before positions and before tied logits", .width = 6, .width_first = true, .transform = 6, .tied = true},
    {"second token", .kind = NN_INPUT_PATCHES, .distilled = true, .pool = NN_POOL_FIRST},
    {"norm of patches", .kind = NN_INPUT_PATCHES, .norm = true, .pool = NN_POOL_FIRST},
    {"scales of branches, norms before them", .scales = true, .pair = true},
    {"scales of branches, norms behind sums", .scales = true, .pair = true, .place = NN_NORM_BEHIND},
    {"scales of branches, norms before and after them", .scales = true, .pair = true, .place = NN_NORM_BOTH},
    {"scales of branches, norms after them", .scales = true, .pair = true, .place = NN_NORM_AFTER},
    {"scales of parallel branches", .scales = true, .parallel = true},
    {"scales of parallel branches with one norm", .scales = true, .parallel = true, .one_norm = true},
    {"branches added to their norms", .from_norm = true, .pair = true},
    {"no first norm", .bare_start = true},
    {"no first norm of parallel branches", .bare_start = true, .parallel = true},
    {"no first norm, branches added to the others", .bare_start = true, .from_norm = true},
    {"first row and mean of the others", .kind = NN_INPUT_PATCHES, .pool = NN_POOL_BOTH},
    {"first row and mean of the others, transform", .kind = NN_INPUT_PATCHES, .pool = NN_POOL_BOTH, .transform = 6},
    {"mean of all rows but the first", .kind = NN_INPUT_PATCHES, .pool = NN_POOL_REST},
    {"two rows with products of their own", .kind = NN_INPUT_PATCHES, .distilled = true, .pool = NN_POOL_TWO},
    {"two rows, capped", .kind = NN_INPUT_PATCHES, .distilled = true, .pool = NN_POOL_TWO, .capped = true},
    {"picked rows", .pair = true, .pool = NN_POOL_PICKED},
    {"picked rows, transform", .pair = true, .pool = NN_POOL_PICKED, .transform = 6},
};

static nn_input_config single_input(const struct single *p)
{
    nn_stack_config defaults = NN_STACK_DEFAULTS;
    nn_input_config in = defaults.input;
    in.kind = p->kind;
    in.position_kind = p->sines ? NN_POSITIONS_SINUSOIDAL : NN_POSITIONS_LEARNED;
    in.norm = p->norm;
    if (p->kind == NN_INPUT_PATCHES) {
        in.channels = 2, in.patch = 2, in.rows = 4, in.columns = 6;
        in.class_token = true, in.distilled = p->distilled;
        return in;
    }
    in.positions = 5;
    if (p->kind == NN_INPUT_FRAMES) return in.bins = 3, in;
    in.positions = 40, in.vocabulary = 7;
    in.width = p->width, in.width_bias = true, in.width_first = p->width_first;
    if (p->padding) in.padding = 1, in.first_position = 2;
    return in;
}

static nn_blocks_config single_blocks(const struct single *p)
{
    nn_stack_config defaults = NN_STACK_DEFAULTS;
    nn_blocks_config b = defaults.blocks;
    b.width = 8, b.depth = 2, b.heads = 2, b.mlp = 12;
    b.experts = p->experts, b.experts_used = p->used, b.expert_bias = p->expert_bias;
    b.gated = p->gated, b.clamp = p->clamp ? 0.5f : 0;
    b.place = p->place, b.final_norm = p->place != NN_NORM_BEHIND;
    b.parallel = p->parallel, b.one_norm = p->one_norm, b.branch_scale = p->scales;
    b.from_norm = p->from_norm, b.bare_start = p->bare_start, b.causal = p->causal;
    if (p->relative) b.attention[0].relative_buckets = 6, b.attention[0].relative_distance = 5;
    return b;
}

bool description_with_part(nn_description *d, int64_t n, const char **name)
{
    if (n >= (int64_t)(sizeof singles / sizeof *singles)) return false;
    const struct single *p = &singles[n];
    struct single second = *p;
    second.kind = NN_INPUT_TOKENS, second.causal = true;
    *name = p->name;
    *d = (nn_description){.encoder = {single_input(p), single_blocks(p)}, .decoder = NN_STACK_DEFAULTS};
    if (p->pair) d->decoder = (nn_stack_config){single_input(&second), single_blocks(&second)};
    d->output = (nn_output_config){.classes = p->no_logits ? 0 : p->tied ? 7 : 5, .pool = p->pool, .scale = 1};
    d->output.tied = p->tied, d->output.bias = !p->no_logits, d->output.softcap = p->capped ? 2 : 0;
    d->output.transform = p->transform, d->output.transform_norm = p->transform_norm;
    d->output.transform_bias = true, d->output.transform_activation = MHA_TANH;
    d->output.follows = p->pool == NN_POOL_PICKED;
    return true;
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

static int stack_words(const nn_stack_config *s, const char *name, char *text, size_t size)
{
    static const char *const places[] = {"before", "behind", "both", "after"};
    const nn_blocks_config *b = &s->blocks;
    if (!b->depth) return 0;
    return snprintf(text, size,
                    "%s M %d, depth %d, heads %d/%d, norm %s %s%s%s%s, activation %d%s, %s positions %d%s; ", name,
                    (int)b->width, (int)b->depth, (int)b->heads, (int)b->kv_heads, b->norm ? "RMS" : "layer",
                    places[b->place], b->parallel ? " parallel" : "", b->one_norm ? " one norm" : "",
                    b->final_norm ? " final" : "", (int)b->activation, b->gated ? " gated" : "",
                    s->input.kind ? "patches" : "tokens", (int)s->input.position_kind, b->causal ? ", causal" : "");
}

const char *description_words(const nn_description *d, char *text, size_t size)
{
    int at = stack_words(&d->encoder, "encoder", text, size);
    at += stack_words(&d->decoder, "decoder", text + at, size - (size_t)at);
    snprintf(text + at, size - (size_t)at, "classes %d, pool %d%s", (int)d->output.classes, (int)d->output.pool,
             d->output.tied ? ", tied" : "");
    return text;
}

/* ---- Cases ------------------------------------------------------------------------------------------------------ */

static void list_parts(model_case *c)
{
    nn_part part;
    for (nn_parts walk = nn_parts_of(&c->d); nn_parts_next(&walk, &part);) c->part_count++;
    c->parts = array(c->part_count, sizeof part);
    nn_parts walk = nn_parts_of(&c->d);
    for (int64_t n = 0; n < c->part_count; n++) nn_parts_next(&walk, &c->parts[n]);
}

/* Gains about 1; products that keep the size of a row; tables and biases of about a half. */
static void draw_parameters(model_case *c, rng *r)
{
    for (int64_t k = 0; k < c->part_count; k++) {
        const nn_part *part = &c->parts[k];
        char name[NN_PART_NAME];
        bool norm = strstr(nn_part_name(name, part), "norm") && strstr(name, ".weight");
        double size = part->is_weight ? 1 / sqrt((double)part->columns) : norm ? 0.2 : 0.5;
        for (int64_t n = part->first; n < part->first + nn_part_numbers(part); n++)
            c->parameters[n] = (float)((norm ? 1 : 0) + size * rng_normal(r));
    }
}

/* Sequences of stack n. Padding is full of tokens, of which nothing may be seen. */
static void draw_sequences(model_case *c, int n, rng *r, int64_t tokens, bool padded)
{
    const nn_input_config *in = n ? &c->d.decoder.input : &c->d.encoder.input;
    nn_sequences *s = n ? &c->batch.decoder : &c->batch.encoder;
    ref_stack *k = n ? &c->oracle.ref.decoder : &c->oracle.ref.encoder;
    int64_t B = c->batch.B, pixels = B * in->channels * in->rows * in->columns;
    if (in->kind == NN_INPUT_FRAMES) pixels = B * in->bins * 2 * nn_input_tokens(in);
    if (in->kind != NN_INPUT_TOKENS) {
        c->images[n] = array(pixels, sizeof(float));
        c->pixels[n] = array(pixels, sizeof(double));
        for (int64_t i = 0; i < pixels; i++) c->pixels[n][i] = (double)(c->images[n][i] = (float)rng_normal(r));
        s->T = nn_input_tokens(in);
        *(in->kind == NN_INPUT_FRAMES ? &s->features : &s->images) = c->images[n];
    } else {
        s->T = rng_between(r, 1, tokens);
        c->tokens[n] = array(B * s->T, sizeof(int32_t));
        c->types[n] = array(B * s->T, sizeof(int32_t));
        c->lengths[n] = array(B, sizeof(int64_t));
        for (int64_t i = 0; i < B * s->T; i++) {
            c->tokens[n][i] = (int32_t)rng_between(r, 0, in->vocabulary - 1);
            if (in->token_types) c->types[n][i] = (int32_t)rng_between(r, 0, in->token_types - 1);
        }
        for (int64_t b = 0; b < B; b++) c->lengths[n][b] = rng_between(r, 1, s->T);
        s->tokens = c->tokens[n];
        s->types = in->token_types && rng_chance(r, 0.8) ? c->types[n] : NULL;
        s->lengths = padded ? c->lengths[n] : NULL;
        s->first_position = rng_chance(r, 0.2) ? 3 : 0;
    }
    k->T = s->T, k->tokens = s->tokens, k->type = s->types, k->images = k->features = c->pixels[n];
    k->lengths = s->lengths;
    k->first_position = in->first_position + s->first_position;
    for (int64_t b = 0; b < B; b++) {
        int64_t length = s->first_position + (s->lengths ? s->lengths[b] : s->T);
        if (length > k->longest) k->longest = length;
    }
}

/* The rows of the last stack that a pool may pick. */
static void pick_rows(model_case *c, rng *r)
{
    const ref_stack *last = ref_last(&c->oracle.ref);
    c->picked = array(c->batch.B, sizeof *c->picked);
    c->rows = array(c->batch.B, sizeof *c->rows);
    for (int64_t b = 0; b < c->batch.B; b++) {
        c->picked[b] = rng_between(r, 0, ref_length(last, b) - 1);
        c->rows[b] = b * last->T + c->picked[b];
    }
    c->oracle.ref.picked = c->picked;
}

model_case *model_case_make(const nn_description *d, rng *r, int64_t B, int64_t tokens, bool padded)
{
    model_case *c = array(1, sizeof *c);
    c->d = *d;
    c->batch.B = B;
    c->count = nn_parameter_count(d);
    c->parameters = array(c->count, sizeof(float));
    list_parts(c);
    draw_parameters(c, r);
    if (!bench_oracle_make(&c->oracle, &c->d, c->parameters)) exit(1);
    c->oracle.ref.B = B;
    if (d->encoder.blocks.depth) draw_sequences(c, 0, r, tokens, padded);
    if (d->decoder.blocks.depth) draw_sequences(c, 1, r, tokens, padded);
    if (d->output.pool == NN_POOL_PICKED) pick_rows(c, r);
    return c;
}

void model_case_separate(model_case *c, rng *r, double margin)
{
    ref_transformer *t = &c->oracle.ref;
    double *out = array(ref_transformer_rows(t) * ref_transformer_columns(t), sizeof *out), least = 0;
    t->encoder.expert_margin = t->decoder.expert_margin = &least;
    for (int draws = 0; least < margin; draws++) {
        if (draws == 1000) abort();
        if (draws) draw_parameters(c, r);
        for (int64_t n = 0; n < c->count; n++) c->oracle.numbers[n] = (double)c->parameters[n];
        least = INFINITY;
        ref_transformer_forward(t, out, NULL, NULL);
    }
    t->encoder.expert_margin = t->decoder.expert_margin = NULL;
    free(out);
}

void model_case_free(model_case *c)
{
    for (int n = 0; n < 2; n++) {
        free(c->tokens[n]);
        free(c->types[n]);
        free(c->lengths[n]);
        free(c->images[n]);
        free(c->pixels[n]);
        free(c->drops[n]);
    }
    free(c->picked);
    free(c->rows);
    free(c->parts);
    free(c->parameters);
    bench_oracle_free(&c->oracle);
    free(c);
}

/* Where attention n of the model draws from. */
static void drop_weights(model_case *c, uint64_t seed, uint64_t stream)
{
    for (int64_t n = 0; n < nn_description_attentions(&c->d); n++) {
        nn_attention_place a = nn_description_attention(&c->d, n);
        ref_block *block = &c->oracle.blocks[a.decoder][a.block];
        ref_heads *heads = a.cross ? &block->cross : &block->self;
        heads->dropout = (double)c->d.dropout;
        heads->dropout_seed = seed, heads->dropout_stream = stream + ((uint64_t)n << 44);
    }
}

/* Factors (B*T,M) of branch `number`, which is of a block, or of the rows before all blocks: block -1. */
static void find_factors(const model_case *c, mha_context *ctx, double *to, int side, int64_t block, uint64_t seed,
                         uint64_t stream)
{
    const ref_stack *s = side ? &c->oracle.ref.decoder : &c->oracle.ref.encoder;
    int64_t count = c->batch.B * s->T * s->width;
    float *ones = array(count, sizeof *ones);
    mha_tensor rows = mha_tensor_3d(ones, MHA_FLOAT32, c->batch.B, s->T, s->width);
    mha_dropout_options o = MHA_DROPOUT_DEFAULTS;
    o.drop = c->d.drop, o.seed = seed, o.stream = stream;
    if (block > 0) o.path = c->d.drop_path * (float)block / (float)(s->depth - 1);
    for (int64_t i = 0; i < count; i++) ones[i] = 1;
    if (mha_dropout(ctx, rows, rows, &o)) abort();
    for (int64_t i = 0; i < count; i++) to[i] = (double)ones[i];
    free(ones);
}

void model_case_drop(model_case *c, mha_context *ctx, uint64_t seed, uint64_t stream)
{
    static const ref_branch alone[] = {REF_SELF, REF_MLP}, behind[] = {REF_SELF, REF_CROSS, REF_MLP};
    uint64_t number = 0;
    c->seed = seed, c->stream = stream;
    drop_weights(c, seed, stream);
    for (int side = 0; side < 2; side++) {
        ref_stack *s = side ? &c->oracle.ref.decoder : &c->oracle.ref.encoder;
        bool crosses = side && nn_description_is_pair(&c->d);
        int64_t branches = crosses ? 3 : 2, count = c->batch.B * s->T * s->width;
        if (!s->depth) continue;
        double *at = c->drops[side] = array((1 + branches * s->depth) * count, sizeof *at);
        find_factors(c, ctx, at, side, -1, seed, stream + (number++ << 44));
        s->drop = at;
        for (int64_t k = 0; k < branches * s->depth; k++) {
            int64_t l = k / branches;
            find_factors(c, ctx, at += count, side, l, seed, stream + (number++ << 44));
            c->oracle.blocks[side][l].drop[(crosses ? behind : alone)[k % branches]] = at;
        }
    }
}

nn_call model_case_call(const model_case *c)
{
    bool drops = c->drops[0] || c->drops[1];
    return (nn_call){
        .rows = c->rows, .row_count = c->rows ? c->batch.B : 0, .drop = drops, .seed = c->seed, .stream = c->stream};
}

nn_model_options model_case_options(const model_case *c, bool training)
{
    nn_model_options o = {.batch = c->batch.B, .training = training};
    if (!nn_input_tokens(&c->d.encoder.input)) o.encoder_tokens = c->batch.encoder.T;
    if (!nn_input_tokens(&c->d.decoder.input)) o.decoder_tokens = c->batch.decoder.T;
    return o;
}

bool model_case_row_exists(const model_case *c, int64_t n)
{
    const ref_stack *s = ref_last(&c->oracle.ref);
    return c->oracle.ref.pool != REF_POOL_NONE || n % s->T < ref_length(s, n / s->T);
}
