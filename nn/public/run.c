/* One run of a public model: everything is checked, then computed, then written. */
#include "data/augment.h"
#include "public/check.h"
#include "public/model.h"
#include "public/views.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The sizes of a run. */
typedef struct sizes {
    int64_t B, T[2]; /* tokens of the encoder and of the decoder; 0: there is no such stack */
} sizes;

static bool has(const mha_model *m, bool decoder)
{
    return (decoder ? m->d.decoder.blocks.depth : m->d.encoder.blocks.depth) > 0;
}
static const nn_stack_config *side_of(const mha_model *m, bool decoder)
{
    return decoder ? &m->d.decoder : &m->d.encoder;
}

/* Statistics are checked as the attention that they are of will check them. */
static mha_status check_heads(mha_context *ctx, const mha_model *m, const mha_model_outputs *out, const sizes *s)
{
    for (int64_t n = 0; n < mha_model_attention_count(m); n++) {
        mha_model_attention a = mha_model_attention_get(m, n);
        int64_t Tq = s->T[a.decoder], Tk = s->T[a.decoder && !a.cross];
        const int64_t map[4] = {s->B, a.heads, Tq, Tk};
        char name[40];
        snprintf(name, sizeof name, "maps[%lld]", (long long)n);
        mha_status status = out->maps ? nn_public_tensor(ctx, &out->maps[n], name, "(B,H,Tq,Tk)", 4, map) : MHA_OK;
        if (!status && out->stats) {
            mha_attention_plan plan;
            mha_tensor q = mha_tensor_4d(NULL, MHA_FLOAT32, s->B, a.heads, Tq, a.width), none = MHA_NO_TENSOR;
            mha_tensor k = mha_tensor_4d(NULL, MHA_FLOAT32, s->B, a.kv_heads, Tk, a.width);
            status = mha_attention_explain_stats(ctx, &plan, &out->stats[n], q, k, none, NULL, out->stats_options);
        }
        if (status) return status;
    }
    return MHA_OK;
}

enum { STATS = sizeof(mha_stats) / sizeof(mha_tensor) };
_Static_assert(STATS * sizeof(mha_tensor) == sizeof(mha_stats), "statistics are tensors");

/* Adds a tensor that was given and is not empty; `all` NULL: only counts it. */
static void add(nn_public_view *all, size_t *count, mha_tensor t, const char *name, int64_t number, bool output)
{
    bool empty = !t.data;
    for (int i = 0; i < t.rank; i++) empty = empty || t.size[i] < 1;
    if (empty) return;
    if (all) all[*count] = (nn_public_view){.tensor = t, .name = name, .number = number, .output = output};
    ++*count;
}

static size_t list(nn_public_view *all, const mha_model *m, const mha_model_outputs *out, const mha_model_inputs *in)
{
    size_t count = 0;
    mha_tensor stats[STATS], inside[NN_PUBLIC_INSIDE];
    add(all, &count, in->images, "images", -1, false);
    add(all, &count, in->tokens, "tokens", -1, false);
    add(all, &count, in->types, "types", -1, false);
    add(all, &count, in->lengths, "lengths", -1, false);
    add(all, &count, in->features, "features", -1, false);
    add(all, &count, in->decoder_tokens, "decoder_tokens", -1, false);
    if (m->parameters)
        add(all, &count, mha_tensor_1d(m->parameters, MHA_FLOAT32, m->count), "the parameters", -1, false);
    add(all, &count, out->encoder_hidden, "encoder_hidden", -1, true);
    add(all, &count, out->logits, "logits", -1, true);
    add(all, &count, out->hidden, "hidden", -1, true);
    for (int64_t n = 0; out->maps && n < mha_model_attention_count(m); n++)
        add(all, &count, out->maps[n], "maps", n, true);
    for (int64_t n = 0; out->stats && n < mha_model_attention_count(m); n++) {
        memcpy(stats, &out->stats[n], sizeof stats);
        for (int i = 0; i < STATS; i++) add(all, &count, stats[i], "stats", n, true);
    }
    if (out->inside) nn_public_inside_list(inside, out->inside);
    for (int i = 0; out->inside && i < NN_PUBLIC_INSIDE; i++)
        add(all, &count, inside[i], nn_public_inside_name(i), -1, true);
    return count;
}

