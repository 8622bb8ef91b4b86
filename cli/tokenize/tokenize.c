/* mha tokenize: text to tokens and back, and training of a byte-level BPE tokenizer. */
#include "cli/tokenize/tokenize.h"
#include "cli/common/language.h"
#include "cli/terminal/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_option options[] = {
    {"TOKENIZER", "TOKENIZER", "", CLI_TEXT(tokenize_request, tokenizer), .required = true, .unless = "--train",
     .excludes = "--train", .why = "--train makes a tokenizer"},
    {"TEXT", "TEXT", "", CLI_TEXT(tokenize_request, text), .noun = "text", .excludes = "-f --decode"},
    {"-f", "FILE",
     "read the text from a file ('-': standard input, which is also read if there is neither TEXT nor -f)",
     CLI_NAME(tokenize_request, file), .excludes = "--decode --train"},
    {"--pair", "TEXT", "encode a second text with the first one", CLI_TEXT(tokenize_request, pair),
     .excludes = "--decode --train", .why = "--pair is for encoding"},
    {"--no-special", NULL,
     "encode without the tokens of the post-processor, such as [CLS]; decode without special tokens",
     CLI_FLAG(tokenize_request, no_special)},
    {"--literal", NULL, "special tokens spelled out in the text are text", CLI_FLAG(tokenize_request, literal),
     .excludes = "--decode", .why = "--literal is for encoding"},
    {"--decode", "IDS", "print the text of ids, separated by spaces or commas", CLI_TEXT(tokenize_request, decode),
     .excludes = "--train"},
    {"--target", NULL, "of translation models: the target's vocabulary", CLI_FLAG(tokenize_request, target)},
    {"--cased", NULL, "for a bare vocab.txt: keep upper case", CLI_FLAG(tokenize_request, cased)},
    {CLI_JSON(tokenize_request, json)},
    {"--train", "FILE", "learn merges from a text, with GPT-2's split into words", CLI_NAME(tokenize_request, train),
     .needs = "-o"},
    {"--vocab", "N", "number of tokens to learn", CLI_NUMBER(tokenize_request, vocab, 257, 1 << 24), .preset = "4096",
     .argument = "options.tokens", .needs = "--train"},
    {CLI_OUT, "FILE", "where to save the trained tokenizer.json", CLI_FILE(tokenize_request, out), .needs = "--train"},
    CLI_END};

/* Ids in a text, which may be empty; NULL after an error. */
static int32_t *read_ids(const char *text, int64_t *count)
{
    const cli_given given = {.name = "--decode", .value = text};
    int32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof *ids);
    *count = 0;
    if (!ids) cli_refuse("not enough memory for the ids");
    else if (text[strspn(text, " ,\t\n")] && !language_ids(&given, ids, count)) {
        free(ids);
        ids = NULL;
    }
    return ids;
}

static int decode_ids(mha_context *ctx, const mha_tokenizer *t, const tokenize_request *r)
{
    int64_t count;
    size_t length = 0;
    int status = CLI_USAGE;
    char *text = NULL;
    int32_t *ids = read_ids(r->decode, &count);
    if (!ids) return CLI_USAGE;
    for (int64_t i = 0; i < count; i++)
        if (!mha_tokenizer_piece(t, ids[i], NULL)) {
            cli_refuse("--decode: the tokenizer has no token %d", ids[i]);
            goto out;
        }
    mha_status failed = mha_tokenizer_decode(ctx, t, NULL, 0, &length, ids, count, !r->no_special);
    if (!failed) text = malloc(length + 1);
    if (text) failed = mha_tokenizer_decode(ctx, t, text, length + 1, &length, ids, count, !r->no_special);
    if (failed) cli_refuse("%s", cli_reason(ctx));
    else if (!text) cli_refuse("not enough memory for the text");
    else if (tokenize_print_text(r, text, length)) status = CLI_OK;
out:
    free(text);
    free(ids);
    return status;
}

