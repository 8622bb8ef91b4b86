/* mha embed: sentence embeddings. */
#include "cli/embed/embed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha embed ~/.cache/mha/minilm \"A cat sleeps.\" \"A kitten naps.\"\n"
         "                        the vectors of two texts, and their cosine\n"
         "  mha embed minilm --lines sentences.txt --json | jq .embeddings[0].values\n"
         "                        one vector for each line of a file\n"
         "\n"
         "Usage: mha embed MODEL TEXT... [OPTIONS]\n"
         "  --lines FILE          one text per line ('-': standard input)\n"
         "  --pool WHICH          mean (default): the mean over the tokens; first: the row\n"
         "                        of the first token\n"
         "  --raw                 do not normalise the vectors to length 1\n"
         "  --truncate            use the first tokens of a text that is too long\n"
         "  --tokenizer PATH      tokenizer (default: the one beside the model)\n"
         "  --json                print one JSON object\n" CLI_HELP_DTYPE CLI_HELP_THREADS CLI_HELP_COLOR "\n"
         "MODEL is a folder as the transformers library saves it, with one stack of\n"
         "blocks: an encoder such as BERT, or a decoder. The mean is over the last hidden\n"
         "states of all tokens, special ones such as [CLS] included. The vector of a text\n"
         "does not depend on the other texts. The table of cosines is shown for 2 to 10\n"
         "texts.\n"
         "\n"
         "JSON keys: model, pool, normalised, width, tokens, seconds, tokens_per_second,\n"
         "embeddings: [{text, tokens (how many), values}].");
}

static const cli_name pools[] = {{"mean", EMBED_MEAN}, {"first", EMBED_FIRST}, {NULL, 0}};

static const cli_option options[] = {CLI_NAME("MODEL", embed_request, model),
                                     CLI_LIST("TEXT", embed_request, texts),
                                     CLI_NAME("--lines", embed_request, lines),
                                     CLI_CHOICE("--pool", embed_request, pool, pools),
                                     CLI_FLAG("--raw", embed_request, raw),
                                     CLI_FLAG("--truncate", embed_request, truncate),
                                     CLI_NAME("--tokenizer", embed_request, tokenizer),
                                     CLI_FLAG("--json", embed_request, json),
                                     CLI_DTYPE(embed_request, type),
                                     CLI_THREADS(embed_request, threads),
                                     CLI_COLOR(embed_request, when),
                                     CLI_END};

/* ---- Tokens ----------------------------------------------------------------------------------------------------- */

/* All texts as ids and types, one behind another. */
typedef struct tokens {
    int32_t *ids, *types;
    int64_t *starts; /* (N+1) */
} tokens;

static bool grow(tokens *t, int64_t count)
{
    int32_t *ids = realloc(t->ids, (size_t)(count + 1) * sizeof *ids);
    if (ids) t->ids = ids;
    int32_t *types = realloc(t->types, (size_t)(count + 1) * sizeof *types);
    if (types) t->types = types;
    if (ids && types) return true;
    cli_error("embed: not enough memory for the tokens");
    return false;
}

/* Adds text n. What does not fit the positions is taken from the end of the text, so that tokens such as [SEP] stay. */
static bool add(tokens *t, const embed_request *r, const mha_encoding *e, int64_t n, const mha_model_info *about)
{
    int64_t count = mha_encoding_count(e), all = t->starts[n], over = about->positions ? count - about->positions : 0;
    if (!count) return cli_error("embed: text %lld: has no tokens", (long long)n + 1);
    if (over > 0 && !r->truncate)
        return cli_error("embed: text %lld: has %lld tokens, and %lld fit the model; --truncate uses the first ones",
                         (long long)n + 1, (long long)count, (long long)about->positions);
    if (!grow(t, all + count)) return false;
    int64_t last = count;
    for (int64_t left = over; left > 0 && last > 0;) left -= mha_encoding_get(e, --last).text >= 0;
    for (int64_t i = 0; i < count; i++) {
        mha_token token = mha_encoding_get(e, i);
        if (over > 0 && i >= last && token.text >= 0) continue;
        if (token.id >= about->vocabulary)
            return cli_error("embed: text %lld: token %d is not below %lld, the size of the model's vocabulary; is the "
                             "tokenizer that of the model?",
                             (long long)n + 1, token.id, (long long)about->vocabulary);
        t->ids[all] = token.id, t->types[all++] = token.type;
    }
    t->starts[n + 1] = all;
    return true;
}

