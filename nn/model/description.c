#include "model/description.h"
#include <stdio.h>
#include <string.h>

nn_description nn_description_default(void)
{
    nn_description d = {.encoder = NN_STACK_DEFAULTS, .decoder = NN_STACK_DEFAULTS};
    nn_input_config *in = &d.encoder.input;
    nn_blocks_config *b = &d.encoder.blocks;
    in->kind = NN_INPUT_PATCHES;
    in->rows = in->columns = 28;
    in->patch = 4;
    in->class_token = true;
    in->position_kind = NN_POSITIONS_LEARNED;
    b->width = 64;
    b->depth = 6;
    b->heads = 4;
    b->mlp = 128;
    d.output = (nn_output_config){.classes = 10, .pool = NN_POOL_FIRST, .bias = true, .scale = 1.0f};
    return d;
}

/* ---- Questions -------------------------------------------------------------------------------------------------- */

const nn_stack_config *nn_description_last(const nn_description *d)
{
    return d->decoder.blocks.depth ? &d->decoder : &d->encoder;
}

int64_t nn_input_tokens(const nn_input_config *in)
{
    if (in->kind == NN_INPUT_FRAMES) return in->positions;
    if (in->kind != NN_INPUT_PATCHES) return 0;
    return (in->rows / in->patch) * (in->columns / in->patch) + in->class_token + in->distilled;
}

static const nn_block_config *block_at(const nn_blocks_config *b, int64_t l)
{
    return l < NN_BLOCKS_MOST && b->block[l].heads ? &b->block[l] : NULL;
}

int64_t nn_blocks_heads(const nn_blocks_config *b, int64_t l)
{
    const nn_block_config *own = block_at(b, l);
    return own ? own->heads : b->heads;
}

int64_t nn_blocks_kv_heads(const nn_blocks_config *b, int64_t l)
{
    const nn_block_config *own = block_at(b, l);
    int64_t G = own ? own->kv_heads : b->kv_heads;
    return G ? G : nn_blocks_heads(b, l);
}

int64_t nn_blocks_head_width(const nn_blocks_config *b) { return b->head_width ? b->head_width : b->width / b->heads; }

int64_t nn_blocks_norm_width(const nn_blocks_config *b, int64_t l, int64_t heads)
{
    return nn_blocks_attention(b, l)->qk_norm_span == MHA_NORM_EACH_HEAD ? nn_blocks_head_width(b)
                                                                         : heads * nn_blocks_head_width(b);
}

int64_t nn_output_width(const nn_description *d, bool transformed)
{
    int64_t M = nn_description_last(d)->blocks.width;
    if (transformed && d->output.transform) return d->output.transform;
    return d->output.pool == NN_POOL_BOTH ? 2 * M : M;
}

const nn_attention_config *nn_blocks_attention(const nn_blocks_config *b, int64_t l)
{
    return &b->attention[l < NN_BLOCKS_MOST ? b->block[l].kind : 0];
}

int64_t nn_description_attentions(const nn_description *d)
{
    int64_t pair = nn_description_is_pair(d) ? d->decoder.blocks.depth : 0;
    return d->encoder.blocks.depth + d->decoder.blocks.depth + pair;
}

nn_attention_place nn_description_attention(const nn_description *d, int64_t n)
{
    int64_t first = n - d->encoder.blocks.depth, second = first - d->decoder.blocks.depth;
    if (first < 0) return (nn_attention_place){false, false, n, nn_blocks_heads(&d->encoder.blocks, n)};
    if (second < 0) return (nn_attention_place){true, false, first, nn_blocks_heads(&d->decoder.blocks, first)};
    return (nn_attention_place){true, true, second, nn_blocks_heads(&d->decoder.blocks, second)};
}

int64_t nn_description_heads_before(const nn_description *d, int64_t n)
{
    int64_t count = 0;
    for (int64_t k = 0; k < n; k++) count += nn_description_attention(d, k).heads;
    return count;
}

int64_t nn_description_all_heads(const nn_description *d)
{
    return nn_description_heads_before(d, nn_description_attentions(d));
}

/* ---- What makes no sense ---------------------------------------------------------------------------------------- */

static const char *image_problem(const nn_input_config *in, char *text, size_t room)
{
    if (in->patch < 1 || in->rows < 1 || in->columns < 1 || in->rows > 4096 || in->columns > 4096)
        return "images have from 1 to 4096 rows and columns, a patch has a pixel at least";
    if (in->channels < 1 || in->channels > 64) return "images have from 1 to 64 channels";
    if (in->rows % in->patch || in->columns % in->patch) {
        snprintf(text, room, "patches of %lld x %lld do not divide images of %lld x %lld", (long long)in->patch,
                 (long long)in->patch, (long long)in->rows, (long long)in->columns);
        return text;
    }
    if (in->width || in->token_types || in->first_position)
        return "patches have no types, no other width and no first position";
    if (!isfinite(in->mean) || !(in->deviation > 0) || isinf(in->deviation))
        return "the mean of pixels must be a number, their deviation above 0";
    return NULL;
}