/* Checks memory, of tensors whose sizes are right. */
static mha_status check_memory(mha_context *ctx, const mha_model *m, const mha_model_outputs *out,
                               const mha_model_inputs *in)
{
    size_t count = list(NULL, m, out, in);
    nn_public_view *all = calloc(count, sizeof *all);
    if (!all) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory to check %zu tensors", count);
    mha_status status = nn_public_views(ctx, all, list(all, m, out, in));
    free(all);
    return status;
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

static mha_status check_ids(mha_context *ctx, const mha_tensor *t, const char *name, int64_t B, int64_t T)
{
    if (!t->data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: its data is NULL", name);
    if (t->type != MHA_INT32 && t->type != MHA_INT64)
        return nn_public_fail(ctx, MHA_BAD_TYPE, "%s: is %s, must be int32 or int64", name, mha_type_name(t->type));
    if (t->rank == 2 && (B < 0 || t->size[0] == B) && (T < 0 || t->size[1] == T) && t->size[0] >= 1 && t->size[1] >= 1)
        return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_SHAPE, "%s: must be (B,T), at least (1,1), with the sizes of the other inputs",
                          name);
}

static mha_status check_lengths(mha_context *ctx, const mha_tensor *t, const sizes *s)
{
    if (!t->rank) return MHA_OK;
    if (t->type != MHA_INT64 || t->rank != 1 || t->size[0] != s->B || t->stride[0] != 1 || !t->data)
        return nn_public_fail(ctx, MHA_BAD_SHAPE, "lengths: must be int64 (B), dense");
    return MHA_OK;
}

/* What the first stack reads, and so B and its T. */
static mha_status check_first(mha_context *ctx, const mha_model *m, sizes *s, const mha_model_inputs *in)
{
    bool decoder = !has(m, false);
    const nn_input_config *c = &side_of(m, decoder)->input;
    int64_t fixed = nn_input_tokens(c);
    mha_status status;
    if (c->kind == NN_INPUT_TOKENS) {
        if (in->images.rank || in->features.rank)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: the model reads tokens",
                                  in->images.rank ? "images" : "features");
        if ((status = check_ids(ctx, &in->tokens, "tokens", -1, -1))) return status;
        s->B = in->tokens.size[0], s->T[decoder] = in->tokens.size[1];
        return in->types.rank ? check_ids(ctx, &in->types, "types", s->B, s->T[decoder]) : MHA_OK;
    }
    bool images = c->kind == NN_INPUT_PATCHES;
    const char *name = images ? "images" : "features", *letters = images ? "(B,channels,rows,columns)" : "(B,bins,2T)";
    const mha_tensor *t = images ? &in->images : &in->features;
    const int64_t want[4] = {t->size[0], images ? c->channels : c->bins, images ? c->rows : 2 * fixed, c->columns};
    if (in->tokens.rank || in->types.rank || in->lengths.rank)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "tokens: the model reads %s", name);
    if (!t->data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: its data is NULL", name);
    s->B = t->size[0], s->T[decoder] = fixed;
    return nn_public_tensor(ctx, t, name, letters, images ? 4 : 3, want);
}

static mha_status check_inputs(mha_context *ctx, const mha_model *m, sizes *s, const mha_model_inputs *in)
{
    mha_status status = check_first(ctx, m, s, in);
    if (status) return status;
    if (s->B < 1 || s->B > 1 << 24) return nn_public_fail(ctx, MHA_BAD_SHAPE, "B must be from 1 to 16777216");
    if ((status = check_lengths(ctx, &in->lengths, s))) return status;
    if (!nn_description_is_pair(&m->d)) return MHA_OK;
    if (m->d.output.follows) {
        s->T[1] = s->T[0];
        return in->decoder_tokens.rank
                   ? nn_public_fail(ctx, MHA_BAD_ARGUMENT, "decoder_tokens: the decoder of this model reads `tokens`")
                   : MHA_OK;
    }
    if ((status = check_ids(ctx, &in->decoder_tokens, "decoder_tokens", s->B, -1))) return status;
    s->T[1] = in->decoder_tokens.size[1];
    return MHA_OK;
}

