#include "cli/common/texts.h"
#include "cli/common/cli.h"
#include "cli/common/language.h"
#include "cli/common/tokenizer.h"
#include "io/source.h"
#include "cli/terminal/progress.h"

#include <stdlib.h>
#include <string.h>

/* Standard input, with a NUL behind it. */
static char *read_standard(size_t *length)
{
    nn_buffer text = {0};
    bool good = language_read(&text, "-");
    *length = text.size;
    nn_buffer_putc(&text, 0);
    if (good && text.failed) good = cli_refuse("not enough memory for the text");
    if (good && memchr(text.bytes, 0, *length)) good = cli_refuse("standard input: has a NUL byte; is it a text?");
    if (good) return text.bytes; /* the caller's */
    nn_buffer_free(&text);
    return NULL;
}

char *texts_read(const char *path, size_t *length)
{
    char error[600];
    if (strcmp(path, "-") == 0) return read_standard(length);
    char *text;
    nn_source_text(&text, path, TEXTS_FILE_MOST, length, error, sizeof error);
    if (!text) cli_error("%s", error);
    return text;
}

static bool no_memory(void) { return cli_refuse("not enough memory for the tokens"); }

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Tokens of the model's vocabulary that are neither special nor without a piece. */
static bool mark_drawn(texts *t, int64_t vocabulary)
{
    const mha_tokenizer *of = t->in ? t->in : t->out;
    if (!(t->drawn = calloc((size_t)vocabulary + 1, sizeof *t->drawn))) return no_memory();
    for (int64_t n = 0; n < vocabulary; n++)
        t->drawn[n] = mha_tokenizer_piece(of, n, NULL) && !mha_tokenizer_is_special(of, n);
    return true;
}

bool texts_open(texts *t, mha_context *ctx, mha_model *model, const texts_from *from)
{
    mha_model_info about = {.size = sizeof about};
    *t = (texts){.ctx = ctx, .model = model, .from = from};
    mha_model_about(ctx, model, &about);
    t->pair = about.encoder_blocks > 0;
    if (about.frames && !from->audio)
        return cli_refuse("%s: the model reads audio; give it some with --audio FILE.wav", from->model);
    if (!about.frames && from->audio) return cli_refuse("%s: does not read audio; a Whisper does", from->model);
    if (!about.frames && !about.vocabulary) return cli_refuse("%s: the model does not read text", from->model);
    if ((!about.frames && !tokenizer_open(&t->in, ctx, from->model, from->tokenizer, false)) ||
        (t->pair && !tokenizer_open(&t->out, ctx, from->model, from->tokenizer, true)))
        return cli_error("%s", cli_reason(ctx));
    if ((t->in && !language_fits(ctx, t->in, about.vocabulary, true)) ||
        (t->out && !language_fits(ctx, t->out, about.classes, true)))
        return false;
    return mark_drawn(t, about.frames ? about.classes : about.vocabulary);
}

void texts_close(texts *t)
{
    mha_tokenizer_free(t->in);
    mha_tokenizer_free(t->out);
    for (int s = 0; s < 2; s++) {
        free(t->tokens[s]);
        free(t->starts[s]);
    }
    free(t->drawn);
    free(t->features);
    *t = (texts){0};
}

void texts_options(const texts *t, mha_text_options *o)
{
    o->before = t->before, o->before_count = t->before_count;
    o->after = t->after, o->after_count = t->after_count;
    o->drawn = t->drawn;
}

/* ---- One stack -------------------------------------------------------------------------------------------------- */

/* The tokens of the text, and those that the tokenizer adds at its sides. */
static bool take_whole(texts *t, const char *text, size_t length, const char *name)
{
    mha_encoding *e = NULL;
    if (mha_encoding_make(t->ctx, &e, t->in, text, length, NULL, 0, NULL))
        return cli_refuse("%s: %s", name, cli_reason(t->ctx));
    int64_t all = mha_encoding_count(e), count = 0;
    t->tokens[0] = malloc((size_t)(all + 1) * sizeof **t->tokens);
    t->starts[0] = calloc(2, sizeof **t->starts);
    if (!t->tokens[0] || !t->starts[0]) {
        mha_encoding_free(e);
        return no_memory();
    }
    for (int64_t n = 0; n < all; n++) {
        mha_token one = mha_encoding_get(e, n);
        if (one.text >= 0) t->tokens[0][count++] = one.id;
        else if (!count && t->before_count < TEXTS_SIDE) t->before[t->before_count++] = one.id;
        else if (count && t->after_count < TEXTS_SIDE) t->after[t->after_count++] = one.id;
    }
    mha_encoding_free(e);
    t->starts[0][1] = count, t->count = 1;
    return count || cli_refuse("%s: has no tokens; a survey needs a text", name);
}

