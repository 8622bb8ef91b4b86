#include "public/text/windows.h"
#include "ops/philox.h"
#include "public/check.h"

#include <stdlib.h>
#include <string.h>

enum { WINDOW = 128, REPEAT = 32, OWN = 16 };

static bool is_pair(const mha_model *m) { return nn_description_is_pair(&m->d); }

static const nn_input_config *input_of(const mha_model *m, int stack)
{
    return stack ? &m->d.decoder.input : &m->d.encoder.input;
}

/* Whether the encoder reads audio. */
static bool hears(const mha_model *m)
{
    return m->d.encoder.blocks.depth && m->d.encoder.input.kind == NN_INPUT_FRAMES;
}

/* ---- Checks ----------------------------------------------------------------------------------------------------- */

static mha_status check_ids(mha_context *ctx, const int32_t *ids, int64_t count, int64_t vocabulary, const char *name)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] < 0 || ids[i] >= vocabulary)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: token %d is not below %lld, the size of the vocabulary",
                                  name, ids[i], (long long)vocabulary);
    return MHA_OK;
}

static mha_status check_sequences(mha_context *ctx, const mha_model *m, const mha_text *text, int stack, bool decoder)
{
    const int32_t *tokens = decoder ? text->decoder_tokens : text->tokens;
    const int64_t *starts = decoder ? text->decoder_starts : text->starts;
    const char *name = decoder ? "decoder_tokens" : "tokens";
    mha_status status;
    if ((status = nn_public_need(ctx, tokens, name)) ||
        (status = nn_public_need(ctx, starts, decoder ? "decoder_starts" : "starts")))
        return status;
    for (int64_t b = 0; b < text->count; b++)
        if (starts[b] < 0 || starts[b + 1] < starts[b] || (is_pair(m) && starts[b + 1] == starts[b]))
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: sequence %lld is empty or has a negative length", name,
                                  (long long)b);
    return check_ids(ctx, tokens + starts[0], starts[text->count] - starts[0], input_of(m, stack)->vocabulary, name);
}

static mha_status check_features(mha_context *ctx, const mha_model *m, const mha_text *text)
{
    const nn_input_config *in = input_of(m, 0);
    const int64_t want[4] = {text->count, in->bins, 2 * in->positions, 0};
    if (!text->features.data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "text.features: the model reads audio");
    return nn_public_tensor(ctx, &text->features, "text.features", "(count,bins,frames)", 3, want);
}

mha_status nn_windows_check(mha_context *ctx, const mha_model *m, const mha_text *text)
{
    mha_status status;
    int first = m->d.encoder.blocks.depth ? 0 : 1;
    if ((status = nn_public_need(ctx, m, "model")) || (status = nn_public_need(ctx, text, "text"))) return status;
    if (input_of(m, first)->kind == NN_INPUT_PATCHES)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "the model reads images, not text");
    if (text->count < 1) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "text: has no sequence");
    status = hears(m) ? check_features(ctx, m, text) : check_sequences(ctx, m, text, first, false);
    if (status || !is_pair(m)) return status;
    return check_sequences(ctx, m, text, 1, true);
}

static mha_status check_options(mha_context *ctx, const mha_model *m, const mha_text_options *o)
{
    int first = m->d.encoder.blocks.depth ? 0 : 1;
    int64_t sides = o->before_count + o->after_count, positions = nn_text_positions(input_of(m, first));
    mha_status status;
    if (o->before_count < 0 || o->after_count < 0 || (o->before_count && !o->before) || (o->after_count && !o->after))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options: tokens before or after a window are missing");
    if ((status = check_ids(ctx, o->before, o->before_count, input_of(m, first)->vocabulary, "before")) ||
        (status = check_ids(ctx, o->after, o->after_count, input_of(m, first)->vocabulary, "after")))
        return status;
    if (o->window < 0 || (o->window && o->window < sides + 1) || o->window > 1 << 20)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.window: is %lld, must be from %lld to 1048576",
                              (long long)o->window, (long long)sides + 1);
    if (o->window > positions)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.window: is %lld, but the model has %lld positions",
                              (long long)o->window, (long long)positions);
    if (o->windows < 0 || o->repeats < 0 || o->repeats > 4096 || o->repeat_length < 0 || o->repeat_length > 1 << 16)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options: a number of windows or repeats is out of range");
    return MHA_OK;
}

