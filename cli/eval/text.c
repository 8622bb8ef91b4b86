/* mha eval --text: the loss of a decoder on a text, in windows that overlap. */
#include "cli/eval/text.h"
#include "cli/common/language.h"

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

static bool fits(const eval_text_request *r, const mha_model_info *about)
{
    if (!about->vocabulary) return cli_error("eval: %s: does not read text", r->model);
    if (about->decoder_only && about->causal && about->head && !about->pooled && about->classes >= about->vocabulary)
        return true;
    return cli_error("eval: %s: --text needs a decoder that predicts the next token, such as GPT-2 or Llama", r->model);
}

/* The ids of the text; NULL after an error. To be freed. */
static int32_t *encode(scores *s, mha_context *ctx, const eval_text_request *r, const mha_tokenizer *tokenizer,
                       const mha_model_info *about, const nn_buffer *text)
{
    mha_encoding *e = NULL;
    if (mha_encoding_make(ctx, &e, tokenizer, text->size ? text->bytes : "", text->size, NULL, 0, NULL)) {
        cli_error("eval: %s: %s", r->text, mha_context_error(ctx));
        return NULL;
    }
    s->tokens = mha_encoding_count(e);
    mha_token first = mha_encoding_get(e, 0);
    s->bytes = (int64_t)text->size - (first.text < 0 ? 0 : first.end);
    int32_t *ids = malloc((size_t)(s->tokens + 1) * sizeof *ids);
    bool good = ids != NULL;
    if (!good) cli_error("eval: not enough memory for the tokens");
    if (good && (s->tokens < 2 || s->bytes < 1))
        good = cli_error("eval: %s: has too little text; there must be a token after the first one", r->text);
    for (int64_t t = 0; good && t < s->tokens; t++) {
        ids[t] = mha_encoding_get(e, t).id;
        if (ids[t] >= about->vocabulary)
            good = cli_error("eval: token %d is not below %lld, the size of the model's vocabulary; is the tokenizer "
                             "that of the model?",
                             ids[t], (long long)about->vocabulary);
    }
    mha_encoding_free(e);
    if (good) return ids;
    free(ids);
    return NULL;
}

static bool choose_window(scores *s, const eval_text_request *r, const mha_model_info *about)
{
    int64_t most = about->positions;
    if (most && r->window > most)
        return cli_error("eval: --window %lld is more than the %lld positions of the model", (long long)r->window,
                         (long long)most);
    if (!most && about->context > 1) most = about->context;
    s->window = r->window ? r->window : most && most < WINDOW ? most : WINDOW;
    s->stride = r->stride ? r->stride : s->window / 2;
    if (s->stride < s->window) return true;
    return cli_error("eval: --stride %lld must be below the window, which has %lld tokens", (long long)s->stride,
                     (long long)s->window);
}

/* ---- Scores ----------------------------------------------------------------------------------------------------- */

/* -ln of the probability that the logits give to a token. */
static double surprise(const float *logits, int64_t count, int32_t token)
{
    return language_log_sum(logits, count) - (double)logits[token];
}

/* Windows start at multiples of the stride; each scores the tokens that no window before it has. */
static bool score(scores *s, mha_context *ctx, mha_model *model, const int32_t *ids)
{
    int64_t rows = s->window < s->tokens ? s->window : s->tokens, next = 1;
    float *logits = rows > 0 && s->classes > 0 ? calloc((size_t)rows, (size_t)s->classes * sizeof *logits) : NULL;
    bool good = logits != NULL;
    if (!good)
        cli_error("eval: not enough memory for %lld rows of logits; --window takes a smaller number", (long long)rows);
    for (int64_t start = 0; good && next < s->tokens; start += s->stride) {
        int64_t T = s->tokens - start < rows ? s->tokens - start : rows;
        mha_model_inputs in = {.tokens = mha_tensor_2d(ids + start, MHA_INT32, 1, T)};
        mha_model_outputs out = {.logits = mha_tensor_3d(logits, MHA_FLOAT32, 1, T, s->classes)};
        double before = cli_clock();
        if (mha_model_run(ctx, model, &out, &in)) good = cli_error("eval: %s", mha_context_error(ctx));
        s->seconds += cli_clock() - before;
        for (; good && next < start + T; next++, s->scored++)
            s->loss += surprise(logits + (next - 1 - start) * s->classes, s->classes, ids[next]);
        s->windows++, s->read += T;
    }
    free(logits);
    return good;
}

