/* mha eval --text: the loss of a decoder on a text, in windows that overlap. */
#include "cli/common/cli.h"
#include "cli/eval/text.h"
#include "cli/common/head_list.h"
#include "cli/common/language.h"
#include "cli/terminal/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 1024 }; /* the largest that is taken by itself: a window has that many rows of logits */

typedef struct scores {
    int64_t tokens, bytes;           /* of the text; bytes of the scored tokens */
    int64_t scored, windows, read;   /* read: tokens of all windows */
    int64_t window, stride, classes; /* what was chosen */
    double loss, seconds;            /* loss: the sum of -ln(probability) */
    int threads;
    const char *isa;
} scores;

/* ---- Tokens ----------------------------------------------------------------------------------------------------- */

static bool is_decoder(const eval_request *r, const mha_model_info *about)
{
    if (!about->vocabulary) return cli_refuse("%s: does not read text", r->from.file);
    if (about->decoder_only && about->causal && about->head && !about->pooled && about->classes >= about->vocabulary)
        return true;
    return cli_refuse("%s: --text needs a decoder that predicts the next token, such as GPT-2 or Llama", r->from.file);
}

/* The ids of the text; NULL after an error. To be freed. */
static int32_t *encode_text(scores *s, mha_context *ctx, const eval_request *r, const mha_tokenizer *tokenizer,
                            const mha_model_info *about, const nn_buffer *text)
{
    mha_encoding *e = NULL;
    if (mha_encoding_make(ctx, &e, tokenizer, text->size ? text->bytes : "", text->size, NULL, 0, NULL)) {
        cli_refuse("%s: %s", r->text, cli_reason(ctx));
        return NULL;
    }
    s->tokens = mha_encoding_count(e);
    mha_token first = mha_encoding_get(e, 0);
    s->bytes = (int64_t)text->size - (first.text < 0 ? 0 : first.end);
    int32_t *ids = malloc((size_t)(s->tokens + 1) * sizeof *ids);
    bool good = ids != NULL;
    if (!good) cli_refuse("not enough memory for the tokens");
    if (good && (s->tokens < 2 || s->bytes < 1))
        good = cli_refuse("%s: has too little text; there must be a token after the first one", r->text);
    for (int64_t t = 0; good && t < s->tokens; t++) {
        ids[t] = mha_encoding_get(e, t).id;
        if (ids[t] >= about->vocabulary)
            good = cli_refuse("token %d is not below %lld, the size of the model's vocabulary; is the tokenizer "
                              "that of the model?",
                              ids[t], (long long)about->vocabulary);
    }
    mha_encoding_free(e);
    if (good) return ids;
    free(ids);
    return NULL;
}

static bool choose_window(scores *s, const eval_request *r, const mha_model_info *about)
{
    int64_t most = about->positions;
    if (most && r->window > most)
        return cli_refuse("--window %lld is more than the %lld positions of the model", (long long)r->window,
                          (long long)most);
    if (!most && about->context > 1) most = about->context;
    s->window = r->window ? r->window : most && most < WINDOW ? most : WINDOW;
    s->stride = r->stride ? r->stride : s->window / 2;
    if (s->stride < s->window) return true;
    return cli_refuse("--stride %lld must be below the window, which has %lld tokens", (long long)s->stride,
                      (long long)s->window);
}

/* ---- Scores ----------------------------------------------------------------------------------------------------- */

/* -ln of the probability that the logits give to a token. */
static double negative_log_probability(const float *logits, int64_t count, int32_t token)
{
    return language_log_sum(logits, count) - (double)logits[token];
}

/* Windows start at multiples of the stride; each scores the tokens that no window before it has. */
static bool score_windows(scores *s, mha_context *ctx, mha_model *model, const int32_t *ids, const char *name)
{
    int64_t rows = s->window < s->tokens ? s->window : s->tokens, next = 1;
    float *logits = rows > 0 && s->classes > 0 ? calloc((size_t)rows, (size_t)s->classes * sizeof *logits) : NULL;
    bool good = logits != NULL;
    if (!good)
        cli_refuse("not enough memory for %lld rows of logits; --window takes a smaller number", (long long)rows);
    progress_begin("scoring %s", name);
    for (int64_t start = 0; good && next < s->tokens; start += s->stride) {
        int64_t T = s->tokens - start < rows ? s->tokens - start : rows;
        mha_model_inputs in = {.tokens = mha_tensor_2d(ids + start, MHA_INT32, 1, T)};
        mha_model_outputs out = {.logits = mha_tensor_3d(logits, MHA_FLOAT32, 1, T, s->classes)};
        double before = cli_clock();
        if (mha_model_run(ctx, model, &out, &in)) good = cli_refuse("%s", cli_reason(ctx));
        s->seconds += cli_clock() - before;
        for (; good && next < start + T; next++, s->scored++)
            s->loss += negative_log_probability(logits + (next - 1 - start) * s->classes, s->classes, ids[next]);
        s->windows++, s->read += T;
        progress_at(next, s->tokens);
    }
    progress_end();
    free(logits);
    return good;
}

