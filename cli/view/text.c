/* A text, its tokens and the weights of all heads as JSON for the page: one set of maps for the encoder, the decoder and the
 * cross-attention, where a model has them. The library computes them; the page shows them. */
#include "cli/view/text.h"
#include "cli/common/cli.h"
#include "cli/common/model.h"
#include "cli/common/texts.h"
#include "cli/view/live.h"
#include "cli/view/page.h"
#include "cli/view/weights.h"
#include "cli/terminal/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOKENS_MOST = 1024,
    NEW_TOKENS = 60,
    SETS = 3,
    ROOM = 6000000, /* bytes of all maps */
    WORD = 600      /* bytes of a token's text */
};

/* The tokens of a stack, and their texts. */
typedef struct side {
    int64_t T;
    int32_t *ids;
    char **words, *bytes;
} side;

typedef struct scene {
    const view_text *v;
    texts texts;
    side sides[2];    /* of the encoder and of the decoder */
    mha_tensor *maps; /* (attentions) */
    float *numbers;   /* of all maps */
    mha_text_survey *survey;
    const char **head_words; /* of all heads */
} scene;

static bool no_memory(void) { return cli_refuse("not enough memory for the text"); }

/* ---- Tokens ----------------------------------------------------------------------------------------------------- */

static bool take_words(scene *s, side *to, const mha_tokenizer *tokenizer)
{
    to->words = calloc((size_t)to->T + 1, sizeof *to->words);
    to->bytes = malloc((size_t)(to->T + 1) * WORD);
    if (!to->words || !to->bytes) return no_memory();
    for (int64_t n = 0; n < to->T; n++) {
        size_t length = 0;
        to->words[n] = to->bytes + n * WORD;
        mha_status status = mha_tokenizer_word(s->texts.ctx, tokenizer, to->words[n], WORD, &length, to->ids[n]);
        if (status == MHA_FULL) to->words[n][0] = 0; /* too long to be shown */
        else if (status) return cli_refuse("%s", cli_reason(s->texts.ctx));
    }
    return true;
}

static bool take_ids(side *to, const int32_t *before, int64_t before_count, const int32_t *ids, int64_t count,
                     const int32_t *after, int64_t after_count)
{
    to->T = before_count + count + after_count;
    if (to->T > TOKENS_MOST)
        return cli_refuse("--text: has %" PRId64 " tokens; a page shows at most %d", to->T, TOKENS_MOST);
    if (!(to->ids = malloc((size_t)(to->T + 1) * sizeof *to->ids))) return no_memory();
    if (before_count) memcpy(to->ids, before, (size_t)before_count * sizeof *before);
    if (count) memcpy(to->ids + before_count, ids, (size_t)count * sizeof *ids);
    if (after_count) memcpy(to->ids + before_count + count, after, (size_t)after_count * sizeof *after);
    return true;
}

/* Without line feeds, which would separate sources. To be freed. */
static char *one_line(const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    for (char *c = copy; c && *c; c++)
        if (*c == '\n') *c = ' ';
    return copy;
}

static bool take_tokens(scene *s, bool decoder_only)
{
    texts *t = &s->texts;
    char *text = t->pair ? one_line(s->v->text) : strdup(s->v->text), *target = one_line(s->v->target);
    bool ok = text && (target || !s->v->target);
    if (!ok) no_memory();
    ok = ok && texts_take(t, text, strlen(text), "--text", target, target ? strlen(target) : 0, "--target");
    free(text);
    free(target);
    if (!ok) return false;
    const mha_text *of = &t->of;
    side *first = decoder_only ? &s->sides[1] : &s->sides[0];
    if (!take_ids(first, t->before, t->pair ? 0 : t->before_count, of->tokens, of->starts[1], t->after,
                  t->pair ? 0 : t->after_count) ||
        !take_words(s, first, t->in))
        return false;
    int64_t most = model_about(t->ctx, t->model).positions;
    if (first->T < 1) return cli_refuse("--text: has no tokens");
    if (most && first->T > most)
        return cli_refuse("--text: has %" PRId64 " tokens; the model has %" PRId64 " positions", first->T, most);
    if (!t->pair) return true;
    return take_ids(&s->sides[1], NULL, 0, of->decoder_tokens, of->decoder_starts[1], NULL, 0) &&
           take_words(s, &s->sides[1], t->out);
}

/* The frames of a sound, by their time, and what the model hears in it: the first window. */
static bool take_sound(scene *s)
{
    texts *t = &s->texts;
    side *frames = &s->sides[0], *heard = &s->sides[1];
    if (!texts_hear(t, s->v->audio)) return false;
    if (!take_ids(heard, NULL, 0, t->tokens[1], t->starts[1][1], NULL, 0) || !take_words(s, heard, t->out))
        return false;
    frames->T = t->frames;
    frames->words = calloc((size_t)frames->T + 1, sizeof *frames->words);
    frames->bytes = malloc((size_t)(frames->T + 1) * WORD);
    if (!frames->words || !frames->bytes) return no_memory();
    for (int64_t n = 0; n < frames->T; n++) {
        frames->words[n] = frames->bytes + n * WORD;
        snprintf(frames->words[n], WORD, "%.2f s", (double)(2 * n * MHA_SPEECH_HOP) / MHA_SPEECH_RATE);
    }
    return true;
}

