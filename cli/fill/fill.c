/* mha fill: the most likely tokens for each mask of a text. */
#include "cli/common/language.h"
#include "cli/common/model.h"
#include "cli/common/tokenizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    const char *model, *text, *tokenizer; /* the last is NULL if not given */
    int64_t top, threads;
    mha_type type;
    bool json;
} request;

static const cli_option options[] = {
    {"MODEL", "MODEL", "", CLI_NAME(request, model), .required = true},
    {"TEXT", "TEXT", "", CLI_TEXT(request, text), .noun = "text", .required = true},
    {"--top --top-k", "N", "how many tokens for each mask", CLI_NUMBER(request, top, 1, 1000), .preset = "5"},
    {TOKENIZER_ROW(request, tokenizer)},
    {CLI_JSON(request, json)},
    {CLI_DTYPE(request, type)},
    {CLI_THREADS(request, threads)},
    CLI_END};

/* A text with masks as tokens, and its logits. */
typedef struct filling {
    int64_t T, V, top; /* tokens; the vocabulary; answers for a mask */
    int32_t mask;
    int32_t *ids, *types;
    float *logits; /* (T,V) */
} filling;

/* ---- Input ------------------------------------------------------------------------------------------------------ */

static bool is_masked_language_model(const request *r, const mha_model_info *about)
{
    bool language = about->vocabulary && about->head && !about->pooled && about->classes == about->vocabulary;
    if (!about->vocabulary) return cli_refuse("%s: does not read text", r->model);
    if (language && !about->causal && !about->encoder_blocks && !about->decoder_only) return true;
    return cli_refuse("%s: is no masked language model; %s", r->model,
                      about->encoder_blocks || about->decoder_only
                          ? "'mha generate' continues texts with it"
                          : "it needs a head with logits for the tokens, such as BertForMaskedLM has");
}

static bool take_tokens(filling *f, const request *r, const mha_encoding *e, const mha_tokenizer *tokenizer,
                        const mha_model_info *about)
{
    int64_t masks = 0;
    f->T = mha_encoding_count(e);
    if (about->positions && f->T > about->positions)
        return cli_refuse("the text has %lld tokens, and %lld fit the model", (long long)f->T,
                          (long long)about->positions);
    f->ids = calloc((size_t)f->T + 1, sizeof *f->ids);
    f->types = calloc((size_t)f->T + 1, sizeof *f->types);
    if (!f->ids || !f->types) return cli_refuse("not enough memory for the tokens");
    for (int64_t t = 0; t < f->T; t++) {
        mha_token token = mha_encoding_get(e, t);
        f->ids[t] = token.id, f->types[t] = token.type;
        masks += token.id == f->mask;
        if (token.id >= about->vocabulary)
            return cli_refuse("token %d is not below %lld, the size of the model's vocabulary; is the tokenizer "
                              "that of the model?",
                              token.id, (long long)about->vocabulary);
    }
    if (masks) return true;
    return cli_refuse("'%.60s' has no %s; write it where a word is missing", r->text,
                      mha_tokenizer_piece(tokenizer, f->mask, NULL));
}

static bool encode_text(filling *f, mha_context *ctx, const request *r, const mha_tokenizer *tokenizer,
                        const mha_model_info *about)
{
    mha_encoding *e = NULL;
    bool good = true;
    f->mask = language_mask(ctx, tokenizer);
    if (f->mask < 0) return cli_refuse("%s: the tokenizer has no mask token", r->tokenizer ? r->tokenizer : r->model);
    if (mha_encoding_make(ctx, &e, tokenizer, r->text, strlen(r->text), NULL, 0, NULL))
        good = cli_refuse("%s", cli_reason(ctx));
    good = good && take_tokens(f, r, e, tokenizer, about);
    mha_encoding_free(e);
    return good;
}

static bool compute_logits(filling *f, mha_context *ctx, mha_model *model)
{
    f->logits = calloc((size_t)f->T + 1, (size_t)f->V * sizeof *f->logits);
    mha_model_inputs in = {.tokens = mha_tensor_2d(f->ids, MHA_INT32, 1, f->T),
                           .types = mha_tensor_2d(f->types, MHA_INT32, 1, f->T)};
    mha_model_outputs out = {.logits = mha_tensor_3d(f->logits, MHA_FLOAT32, 1, f->T, f->V)};
    if (!f->logits) return cli_refuse("not enough memory for the logits");
    return !mha_model_run(ctx, model, &out, &in) || cli_refuse("%s", cli_reason(ctx));
}

/* ---- Output ----------------------------------------------------------------------------------------------------- */

/* The most likely token that is less likely than `before` (-1: none), and of equals has a larger id. */
static int64_t next_likely(const float *logits, int64_t V, int64_t before)
{
    int64_t best = -1;
    for (int64_t v = 0; v < V; v++) {
        bool left = before < 0 || logits[v] < logits[before] || (logits[v] == logits[before] && v > before);
        if (left && (best < 0 || logits[v] > logits[best])) best = v;
    }
    return best;
}