/* ---- Windows ---------------------------------------------------------------------------------------------------- */

/* How many windows a sequence of so many tokens is. */
static int64_t pieces_of(int64_t length, int64_t slice) { return length > slice ? length / slice : length > 0; }

static void put(int32_t **at, const int32_t *from, int64_t count)
{
    if (count) memcpy(*at, from, (size_t)count * sizeof **at);
    *at += count;
}

/* Writes one window at *at and moves *at behind it. */
static void put_window(nn_text_sequence *to, int stack, int32_t **at, const mha_text_options *o, const int32_t *from,
                       int64_t count)
{
    to->tokens[stack] = *at;
    put(at, o->before, o->before_count);
    put(at, from, count);
    put(at, o->after, o->after_count);
    to->T[stack] = *at - to->tokens[stack];
}

/* Windows of a model with one stack, every few of them if there are more than asked for. */
static mha_status cut(nn_windows *w, mha_context *ctx, const mha_model *m, const mha_text *text,
                      const mha_text_options *o, int32_t *at)
{
    int stack = m->d.encoder.blocks.depth ? 0 : 1;
    int64_t slice = w->window - o->before_count - o->after_count, all = 0, n = 0, most = w->count;
    for (int64_t b = 0; b < text->count; b++) all += pieces_of(text->starts[b + 1] - text->starts[b], slice);
    w->count = 0;
    for (int64_t b = 0; b < text->count; b++) {
        int64_t length = text->starts[b + 1] - text->starts[b], pieces = pieces_of(length, slice);
        for (int64_t i = 0; i < pieces; i++, n++) {
            if (n * most / all == (n + 1) * most / all) continue;
            put_window(&w->sequences[w->count++], stack, &at, o, text->tokens + text->starts[b] + i * slice,
                       length < slice ? length : slice);
        }
    }
    for (int64_t i = 0; i < w->count; i++)
        if (w->sequences[i].T[stack] >= 2) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "text: has no sequence of two tokens or more");
}

/* Pairs of a model with two stacks, as they are. */
static mha_status take_pairs(nn_windows *w, mha_context *ctx, const mha_model *m, const mha_text *text)
{
    const int32_t *tokens[2] = {text->tokens, text->decoder_tokens};
    const int64_t *starts[2] = {text->starts, text->decoder_starts};
    int64_t most = w->count;
    w->count = 0;
    for (int64_t b = 0; b < text->count; b++) {
        if (b * most / text->count == (b + 1) * most / text->count) continue;
        nn_text_sequence *to = &w->sequences[w->count++];
        const nn_input_config *in = input_of(m, 0);
        if (hears(m)) to->T[0] = in->positions, to->features = w->features + b * in->bins * 2 * in->positions;
        for (int s = hears(m); s < 2; s++) {
            to->tokens[s] = tokens[s] + starts[s][b];
            to->T[s] = starts[s][b + 1] - starts[s][b];
            if (to->T[s] > nn_text_positions(input_of(m, s)))
                return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                                      "text: sequence %lld has %lld tokens, but the model has %lld positions",
                                      (long long)b, (long long)to->T[s], (long long)nn_text_positions(input_of(m, s)));
        }
    }
    return MHA_OK;
}

/* ---- Repeated random tokens ------------------------------------------------------------------------------------- */

/* Tokens to draw from: those of the text if there are at least OWN different ones, else those that the caller allows.
 * Returns them, to be freed, or NULL without memory. */