static mha_status check_all(mha_context *ctx, const mha_model *m, sizes *s, const mha_model_outputs *out,
                            const mha_model_inputs *in)
{
    mha_status status = check_inputs(ctx, m, s, in);
    if (status) return status;
    bool last = has(m, true), pooled = m->d.output.pool != NN_POOL_NONE;
    const nn_blocks_config *b = &side_of(m, last)->blocks, *e = &m->d.encoder.blocks;
    int64_t classes = nn_public_classes(m);
    const int64_t flat[4] = {s->B, classes}, rows[4] = {s->B, s->T[last], classes},
                  hidden[4] = {b->depth + 1, s->B, s->T[last], b->width},
                  encoder[4] = {e->depth + 1, s->B, s->T[0], e->width};
    if ((status = nn_public_tensor(ctx, &out->logits, "logits", pooled ? "(B,classes)" : "(B,T,classes)",
                                   pooled ? 2 : 3, pooled ? flat : rows)))
        return status;
    if ((status = nn_public_tensor(ctx, &out->hidden, "hidden", "(L+1,B,T,M)", 4, hidden))) return status;
    if (out->encoder_hidden.rank && !(last && has(m, false)))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              "encoder_hidden: the model has one stack, whose rows are `hidden`");
    if ((status = nn_public_tensor(ctx, &out->encoder_hidden, "encoder_hidden", "(L+1,B,T,M)", 4, encoder)))
        return status;
    if ((status = check_heads(ctx, m, out, s))) return status;
    status = nn_public_inside_check(ctx, m, out->inside, s->B, s->T);
    return status ? status : check_memory(ctx, m, out, in);
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

int64_t nn_public_classes(const mha_model *m)
{
    return m->d.output.classes ? m->d.output.classes : nn_output_width(&m->d, true);
}

void nn_public_copied(const void *model, mha_tensor weight)
{
    const mha_model *m = model;
    int64_t last = 0;
    for (int axis = 0; axis < weight.rank; axis++) last += (weight.size[axis] - 1) * weight.stride[axis];
    for (int64_t n = 0; n < m->shards.count; n++)
        nn_safetensors_forget(m->shards.file[n], weight.data, (size_t)(last + 1) * mha_type_size(weight.type));
}

/* How many tokens a network has room for that replaces one with less: half as many again, as far as there are positions, so
 * that a text that grows while it is written does not need a network for every token. */
static int64_t ample(int64_t tokens, int64_t had, const nn_input_config *in)
{
    int64_t most = nn_public_positions(in), more = had + had / 2;
    if (most && more > most) more = most;
    return tokens > had && tokens < more ? more : tokens;
}

mha_status nn_public_net(mha_context *ctx, mha_model *m, int64_t B, int64_t encoder_tokens, int64_t decoder_tokens)
{
    char error[240] = "";
    if (m->net && B <= m->batch) {
        encoder_tokens = ample(encoder_tokens, m->tokens[0], &m->d.encoder.input);
        decoder_tokens = ample(decoder_tokens, m->tokens[1], &m->d.decoder.input);
    }
    nn_model_options options = {.batch = B,
                                .encoder_tokens = encoder_tokens,
                                .decoder_tokens = decoder_tokens,
                                .copied = nn_public_copied,
                                .copied_arg = m};
    bool fits = m->net && B <= m->batch && encoder_tokens <= m->tokens[0] && decoder_tokens <= m->tokens[1];
    mha_status status = nn_public_whole(ctx, m);
    if (fits || status) return status;
    nn_model_free(m->net);
    m->batch = 0;
    m->net = m->parameters ? nn_model_create(ctx, &m->d, m->parameters, &options, error, sizeof error)
                           : nn_model_create_over(ctx, &m->d, m->bound.part, &options, error, sizeof error);
    if (!m->net) return nn_public_fail(ctx, MHA_NO_MEMORY, "%s", error);
    m->batch = B, m->tokens[0] = encoder_tokens, m->tokens[1] = decoder_tokens;
    return MHA_OK;
}