static const char *input_problem(const nn_input_config *in, char *text, size_t room)
{
    if (in->kind > NN_INPUT_FRAMES || in->position_kind > NN_POSITIONS_WAVES)
        return "the kind of an input or of its positions is unknown";
    if (in->kind == NN_INPUT_PATCHES) return image_problem(in, text, room);
    if (in->position_kind != NN_POSITIONS_NONE && (in->positions < 1 || in->positions > 1 << 24))
        return "there are from 1 to 16777216 positions";
    if (in->kind == NN_INPUT_FRAMES) {
        bool good = in->bins > 0 && in->bins <= 1 << 16 && in->positions > 0 && !in->width && !in->norm &&
                    !in->class_token && !in->token_types && !in->first_position;
        return good ? NULL : "audio frames have bins and positions, and nothing else that tokens have";
    }
    if (in->vocabulary < 1 || in->vocabulary > 1 << 24) return "a vocabulary has from 1 to 16777216 tokens";
    if (in->class_token || in->distilled) return "only patches have a class token";
    if (in->width < 0 || in->width > 1 << 20) return "the width of embeddings must be from 1 to 1048576";
    if (in->token_types < 0 || in->token_types > 1 << 20) return "there are from 0 to 1048576 token types";
    if (in->width_first && (!in->width || in->norm)) return "a product before the positions has a width and no norm";
    if (in->padding < -1 || (in->padding >= 0 && in->first_position < 1))
        return "padding stands before the first position, which must be at least 1";
    if (in->first_position < 0 || in->first_position > 1 << 20) return "the first position is from 0 to 1048576";
    if (!isfinite(in->scale)) return "the scale of embeddings must be a number";
    return NULL;
}

const char *nn_attention_problem(const nn_attention_config *a, int64_t D)
{
    int64_t w = a->rotary_width ? a->rotary_width : D;
    if (a->window_left < MHA_UNLIMITED || a->window_right < MHA_UNLIMITED) return "a window must not be negative";
    if (isinf(a->scale) || !(a->softcap >= 0) || isinf(a->softcap))
        return "the scale of scores must be a number, their cap at least 0";
    if (!(a->qk_norm >= 0) || isinf(a->qk_norm))
        return "the epsilon of the norm of queries and keys must be at least 0";
    if (!(a->rotary_base >= 0) || isinf(a->rotary_base) || (a->rotary_base > 0 && (w < 2 || w % 2 || w > D)))
        return "a rotary embedding has a base above 0 and an even width, up to that of a head";
    const nn_rotary_config *r = &a->rotary;
    if (r->scaling > NN_ROTARY_LONG) return "the scaling of a rotary embedding is unknown";
    if (r->scaling && (!(r->factor > 0) || isinf(r->factor) || !(r->multiplier > 0) || isinf(r->multiplier) ||
                       w / 2 > NN_ROTARY_MOST || (r->scaling > NN_ROTARY_LINEAR && r->trained < 1)))
        return "a scaled rotary embedding has a factor, a multiplier and a length above 0, and at most 256 frequencies";
    for (int64_t i = 0; r->scaling == NN_ROTARY_LONG && i < w; i++)
        if (!(r->divisors[i % 2][i / 2] > 0)) return "the divisors of a rotary embedding must be above 0";
    if (a->qk_norm_kind > MHA_NORM_LAYER || a->qk_norm_span > MHA_NORM_ALL_HEADS)
        return "the norm of queries and keys is unknown";
    if (a->relative_buckets < 0 || a->relative_buckets > 1 << 16 ||
        (a->relative_buckets && (a->relative_buckets < 4 || a->relative_distance < 1)))
        return "relative positions have from 4 to 65536 ranges, and a largest distance of at least 1";
    return NULL;
}

static const char *heads_problem(const nn_blocks_config *b, char *text, size_t room)
{
    if (!b->head_width && b->width % b->heads) {
        snprintf(text, room, "%lld heads do not divide the width %lld", (long long)b->heads, (long long)b->width);
        return text;
    }
    if (b->head_width < 0 || b->head_width > 1 << 20) return "head_width must be from 1 to 1048576";
    if (b->kv_heads < 0 || (b->kv_heads && b->heads % b->kv_heads))
        return "the key/value heads do not divide the heads";
    for (int64_t l = 0; l < b->depth; l++) {
        int64_t H = nn_blocks_heads(b, l), G = nn_blocks_kv_heads(b, l);
        int32_t kind = l < NN_BLOCKS_MOST ? b->block[l].kind : 0;
        bool lone = l < NN_BLOCKS_MOST && b->block[l].kv_heads && !b->block[l].heads;
        if (H < 1 || G < 1 || H % G || lone) return "a block has no heads, or its key/value heads do not divide them";
        if (H > 1 << 20 || H * nn_blocks_head_width(b) > 1 << 20) return "a block has too many heads";
        if (kind < 0 || kind >= NN_ATTENTION_KINDS) return "a block's kind of attention is from 0 to 3";
        if (b->attention[kind].alibi && H != b->heads) return "blocks with ALiBi all have the same heads";
    }
    return NULL;
}

