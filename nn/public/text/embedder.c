/* Embeddings: texts to tokens, hidden states, and one vector each. */
#include "io/hub/hub.h"
#include "io/json.h"
#include "public/check.h"
#include "public/model.h"
#include "public/text/sentence.h"

#include <mha_text.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mha_embedder {
    mha_model *model;
    const mha_tokenizer *tokenizer;
    nn_sentence s;
    mha_embedder_options o; /* `pool` and `prompt` unset */
    int64_t M, width;       /* of hidden states, of vectors */
    int64_t longest;        /* tokens of a text; 0: no limit */
    bool cuts;
    const char *prompt;    /* the text, or "" */
    int64_t prompt_tokens; /* how many first tokens are not pooled */
    char pool[80];
};

void mha_embedder_defaults(mha_embedder_options *options, size_t size)
{
    mha_embedder_options all = MHA_EMBEDDER_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

/* ---- Making ------------------------------------------------------------------------------------------------------ */

static mha_status check_model(mha_context *ctx, const mha_model *m)
{
    const nn_stack_config *s = nn_description_last(&m->d);
    if (s->input.kind != NN_INPUT_TOKENS) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: does not read text");
    if (!nn_description_is_pair(&m->d)) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                          "model: has an encoder and a decoder; embeddings need a model with one stack");
}

/* Pools of the caller, "mean" or "first+max". */
static mha_status take_pools(mha_context *ctx, nn_sentence *s, const char *words)
{
    char word[24];
    s->pool_count = 0;
    for (const char *at = words;; at++) {
        size_t length = strcspn(at, "+");
        snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), at);
        if (s->pool_count == NN_SENTENCE_POOLS || !nn_sentence_pool_of(word, &s->pools[s->pool_count++]))
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                                  "pool: must be first, last, mean, max, root or weighted, or some of these with '+' "
                                  "between them");
        at += length;
        if (!*at) return MHA_OK;
    }
}

static void spell_pools(mha_embedder *e)
{
    size_t n = 0;
    for (int k = 0; k < e->s.pool_count; k++)
        n += (size_t)snprintf(e->pool + n, sizeof e->pool - n, "%s%s", k ? "+" : "", nn_sentence_words[e->s.pools[k]]);
}

/* The width of a vector; the first product must fit what is pooled. */
static mha_status find_width(mha_context *ctx, mha_embedder *e)
{
    e->width = e->M * e->s.pool_count;
    for (int n = 0; n < e->s.step_count; n++) {
        const nn_sentence_step *d = &e->s.steps[n];
        if (!d->weight) continue;
        if (d->in != e->width)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "pool: gives %lld numbers, and the folder's Dense reads %lld",
                                  (long long)e->width, (long long)d->in);
        e->width = d->out;
    }
    if (e->s.dimensions && e->s.dimensions < e->width) e->width = e->s.dimensions;
    return MHA_OK;
}

/* The names of the prompts, for a message. */
static mha_status no_prompt(mha_context *ctx, const mha_embedder *e, const char *name)
{
    char names[200] = "";
    size_t n = 0;
    for (int64_t k = 0; k < e->s.prompt_count && n + strlen(e->s.names[k]) + 3 < sizeof names; k++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", k ? ", " : "", e->s.names[k]);
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "prompt: the folder has none with the name %s%s%s",
                          nn_json_brief(name).text, n ? "; it has " : ", nor any other", names);
}

static mha_status encode(mha_context *ctx, const mha_embedder *e, mha_encoding **to, const char *text)
{
    mha_encode_options o = MHA_ENCODE_DEFAULTS;
    o.lower = e->s.lower;
    return mha_encoding_make(ctx, to, e->tokenizer, text, strlen(text), NULL, 0, &o);
}

/* How many first tokens belong to the prompt: all that it has alone but a special one at its end. */
static mha_status count_prompt(mha_context *ctx, mha_embedder *e)
{
    mha_encoding *own = NULL;
    if (!e->tokenizer || !e->s.skip_prompt || !*e->prompt) return MHA_OK;
    mha_status status = encode(ctx, e, &own, e->prompt);
    if (status) return status;
    int64_t count = mha_encoding_count(own);
    if (count && mha_encoding_get(own, count - 1).special) count--;
    e->prompt_tokens = count;
    mha_encoding_free(own);
    return MHA_OK;
}