/* ---- Output ----------------------------------------------------------------------------------------------------- */

static double loss_of(const scores *s) { return s->loss / (double)s->scored; }
static double bits_of(const scores *s) { return s->loss / (log(2) * (double)s->bytes); }
static double speed_of(const scores *s) { return s->seconds > 0 ? (double)s->read / s->seconds : 0; }
static const char *type_of(const eval_request *r) { return r->from.type == MHA_BFLOAT16 ? "bf16" : "f32"; }

static bool print_text(const scores *s, const eval_request *r, const session *of, const bool *off)
{
    enum { COLUMN = 17 };
    cli_print(stdout, "  model          %s\n", r->from.file);
    if (off) {
        printf("  without        ");
        head_list_print(off, of->model, COLUMN);
        printf("\n");
    }
    cli_print(stdout, "  text           %s: %lld token%s, %lld scored, %lld byte%s\n", language_name(r->text),
              (long long)s->tokens, plural(s->tokens), (long long)s->scored, (long long)s->bytes, plural(s->bytes));
    printf("  windows        %lld of up to %lld tokens, in steps of %lld\n\n", (long long)s->windows,
           (long long)s->window, (long long)s->stride);
    printf("  loss           %.4f\n  perplexity     %.4f\n  bits per byte  %.4f\n", loss_of(s), exp(loss_of(s)),
           bits_of(s));
    printf("  speed          %.0f tokens/s: %.2f s, %d thread%s, %s on %s\n", speed_of(s), s->seconds, s->threads,
           s->threads == 1 ? "" : "s", type_of(r), s->isa);
    return true;
}

static void put_off(nn_buffer *out, const session *of, const bool *off)
{
    int64_t n = 0, named = 0;
    nn_buffer_puts(out, ",\n  \"without\": [");
    for (int64_t l = 0; off && l < of->about.blocks; l++)
        for (int64_t h = 0; h < mha_model_attention_get(of->model, l).heads; h++)
            if (off[n++])
                nn_buffer_printf(out, "%s{\"block\": %lld, \"head\": %lld}", named++ ? ", " : "", (long long)l,
                                 (long long)h);
    nn_buffer_puts(out, "]");
}

static bool print_json(const scores *s, const eval_request *r, const session *of, const bool *off)
{
    nn_buffer out = {0};
    nn_buffer_puts(&out, "{\n  \"model\": ");
    language_quote(&out, r->from.file, strlen(r->from.file));
    nn_buffer_puts(&out, ",\n  \"text\": ");
    language_quote(&out, r->text, strlen(r->text));
    put_off(&out, of, off);
    nn_buffer_printf(&out, ",\n  \"window\": %lld,\n  \"stride\": %lld,\n  \"windows\": %lld,\n  \"tokens\": %lld,\n",
                     (long long)s->window, (long long)s->stride, (long long)s->windows, (long long)s->tokens);
    nn_buffer_printf(&out,
                     "  \"scored\": %lld,\n  \"bytes\": %lld,\n  \"loss\": %.9g,\n  \"perplexity\": %.9g,\n"
                     "  \"bits_per_byte\": %.9g,\n  \"seconds\": %.6f,\n  \"tokens_per_second\": %.2f,\n"
                     "  \"threads\": %d,\n  \"isa\": \"%s\",\n  \"dtype\": \"%s\"\n}\n",
                     (long long)s->scored, (long long)s->bytes, loss_of(s), fmin(exp(loss_of(s)), 1e300), bits_of(s),
                     s->seconds, speed_of(s), s->threads, s->isa, type_of(r));
    return language_put(&out);
}

int eval_text(const eval_request *r)
{
    session of;
    mha_tokenizer *tokenizer = NULL;
    nn_buffer text = {0};
    int32_t *ids = NULL;
    bool *off = NULL;
    scores s = {0};
    bool good = session_open(&of, &r->from);
    if (good) {
        s.threads = mha_context_threads(of.ctx), s.isa = mha_context_isa(of.ctx), s.classes = of.about.classes;
        good = is_decoder(r, &of.about) && choose_window(&s, r, &of.about) &&
               language_tokenizer(of.ctx, &tokenizer, r->from.file, r->tokenizer) &&
               language_fits(of.ctx, tokenizer, of.about.vocabulary, r->json) && language_read(&text, r->text) &&
               (ids = encode_text(&s, of.ctx, r, tokenizer, &of.about, &text)) &&
               head_list_off(&off, &of, r->without) &&
               score_windows(&s, of.ctx, of.model, ids, language_name(r->text)) &&
               (r->json ? print_json(&s, r, &of, off) : print_text(&s, r, &of, off));
    }
    free(ids);
    free(off);
    nn_buffer_free(&text);
    mha_tokenizer_free(tokenizer);
    session_close(&of);
    return good ? CLI_OK : CLI_USAGE;
}
