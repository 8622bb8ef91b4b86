/* For tests of tokenizers: files in a folder of their own, opened as tokenizers, and ids as text. */
#ifndef TOKENIZERS_H
#define TOKENIZERS_H

#include "support/harness.h"

#include <mha_text.h>
#include <unistd.h>

/* Whether regular expressions and Unicode are there: in a cross build they may not be. Tests of what needs them run where
 * they are. */
#if defined(MHA_HAS_PCRE2) && defined(MHA_HAS_UTF8PROC)
enum { COMPLETE = 1 };
#else
enum { COMPLETE = 0 };
#endif

static char tokenizer_folder[] = "/tmp/mha-test-XXXXXX";
static mha_context *ctx;

static inline const char *in_folder(const char *name)
{
    static char paths[8][400];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", tokenizer_folder, name);
    return path;
}

static void end_tokenizers(void)
{
    char line[100];
    mha_context_free(ctx);
    snprintf(line, sizeof line, "rm -rf '%s'", tokenizer_folder);
    if (system(line)) fprintf(stderr, "cannot remove %s\n", tokenizer_folder);
}

__attribute__((constructor)) static void begin_tokenizers(void)
{
    if (!mkdtemp(tokenizer_folder) || mha_context_create(&ctx, NULL)) {
        perror(tokenizer_folder);
        exit(1);
    }
    atexit(end_tokenizers);
}

static inline const char *write_bytes(const char *name, const void *bytes, size_t size)
{
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) exit(1);
    return path;
}

/* Opens a text as a file of that name; NULL with the reason in mha_context_error. */
static inline mha_tokenizer *open_as(const char *name, const char *text)
{
    mha_tokenizer *t = NULL;
    mha_tokenizer_open(ctx, &t, write_bytes(name, text, strlen(text)), NULL);
    return t;
}

/* The ids of a text, as "1 2 3", or the error. */
static inline const char *ids_with(const mha_tokenizer *t, const char *text, size_t length, const mha_encode_options *o)
{
    static char out[4][4000];
    static int next;
    char *to = out[next++ % 4];
    int32_t ids[500];
    int64_t count = 0;
    if (mha_tokenizer_encode(ctx, t, ids, 500, &count, text, length, o)) return mha_context_error(ctx);
    to[0] = 0;
    for (int64_t i = 0, at = 0; i < count && at < 3980; i++)
        at += snprintf(to + at, 4000 - (size_t)at, i ? " %d" : "%d", ids[i]);
    return to;
}

static inline const char *ids_of(const mha_tokenizer *t, const char *text)
{
    return ids_with(t, text, strlen(text), NULL);
}

/* The pieces of a text, each in brackets. */
static inline const char *pieces_of(const mha_tokenizer *t, const char *text)
{
    static char out[4][4000];
    static int next;
    char *to = out[next++ % 4];
    mha_encoding *e = NULL;
    if (mha_encoding_make(ctx, &e, t, text, strlen(text), NULL, 0, NULL)) return mha_context_error(ctx);
    to[0] = 0;
    for (int64_t i = 0, at = 0; i < mha_encoding_count(e) && at < 3900; i++)
        at += snprintf(to + at, 4000 - (size_t)at, "[%s]", mha_encoding_get(e, i).piece);
    mha_encoding_free(e);
    return to;
}

#define expect_text(got, want) expect_same_text(__FILE__, __LINE__, got, want)
static inline bool expect_same_text(const char *file, int line, const char *got, const char *want)
{
    return harness_expect(got && strcmp(got, want) == 0, file, line, "got \"%s\", expected \"%s\"", got ? got : "NULL",
                          want);
}

#endif