/* ---- Two stacks ------------------------------------------------------------------------------------------------- */

/* Encodes the lines of a text that are not empty, behind `prefix` tokens of the same kind; at most t->from->lines. */
static bool take_lines(texts *t, int stack, const char *text, size_t length, const char *name, const int32_t *prefix,
                       int64_t prefix_count)
{
    const mha_tokenizer *tokenizer = stack ? t->out : t->in;
    int64_t lines = 0, all = 0, room = 0, number = 0;
    for (size_t i = 0; i < length; i++) lines += text[i] == '\n';
    if (!(t->starts[stack] = calloc((size_t)lines + 3, sizeof **t->starts))) return no_memory();
    lines = 0;
    for (const char *at = text, *end = text + length; at < end && lines < t->from->lines; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop ? stop : end) - at), used = size && at[size - 1] == '\r' ? size - 1 : size;
        int64_t count = 0;
        if (used) {
            if (mha_tokenizer_encode(t->ctx, tokenizer, NULL, 0, &count, at, used, NULL))
                return cli_refuse("%s, line %lld: %s", name, (long long)number + 1, cli_reason(t->ctx));
            room = all + prefix_count + count;
            int32_t *more = realloc(t->tokens[stack], (size_t)(room + 1) * sizeof *more);
            if (!more) return no_memory();
            t->tokens[stack] = more;
            if (prefix_count) memcpy(more + all, prefix, (size_t)prefix_count * sizeof *prefix);
            if (count &&
                mha_tokenizer_encode(t->ctx, tokenizer, more + all + prefix_count, count, &count, at, used, NULL))
                return cli_refuse("%s: %s", name, cli_reason(t->ctx));
            all = room;
            t->starts[stack][++lines] = all;
        }
        at += size + 1;
    }
    if (stack && lines != t->count)
        return cli_refuse("%s has %lld lines, but the text has %lld; each needs its target", name, (long long)lines,
                          (long long)t->count);
    t->count = lines;
    return lines || cli_refuse("%s: has no text; each line is a source", name);
}

/* Sequences that have been generated, of `all` tokens together. The model has not read their last token, for which it may have
 * no position. */
static bool keep_targets(texts *t, const mha_generation *g, int64_t all)
{
    mha_model_info about = {.size = sizeof about};
    mha_model_about(t->ctx, t->model, &about);
    t->tokens[1] = malloc((size_t)(all + 1) * sizeof **t->tokens);
    t->starts[1] = calloc((size_t)t->count + 1, sizeof **t->starts);
    if (!t->tokens[1] || !t->starts[1]) return no_memory();
    for (int64_t b = 0; b < t->count; b++) {
        mha_generated one = mha_generation_get(g, b);
        int64_t most = about.positions, count = most && one.count > most ? most : one.count;
        memcpy(t->tokens[1] + t->starts[1][b], one.tokens, (size_t)count * sizeof *one.tokens);
        t->starts[1][b + 1] = t->starts[1][b] + count;
    }
    return true;
}

/* The library counts prompts, which are lines here. */
static bool refuse_targets(const mha_context *ctx)
{
    static const char prompt[] = "prompt ";
    const char *why = cli_reason(ctx);
    bool numbered = strncmp(why, prompt, sizeof prompt - 1) == 0;
    return cli_refuse("generating the targets: %s%s", numbered ? "line " : "",
                      why + (numbered ? sizeof prompt - 1 : 0));
}

/* The decoder's tokens as the model generates them; `prompt_only`: those that it starts with, of the first line. */
static bool generate_targets(texts *t, bool prompt_only, int32_t *prompt, int64_t *prompt_count)
{
    mha_generation *g = NULL;
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    mha_generation_inputs in = {.count = prompt_only ? 1 : t->count, .tokens = t->tokens[0], .starts = t->starts[0]};
    int64_t all = 0;
    o.method = MHA_GENERATE_GREEDY;
    o.max_new_tokens = prompt_only ? 1 : t->from->new_tokens;
    progress_begin("writing the targets");
    bool ok = !mha_generation_create(t->ctx, &g, t->model, &in, &o) && !mha_generation_run(t->ctx, g);
    progress_end();
    if (!ok) refuse_targets(t->ctx);
    for (int64_t b = 0; ok && b < in.count; b++) all += mha_generation_get(g, b).count;
    if (ok && prompt_only) {
        mha_generated one = mha_generation_get(g, 0);
        *prompt_count = one.prompt < TEXTS_SIDE ? one.prompt : TEXTS_SIDE;
        memcpy(prompt, one.tokens, (size_t)*prompt_count * sizeof *prompt);
    } else if (ok) ok = keep_targets(t, g, all);
    mha_generation_free(g);
    return ok;
}