/* Memory that the model keeps, of so many numbers at least. */
static float *grow(float **memory, int64_t *room, int64_t numbers)
{
    if (numbers <= *room) return *memory;
    free(*memory);
    *room = 0;
    *memory = malloc((size_t)numbers * sizeof(float));
    if (*memory) *room = numbers;
    return *memory;
}

mha_status nn_public_room(mha_context *ctx, mha_model *m, int64_t B, bool hidden)
{
    const nn_input_config *c = &m->d.encoder.input;
    const nn_blocks_config *b = &m->d.encoder.blocks;
    mha_status status = nn_public_net(ctx, m, B, nn_input_tokens(c), 0);
    if (status) return status;
    int64_t pixels = B * c->channels * c->rows * c->columns, rows = (b->depth + 1) * B * nn_input_tokens(c) * b->width;
    if (grow(&m->pixels, &m->pixel_room, pixels) && (!hidden || grow(&m->hidden, &m->hidden_room, rows))) return MHA_OK;
    return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for %lld images", (long long)B);
}

mha_status nn_public_load(mha_context *ctx, mha_model *m, mha_tensor images)
{
    const nn_input_config *c = &m->d.encoder.input;
    int64_t B = images.size[0], count = B * c->channels * c->rows * c->columns;
    mha_status status =
        mha_tensor_copy(ctx, mha_tensor_4d(m->pixels, MHA_FLOAT32, B, c->channels, c->rows, c->columns), images);
    nn_augment_options plain = {.mean = c->mean, .deviation = c->deviation};
    if (!status) nn_augment_unit(m->pixels, count, &plain);
    return status;
}

/* Ids as the model reads them, (B,T) dense. Ids that do not fit are none that a vocabulary has. */
static int32_t *take_ids(const mha_tensor *t)
{
    int64_t B = t->size[0], T = t->size[1];
    int32_t *ids = malloc((size_t)(B * T) * sizeof *ids);
    for (int64_t i = 0; ids && i < B * T; i++) {
        int64_t at = i / T * t->stride[0] + i % T * t->stride[1];
        int64_t id = t->type == MHA_INT32 ? ((const int32_t *)t->data)[at] : ((const int64_t *)t->data)[at];
        ids[i] = id < 0 || id > INT32_MAX ? -1 : (int32_t)id;
    }
    return ids;
}

/* ---- Running ---------------------------------------------------------------------------------------------------- */

typedef struct run {
    mha_context *ctx;
    mha_model *m;
    const mha_model_outputs *out;
    sizes s;
    nn_batch batch;
    int32_t *tokens, *types, *decoder_tokens;
    float *features;
} run;

static mha_status load(run *r, const mha_model_inputs *in)
{
    mha_model *m = r->m;
    bool first = !has(m, false);
    nn_sequences *to = first ? &r->batch.decoder : &r->batch.encoder;
    const nn_input_config *c = &side_of(m, first)->input;
    r->batch.B = r->s.B;
    to->T = r->s.T[first];
    if (in->lengths.rank) to->lengths = in->lengths.data;
    if (c->kind == NN_INPUT_PATCHES) {
        mha_status status = nn_public_room(r->ctx, m, r->s.B, false);
        to->images = m->pixels;
        return status ? status : nn_public_load(r->ctx, m, in->images);
    }
    bool ok = true;
    if (c->kind == NN_INPUT_FRAMES) {
        int64_t bins = c->bins, frames = 2 * to->T;
        to->features = r->features = malloc((size_t)(r->s.B * bins * frames) * sizeof(float));
        ok = r->features &&
             !mha_tensor_copy(r->ctx, mha_tensor_3d(r->features, MHA_FLOAT32, r->s.B, bins, frames), in->features);
    } else to->tokens = r->tokens = take_ids(&in->tokens), ok = r->tokens;
    if (ok && in->types.rank) to->types = r->types = take_ids(&in->types), ok = r->types;
    if (ok && nn_description_is_pair(&m->d)) {
        const nn_output_config *o = &m->d.output;
        r->decoder_tokens = o->follows ? nn_public_follow(r->tokens, r->s.B, r->s.T[0], (int32_t)o->start)
                                       : take_ids(&in->decoder_tokens);
        r->batch.decoder.tokens = r->decoder_tokens;
        r->batch.decoder.T = r->s.T[1];
        ok = r->decoder_tokens;
    }
    if (!ok) return nn_public_fail(r->ctx, MHA_NO_MEMORY, "not enough memory for the inputs");
    return nn_public_net(r->ctx, m, r->s.B, r->s.T[0], r->s.T[1]);
}