static int encode_text(mha_context *ctx, const mha_tokenizer *t, const tokenize_request *r)
{
    mha_encode_options o = MHA_ENCODE_DEFAULTS;
    mha_tokenizer_info about = {.size = sizeof about};
    mha_encoding *tokens = NULL;
    nn_buffer text = {0};
    int status = CLI_USAGE;
    o.special = !r->no_special;
    o.literal = r->literal;
    if (r->text) nn_buffer_puts(&text, r->text);
    else if (!language_read(&text, r->file ? r->file : "-")) goto out;
    if (text.failed) {
        cli_refuse("not enough memory for the text");
        goto out;
    }
    if (mha_tokenizer_about(ctx, t, &about) ||
        mha_encoding_make(ctx, &tokens, t, text.bytes, text.size, r->pair, r->pair ? strlen(r->pair) : 0, &o)) {
        cli_refuse("%s", cli_reason(ctx));
        goto out;
    }
    if (!r->json) tokenize_print(tokens, text.size + (r->pair ? strlen(r->pair) : 0));
    if (!r->json || tokenize_print_json(r, &about, tokens)) status = CLI_OK;
out:
    mha_encoding_free(tokens);
    nn_buffer_free(&text);
    return status;
}

/* Learns a tokenizer and saves it. */
static int train_tokenizer(mha_context *ctx, const tokenize_request *r)
{
    mha_tokenizer_train_options o = MHA_TOKENIZER_TRAIN_DEFAULTS;
    nn_buffer text = {0};
    int64_t made = 0;
    int status = CLI_USAGE;
    o.tokens = r->vocab;
    if (cli_is_output(r->out, r->train, "the text") || !cli_can_write(r->out) || !language_read(&text, r->train))
        goto out;
    if (mha_tokenizer_train(ctx, r->out, text.bytes, text.size, &o, &made)) {
        cli_refuse("%s: %s", r->train, cli_reason(ctx));
        goto out;
    }
    fprintf(stderr, "%lld tokens", (long long)made);
    cli_print(stderr, " in %s\n", r->out);
    if (made < o.tokens) fprintf(stderr, "fewer than %lld: the text has no more pairs to merge\n", (long long)o.tokens);
    status = CLI_OK;
out:
    nn_buffer_free(&text);
    return status;
}

static mha_status open_tokenizer(mha_context *ctx, mha_tokenizer **t, const char *path, const mha_tokenizer_options *o)
{
    progress_begin("opening %s", path);
    mha_status status = mha_tokenizer_open(ctx, t, path, o);
    progress_end();
    return status;
}

static int run_tokenize(void *asked)
{
    const tokenize_request *r = asked;
    int status = CLI_USAGE;
    mha_tokenizer_options o = MHA_TOKENIZER_DEFAULTS;
    mha_tokenizer *t = NULL;
    mha_context *ctx = cli_context();
    o.target = r->target;
    o.cased = r->cased;
    if (!ctx) return CLI_USAGE;
    if (r->train) status = train_tokenizer(ctx, r);
    else if (open_tokenizer(ctx, &t, r->tokenizer, &o)) cli_error("%s", cli_reason(ctx));
    else status = r->decode ? decode_ids(ctx, t, r) : encode_text(ctx, t, r);
    mha_tokenizer_free(t);
    mha_context_free(ctx);
    return status;
}

const cli_command tokenize_command = {
    .name = "tokenize",
    .summary = "split a text into tokens, or ids back to text; train BPE",
    .usage = "TOKENIZER [TEXT] [OPTIONS]\n--train FILE -o FILE [--vocab N]",
    .examples = "  mha tokenize gpt2/tokenizer.json \"Hello world\"\n"
                "                        ids and pieces, one line per token\n"
                "  mha tokenize gpt2 -f book.txt --json | jq '.ids | length'\n"
                "  mha tokenize gpt2 --decode \"15496 995\"\n"
                "                        the text of ids\n"
                "  mha tokenize --train book.txt --vocab 4096 -o tokenizer.json\n"
                "                        a byte-level BPE tokenizer of your own\n",
    .notes = "TOKENIZER is a tokenizer.json, a SentencePiece model, vocab.json, merges.txt,\n"
             "vocab.txt, a tokenizer of llama2.c, or a folder with one of them. The column\n"
             "'bytes' is the place of the token in the text.\n"
             "\n"
             "JSON keys: tokenizer, kind, format, vocabulary, ids, tokens: [{id, piece, text\n"
             "(0, 1 for --pair, null for added tokens), start, end, type, special}]; with\n"
             "--decode: text.\n",
    .options = options,
    .request_size = sizeof(tokenize_request),
    .run = run_tokenize};