bool texts_take(texts *t, const char *text, size_t length, const char *name, const char *target, size_t target_length,
                const char *target_name)
{
    int32_t prompt[TEXTS_SIDE] = {0};
    int64_t prompt_count = 0;
    if (!t->pair) {
        if (target) return cli_refuse("a target is for models with an encoder and a decoder");
        if (!take_whole(t, text, length, name)) return false;
    } else if (!take_lines(t, 0, text, length, name, NULL, 0) ||
               !generate_targets(t, target != NULL, prompt, &prompt_count) ||
               (target && !take_lines(t, 1, target, target_length, target_name, prompt, prompt_count)))
        return false;
    t->of = (mha_text){.count = t->count,
                       .tokens = t->tokens[0],
                       .starts = t->starts[0],
                       .decoder_tokens = t->tokens[1],
                       .decoder_starts = t->starts[1]};
    return true;
}

/* ---- Sounds ----------------------------------------------------------------------------------------------------- */

/* The features of all windows of a sound. */
static bool take_windows(texts *t, const mha_sound *sound, const char *path, const mha_model_info *about)
{
    int64_t samples, window = about->frames * MHA_SPEECH_HOP, numbers = about->bins * about->frames;
    const float *all = mha_sound_samples(sound, &samples);
    t->count = (samples + window - 1) / window;
    if (t->count > t->from->lines) t->count = t->from->lines;
    t->features = malloc((size_t)(t->count * numbers + 1) * sizeof *t->features);
    if (!t->features) return cli_refuse("not enough memory for the features of %s", path);
    for (int64_t n = 0; n < t->count; n++) {
        int64_t left = samples - n * window;
        mha_tensor to = mha_tensor_3d(t->features + n * numbers, MHA_FLOAT32, 1, about->bins, about->frames);
        if (mha_speech_features(t->ctx, to, all + n * window, left < window ? left : window))
            return cli_refuse("%s: %s", path, cli_reason(t->ctx));
    }
    t->of = (mha_text){.count = t->count,
                       .features = mha_tensor_3d(t->features, MHA_FLOAT32, t->count, about->bins, about->frames)};
    t->frames = about->frames / 2;
    return true;
}

/* What the model hears in each window, behind its prompt. */
static bool transcribe_windows(texts *t, const mha_speech_prompt *prompt)
{
    mha_generation *g = NULL;
    mha_generation_options o = MHA_GENERATION_DEFAULTS;
    int32_t *tokens = malloc((size_t)(t->count * prompt->count + 1) * sizeof *tokens);
    int64_t *starts = calloc((size_t)t->count + 1, sizeof *starts), all = 0;
    bool ok = tokens && starts;
    for (int64_t n = 0; ok && n < t->count; n++) {
        memcpy(tokens + n * prompt->count, prompt->tokens, (size_t)prompt->count * sizeof *tokens);
        starts[n + 1] = (n + 1) * prompt->count;
    }
    if (!ok) no_memory();
    mha_generation_inputs in = {
        .count = t->count, .decoder_tokens = tokens, .decoder_starts = starts, .features = t->of.features};
    o.method = MHA_GENERATE_GREEDY;
    o.max_new_tokens = t->from->new_tokens;
    if (ok && (mha_generation_create(t->ctx, &g, t->model, &in, &o) || mha_generation_run(t->ctx, g)))
        ok = cli_refuse("%s", cli_reason(t->ctx));
    for (int64_t n = 0; ok && n < t->count; n++) all += mha_generation_get(g, n).count;
    ok = ok && keep_targets(t, g, all);
    mha_generation_free(g);
    free(tokens);
    free(starts);
    return ok;
}

bool texts_hear(texts *t, const char *path)
{
    mha_sound *sound = NULL;
    mha_speech_prompt prompt = {.size = sizeof prompt};
    mha_model_info about = {.size = sizeof about};
    mha_model_about(t->ctx, t->model, &about);
    bool ok = !mha_sound_open(t->ctx, &sound, path) || cli_refuse("%s", cli_reason(t->ctx));
    ok = ok && take_windows(t, sound, path, &about);
    mha_sound_free(sound);
    mha_tensor first = mha_tensor_3d(t->features, MHA_FLOAT32, 1, about.bins, about.frames);
    if (ok && mha_speech_start(t->ctx, &prompt, t->model, first, NULL))
        ok = cli_refuse("%s: %s", t->from->model, cli_reason(t->ctx));
    ok = ok && transcribe_windows(t, &prompt);
    t->of.decoder_tokens = t->tokens[1];
    t->of.decoder_starts = t->starts[1];
    return ok;
}