static void put_mask(nn_buffer *json, const filling *f, const mha_tokenizer *tokenizer, int64_t t)
{
    const float *logits = f->logits + t * f->V;
    double whole = language_log_sum(logits, f->V);
    int64_t id = -1;
    for (int64_t n = 0; n < f->top && (id = next_likely(logits, f->V, id)) >= 0; n++) {
        size_t length = 0;
        const char *piece = mha_tokenizer_piece(tokenizer, id, &length);
        double probability = exp((double)logits[id] - whole);
        if (!json) {
            cli_print(stdout, "  %6.2f %%  %s\n", 100 * probability, piece ? piece : "(no piece)");
            continue;
        }
        nn_buffer_printf(json, "%s{\"id\": %lld, \"piece\": ", n ? ", " : "", (long long)id);
        if (piece) language_quote(json, piece, length);
        else nn_buffer_puts(json, "null");
        nn_buffer_printf(json, ", \"probability\": %.9g}", probability);
    }
}

static void print(const filling *f, const request *r, const mha_tokenizer *tokenizer)
{
    cli_print(stdout, "%s\n", r->text);
    for (int64_t t = 0, n = 0; t < f->T; t++) {
        if (f->ids[t] != f->mask) continue;
        printf("mask %lld\n", (long long)++n);
        put_mask(NULL, f, tokenizer, t);
    }
}

static bool print_json(const filling *f, const request *r, const mha_tokenizer *tokenizer)
{
    nn_buffer out = {0};
    nn_buffer_puts(&out, "{\n  \"model\": ");
    language_quote(&out, r->model, strlen(r->model));
    nn_buffer_puts(&out, ",\n  \"text\": ");
    language_quote(&out, r->text, strlen(r->text));
    nn_buffer_puts(&out, ",\n  \"ids\": [");
    for (int64_t t = 0; t < f->T; t++) nn_buffer_printf(&out, t ? ", %d" : "%d", f->ids[t]);
    nn_buffer_puts(&out, "],\n  \"masks\": [");
    for (int64_t t = 0, n = 0; t < f->T; t++) {
        if (f->ids[t] != f->mask) continue;
        nn_buffer_printf(&out, "%s\n    {\"position\": %lld, \"tokens\": [", n++ ? "," : "", (long long)t);
        put_mask(&out, f, tokenizer, t);
        nn_buffer_puts(&out, "]}");
    }
    nn_buffer_puts(&out, "\n  ]\n}\n");
    return language_put(&out);
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static int fill_masks(mha_context *ctx, const request *r)
{
    mha_model_options o = MHA_MODEL_DEFAULTS;
    mha_model_info about = {.size = sizeof about};
    mha_model *model = NULL;
    mha_tokenizer *tokenizer = NULL;
    filling f = {.top = r->top};
    bool good = false;
    o.compute = r->type;
    if (model_load(ctx, &model, r->model, &o) || mha_model_about(ctx, model, &about)) cli_error("%s", cli_reason(ctx));
    else {
        f.V = about.classes;
        good = is_masked_language_model(r, &about) && language_tokenizer(ctx, &tokenizer, r->model, r->tokenizer) &&
               language_fits(ctx, tokenizer, about.vocabulary, true) && encode_text(&f, ctx, r, tokenizer, &about) &&
               compute_logits(&f, ctx, model);
    }
    if (good && r->json) good = print_json(&f, r, tokenizer);
    else if (good) print(&f, r, tokenizer);
    free(f.ids);
    free(f.types);
    free(f.logits);
    mha_tokenizer_free(tokenizer);
    mha_model_free(model);
    return good ? CLI_OK : CLI_USAGE;
}

static int run_fill(void *asked)
{
    const request *r = asked;
    mha_context *ctx = cli_context_of((int)r->threads);
    int status = ctx ? fill_masks(ctx, r) : CLI_USAGE;
    mha_context_free(ctx);
    return status;
}

const cli_command fill_command = {.name = "fill",
                                  .summary = "the most likely words for the [MASK] of a text",
                                  .usage = "MODEL TEXT [OPTIONS]",
                                  .examples = "  mha fill bert \"Paris is the capital of [MASK].\"\n"
                                              "                        the five most likely words, with probabilities\n"
                                              "  mha fill roberta \"The <mask> is blue.\" --top 1 --json\n",
                                  .notes =
                                      "MODEL is a folder as the transformers library saves it, of a masked language\n"
                                      "model such as BERT, RoBERTa or ModernBERT. Masks are spelled as its tokenizer\n"
                                      "spells them: [MASK] or <mask>. Several masks are filled independently of each\n"
                                      "other.\n"
                                      "\n"
                                      "JSON keys: model, text, ids, masks: [{position (in ids, from 0),\n"
                                      "tokens: [{id, piece, probability}]}].\n",
                                  .options = options,
                                  .request_size = sizeof(request),
                                  .run = run_fill};