static mha_status fill(mha_context *ctx, mha_embedder *e, const char *folder, const mha_embedder_options *o)
{
    char error[500] = "", place[4096];
    mha_status status = check_model(ctx, e->model);
    if (status) return status;
    const nn_stack_config *stack = nn_description_last(&e->model->d);
    int64_t positions = nn_public_positions(&stack->input);
    if (!folder) folder = e->model->path ? e->model->path : "";
    else if ((status = nn_hub_place(place, sizeof place, folder, error, sizeof error)))
        return mha_context_fail(ctx, status, error);
    else folder = place;
    if (!nn_sentence_open(&e->s, ctx, folder, error, sizeof error)) return mha_context_fail(ctx, MHA_BAD_FILE, error);
    if (o->pool && (status = take_pools(ctx, &e->s, o->pool))) return status;
    const char *name = o->prompt ? o->prompt : e->s.prompt_name;
    e->prompt = name ? nn_sentence_prompt(&e->s, name) : "";
    if (!e->prompt) return no_prompt(ctx, e, name);
    e->M = stack->blocks.width;
    e->longest = e->s.longest;
    if (!e->longest && e->s.there) {
        e->longest = e->s.tokenizer_longest;
        if (e->model->context && (!e->longest || e->longest > e->model->context)) e->longest = e->model->context;
    }
    if (positions && (!e->longest || e->longest > positions)) e->longest = positions;
    e->cuts = e->s.there || o->truncate;
    spell_pools(e);
    status = find_width(ctx, e);
    return status ? status : count_prompt(ctx, e);
}

mha_status mha_embedder_create(mha_context *ctx, mha_embedder **embedder, mha_model *model,
                               const mha_tokenizer *tokenizer, const char *folder, const mha_embedder_options *options)
{
    NN_PUBLIC_C_LOCALE;
    mha_embedder_options o = MHA_EMBEDDER_DEFAULTS;
    mha_status status;
    if (!ctx || !embedder) return MHA_BAD_ARGUMENT;
    *embedder = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_EMBEDDER_DEFAULTS")))
        return status;
    mha_embedder *e = calloc(1, sizeof *e);
    if (!e) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for an embedder");
    e->model = model, e->tokenizer = tokenizer, e->o = o;
    status = fill(ctx, e, folder, &o);
    e->o.pool = e->o.prompt = NULL;
    if (status) mha_embedder_free(e);
    else *embedder = e;
    return status;
}

void mha_embedder_free(mha_embedder *embedder)
{
    if (!embedder) return;
    nn_sentence_free(&embedder->s);
    free(embedder);
}

/* Whether the last thing that happens to vectors is that they get length 1. */
static bool normalised(const mha_embedder *e)
{
    const nn_sentence *s = &e->s;
    return !e->o.raw && s->step_count && !s->steps[s->step_count - 1].weight && !s->dimensions;
}

mha_status mha_embedder_about(mha_context *ctx, const mha_embedder *embedder, mha_embedder_info *info)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, embedder, "embedder")) || (status = nn_public_need(ctx, info, "info")))
        return status;
    mha_embedder_info all = {.width = embedder->width,
                             .longest = embedder->longest,
                             .follows = embedder->s.there,
                             .cuts = embedder->cuts,
                             .normalised = normalised(embedder),
                             .lower = embedder->s.lower,
                             .pool = embedder->pool,
                             .prompt = embedder->prompt};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_embedder_info");
}

/* ---- Pooling ----------------------------------------------------------------------------------------------------- */

/* Number i of the rows from `first` on, pooled; rows (T,M). */
static double pooled(nn_sentence_pool pool, const float *rows, int64_t first, int64_t T, int64_t M, int64_t i)
{
    double sum = 0, weights = 0, largest = -INFINITY;
    if (pool == NN_SENTENCE_FIRST) return (double)rows[first * M + i];
    if (pool == NN_SENTENCE_LAST) return (double)rows[(T - 1) * M + i];
    for (int64_t t = first; t < T; t++) {
        double x = (double)rows[t * M + i], weight = pool == NN_SENTENCE_WEIGHTED ? (double)(t + 1) : 1;
        sum += weight * x, weights += weight;
        if (!(x <= largest)) largest = x;
    }
    return pool == NN_SENTENCE_MAX ? largest : sum / (pool == NN_SENTENCE_ROOT ? sqrt(weights) : weights);
}

/* The vector of rows (T,M), of which the first are those of the prompt. `room` holds the widest vector on the way. */
static bool make_vector(const mha_embedder *e, double *room, const float *rows, int64_t T, int64_t prompt)
{
    int64_t width = 0;
    for (int k = 0; k < e->s.pool_count; k++)
        for (int64_t i = 0; i < e->M; i++) room[width++] = pooled(e->s.pools[k], rows, prompt, T, e->M, i);
    return nn_sentence_finish(&e->s, room, &width, !e->o.raw);
}

static double *make_room(const mha_embedder *e)
{
    return malloc((size_t)nn_sentence_widest(&e->s, e->M * e->s.pool_count) * sizeof(double));
}

/* Row b of `out` from `room`. */
static void put_vector(const mha_embedder *e, mha_tensor out, int64_t b, const double *room)
{
    float *to = (float *)out.data + b * out.stride[0];
    for (int64_t i = 0; i < e->width; i++) to[i * out.stride[1]] = (float)room[i];
}