static bool encode(tokens *t, mha_context *ctx, const embed_request *r, const language_texts *from,
                   const mha_tokenizer *with, const mha_model_info *about)
{
    bool good = true;
    t->starts = calloc((size_t)from->count + 1, sizeof *t->starts);
    if (!t->starts) {
        cli_error("embed: not enough memory for the tokens");
        return false;
    }
    for (int64_t n = 0; good && n < from->count; n++) {
        mha_encoding *e = NULL;
        if (mha_encoding_make(ctx, &e, with, from->all[n], strlen(from->all[n]), NULL, 0, NULL))
            good = cli_error("embed: text %lld: %s", (long long)n + 1, mha_context_error(ctx));
        else good = add(t, r, e, n, about);
        mha_encoding_free(e);
    }
    return good;
}

/* ---- The model -------------------------------------------------------------------------------------------------- */

enum { BATCH = 16, BATCH_TOKENS = 2048 }; /* most texts, and most tokens with padding, of a run */

/* How many texts, from text n on, run together; *longest gets the tokens of the longest one. */
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

/* One vector from the T rows of a text, (T,M). */
static void pool(float *to, const float *rows, int64_t T, int64_t M, const embed_request *r)
{
    double square = 0;
    for (int64_t i = 0; i < M; i++) {
        double sum = 0;
        for (int64_t t = 0; t < (r->pool == EMBED_FIRST ? 1 : T); t++) sum += (double)rows[t * M + i];
        to[i] = (float)(r->pool == EMBED_FIRST ? sum : sum / (double)T);
        square += (double)to[i] * (double)to[i];
    }
    for (int64_t i = 0; !r->raw && square > 0 && i < M; i++) to[i] = (float)((double)to[i] / sqrt(square));
}

/* The texts from n on, B of them; `rows` holds the last hidden states, at its end where the model gives those of all
 * blocks. */
static bool run(embed_results *e, mha_context *ctx, mha_model *model, const embed_request *r, const tokens *t,
                const mha_model_info *about, int64_t n, int64_t B, int64_t T)
{
    int64_t M = e->width, layers = about->head ? about->blocks + 1 : 1, lengths[BATCH];
    int32_t *ids = calloc((size_t)(2 * B * T) + 1, sizeof *ids), *types = ids ? ids + B * T : NULL;
    float *rows = malloc((size_t)(layers * B * T * M + 1) * sizeof *rows);
    bool good = ids && rows;
    if (!good) cli_error("embed: not enough memory for the hidden states");
    for (int64_t b = 0; good && b < B; b++) {
        int64_t first = t->starts[n + b], count = lengths[b] = t->starts[n + b + 1] - first;
        for (int64_t i = 0; i < count; i++) ids[b * T + i] = t->ids[first + i], types[b * T + i] = t->types[first + i];
    }
    mha_model_inputs in = {.tokens = mha_tensor_2d(ids, MHA_INT32, B, T),
                           .types = mha_tensor_2d(types, MHA_INT32, B, T),
                           .lengths = mha_tensor_1d(lengths, MHA_INT64, B)};
    mha_model_outputs out = {.logits = MHA_NO_TENSOR};
    if (about->head) out.hidden = mha_tensor_4d(rows, MHA_FLOAT32, layers, B, T, M);
    else out.logits = mha_tensor_3d(rows, MHA_FLOAT32, B, T, M);
    if (good && mha_model_run(ctx, model, &out, &in)) good = cli_error("embed: %s", mha_context_error(ctx));
    for (int64_t b = 0; good && b < B; b++)
        pool(e->values + (n + b) * M, rows + ((layers - 1) * B + b) * T * M, lengths[b], M, r),
            e->lengths[n + b] = lengths[b];
    free(ids);
    free(rows);
    return good;
}

