/* mha embed: sentence embeddings. */
#include "cli/embed/embed.h"
#include "cli/common/model.h"
#include "cli/common/tokenizer.h"
#include "cli/terminal/progress.h"

#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    {"MODEL", "MODEL", "", CLI_NAME(embed_request, model), .required = true},
    {"TEXT", "TEXT", "", CLI_LIST(embed_request, texts), .noun = "a text", .required = true, .unless = "--lines"},
    {"--lines", "FILE", "one text per line ('-': standard input)", CLI_NAME(embed_request, lines)},
    {"--pool", "WHICH",
     "what is made of the rows of the tokens: their mean, the first, the last, the max of each column, root (sum over "
     "the "
     "root of their number) or weighted (mean with weights 1, 2, 3, ...); several side by side with '+'",
     CLI_NAME(embed_request, pool), .otherwise = "what the folder says, or the mean", .argument = "pool"},
    {"--prompt", "NAME", "put this prompt of the folder before each text, in place of its default one",
     CLI_NAME(embed_request, prompt), .argument = "prompt"},
    {"--raw", NULL, "do not normalise the vectors to length 1", CLI_FLAG(embed_request, raw)},
    {"--truncate", NULL, "use the first tokens of a text that is too long", CLI_FLAG(embed_request, truncate)},
    {TOKENIZER_ROW(embed_request, tokenizer)},
    {CLI_JSON(embed_request, json)},
    {CLI_DTYPE(embed_request, type)},
    {CLI_THREADS(embed_request, threads)},
    {CLI_COLOR(embed_request, when)},
    CLI_END};

/* ---- The command ------------------------------------------------------------------------------------------------ */

static bool read_texts(language_texts *t, const embed_request *r)
{
    bool good = true;
    for (int n = 0; good && n < r->texts.count; n++) good = language_add(t, r->texts.all[n], strlen(r->texts.all[n]));
    return good && (!r->lines || language_add_lines(t, r->lines, "text"));
}

static bool show_progress(void *arg, int64_t done, int64_t count)
{
    (void)arg;
    progress_at(done, count);
    return true;
}

static bool compute_embeddings(embed_results *e, mha_context *ctx, mha_model *model, const mha_tokenizer *tokenizer,
                               const embed_request *r)
{
    mha_embedder_options o = MHA_EMBEDDER_DEFAULTS;
    int64_t N = e->texts.count;
    o.pool = r->pool, o.prompt = r->prompt, o.raw = r->raw, o.truncate = r->truncate, o.watch = show_progress;
    e->about.size = sizeof e->about;
    bool good = !mha_embedder_create(ctx, &e->embedder, model, tokenizer, r->model, &o) &&
                !mha_embedder_about(ctx, e->embedder, &e->about);
    if (!good) cli_refuse("%s", cli_reason(ctx));
    if (good) {
        e->values = calloc((size_t)N + 1, (size_t)e->about.width * sizeof *e->values);
        e->lengths = calloc((size_t)N + 1, sizeof *e->lengths);
        good = e->values && e->lengths;
        if (!good) cli_refuse("not enough memory for the embeddings");
    }
    double start = cli_clock();
    mha_status status = MHA_OK;
    progress_begin("embedding %lld texts", (long long)N);
    if (good)
        status = mha_embedder_run(ctx, e->embedder, mha_tensor_2d(e->values, MHA_FLOAT32, N, e->about.width),
                                  (const char *const *)e->texts.all, N, e->lengths);
    progress_end();
    e->seconds = cli_clock() - start;
    if (status)
        good = cli_refuse("%s%s", cli_reason(ctx),
                          status == MHA_TOO_LARGE && !e->about.cuts ? "; --truncate uses the first ones" : "");
    return good;
}

static int embed_texts(mha_context *ctx, const embed_request *r)
{
    mha_model_options o = MHA_MODEL_DEFAULTS;
    mha_model_info about = {.size = sizeof about};
    mha_model *model = NULL;
    mha_tokenizer *tokenizer = NULL;
    embed_results e = {.seconds = 0};
    bool good = false;
    o.compute = r->type;
    if (model_load(ctx, &model, r->model, &o) || mha_model_about(ctx, model, &about)) cli_error("%s", cli_reason(ctx));
    else if (!about.vocabulary) cli_refuse("%s: does not read text", r->model);
    else
        good = language_tokenizer(ctx, &tokenizer, r->model, r->tokenizer) &&
               language_fits(ctx, tokenizer, about.vocabulary, true) && read_texts(&e.texts, r) &&
               compute_embeddings(&e, ctx, model, tokenizer, r);
    if (good && r->json) good = embed_print_json(r, &e);
    else if (good) embed_print(r, &e);
    language_free(&e.texts);
    free(e.lengths);
    free(e.values);
    mha_embedder_free(e.embedder);
    mha_tokenizer_free(tokenizer);
    mha_model_free(model);
    return good ? CLI_OK : CLI_USAGE;
}

static int run_embed(void *asked)
{
    const embed_request *r = asked;
    mha_context *ctx = cli_context_of((int)r->threads);
    int status = ctx ? embed_texts(ctx, r) : CLI_USAGE;
    mha_context_free(ctx);
    return status;
}

const cli_command embed_command = {
    .name = "embed",
    .summary = "turn texts into vectors with a text model, and compare them",
    .usage = "MODEL TEXT... [OPTIONS]",
    .examples = "  mha embed ~/.cache/mha/minilm \"A cat sleeps.\" \"A kitten naps.\"\n"
                "                        the vectors of two texts, and their cosine\n"
                "  mha embed minilm --lines sentences.txt --json | jq .embeddings[0].values\n"
                "                        one vector for each line of a file\n",
    .notes = "MODEL is a folder as the transformers library saves it, with one stack of\n"
             "blocks: an encoder such as BERT, or a decoder. A folder with a modules.json is\n"
             "followed as sentence-transformers does: pooling, Dense, normalisation, the most\n"
             "tokens of a text, beyond which it is cut, lower case and prompts; what cannot be\n"
             "followed is an error. Without one, the mean is over the last hidden states of\n"
             "all tokens, special ones such as [CLS] included, and has length 1. The vector of\n"
             "a text does not depend on the other texts. The table of cosines is shown for 2\n"
             "to 10 texts.\n"
             "\n"
             "JSON keys: model, pool, prompt, normalised, width, tokens, seconds,\n"
             "tokens_per_second, embeddings: [{text, tokens (how many), values}].\n",
    .options = options,
    .request_size = sizeof(embed_request),
    .run = run_embed};
