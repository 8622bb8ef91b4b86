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

nn_description description_random_forward(rng *r, uint64_t n, stacks which)
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

bool description_trains(const nn_description *d)
{
    const nn_blocks_config *e = &d->encoder.blocks, *b = &d->decoder.blocks;
    return (!e->depth || e->activation != MHA_LINEAR) && (!b->depth || b->activation != MHA_LINEAR);
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
    return c;
}

void model_case_free(model_case *c)
{
    for (int n = 0; n < 2; n++) {
        free(c->tokens[n]);
        free(c->types[n]);
        free(c->lengths[n]);
        free(c->images[n]);
        free(c->pixels[n]);
    }
    free(c->parts);
    free(c->parameters);
    bench_oracle_free(&c->oracle);
    free(c);
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