static int32_t *tokens_to_draw(int64_t *count, const mha_model *m, const mha_text *text, const mha_text_options *o)
{
    int first = m->d.encoder.blocks.depth && !hears(m) ? 0 : 1;
    const int32_t *tokens = hears(m) ? text->decoder_tokens : text->tokens;
    const int64_t *starts = hears(m) ? text->decoder_starts : text->starts;
    int64_t vocabulary = input_of(m, first)->vocabulary, common = vocabulary, distinct = 0;
    if (is_pair(m) && input_of(m, 1)->vocabulary < common) common = input_of(m, 1)->vocabulary;
    int32_t *from = malloc((size_t)vocabulary * sizeof *from);
    bool *seen = calloc((size_t)vocabulary, sizeof *seen);
    *count = 0;
    for (int64_t i = starts[0]; seen && i < starts[text->count]; i++) {
        distinct += !seen[tokens[i]] && tokens[i] < common;
        seen[tokens[i]] = true;
    }
    for (int64_t n = 0; from && seen && n < common; n++)
        if (distinct >= OWN ? seen[n] : !o->drawn || o->drawn[n]) from[(*count)++] = (int32_t)n;
    free(seen);
    if (seen) return from;
    free(from);
    return NULL;
}

/* `length` different ones of `count` tokens, which change places. */
static void draw(int32_t *to, int64_t length, int32_t *from, int64_t count, uint64_t seed, uint64_t number)
{
    nn_philox random = nn_philox_at(seed, NN_PHILOX_TOKENS, 1, number);
    for (int64_t n = 0; n < length; n++) {
        int64_t other = n + (int64_t)((uint64_t)nn_philox_next(&random) * (uint64_t)(count - n) >> 32);
        to[n] = from[other];
        from[other] = from[n];
        from[n] = to[n];
    }
}

/* How long random sequences can be: two of them and the tokens at their sides must have positions. */
static int64_t repeat_length(const mha_model *m, const mha_text_options *o)
{
    int64_t length = o->repeat_length ? o->repeat_length : REPEAT;
    for (int s = hears(m); s < 2; s++) {
        if (!(s ? &m->d.decoder : &m->d.encoder)->blocks.depth) continue;
        int64_t sides = s && is_pair(m) ? 1 : o->before_count + o->after_count;
        int64_t room = (nn_text_positions(input_of(m, s)) - sides) / 2;
        if (room < length) length = room;
    }
    return length;
}

static void repeat(nn_windows *w, const mha_model *m, const mha_text *text, const mha_text_options *o, int32_t *at,
                   int32_t *from, int64_t from_count)
{
    int first = m->d.encoder.blocks.depth ? 0 : 1;
    w->begin[first] = o->before_count;
    if (is_pair(m)) w->begin[1] = 1;
    for (w->repeats = 0; w->repeats < o->repeats; w->repeats++) {
        nn_text_sequence *to = &w->sequences[w->count + w->repeats];
        int32_t *twice = at;
        at += 2 * w->length;
        draw(twice, w->length, from, from_count, o->seed, (uint64_t)w->repeats);
        memcpy(twice + w->length, twice, (size_t)w->length * sizeof *twice);
        if (hears(m)) to->features = w->features, to->T[0] = input_of(m, 0)->positions; /* of the first sound */
        else put_window(to, first, &at, o, twice, 2 * w->length);
        if (!is_pair(m)) continue;
        to->tokens[1] = at;
        put(&at, text->decoder_tokens + text->decoder_starts[0], 1);
        put(&at, twice, 2 * w->length);
        to->T[1] = 2 * w->length + 1;
    }
}

