/* What a text model reads: the tokens of a text.
 *
 *     texts t;
 *     texts_from from = {model_path, tokenizer_path};
 *     if (texts_open(&t, ctx, model, &from) && texts_take(&t, text, length, "file.txt")) ... t.of, t.sides ...
 *     texts_close(&t);
 *
 * A model with one stack reads the whole text as one sequence, without the special tokens that the tokenizer adds at its
 * sides; they are in `before` and `after`, for each window of the text. For a model with two stacks each line is a source, with
 * its special tokens, and its target is a line of another text, or what the model generates. A model that reads audio takes a
 * sound, window by window, and what it hears there. */
#ifndef TEXTS_H
#define TEXTS_H

#include <mha_speech.h>

enum { TEXTS_SIDE = 16, TEXTS_FILE_MOST = 1 << 28 };

typedef struct texts_from {
    const char *model, *tokenizer; /* the last may be NULL */
    int64_t lines, new_tokens;     /* of a model with two stacks: the most lines, and generated tokens */
    bool audio;                    /* the source is a sound */
} texts_from;

typedef struct texts {
    mha_context *ctx;
    mha_model *model;
    const texts_from *from;
    bool pair;               /* the model has two stacks */
    mha_tokenizer *in, *out; /* `out`: the target's, of a model with two stacks; else NULL */
    int32_t *tokens[2];      /* of the encoder (or the only stack), and of the decoder */
    int64_t *starts[2];
    int64_t count;
    int32_t before[TEXTS_SIDE], after[TEXTS_SIDE];
    int64_t before_count, after_count;
    bool *drawn;     /* (vocabulary): tokens that are not special */
    float *features; /* (count,bins,frames) of a sound */
    int64_t frames;  /* that the encoder attends to, of a window of a sound; else 0 */
    mha_text of;     /* all of the above for the library */
} texts;

/* Opens the tokenizers. Prints an error and returns false on failure. Must be closed in either case. */
bool texts_open(texts *t, mha_context *ctx, mha_model *model, const texts_from *from);
void texts_close(texts *t);

/* Encodes a text, which `name` names in messages. `target`: lines of targets, or NULL; only for a model with two stacks.
 * Prints an error and returns false on failure. */
bool texts_take(texts *t, const char *text, size_t length, const char *name, const char *target, size_t target_length,
                const char *target_name);

/* Reads a WAV file, at most t->from->lines windows of it, and transcribes it. Prints an error and returns false on failure. */
bool texts_hear(texts *t, const char *path);

/* Sides and drawn tokens, as options of a survey. */
void texts_options(const texts *t, mha_text_options *o);

/* The text of a file, or of standard input for "-"; NULL after an error, which was printed. */
char *texts_read(const char *path, size_t *length);

#endif