static mha_status check_out(mha_context *ctx, const mha_embedder *e, const mha_tensor *out, int64_t count)
{
    const int64_t sizes[4] = {count, e->width};
    if (!out->rank || !out->data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "out: is not given");
    if (out->type != MHA_FLOAT32)
        return nn_public_fail(ctx, MHA_BAD_TYPE, "out: is %s, must be float32", mha_type_name(out->type));
    return nn_public_tensor(ctx, out, "out", "(count,width)", 2, sizes);
}

mha_status mha_embedder_vector(mha_context *ctx, const mha_embedder *embedder, mha_tensor out, mha_tensor rows)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, embedder, "embedder"))) return status;
    mha_tensor to = out;
    if (out.rank == 1)
        to.rank = 2, to.size[1] = out.size[0], to.stride[1] = out.stride[0], to.size[0] = 1, to.stride[0] = 0;
    if ((status = check_out(ctx, embedder, &to, 1))) return status;
    const int64_t sizes[4] = {rows.rank == 2 && rows.size[0] > 0 ? rows.size[0] : 1, embedder->M};
    if (!rows.rank || !rows.data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "rows: is not given");
    if ((status = nn_public_tensor(ctx, &rows, "rows", "(T,M)", 2, sizes))) return status;
    int64_t T = sizes[0], M = embedder->M;
    float *dense = malloc((size_t)(T * M) * sizeof *dense);
    double *room = make_room(embedder);
    if (!dense || !room) status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for an embedding");
    else if (!(status = mha_tensor_copy(ctx, mha_tensor_2d(dense, MHA_FLOAT32, T, M), rows))) {
        if (make_vector(embedder, room, dense, T, 0)) put_vector(embedder, to, 0, room);
        else status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for an embedding");
    }
    free(dense);
    free(room);
    return status;
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------ */

/* All texts as ids and types, one behind another. */
typedef struct tokens {
    int32_t *ids, *types;
    int64_t *starts; /* (N+1) */
    int64_t room;
} tokens;

static void free_tokens(tokens *t) { free(t->ids), free(t->types), free(t->starts); }

static mha_status grow(mha_context *ctx, tokens *t, int64_t count)
{
    if (count <= t->room) return MHA_OK;
    int64_t room = count + count / 2 + 64;
    int32_t *ids = realloc(t->ids, (size_t)room * sizeof *ids);
    if (ids) t->ids = ids;
    int32_t *types = realloc(t->types, (size_t)room * sizeof *types);
    if (types) t->types = types;
    if (!ids || !types) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the tokens");
    t->room = room;
    return MHA_OK;
}

/* Adds text n. What does not fit is taken from the end of the text, or from its beginning, so that tokens such as [SEP] stay. */
static mha_status add_text(mha_context *ctx, const mha_embedder *e, tokens *t, const mha_encoding *from, int64_t n)
{
    int64_t count = mha_encoding_count(from), all = t->starts[n], over = e->longest ? count - e->longest : 0, own = 0,
            seen = 0;
    int64_t vocabulary = nn_description_last(&e->model->d)->input.vocabulary;
    if (!count) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "text %lld: has no tokens", (long long)n + 1);
    for (int64_t i = 0; i < count; i++) own += mha_encoding_get(from, i).text >= 0;
    if (over > 0 && (!e->cuts || over > own))
        return nn_public_fail(ctx, MHA_TOO_LARGE, "text %lld: has %lld tokens, and %lld fit the model",
                              (long long)n + 1, (long long)count, (long long)e->longest);
    mha_status status = grow(ctx, t, all + count);
    if (status || !t->ids || !t->types) return status;
    for (int64_t i = 0; i < count; i++) {
        mha_token token = mha_encoding_get(from, i);
        if (token.text >= 0) {
            seen++;
            if (over > 0 && (e->s.from_left ? seen <= over : seen > own - over)) continue;
        }
        if (token.id >= vocabulary)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                                  "text %lld: token %d is not below %lld, the size of the model's vocabulary; is the "
                                  "tokenizer that of the model?",
                                  (long long)n + 1, (int)token.id, (long long)vocabulary);
        t->ids[all] = token.id, t->types[all++] = token.type;
    }
    t->starts[n + 1] = all;
    if (all - t->starts[n] > e->prompt_tokens) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "text %lld: has no tokens behind those of the prompt",
                          (long long)n + 1);
}