/* ---- The run ---------------------------------------------------------------------------------------------------- */

/* Whether there is a map of an attention: an encoder of audio has too many frames for one. */
static bool is_shown(const scene *s, const mha_model_attention *a) { return a->decoder || !s->texts.frames; }

static bool run_model(scene *s)
{
    const mha_model *m = s->texts.model;
    int64_t count = mha_model_attention_count(m), all = 0;
    s->maps = calloc((size_t)count, sizeof *s->maps);
    for (int pass = 0; s->maps && pass < 2; pass++) {
        for (int64_t n = 0, at = 0; n < count; n++, all = at) {
            mha_model_attention a = mha_model_attention_get(m, n);
            if (!is_shown(s, &a)) continue;
            int64_t Tq = s->sides[a.decoder].T, Tk = a.cross ? s->sides[0].T : Tq;
            if (pass) s->maps[n] = mha_tensor_4d(s->numbers + at, MHA_FLOAT32, 1, a.heads, Tq, Tk);
            at += a.heads * Tq * Tk;
        }
        if (!pass && !(s->numbers = malloc((size_t)(all + 1) * sizeof *s->numbers))) break;
    }
    if (!s->maps || !s->numbers) return no_memory();
    bool decoder_only = !s->sides[0].T;
    const side *first = &s->sides[decoder_only];
    mha_model_inputs in = {0};
    mha_model_outputs out = {.maps = s->maps};
    if (s->texts.frames) {
        const mha_tensor *of = &s->texts.of.features;
        in.features = mha_tensor_3d(s->texts.features, MHA_FLOAT32, 1, of->size[1], of->size[2]);
    } else in.tokens = mha_tensor_2d(first->ids, MHA_INT32, 1, first->T);
    if (s->texts.pair) in.decoder_tokens = mha_tensor_2d(s->sides[1].ids, MHA_INT32, 1, s->sides[1].T);
    if (mha_model_run(s->texts.ctx, s->texts.model, &out, &in))
        return cli_error("%s: %s", s->v->file, cli_reason(s->texts.ctx));
    return true;
}

/* What the heads attend to in this text, and in repeated random tokens. */
static bool describe_heads(scene *s)
{
    mha_text_options o = MHA_TEXT_DEFAULTS;
    mha_text_head h = {.size = sizeof h};
    int64_t heads = 0;
    for (int64_t n = 0; n < mha_model_attention_count(s->texts.model); n++) {
        mha_model_attention a = mha_model_attention_get(s->texts.model, n);
        if (is_shown(s, &a)) heads += a.heads;
    }
    if (!(s->head_words = calloc((size_t)heads + 1, sizeof *s->head_words))) return no_memory();
    for (int64_t n = 0; n < heads; n++) s->head_words[n] = "mixed";
    if (!s->texts.frames && s->sides[0].T < 2 && s->sides[1].T < 2) return true; /* a single token has no pattern */
    texts_options(&s->texts, &o);
    progress_begin("measuring the heads");
    mha_status status = mha_text_survey_make(s->texts.ctx, &s->survey, s->texts.model, &s->texts.of, &o);
    progress_end();
    if (status) return cli_error("%s: %s", s->v->file, cli_reason(s->texts.ctx));
    for (int64_t n = 0; n < heads; n++) {
        if (mha_text_head_get(s->texts.ctx, s->survey, n, &h))
            return cli_error("%s: %s", s->v->file, cli_reason(s->texts.ctx));
        s->head_words[n] = h.words;
    }
    return true;
}

/* ---- The object ------------------------------------------------------------------------------------------------- */

typedef struct set {
    const char *name;
    bool decoder, cross;
    int64_t first, count, heads, heads_before; /* attentions; heads of each, the most; heads of those before */
} set;

/* The attentions of a kind that are shown, which lie side by side. Returns false if there are none. */
static bool find_set(set *to, const scene *s)
{
    const mha_model *m = s->texts.model;
    int64_t before = 0;
    for (int64_t n = 0; n < mha_model_attention_count(m); n++) {
        mha_model_attention a = mha_model_attention_get(m, n);
        if (!is_shown(s, &a)) continue;
        if (a.decoder == to->decoder && a.cross == to->cross) {
            if (!to->count++) to->first = n, to->heads_before = before;
            if (a.heads > to->heads) to->heads = a.heads;
        }
        before += a.heads;
    }
    return to->count;
}