static bool embed(embed_results *e, mha_context *ctx, mha_model *model, const embed_request *r, const tokens *t,
                  const mha_model_info *about)
{
    int64_t N = e->texts.count, T;
    double start = cli_clock();
    bool good = true;
    e->values = calloc((size_t)N + 1, (size_t)e->width * sizeof *e->values);
    e->lengths = calloc((size_t)N + 1, sizeof *e->lengths);
    if (!e->values || !e->lengths) return cli_error("embed: not enough memory for the embeddings");
    for (int64_t n = 0, B; good && n < N; n += B) {
        B = batch_of(t, n, N, &T);
        good = run(e, ctx, model, r, t, about, n, B, T);
    }
    e->seconds = cli_clock() - start;
    return good;
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static bool read_texts(language_texts *t, const embed_request *r)
{
    bool good = true;
    for (int n = 0; good && n < r->texts.count; n++)
        good = language_add(t, "embed", r->texts.all[n], strlen(r->texts.all[n]));
    return good && (!r->lines || language_add_lines(t, "embed", r->lines, "text"));
}

static bool fits(const embed_request *r, const mha_model_info *about)
{
    if (!about->vocabulary) return cli_error("embed: %s: does not read text", r->model);
    if (!about->encoder_blocks) return true;
    return cli_error("embed: %s: has an encoder and a decoder; embeddings need a model with one stack", r->model);
}

static int work(mha_context *ctx, const embed_request *r)
{
    mha_model_options o = MHA_MODEL_DEFAULTS;
    mha_model_info about = {.size = sizeof about};
    mha_model *model = NULL;
    mha_tokenizer *tokenizer = NULL;
    embed_results e = {.width = 0};
    tokens t = {NULL, NULL, NULL};
    bool good = false;
    o.compute = r->type;
    if (mha_model_open(ctx, &model, r->model, &o) || mha_model_about(ctx, model, &about))
        cli_error("%s", mha_context_error(ctx));
    else {
        e.width = about.width;
        good = fits(r, &about) && language_tokenizer(ctx, &tokenizer, r->model, r->tokenizer) &&
               language_fits(ctx, "embed", tokenizer, about.vocabulary, true) && read_texts(&e.texts, r) &&
               encode(&t, ctx, r, &e.texts, tokenizer, &about) && embed(&e, ctx, model, r, &t, &about);
    }
    if (good && r->json) good = embed_print_json(r, &e);
    else if (good) embed_print(r, &e);
    language_free(&e.texts);
    free(e.lengths);
    free(e.values);
    free(t.ids);
    free(t.types);
    free(t.starts);
    mha_tokenizer_free(tokenizer);
    mha_model_free(model);
    return good ? CLI_OK : CLI_USAGE;
}

int cmd_embed(int argc, char **argv)
{
    embed_request r = {.pool = EMBED_MEAN};
    r.texts.all = calloc((size_t)argc + 1, sizeof *r.texts.all);
    if (!r.texts.all) return cli_error("embed: not enough memory"), CLI_USAGE;
    int stop = cli_parse("embed", argc, argv, options, help, &r), status = CLI_USAGE;
    if (stop) status = stop - 1;
    else if (!r.model) cli_error("embed: missing MODEL; usage: mha embed MODEL TEXT...");
    else if (!r.texts.count && !r.lines) cli_error("embed: missing a text: TEXT or --lines FILE");
    else {
        mha_context *ctx = cli_context_of((int)r.threads);
        if (ctx) status = work(ctx, &r);
        mha_context_free(ctx);
    }
    free(r.texts.all);
    return status;
}