/* Sequences that go through the model in one pass, and where their results go. */
typedef struct group {
    int64_t first, B;
    mha_tensor *maps; /* (attentions), or NULL */
    mha_stats *stats; /* (attentions), or NULL */
    float *hidden[2]; /* of the encoder and of the decoder; or NULL */
    int64_t *ends;    /* (B): the rows of the last end tokens, where the result is read from them; or NULL */
    mha_model_inside inside;
} group;

/* The sequences of the group, of a tensor whose axis `axis` counts sequences. */
static mha_tensor part_of(const group *g, mha_tensor t, int axis)
{
    if (!t.rank || !t.data) return t;
    t.data = (char *)t.data + (size_t)(g->first * t.stride[axis]) * mha_type_size(t.type);
    t.size[axis] = g->B;
    return t;
}

static nn_sequences sequences_of(const group *g, nn_sequences s, const nn_input_config *c)
{
    if (s.tokens) s.tokens += g->first * s.T;
    if (s.types) s.types += g->first * s.T;
    if (s.lengths) s.lengths += g->first;
    if (s.features) s.features += g->first * c->bins * 2 * s.T;
    if (s.images) s.images += g->first * c->channels * c->rows * c->columns;
    return s;
}

/* How far the group goes: as long as sequences have the same rotary embedding, which may depend on their length. */
static int64_t sequences_together(const run *r, int64_t first)
{
    bool decoder = has(r->m, true);
    const nn_sequences *s = decoder ? &r->batch.decoder : &r->batch.encoder;
    int64_t end = first, B = r->s.B, regime = 0;
    for (; end < B; end++) {
        int64_t now = nn_model_regime(r->m->net, s->lengths ? s->lengths[end] : s->T);
        if (end > first && now != regime) break;
        regime = now;
    }
    return end - first;
}

static mha_status give_hidden(const run *r, const group *g, bool decoder, mha_tensor to)
{
    const nn_blocks_config *b = &side_of(r->m, decoder)->blocks;
    if (!g->hidden[decoder]) return MHA_OK;
    return mha_tensor_copy(
        r->ctx, part_of(g, to, 1),
        mha_tensor_4d(g->hidden[decoder], MHA_FLOAT32, b->depth + 1, g->B, r->s.T[decoder], b->width));
}

static mha_status give(const run *r, const group *g, const float *logits)
{
    const mha_model *m = r->m;
    bool last = has(m, true), pair = last && has(m, false);
    int64_t classes = nn_public_classes(m), T = m->d.output.pool ? 1 : r->s.T[last];
    const int64_t *lengths = last && pair ? NULL : (last ? r->batch.decoder : r->batch.encoder).lengths;
    for (int64_t b = 0; b < g->B; b++) {
        int64_t rows = m->d.output.pool || !lengths ? T : lengths[g->first + b];
        if (nn_model_not_finite(logits + b * T * classes, rows, classes))
            return mha_context_fail(r->ctx, MHA_BAD_ARGUMENT, nn_model_overflow);
    }
    mha_status status = give_hidden(r, g, last, r->out->hidden);
    if (!status && pair) status = give_hidden(r, g, false, r->out->encoder_hidden);
    if (status || !r->out->logits.rank) return status;
    return mha_tensor_copy(r->ctx, part_of(g, r->out->logits, 0),
                           m->d.output.pool ? mha_tensor_2d(logits, MHA_FLOAT32, g->B, classes)
                                            : mha_tensor_3d(logits, MHA_FLOAT32, g->B, T, classes));
}

static mha_model_inside inside_of(const group *g, const mha_model_inside *all)
{
    mha_model_inside part = *all;
    mha_tensor tensors[NN_PUBLIC_INSIDE];
    nn_public_inside_list(tensors, all);
    for (int i = 0; i < NN_PUBLIC_INSIDE; i++) tensors[i] = part_of(g, tensors[i], 0);
    nn_public_inside_set(&part, tensors);
    return part;
}