/* The maps of a set. Layers with fewer heads than others have empty maps for those that they lack. */
static bool put_set(nn_buffer *out, const scene *s, const set *of, int64_t sets)
{
    const side *queries = &s->sides[of->decoder], *keys = of->cross ? &s->sides[0] : queries;
    view_tokens tokens = {.queries = queries->words, .keys = keys->words};
    view_weights w = {.path = of->name,
                      .axes = view_axes_of(4, "layers"),
                      .layers = of->count,
                      .heads = of->heads,
                      .queries = queries->T,
                      .keys = keys->T,
                      .room = ROOM / sets};
    const char **words = calloc((size_t)(of->count * of->heads) + 1, sizeof *words);
    float *nothing = calloc((size_t)keys->T + 1, sizeof *nothing);
    bool ok = (words && nothing && view_cells_open(&w)) || no_memory();
    for (int64_t l = 0, n = of->heads_before; ok && l < of->count; l++) {
        mha_model_attention a = mha_model_attention_get(s->texts.model, of->first + l);
        const float *map = s->maps[of->first + l].data;
        for (int64_t h = 0; h < of->heads; h++)
            for (int64_t i = 0; i < w.queries; i++)
                view_cells_add(&w, h < a.heads ? map + (h * w.queries + i) * w.keys : nothing,
                               (l * of->heads + h) * w.queries + i);
        for (int64_t h = 0; h < of->heads; h++) words[l * of->heads + h] = h < a.heads ? s->head_words[n++] : "removed";
    }
    w.words = words;
    if (ok) view_cells_json(out, &w, &tokens);
    view_weights_free(&w);
    free(words);
    free(nothing);
    return ok;
}

static bool put_object(nn_buffer *out, const scene *s, bool *runs)
{
    set sets[SETS] = {{.name = "Encoder"},
                      {.name = "Decoder", .decoder = true},
                      {.name = "Cross-attention", .decoder = true, .cross = true}};
    int64_t count = 0, done = 0;
    bool there[SETS], ok = true;
    for (int n = 0; n < SETS; n++) count += there[n] = find_set(&sets[n], s);
    mha_model_info about = model_about(s->texts.ctx, s->texts.model);
    nn_buffer_puts(out, "{\"kind\":\"text\",\"title\":");
    view_name(out, view_title(s->v->file));
    nn_buffer_printf(out, ",\"version\":\"mha %s\",\"family\":", mha_version());
    view_string(out, about.family ? about.family : "transformer");
    nn_buffer_printf(out, ",\"parameters\":%" PRId64 ",\n\"sets\":[", about.parameters);
    for (int n = 0; ok && n < SETS; n++) {
        if (!there[n]) continue;
        if (done++) nn_buffer_puts(out, ",\n");
        ok = put_set(out, s, &sets[n], count);
    }
    nn_buffer_puts(out, "],\n\"live\":");
    ok = ok && view_live(out, s->v, &s->texts, runs);
    nn_buffer_putc(out, '}');
    return ok;
}

/* ---- The page --------------------------------------------------------------------------------------------------- */

static void scene_close(scene *s)
{
    for (int n = 0; n < 2; n++) {
        free(s->sides[n].ids);
        free(s->sides[n].words);
        free(s->sides[n].bytes);
    }
    free(s->maps);
    free(s->numbers);
    free((void *)s->head_words);
    mha_text_survey_free(s->survey);
    texts_close(&s->texts);
}

bool view_text_write(const view_text *v, mha_context *ctx, mha_model *model, size_t *bytes, char *about, size_t room)
{
    char error[600];
    scene s = {.v = v};
    nn_buffer data = {0};
    bool runs = false;
    texts_from from = {
        .model = v->file, .tokenizer = v->tokenizer, .lines = 1, .new_tokens = NEW_TOKENS, .audio = v->audio != NULL};
    bool ok = texts_open(&s.texts, ctx, model, &from) &&
              (v->audio ? take_sound(&s) : take_tokens(&s, model_about(ctx, model).decoder_only)) && run_model(&s) &&
              describe_heads(&s) && put_object(&data, &s, &runs);
    view_module engine = runs ? VIEW_TEXT_ENGINE : VIEW_NO_ENGINE;
    if (ok && !view_page_write(v->page, view_title(v->file), &data, engine, bytes, error, sizeof error))
        ok = cli_error("%s", error);
    mha_model_info m = model_about(ctx, model);
    if (v->audio)
        snprintf(about, room, "%" PRId64 " token%s over %" PRId64 " frames", s.sides[1].T, plural(s.sides[1].T),
                 s.sides[0].T);
    else
        snprintf(about, room, "%" PRId64 " head%s, %" PRId64 " tokens", m.heads, plural(m.heads),
                 s.sides[0].T + s.sides[1].T);
    nn_buffer_free(&data);
    scene_close(&s);
    return ok;
}
