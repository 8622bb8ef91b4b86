/* mha tokenize: text to tokens and back, and training of a byte-level BPE tokenizer. */
#include "cli/tokenize/tokenize.h"
#include "cli/common/language.h"
#include "cli/terminal/progress.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void help(void)
{
    puts("Examples:\n"
         "  mha tokenize gpt2/tokenizer.json \"Hello world\"\n"
         "                        ids and pieces, one line per token\n"
         "  mha tokenize gpt2 -f book.txt --json | jq '.ids | length'\n"
         "  mha tokenize gpt2 --decode \"15496 995\"\n"
         "                        the text of ids\n"
         "  mha tokenize --train book.txt --vocab 4096 -o tokenizer.json\n"
         "                        a byte-level BPE tokenizer of your own\n"
         "\n"
         "Usage: mha tokenize TOKENIZER [TEXT] [OPTIONS]\n"
         "       mha tokenize --train FILE -o FILE [--vocab N]\n"
         "  -f FILE               read the text from a file ('-': standard input, which is\n"
         "                        also read if there is neither TEXT nor -f)\n"
         "  --pair TEXT           encode a second text with the first one\n"
         "  --no-special          encode without the tokens of the post-processor, such as\n"
         "                        [CLS]; decode without special tokens\n"
         "  --literal             special tokens spelled out in the text are text\n"
         "  --decode IDS          print the text of ids, separated by spaces or commas\n"
         "  --target              of translation models: the target's vocabulary\n"
         "  --cased               for a bare vocab.txt: keep upper case\n"
         "  --json                print one JSON object\n"
         "  --train FILE          learn merges from a text, with GPT-2's split into words\n"
         "  --vocab N             number of tokens to learn (default 4096)\n"
         "  -o, --out FILE        where to save the trained tokenizer.json\n"
         "\n"
         "TOKENIZER is a tokenizer.json, a SentencePiece model, vocab.json, merges.txt,\n"
         "vocab.txt, a tokenizer of llama2.c, or a folder with one of them. The column\n"
         "'bytes' is the place of the token in the text.\n"
         "\n"
         "JSON keys: tokenizer, kind, format, vocabulary, ids, tokens: [{id, piece, text\n"
         "(0, 1 for --pair, null for added tokens), start, end, type, special}]; with\n"
         "--decode: text.");
}

static const cli_option options[] = {CLI_TEXT("TOKENIZER", tokenize_request, tokenizer),
                                     CLI_TEXT("TEXT", tokenize_request, text),
                                     CLI_TEXT("TEXT", tokenize_request, extra),
                                     CLI_NAME("-f", tokenize_request, file),
                                     CLI_TEXT("--pair", tokenize_request, pair),
                                     CLI_FLAG("--no-special", tokenize_request, no_special),
                                     CLI_FLAG("--literal", tokenize_request, literal),
                                     CLI_TEXT("--decode", tokenize_request, decode),
                                     CLI_FLAG("--target", tokenize_request, target),
                                     CLI_FLAG("--cased", tokenize_request, cased),
                                     CLI_FLAG("--json", tokenize_request, json),
                                     CLI_NAME("--train", tokenize_request, train),
                                     CLI_NUMBER("--vocab", tokenize_request, vocab, 257, 1 << 24),
                                     CLI_OUT(tokenize_request, out),
                                     CLI_END};

static bool fits_together(const tokenize_request *r)
{
    if (r->train) {
        if (r->tokenizer || r->file || r->pair || r->decode)
            return cli_error("tokenize: --train makes a tokenizer; it takes neither a tokenizer nor another text");
        return r->out || cli_error("tokenize: --train needs -o FILE, where to save the tokenizer.json");
    }
    if (r->out || r->vocab) return cli_error("tokenize: %s belongs to --train", r->out ? "-o" : "--vocab");
    if (!r->tokenizer) return cli_error("tokenize: missing TOKENIZER; usage: mha tokenize TOKENIZER TEXT");
    if (r->extra) return cli_error("tokenize: expected one text, got '%s' and '%s'; quote it", r->text, r->extra);
    if (!!r->text + !!r->file + !!r->decode > 1) return cli_error("tokenize: TEXT, -f and --decode exclude each other");
    if (r->decode && (r->pair || r->literal))
        return cli_error("tokenize: %s is for encoding, not for --decode", r->pair ? "--pair" : "--literal");
    return true;
}