/* Memory for hidden states, and the group's part of what the pass itself writes. */
static bool make_room(const run *r, group *g)
{
    bool last = has(r->m, true), pair = last && has(r->m, false);
    const mha_tensor *wanted[] = {pair   ? &r->out->encoder_hidden
                                  : last ? NULL
                                         : &r->out->hidden,
                                  last ? &r->out->hidden : NULL};
    size_t count = (size_t)mha_model_attention_count(r->m);
    if (r->out->inside) g->inside = inside_of(g, r->out->inside);
    for (int n = 0; n < 2; n++) {
        const nn_blocks_config *b = &side_of(r->m, n)->blocks;
        if (!wanted[n] || !wanted[n]->rank) continue;
        g->hidden[n] = malloc((size_t)((b->depth + 1) * g->B * r->s.T[n] * b->width + 1) * sizeof(float));
        if (!g->hidden[n]) return false;
    }
    if (r->out->maps && !(g->maps = malloc(count * sizeof *g->maps))) return false;
    if (r->out->stats && !(g->stats = malloc(count * sizeof *g->stats))) return false;
    for (size_t n = 0; n < count; n++) {
        mha_tensor stats[STATS];
        if (g->maps) g->maps[n] = part_of(g, r->out->maps[n], 0);
        if (!g->stats) continue;
        memcpy(stats, &r->out->stats[n], sizeof stats);
        for (int i = 0; i < STATS; i++) stats[i] = part_of(g, stats[i], 0);
        memcpy(&g->stats[n], stats, sizeof stats);
    }
    return true;
}

static mha_status pass(const run *r, group g)
{
    const mha_model *m = r->m;
    mha_status status =
        nn_public_ends(r->ctx, m, &g.ends, r->tokens, r->batch.encoder.lengths, g.first, g.B, r->s.T[0]);
    if (!status && !make_room(r, &g)) {
        status = nn_public_fail(r->ctx, MHA_NO_MEMORY, "not enough memory for hidden states");
    } else if (!status) {
        nn_batch batch = {.B = g.B,
                          .encoder = sequences_of(&g, r->batch.encoder, &m->d.encoder.input),
                          .decoder = sequences_of(&g, r->batch.decoder, &m->d.decoder.input)};
        nn_call call = {.maps = g.maps,
                        .stats = g.stats,
                        .stats_options = r->out->stats_options,
                        .encoder_hidden = g.hidden[0],
                        .decoder_hidden = g.hidden[1],
                        .rows = g.ends,
                        .row_count = g.ends ? g.B : 0,
                        .inside = r->out->inside ? &g.inside : NULL};
        const float *logits = nn_model_forward(m->net, r->ctx, &batch, &call);
        status = logits ? give(r, &g, logits) : nn_public_reason(r->ctx, mha_context_error(r->ctx));
    }
    free(g.maps), free(g.stats), free(g.hidden[0]), free(g.hidden[1]), free(g.ends);
    return status;
}

static mha_status pass_all(run *r)
{
    mha_status status = MHA_OK;
    if (r->m->parameters) nn_model_changed(r->m->net); /* parameters may have been written since the last run */
    for (group g = {.first = 0}; !status && g.first < r->s.B; g.first += g.B) {
        g.B = sequences_together(r, g.first);
        status = pass(r, g);
    }
    return status;
}

mha_status mha_model_run(mha_context *ctx, mha_model *model, const mha_model_outputs *outputs,
                         const mha_model_inputs *inputs)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if (!model || !outputs || !inputs)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: is NULL", !model ? "model" : !outputs ? "outputs" : "inputs");
    if ((status = nn_public_cpu(ctx))) return status;
    run r = {.ctx = ctx, .m = model, .out = outputs};
    if ((status = check_all(ctx, model, &r.s, outputs, inputs))) return status;
    status = load(&r, inputs);
    if (!status) status = pass_all(&r);
    free(r.tokens), free(r.types), free(r.decoder_tokens), free(r.features);
    return status;
}