/* Random sequences, where the model has positions and tokens for them. */
static mha_status add_repeats(nn_windows *w, mha_context *ctx, const mha_model *m, const mha_text *text,
                              const mha_text_options *o)
{
    int64_t count = 0, sides = o->before_count + o->after_count;
    w->length = repeat_length(m, o);
    int32_t *from = tokens_to_draw(&count, m, text, o);
    if (count < w->length) w->length = count;
    if (from && (w->length < 2 || !o->repeats)) {
        free(from);
        return MHA_OK;
    }
    nn_text_sequence *more = realloc(w->sequences, (size_t)(w->count + o->repeats) * sizeof *more);
    if (more) w->sequences = more;
    if (more) memset(more + w->count, 0, (size_t)o->repeats * sizeof *more);
    w->random = malloc((size_t)(o->repeats * (6 * w->length + sides + 1)) * sizeof *w->random);
    bool ok = from && more && w->random;
    if (ok) repeat(w, m, text, o, w->random, from, count);
    free(from);
    return ok ? MHA_OK : nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for random tokens");
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

/* The number of windows, and the tokens that they have together at most. */
static void count_windows(nn_windows *w, const mha_model *m, const mha_text *text, const mha_text_options *o)
{
    int first = m->d.encoder.blocks.depth ? 0 : 1;
    int64_t positions = nn_text_positions(input_of(m, first)), slice;
    w->window = o->window ? o->window : positions < WINDOW ? positions : WINDOW;
    slice = w->window - o->before_count - o->after_count;
    if (is_pair(m)) w->count = text->count;
    for (int64_t b = 0; !is_pair(m) && b < text->count; b++)
        w->count += pieces_of(text->starts[b + 1] - text->starts[b], slice);
    if (o->windows && o->windows < w->count) w->count = o->windows;
}

static mha_status make(nn_windows *w, mha_context *ctx, mha_model *m, const mha_text *text, const mha_text_options *o,
                       bool repeats)
{
    int64_t sides = o->before_count + o->after_count;
    count_windows(w, m, text, o);
    if (w->window <= sides)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "a window of %lld tokens has no room for text",
                              (long long)w->window);
    w->sequences = calloc((size_t)w->count + 1, sizeof *w->sequences);
    w->tokens = malloc((size_t)((is_pair(m) ? 0 : w->count * w->window) + 1) * sizeof *w->tokens);
    if (!w->sequences || !w->tokens)
        return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the windows of the text");
    if (hears(m)) {
        const nn_input_config *in = input_of(m, 0);
        w->features = malloc((size_t)(text->count * in->bins * 2 * in->positions) * sizeof *w->features);
        if (!w->features) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the features");
        mha_tensor to = mha_tensor_3d(w->features, MHA_FLOAT32, text->count, in->bins, 2 * in->positions);
        mha_status copied = mha_tensor_copy(ctx, to, text->features);
        if (copied) return copied;
    }
    mha_status status = is_pair(m) ? take_pairs(w, ctx, m, text) : cut(w, ctx, m, text, o, w->tokens);
    if (!status && repeats) status = add_repeats(w, ctx, m, text, o);
    if (status) return status;
    for (int64_t n = 0; n < w->count + w->repeats; n++)
        for (int s = 0; s < 2; s++)
            if (w->sequences[n].T[s] > w->longest[s]) w->longest[s] = w->sequences[n].T[s];
    return nn_public_net(ctx, m, nn_text_pass_batch(&m->d, w->longest), w->longest[0], w->longest[1]);
}

mha_status nn_windows_make(nn_windows *w, mha_context *ctx, mha_model *model, const mha_text *text,
                           const mha_text_options *options, bool repeats)
{
    mha_text_options o = MHA_TEXT_DEFAULTS;
    mha_status status;
    *w = (nn_windows){0};
    if ((status = nn_public_need(ctx, model, "model")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_TEXT_DEFAULTS")) ||
        (status = nn_public_cpu(ctx)) || (status = nn_windows_check(ctx, model, text)) ||
        (status = check_options(ctx, model, &o)))
        return status;
    status = make(w, ctx, model, text, &o, repeats);
    if (!status && model->parameters) nn_model_changed(model->net); /* they may have been written since the last run */
    return status;
}

void nn_windows_free(nn_windows *w)
{
    free(w->sequences);
    free(w->tokens);
    free(w->random);
    free(w->features);
    *w = (nn_windows){0};
}