static const char *blocks_problem(const nn_blocks_config *b, char *text, size_t room)
{
    if (b->width < 1 || b->depth < 1 || b->mlp < 1 || b->heads < 1)
        return "width, depth, heads and mlp must be at least 1";
    if (b->width > 1 << 20 || b->depth > 1 << 12 || b->mlp > 1 << 22) return "width, depth or mlp is too large";
    const char *problem = heads_problem(b, text, room);
    if (problem) return problem;
    for (int n = 0; n < NN_ATTENTION_KINDS; n++)
        if ((problem = nn_attention_problem(&b->attention[n], nn_blocks_head_width(b)))) return problem;
    if (b->experts < 0 || b->experts > 1 << 12 || (b->experts && (b->experts_used < 1 || b->experts_used > b->experts)))
        return "of up to 4096 experts each token uses at least one";
    if (b->clamp > 0 && !(b->experts && b->gated)) return "only gated experts are clamped";
    if (b->from_norm && (b->place != NN_NORM_BEFORE || b->parallel))
        return "only pre-norm blocks go on from their norms";
    if (b->bare_start && (b->place != NN_NORM_BEFORE || b->one_norm)) return "only pre-norm blocks start without one";
    if (b->activation > MHA_RELU_SQUARED || b->norm > NN_RMS_NORM || b->place > NN_NORM_AFTER)
        return "the activation, the norm or its place is unknown";
    if (!(b->epsilon > 0)) return "epsilon must be above 0";
    if (!isfinite(b->residual)) return "the residual multiplier must be a number";
    if (b->place == NN_NORM_BEHIND && b->final_norm)
        return "post-norm blocks end with a norm and cannot have a final norm";
    if (b->parallel && b->place != NN_NORM_BEFORE) return "parallel branches have their norms before them";
    if (b->one_norm && !b->parallel) return "only parallel branches share a norm";
    return NULL;
}

static const char *output_problem(const nn_description *d)
{
    const nn_output_config *o = &d->output;
    const nn_input_config *in = &nn_description_last(d)->input;
    int64_t width = nn_description_last(d)->blocks.width;
    if (o->pool > NN_POOL_PICKED) return "the pool is unknown";
    if (o->transform < 0 || o->transform > 1 << 20 || o->transform_activation > MHA_RELU_SQUARED)
        return "the product before that of the logits has a width up to 1048576";
    if (o->classes < 0 || o->classes > 1 << 24) return "there are from 1 to 16777216 classes";
    if (o->follows && (!nn_description_is_pair(d) || d->encoder.input.kind != NN_INPUT_TOKENS || o->start < 0 ||
                       o->start > INT32_MAX || o->end < 0 || o->end > INT32_MAX))
        return "a decoder that reads the tokens of the encoder has a start and an end token";
    if (o->pool == NN_POOL_PICKED && !o->follows)
        return "only a decoder that reads the tokens of the encoder is pooled at the end token";
    if (!o->classes) return o->tied || o->bias ? "without classes there is no output product" : NULL;
    if (o->tied && (in->kind != NN_INPUT_TOKENS || o->classes != in->vocabulary ||
                    (in->width ? in->width : width) != nn_output_width(d, true)))
        return "a tied output has as many classes as there are tokens, and their width";
    if (!isfinite(o->scale) || !(o->softcap >= 0) || isinf(o->softcap))
        return "the scale of logits must be a number, their cap at least 0";
    return NULL;
}

const char *nn_description_problem(const nn_description *d, char *text, size_t room)
{
    const nn_stack_config *stacks[] = {&d->encoder, &d->decoder};
    const char *problem = NULL;
    if (!d->encoder.blocks.depth && !d->decoder.blocks.depth) return "width, depth, heads and mlp must be at least 1";
    for (int n = 0; !problem && n < 2; n++) {
        if (!stacks[n]->blocks.depth) continue;
        problem = input_problem(&stacks[n]->input, text, room);
        if (!problem) problem = blocks_problem(&stacks[n]->blocks, text, room);
    }
    if (problem) return problem;
    if (d->encoder.blocks.depth && d->decoder.blocks.depth && d->decoder.blocks.parallel)
        return "parallel branches have no cross-attention";
    if (!(d->dropout >= 0 && d->dropout < 1) || !(d->drop >= 0 && d->drop < 1) ||
        !(d->drop_path >= 0 && d->drop_path < 1))
        return "dropout, drop and drop_path must be from 0 to below 1";
    return output_problem(d);
}