static mha_status encode_text(mha_context *ctx, const mha_embedder *e, tokens *t, const char *text, int64_t n)
{
    mha_encoding *own = NULL;
    if (!text) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "text %lld: is NULL", (long long)n + 1);
    size_t length = strlen(text), before = strlen(e->prompt);
    char *whole = before ? malloc(before + length + 1) : NULL;
    if (before && !whole) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a text");
    if (whole) memcpy(whole, e->prompt, before), memcpy(whole + before, text, length + 1);
    mha_status status = encode(ctx, e, &own, whole ? whole : text);
    free(whole);
    if (status) {
        char why[400];
        snprintf(why, sizeof why, "%s", mha_context_error(ctx));
        return nn_public_fail(ctx, status, "text %lld: %s", (long long)n + 1, why);
    }
    status = add_text(ctx, e, t, own, n);
    mha_encoding_free(own);
    return status;
}

/* ---- Running ----------------------------------------------------------------------------------------------------- */

enum { BATCH = 16, BATCH_TOKENS = 2048 }; /* most texts, and most tokens with padding, of a pass */

/* How many texts, from text n on, go through the model together; *longest gets the tokens of the longest one. */
static int64_t batch_of(const tokens *t, int64_t n, int64_t N, int64_t *longest)
{
    int64_t B = 0;
    *longest = 0;
    while (B < BATCH && n + B < N) {
        int64_t T = t->starts[n + B + 1] - t->starts[n + B];
        if (T < *longest) T = *longest;
        if (B && (B + 1) * T > BATCH_TOKENS) break;
        *longest = T;
        B++;
    }
    return B;
}

/* The texts from n on, B of them. The last hidden states are the result of a model without a head; of one with a head, they
 * are the last of those of all blocks. */
static mha_status run_batch(mha_context *ctx, mha_embedder *e, mha_tensor out, const tokens *t, int64_t n, int64_t B,
                            int64_t T)
{
    int64_t M = e->M, lengths[BATCH];
    bool head = e->model->d.output.classes > 0;
    int64_t layers = head ? nn_description_last(&e->model->d)->blocks.depth + 1 : 1;
    int32_t *ids = calloc((size_t)(2 * B * T) + 1, sizeof *ids), *types = ids ? ids + B * T : NULL;
    float *rows = malloc((size_t)(layers * B * T * M + 1) * sizeof *rows);
    double *room = make_room(e);
    mha_status status = MHA_OK;
    if (!ids || !rows || !room || !t->ids || !t->types) {
        status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the hidden states");
        goto out;
    }
    for (int64_t b = 0; b < B; b++) {
        int64_t first = t->starts[n + b], count = lengths[b] = t->starts[n + b + 1] - first;
        memcpy(ids + b * T, t->ids + first, (size_t)count * sizeof *ids);
        memcpy(types + b * T, t->types + first, (size_t)count * sizeof *types);
    }
    mha_model_inputs in = {.tokens = mha_tensor_2d(ids, MHA_INT32, B, T),
                           .types = mha_tensor_2d(types, MHA_INT32, B, T),
                           .lengths = mha_tensor_1d(lengths, MHA_INT64, B)};
    mha_model_outputs to = {.logits = MHA_NO_TENSOR};
    if (head) to.hidden = mha_tensor_4d(rows, MHA_FLOAT32, layers, B, T, M);
    else to.logits = mha_tensor_3d(rows, MHA_FLOAT32, B, T, M);
    status = mha_model_run(ctx, e->model, &to, &in);
    for (int64_t b = 0; !status && b < B; b++) {
        if (make_vector(e, room, rows + ((layers - 1) * B + b) * T * M, lengths[b], e->prompt_tokens))
            put_vector(e, out, n + b, room);
        else status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for an embedding");
    }
out:
    free(ids);
    free(rows);
    free(room);
    return status;
}

mha_status mha_embedder_run(mha_context *ctx, mha_embedder *embedder, mha_tensor out, const char *const *texts,
                            int64_t count, int64_t *lengths)
{
    mha_status status;
    tokens t = {0};
    bool more = true;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, embedder, "embedder")) || (status = nn_public_need(ctx, texts, "texts")) ||
        (status = nn_public_need(ctx, embedder->tokenizer, "tokenizer")))
        return status;
    if (count < 1 || count > 1 << 30)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "count: is %lld, must be from 1 to 1073741824", (long long)count);
    if ((status = check_out(ctx, embedder, &out, count))) return status;
    t.starts = calloc((size_t)count + 1, sizeof *t.starts);
    if (!t.starts) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the tokens");
    for (int64_t n = 0; !status && n < count; n++) status = encode_text(ctx, embedder, &t, texts[n], n);
    for (int64_t n = 0; !status && lengths && n < count; n++) lengths[n] = t.starts[n + 1] - t.starts[n];
    for (int64_t n = 0, B, T; !status && more && n < count; n += B) {
        B = batch_of(&t, n, count, &T);
        status = run_batch(ctx, embedder, out, &t, n, B, T);
        more = status || !embedder->o.watch || embedder->o.watch(embedder->o.arg, n + B, count);
    }
    free_tokens(&t);
    return status;
}
