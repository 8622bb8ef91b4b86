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
    if (in->kind != NN_INPUT_PATCHES) return 0;
    return (in->rows / in->patch) * (in->columns / in->patch) + in->class_token;
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
    if (in->width || in->token_types || in->norm || in->first_position)
        return "patches have no types, no norm, no other width and no first position";
    if (!isfinite(in->mean) || !(in->deviation > 0) || isinf(in->deviation))
        return "the mean of pixels must be a number, their deviation above 0";
    return NULL;
}

static const char *input_problem(const nn_input_config *in, char *text, size_t room)
{
    if (in->kind > NN_INPUT_PATCHES || in->position_kind > NN_POSITIONS_SINUSOIDAL)
        return "the kind of an input or of its positions is unknown";
    if (in->kind == NN_INPUT_PATCHES) return image_problem(in, text, room);
    if (in->vocabulary < 1 || in->vocabulary > 1 << 24) return "a vocabulary has from 1 to 16777216 tokens";
    if (in->class_token) return "only patches have a class token";
    if (in->width < 0 || in->width > 1 << 20) return "the width of embeddings must be from 1 to 1048576";
    if (in->token_types < 0 || in->token_types > 1 << 20) return "there are from 0 to 1048576 token types";
    if (in->position_kind != NN_POSITIONS_NONE && (in->positions < 1 || in->positions > 1 << 24))
        return "there are from 1 to 16777216 positions";
    if (in->first_position < 0 || in->first_position > 1 << 20) return "the first position is from 0 to 1048576";
    if (!isfinite(in->scale)) return "the scale of embeddings must be a number";
    return NULL;
}

static const char *attention_problem(const nn_attention_config *a, int64_t D)
{
    int64_t w = a->rotary_width ? a->rotary_width : D;
    if (a->window_left < MHA_UNLIMITED || a->window_right < MHA_UNLIMITED) return "a window must not be negative";
    if (isinf(a->scale) || !(a->softcap >= 0) || isinf(a->softcap))
        return "the scale of scores must be a number, their cap at least 0";
    if (!(a->qk_norm >= 0) || isinf(a->qk_norm))
        return "the epsilon of the norm of queries and keys must be at least 0";
    if (!(a->rotary_base >= 0) || isinf(a->rotary_base) || (a->rotary_base > 0 && (w < 2 || w % 2 || w > D)))
        return "a rotary embedding has a base above 0 and an even width, up to that of a head";
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
        if (kind < 0 || kind > 1) return "a block's kind of attention is 0 or 1";
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
    for (int n = 0; n < 2; n++)
        if ((problem = attention_problem(&b->attention[n], nn_blocks_head_width(b)))) return problem;
    if (b->activation > MHA_SILU || b->norm > NN_RMS_NORM || b->place > NN_NORM_AFTER)
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
    if (o->pool > NN_POOL_LAST) return "the pool is unknown";
    if (o->classes < 0 || o->classes == 1 || o->classes > 1 << 24) return "there are from 2 to 16777216 classes";
    if (!o->classes) return o->tied || o->bias ? "without classes there is no output product" : NULL;
    if (o->tied && (in->kind != NN_INPUT_TOKENS || o->classes != in->vocabulary || (in->width && in->width != width)))
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