/* Ids in a text, which may be empty; NULL after an error. */
static int32_t *read_ids(const char *text, int64_t *count)
{
    const cli_given given = {.command = "tokenize", .name = "--decode", .value = text};
    int32_t *ids = malloc((strlen(text) / 2 + 1) * sizeof *ids);
    *count = 0;
    if (!ids) cli_error("tokenize: not enough memory for the ids");
    else if (text[strspn(text, " ,\t\n")] && !language_ids(&given, ids, count)) {
        free(ids);
        ids = NULL;
    }
    return ids;
}

static int decode(mha_context *ctx, const mha_tokenizer *t, const tokenize_request *r)
{
    int64_t count;
    size_t length = 0;
    int status = CLI_USAGE;
    char *text = NULL;
    int32_t *ids = read_ids(r->decode, &count);
    if (!ids) return CLI_USAGE;
    for (int64_t i = 0; i < count; i++)
        if (!mha_tokenizer_piece(t, ids[i], NULL)) {
            cli_error("tokenize: --decode: the tokenizer has no token %d", ids[i]);
            goto out;
        }
    mha_status failed = mha_tokenizer_decode(ctx, t, NULL, 0, &length, ids, count, !r->no_special);
    if (!failed) text = malloc(length + 1);
    if (text) failed = mha_tokenizer_decode(ctx, t, text, length + 1, &length, ids, count, !r->no_special);
    if (failed) cli_error("tokenize: %s", mha_context_error(ctx));
    else if (!text) cli_error("tokenize: not enough memory for the text");
    else if (tokenize_print_text(r, text, length)) status = CLI_OK;
out:
    free(text);
    free(ids);
    return status;
}

static int encode(mha_context *ctx, const mha_tokenizer *t, const tokenize_request *r)
{
    mha_encode_options o = MHA_ENCODE_DEFAULTS;
    mha_tokenizer_info about = {.size = sizeof about};
    mha_encoding *tokens = NULL;
    nn_buffer text = {0};
    int status = CLI_USAGE;
    o.special = !r->no_special;
    o.literal = r->literal;
    if (r->text) nn_buffer_puts(&text, r->text);
    else if (!language_read(&text, "tokenize", r->file ? r->file : "-")) goto out;
    if (text.failed) {
        cli_error("tokenize: not enough memory for the text");
        goto out;
    }
    if (mha_tokenizer_about(ctx, t, &about) ||
        mha_encoding_make(ctx, &tokens, t, text.bytes, text.size, r->pair, r->pair ? strlen(r->pair) : 0, &o)) {
        cli_error("tokenize: %s", mha_context_error(ctx));
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
static int train(mha_context *ctx, const tokenize_request *r)
{
    mha_tokenizer_train_options o = MHA_TOKENIZER_TRAIN_DEFAULTS;
    nn_buffer text = {0};
    int64_t made = 0;
    int status = CLI_USAGE;
    if (r->vocab) o.tokens = r->vocab;
    if (cli_is_output("tokenize", r->out, r->train, "the text") || !cli_can_write(r->out) ||
        !language_read(&text, "tokenize", r->train))
        goto out;
    if (mha_tokenizer_train(ctx, r->out, text.bytes, text.size, &o, &made)) {
        cli_error("tokenize: %s: %s", r->train, mha_context_error(ctx));
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

int cmd_tokenize(int argc, char **argv)
{
    tokenize_request r = {0};
    int stop = cli_parse("tokenize", argc, argv, options, help, &r), status = CLI_USAGE;
    if (stop) return stop - 1;
    if (!fits_together(&r)) return CLI_USAGE;
    mha_tokenizer_options o = MHA_TOKENIZER_DEFAULTS;
    mha_tokenizer *t = NULL;
    mha_context *ctx = cli_context();
    o.target = r.target;
    o.cased = r.cased;
    if (!ctx) return CLI_USAGE;
    if (r.train) status = train(ctx, &r);
    else if (open_tokenizer(ctx, &t, r.tokenizer, &o)) cli_error("%s", mha_context_error(ctx));
    else status = r.decode ? decode(ctx, t, &r) : encode(ctx, t, &r);
    mha_tokenizer_free(t);
    mha_context_free(ctx);
    return status;
}