/* ---- Output ----------------------------------------------------------------------------------------------------- */

static bool print(const scores *s, const eval_text_request *r)
{
    double loss = s->loss / (double)s->scored, bits = s->loss / (log(2) * (double)s->bytes);
    double speed = s->seconds > 0 ? (double)s->read / s->seconds : 0;
    const char *type = r->type == MHA_BFLOAT16 ? "bf16" : "f32";
    if (!r->json) {
        cli_print(stdout, "  model          %s\n", r->model);
        cli_print(stdout, "  text           %s: %lld tokens, %lld scored, %lld bytes\n", r->text, (long long)s->tokens,
                  (long long)s->scored, (long long)s->bytes);
        printf("  windows        %lld of up to %lld tokens, in steps of %lld\n\n", (long long)s->windows,
               (long long)s->window, (long long)s->stride);
        printf("  loss           %.4f\n  perplexity     %.4f\n  bits per byte  %.4f\n", loss, exp(loss), bits);
        printf("  speed          %.0f tokens/s: %.2f s, %d thread%s, %s on %s\n", speed, s->seconds, s->threads,
               s->threads == 1 ? "" : "s", type, s->isa);
        return true;
    }
    nn_buffer out = {0};
    nn_buffer_puts(&out, "{\n  \"model\": ");
    language_quote(&out, r->model, strlen(r->model));
    nn_buffer_puts(&out, ",\n  \"text\": ");
    language_quote(&out, r->text, strlen(r->text));
    nn_buffer_printf(&out, ",\n  \"window\": %lld,\n  \"stride\": %lld,\n  \"windows\": %lld,\n  \"tokens\": %lld,\n",
                     (long long)s->window, (long long)s->stride, (long long)s->windows, (long long)s->tokens);
    nn_buffer_printf(&out,
                     "  \"scored\": %lld,\n  \"bytes\": %lld,\n  \"loss\": %.9g,\n  \"perplexity\": %.9g,\n"
                     "  \"bits_per_byte\": %.9g,\n  \"seconds\": %.6f,\n  \"tokens_per_second\": %.2f,\n"
                     "  \"threads\": %d,\n  \"isa\": \"%s\",\n  \"dtype\": \"%s\"\n}\n",
                     (long long)s->scored, (long long)s->bytes, loss, fmin(exp(loss), 1e300), bits, s->seconds, speed,
                     s->threads, s->isa, type);
    return language_put(&out, "eval");
}

int eval_text(const eval_text_request *r)
{
    mha_model_options o = MHA_MODEL_DEFAULTS;
    mha_model_info about = {.size = sizeof about};
    mha_model *model = NULL;
    mha_tokenizer *tokenizer = NULL;
    nn_buffer text = {0};
    int32_t *ids = NULL;
    mha_context *ctx = cli_context_of((int)r->threads);
    if (!ctx) return CLI_USAGE;
    scores s = {.threads = mha_context_threads(ctx), .isa = mha_context_isa(ctx)};
    bool good = false;
    o.compute = r->type;
    if (mha_model_open(ctx, &model, r->model, &o) || mha_model_about(ctx, model, &about))
        cli_error("%s", mha_context_error(ctx));
    else {
        s.classes = about.classes;
        good = fits(r, &about) && choose_window(&s, r, &about) &&
               language_tokenizer(ctx, &tokenizer, r->model, r->tokenizer) &&
               language_fits(ctx, "eval", tokenizer, about.vocabulary, r->json) &&
               language_read(&text, "eval", r->text) && (ids = encode(&s, ctx, r, tokenizer, &about, &text)) &&
               score(&s, ctx, model, ids) && print(&s, r);
    }
    free(ids);
    nn_buffer_free(&text);
    mha_tokenizer_free(tokenizer);
    mha_model_free(model);
    mha_context_free(ctx);
    return good ? CLI_OK : CLI_USAGE;
}
