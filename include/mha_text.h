/* mha_text: text in and out of the models of mha_model.h.
 *
 * A complete program: continue a text. Build it with  cc story.c $(pkg-config --cflags --libs mha-model)
 *
 *     #include <mha_text.h>
 *     #include <stdio.h>
 *     #include <string.h>
 *
 *     int main(int argc, char **argv)
 *     {
 *         int32_t ids[1024];
 *         int64_t starts[2] = {0, 0};
 *         mha_context *ctx;
 *         mha_model *model = NULL;
 *         mha_tokenizer *tok = NULL;
 *         mha_generation *g = NULL;
 *         mha_generation_options options = MHA_GENERATION_DEFAULTS;
 *         mha_generation_inputs prompt = {.count = 1, .tokens = ids, .starts = starts};
 *         if (argc < 3 || mha_context_create(&ctx, NULL)) return 1;
 *         mha_status status = mha_model_open(ctx, &model, argv[1], NULL); // a folder with a config.json
 *         if (!status) status = mha_tokenizer_open(ctx, &tok, argv[1], NULL);
 *         if (!status) status = mha_tokenizer_encode(ctx, tok, ids, 1024, &starts[1], argv[2], strlen(argv[2]), NULL);
 *         options.tokenizer = tok;
 *         if (!status) status = mha_generation_create(ctx, &g, model, &prompt, &options);
 *         if (!status) status = mha_generation_run(ctx, g);
 *         puts(status ? mha_context_error(ctx) : mha_generation_get(g, 0).text);
 *         mha_generation_free(g);
 *         mha_tokenizer_free(tok);
 *         mha_model_free(model);
 *         mha_context_free(ctx);
 *         return status != MHA_OK;
 *     }
 *
 * What is here:
 *
 *     1  Tokenizers    text to ids and back
 *     2  Generation    continuing prompts: greedily, by sampling, with beam search; what may come next, and how likely
 *     3  Text heads    what every head of a text model attends to: induction, previous token, alignment, ...
 *     4  Embeddings    one vector for each text, as sentence-transformers computes it
 *
 * Models, what they read and what they return are those of mha_model.h, whose rules hold. The functions are part of
 * libmha-model. */
#ifndef MHA_TEXT_H
#define MHA_TEXT_H

#include "mha_model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- 1 · Tokenizers --------------------------------------------------------------------------------------------- */

/* Text to the ids of tokens and back:
 *
 *     mha_tokenizer *tok;
 *     int32_t ids[64];
 *     int64_t count;
 *     if (mha_tokenizer_open(ctx, &tok, "tokenizer.json", NULL)) return puts(mha_context_error(ctx)), 1;
 *     mha_tokenizer_encode(ctx, tok, ids, 64, &count, "Hello world", 11, NULL);
 *     for (int64_t i = 0; i < count; i++) printf("%d %s\n", ids[i], mha_tokenizer_piece(tok, ids[i], NULL));
 *     mha_tokenizer_free(tok);
 *
 * Results are those of the libraries that the files come from. An opened tokenizer is only read: several threads may use
 * it at a time, each with a context of its own. Encoding takes time linear in the length of the text, times its logarithm
 * for BPE of long words; memory that it keeps does not grow with the texts.
 *
 * No file can make a call take longer: all searches of regular expressions in a text take 200 steps for each of its bytes
 * and a million more, its steps and its decoder make at most 64 times as many bytes and 64 KiB more, and a template adds at
 * most 1024 tokens. What exceeds these limits is an error, MHA_BAD_ARGUMENT or, for the template, MHA_BAD_FILE. */
typedef struct mha_tokenizer mha_tokenizer;

typedef struct mha_tokenizer_options {
    size_t size; /* of this struct */
    bool target; /* of files with two vocabularies, such as Marian's source.spm and target.spm: the target's */
    bool cased;  /* vocab.txt without a tokenizer_config.json: text is not changed to lower case */
} mha_tokenizer_options;

/* clang-format off */
#define MHA_TOKENIZER_DEFAULTS {sizeof(mha_tokenizer_options), false, false}
/* clang-format on */

MHA_API void mha_tokenizer_defaults(mha_tokenizer_options *options, size_t size);

/* Opens a tokenizer:
 *
 *     tokenizer.json              of the `tokenizers` library: BPE, Unigram, WordPiece or WordLevel with all that belongs to
 *                                 them. Its `truncation` and `padding` are ignored.
 *     *.model, *.spm              of SentencePiece: Unigram or BPE
 *     vocab.json and merges.txt   byte-level BPE as GPT-2 has it; the path names either of them
 *     vocab.txt                   WordPiece as BERT has it
 *     tokenizer.bin               of llama2.c, and *.tokenizer.json of type "bpe-by-score"
 *     *.vocabulary.json           {"source": [...], "target": [...]}: one token for each character
 *     a folder                    that has one of these, the first in this order; or the name of a model of the Hugging Face
 *                                 hub in the cache, as in mha_model_open
 *
 * Which tokens are special and which are added at the sides is read from the file, and from tokenizer_config.json and
 * special_tokens_map.json beside it. A file that contains something that this library does not support, such as a normalizer of
 * another type, is refused with a line that names it.
 * `options` NULL means MHA_TOKENIZER_DEFAULTS. On error *tokenizer is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_tokenizer_open(mha_context *ctx, mha_tokenizer **tokenizer, const char *path,
                                      const mha_tokenizer_options *options);
MHA_API void mha_tokenizer_free(mha_tokenizer *tokenizer); /* NULL is legal */

/* The versions of Unicode that count: `tables` (at least 32 bytes) gets that of utf8proc, for normalization, case, accents and the
 * classes of characters that normalizers and pre-tokenizers name; `expressions` (likewise) that of PCRE2, for \w, \p{L} and other
 * classes of regular expressions; "" for a library that this build does not have. A character that is newer than these is an
 * unassigned one: no letter, mark, number, punctuation or white space, and normalization and case leave it as it is. The
 * tokenizers library has tables of its own, some older and some newer, so that such characters may be split in another way
 * there; none is lost, and texts without them have the same tokens. */
MHA_API void mha_tokenizer_unicode(char *tables, char *expressions);

/* What a tokenizer is. Ids that the files do not give are -1. */
typedef struct mha_tokenizer_info {
    size_t size;                                /* of this struct, set by the caller; the rest is filled in */
    const char *kind;                           /* "BPE", "Unigram", "WordPiece", "WordLevel" or "characters" */
    const char *format;                         /* of the file: "tokenizer.json", "SentencePiece", ... */
    int64_t tokens;                             /* ids are smaller; some of them may have no piece */
    int32_t bos, eos, unk, pad, mask, cls, sep; /* ids of tokens with these roles */
    const char *file;                           /* that was read, in a folder the one that was found there */
} mha_tokenizer_info;
MHA_API mha_status mha_tokenizer_about(mha_context *ctx, const mha_tokenizer *tokenizer, mha_tokenizer_info *info);

/* The piece of an id, as the file spells it, valid as long as the tokenizer; NULL if there is none. Pieces are UTF-8 and
 * end with a NUL; `length` (NULL is legal) gets their bytes, which may include a NUL. The id of a piece; -1 if there is
 * none. Whether an id is a special token, which decoding leaves out. */
MHA_API const char *mha_tokenizer_piece(const mha_tokenizer *tokenizer, int64_t id, size_t *length);
MHA_API int32_t mha_tokenizer_id(const mha_tokenizer *tokenizer, const char *piece);
MHA_API bool mha_tokenizer_is_special(const mha_tokenizer *tokenizer, int64_t id);

typedef struct mha_encode_options {
    size_t size;  /* of this struct */
    bool special; /* add the special tokens of the post-processor, such as [CLS] and [SEP] */
    bool literal; /* special tokens that are spelled out in the text are text: for text from strangers */
    bool lower;   /* text is changed to lower case before all else, unless the tokenizer does so */
} mha_encode_options;

/* clang-format off */
#define MHA_ENCODE_DEFAULTS {sizeof(mha_encode_options), true, false, false}
/* clang-format on */

MHA_API void mha_encode_defaults(mha_encode_options *options, size_t size);

/* The tokens of a text of `length` bytes of UTF-8: ids (capacity). `count` gets their number, also if it is larger than the
 * capacity: then nothing is written to `ids`. A capacity of 0, with which `ids` may be NULL, asks for the number alone.
 * `options` NULL means MHA_ENCODE_DEFAULTS.
 * Returns MHA_OK; MHA_BAD_ARGUMENT, also if the text is not UTF-8 (the line says at which byte) or has something without a
 * token while the tokenizer has no unknown token; MHA_FULL if the capacity is neither 0 nor enough; MHA_TOO_LARGE for a
 * text of more than 1 GiB; or MHA_NO_MEMORY. */
MHA_API mha_status mha_tokenizer_encode(mha_context *ctx, const mha_tokenizer *tokenizer, int32_t *ids,
                                        int64_t capacity, int64_t *count, const char *text, size_t length,
                                        const mha_encode_options *options);

/* The tokens of one or two texts with all that is known about each of them. */
typedef struct mha_encoding mha_encoding;

typedef struct mha_token {
    int32_t id;
    int32_t type;        /* of the segment, as BERT has them */
    int32_t text;        /* 0 or 1: the text that it comes from; -1: added by the post-processor */
    bool special;        /* a special token, added or spelled out */
    int64_t start, end;  /* the bytes of that text that it stands for. Characters that were normalized together, or that
                            share a token of bytes, have the same range. 0 and 0 for added tokens */
    const char *piece;   /* the piece of the id; for an unknown token of Unigram, the text. Ends with a NUL */
    size_t piece_length; /* in bytes */
} mha_token;

/* Encodes a text, or a pair if `pair` is not NULL, as mha_tokenizer_encode does. On error *encoding is NULL.
 * Token n of the result, valid as long as that; all zero if there is none. */
MHA_API mha_status mha_encoding_make(mha_context *ctx, mha_encoding **encoding, const mha_tokenizer *tokenizer,
                                     const char *text, size_t length, const char *pair, size_t pair_length,
                                     const mha_encode_options *options);
MHA_API void mha_encoding_free(mha_encoding *encoding); /* NULL is legal */
MHA_API int64_t mha_encoding_count(const mha_encoding *encoding);
MHA_API mha_token mha_encoding_get(const mha_encoding *encoding, int64_t n);

/* The text of ids: text (capacity), with a NUL behind it. `length` gets its bytes without the NUL, also if they do not fit:
 * then nothing is written to `text`. A capacity of 0 asks for the length alone. Bytes that are not UTF-8 together become
 * U+FFFD. With `special` false, special tokens are left out; so are ids without a piece.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_FULL or MHA_NO_MEMORY. */
MHA_API mha_status mha_tokenizer_decode(mha_context *ctx, const mha_tokenizer *tokenizer, char *text, size_t capacity,
                                        size_t *length, const int32_t *ids, int64_t count, bool special);

/* The text that a token stands for in the middle of a text, with the space before it, for tokens that are shown one by
 * one: text (capacity), as mha_tokenizer_decode writes it. A special token, and one that is no text by itself, such as part
 * of a character, is given as its piece; an id without one as "". Returns as mha_tokenizer_decode. */
MHA_API mha_status mha_tokenizer_word(mha_context *ctx, const mha_tokenizer *tokenizer, char *text, size_t capacity,
                                      size_t *length, int32_t id);

/* The text of ids that come one by one, as whole characters:
 *
 *     mha_text_stream_create(ctx, &stream, tok, false);
 *     while ((id = next()) >= 0 && !mha_text_stream_push(ctx, stream, id, &text, &length)) fwrite(text, 1, length, stdout);
 *     if (!mha_text_stream_end(ctx, stream, &text, &length)) fwrite(text, 1, length, stdout);
 *     mha_text_stream_free(stream);
 *
 * All texts together are that of mha_tokenizer_decode. A text may be empty: the bytes of a character that is not complete
 * yet are held back, up to 16 tokens. It is valid until the next call and ends with a NUL. The tokenizer must live as long
 * as the stream. mha_text_stream_end gives what is still held back, and the stream starts again. A push takes memory only
 * while texts grow longer than any before. */
typedef struct mha_text_stream mha_text_stream;
MHA_API mha_status mha_text_stream_create(mha_context *ctx, mha_text_stream **stream, const mha_tokenizer *tokenizer,
                                          bool special);
MHA_API void mha_text_stream_free(mha_text_stream *stream); /* NULL is legal */
MHA_API mha_status mha_text_stream_push(mha_context *ctx, mha_text_stream *stream, int32_t id, const char **text,
                                        size_t *length);
MHA_API mha_status mha_text_stream_end(mha_context *ctx, mha_text_stream *stream, const char **text, size_t *length);

typedef struct mha_tokenizer_train_options {
    size_t size;         /* of this struct */
    int64_t tokens;      /* of the vocabulary, from 257 to 2^24: the special token, 256 bytes, merges */
    int64_t least;       /* occurrences of a pair that is merged, at least 1 */
    const char *special; /* the special token, id 0 */
} mha_tokenizer_train_options;

/* clang-format off */
#define MHA_TOKENIZER_TRAIN_DEFAULTS {sizeof(mha_tokenizer_train_options), 4096, 1, "<|endoftext|>"}
/* clang-format on */

MHA_API void mha_tokenizer_train_defaults(mha_tokenizer_train_options *options, size_t size);

/* Learns a byte-level BPE tokenizer from a text and saves it as a tokenizer.json, which is replaced atomically. Lines are
 * split into words as GPT-2 does; the most frequent pair of neighbours inside words is merged, again and again; of equally
 * frequent pairs that of the smaller ids. The merges are those of the `tokenizers` library for these settings. `made`
 * (NULL is legal) gets the number of tokens, which is smaller than asked for if the text has no more pairs.
 * `options` NULL means MHA_TOKENIZER_TRAIN_DEFAULTS.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a text that is not UTF-8), MHA_TOO_LARGE, MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_tokenizer_train(mha_context *ctx, const char *path, const char *text, size_t length,
                                       const mha_tokenizer_train_options *options, int64_t *made);

/* ---- 2 · Generation --------------------------------------------------------------------------------------------- */

/* Continues prompts, one token for each of them in every step:
 *
 *     static bool show(void *user, const mha_generation_event *event)
 *     {
 *         return fwrite(event->text, 1, event->length, stdout) == event->length;
 *     }
 *     ...
 *     mha_generation_options options = MHA_GENERATION_DEFAULTS;
 *     options.method = MHA_GENERATE_SAMPLE, options.temperature = 0.8f, options.tokenizer = tok, options.callback = show;
 *     mha_generation_inputs prompts = {.count = 1, .tokens = ids, .starts = (const int64_t[]){0, count}};
 *     if (mha_generation_create(ctx, &g, model, &prompts, &options) || mha_generation_run(ctx, g))
 *         puts(mha_context_error(ctx));
 *     mha_generation_free(g);
 *
 * Prompts of unlike length run side by side and are never padded. What a sequence gets depends on its prompt, the options
 * and the seed alone: it is the same alone and in any batch, and for any number of threads. (Of equal prompts in one batch,
 * each gets random numbers of its own.) A model with an encoder reads the prompts there, and its decoder starts with the
 * token that generation_config.json names.
 *
 * The order of what changes the logits is that of the `transformers` library, and so are the results of greedy decoding and
 * of beam search: penalties for repetition, n-grams that may not be repeated, banned words, the shortest length, forced
 * first and last tokens, suppressed tokens; then, of sampling, temperature, top_k, top_p, min_p. */

typedef enum mha_generation_method {
    MHA_GENERATE_AUTO = 0,   /* as generation_config.json says; greedy if it does not */
    MHA_GENERATE_GREEDY = 1, /* the most likely token; of equals the one with the smallest id */
    MHA_GENERATE_SAMPLE = 2, /* a random token, by its probability */
    MHA_GENERATE_BEAMS = 3   /* the best of several sequences that are continued side by side */
} mha_generation_method;

/* When a beam search ends. */
typedef enum mha_early_stopping {
    MHA_EARLY_AUTO = 0, /* as generation_config.json says; MHA_EARLY_NO if it does not */
    MHA_EARLY_NO =
        1, /* when the best running beam, scored at its present length, is not better than any finished one */
    MHA_EARLY_YES = 2,  /* when there are as many finished sequences as beams */
    MHA_EARLY_NEVER = 3 /* when no running beam can become better, at the length that favours it */
} mha_early_stopping;

/* Why a sequence has ended. */
typedef enum mha_finish {
    MHA_FINISH_NONE = 0,     /* it has not */
    MHA_FINISH_END = 1,      /* with an end token of the model, or a stop token */
    MHA_FINISH_STOP = 2,     /* with a stop string */
    MHA_FINISH_LENGTH = 3,   /* it has max_new_tokens, or one token more than the model has positions */
    MHA_FINISH_CANCELLED = 4 /* the callback returned false */
} mha_finish;

/* A new token. With beam search, all tokens of a sequence are new when its search ends. */
typedef struct mha_generation_event {
    int64_t sequence; /* its number, from 0 */
    int32_t token;
    mha_finish finish; /* MHA_FINISH_NONE, unless it is the last one */
    const char
        *text;     /* with a tokenizer: more of the text, in whole characters. What may still become part of a stop */
    size_t length; /* string comes later. "" without a tokenizer. It ends with a NUL and is valid during the call */
} mha_generation_event;

/* Numbers that are not given are those of the model's generation_config.json, or, where it does not say either, those in
 * brackets, which `transformers` has. */
typedef struct mha_generation_options {
    size_t size; /* of this struct */
    mha_generation_method method;
    int64_t max_new_tokens;   /* of each sequence; 0: not given (256) */
    int64_t min_new_tokens;   /* no end token before so many; -1: not given (0) */
    float temperature;        /* > 0; NAN: not given (1) */
    int64_t top_k;            /* 0: all; -1: not given (50) */
    float top_p;              /* from 0 to 1; NAN: not given (1) */
    float min_p;              /* from 0 to 1; NAN: not given (0) */
    float repetition_penalty; /* > 0; NAN: not given (1) */
    int64_t no_repeat_ngram;  /* 0: none; -1: not given (0) */
    uint64_t seed;            /* of sampling */

    int64_t beams;        /* at most 1024; 0: not given (1) */
    float length_penalty; /* sums of log-probabilities are divided by (new tokens)^this; NAN: not given (1) */
    mha_early_stopping early_stopping;

    const int32_t *stop_tokens; /* (stop_token_count): end tokens beside those of the model */
    int64_t stop_token_count;
    const char *const *stop_strings; /* (stop_string_count): none is empty; the text ends before one. They need a */
    int64_t stop_string_count;       /* tokenizer, and are not for beam search */
    const mha_tokenizer *tokenizer;  /* for texts; must live as long as the generation. NULL: tokens only */

    mha_type cache; /* of keys and values: any float type */

    /* Called for each new token, from the thread that calls the step. Returns whether to go on; false ends all sequences. It
     * must not use the context of the step. NULL: none. */
    bool (*callback)(void *user, const mha_generation_event *event);
    void *user;
} mha_generation_options;

/* clang-format off */
#define MHA_GENERATION_DEFAULTS                                                                                        \
    {sizeof(mha_generation_options), MHA_GENERATE_AUTO, 0, -1, NAN, -1, NAN, NAN, NAN, -1, 0, 0, NAN, MHA_EARLY_AUTO,  \
     NULL, 0, NULL, 0, NULL, MHA_FLOAT32, NULL, NULL}
/* clang-format on */

MHA_API void mha_generation_defaults(mha_generation_options *options, size_t size);

/* Fills in what `options` leave open about the choice of tokens, as a generation with them would take it: method,
 * max_new_tokens, min_new_tokens, temperature, top_k, top_p, min_p, repetition_penalty, no_repeat_ngram, beams,
 * length_penalty and early_stopping, from the model's generation_config.json, or else the defaults above. Where that file
 * gives a length of prompt and new tokens together, max_new_tokens stays 0. Returns MHA_OK; or MHA_BAD_ARGUMENT, as
 * mha_generation_create does, or MHA_NO_MEMORY, and then nothing has been changed. */
MHA_API mha_status mha_generation_resolve(mha_context *ctx, mha_generation_options *options, const mha_model *model);

/* Prompts, one behind another: sequence b is the tokens starts[b] to starts[b+1] - 1. An empty one is replaced by the
 * model's first token, where it has one. All of it is copied. */
typedef struct mha_generation_inputs {
    int64_t count;         /* B, at least 1 */
    const int32_t *tokens; /* of the encoder, where the model has one */
    const int64_t *starts; /* (B+1) */

    /* Of a model with an encoder. */
    const int32_t *decoder_tokens; /* what the decoder starts with, likewise; NULL: the model's start token */
    const int64_t *decoder_starts; /* (B+1) */
    mha_tensor features;           /* of an encoder of audio, in place of tokens: any float type (B,bins,frames) */
} mha_generation_inputs;

typedef struct mha_generation mha_generation;

/* Checks everything and makes room for all tokens and their keys and values: steps allocate no more than text that
 * outgrows it. Runs the encoder, where there is one. `options` NULL means MHA_GENERATION_DEFAULTS. The model must live as
 * long as the generation and not be changed; several generations may share it, one step at a time. On error *g is NULL.
 * Returns MHA_OK; MHA_BAD_ARGUMENT for what is outside its range, a model that cannot generate, a prompt that is longer than
 * its positions, or a generation_config.json that asks for what this library does not know; MHA_BAD_SHAPE, MHA_BAD_TYPE or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_generation_create(mha_context *ctx, mha_generation **g, mha_model *model,
                                         const mha_generation_inputs *inputs, const mha_generation_options *options);
MHA_API void mha_generation_free(mha_generation *g); /* NULL is legal */

/* One token for each sequence that has not ended; the first step also runs the prompts. Does nothing once all have ended.
 * `run` steps until then. After an error, such as logits that are not finite, sequences keep the tokens that they have, and
 * further steps fail. Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_generation_step(mha_context *ctx, mha_generation *g);
MHA_API mha_status mha_generation_run(mha_context *ctx, mha_generation *g);
MHA_API bool mha_generation_finished(const mha_generation *g);

/* A sequence as it is now; its pointers are valid until the next step. All zero if there is no such sequence. */
typedef struct mha_generated {
    const int32_t *tokens; /* (count): the prompt of the decoder, then new ones, an end token included */
    int64_t count, prompt; /* how many, and how many of them are the prompt */
    mha_finish finish;
    float score; /* of a beam search that has ended: the sum of log-probabilities over (new tokens)^length_penalty */
    const char *text; /* with a tokenizer: the text of the new tokens, without special ones; ends with a NUL */
    size_t length;
} mha_generated;
MHA_API mha_generated mha_generation_get(const mha_generation *g, int64_t sequence);

/* A token that may come next, and how likely a step of sampling draws it. */
typedef struct mha_candidate {
    int32_t token;
    float probability;
} mha_candidate;

/* The distribution that the next step would draw from, for a row of logits (classes) of a run:
 *
 *     best (capacity): the most likely candidates, best first, of equals the one with the smallest id first
 *     count: how many tokens can be drawn at all; the probabilities of all of them sum to 1
 *
 * Probabilities are those after temperature, top_k, top_p and min_p, and after the rules for the tokens before: `before` has
 * one sequence, the tokens that the row is behind (decoder_tokens of a model with an encoder, and tokens, which are what that
 * read). NULL means that there are no such rules, as for a masked token. With MHA_GENERATE_GREEDY there is one candidate.
 * `options` NULL means MHA_GENERATION_DEFAULTS; what is not given is as the model's generation_config.json says.
 * Returns MHA_OK; MHA_BAD_ARGUMENT, also for logits that are not finite, beam search, and a model without logits for tokens;
 * or MHA_NO_MEMORY. */
MHA_API mha_status mha_generation_candidates(mha_context *ctx, const mha_model *model, mha_candidate *best,
                                             int64_t capacity, int64_t *count, const float *logits,
                                             const mha_generation_inputs *before,
                                             const mha_generation_options *options);

/* ---- 3 · Heads of text models ----------------------------------------------------------------------------------- */

/* What every head of a model that reads tokens attends to:
 *
 *     mha_text text = {.count = 1, .tokens = ids, .starts = (const int64_t[]){0, count}};
 *     mha_text_survey *survey;
 *     mha_text_head head = {.size = sizeof head};
 *     if (mha_text_survey_make(ctx, &survey, model, &text, NULL)) return puts(mha_context_error(ctx)), 1;
 *     for (int64_t n = 0; !mha_text_head_get(ctx, survey, n, &head); n++)
 *         printf("block %lld, head %lld: %s\n", (long long)head.block, (long long)head.head, head.words);
 *     mha_text_survey_free(survey);
 *
 * Sequences of tokens, one behind another: sequence b is tokens starts[b] to starts[b+1] - 1. For a model with one stack, a
 * sequence that is longer than a window is cut into windows, without the rest that does not fill one; a shorter one is a
 * window of its own. For a model with two stacks, a sequence is a source and its target, and is not cut. Of a model that
 * reads audio, the heads of the decoder and of its cross-attention are surveyed; the maps of an encoder over 1500 frames
 * would take 9 MB for each head. */
typedef struct mha_text {
    int64_t count;                 /* sequences, at least 1 */
    const int32_t *tokens;         /* of the encoder, where the model has two stacks */
    const int64_t *starts;         /* (count+1) */
    const int32_t *decoder_tokens; /* of its decoder, likewise, with the token that it starts with */
    const int64_t *decoder_starts; /* (count+1) */
    mha_tensor features;           /* of an encoder of audio, in place of tokens: any float type (count,bins,frames) */
} mha_text;

typedef struct mha_text_options {
    size_t size;                       /* of this struct */
    int64_t window;                    /* tokens of a window; 0: 128, or as many as the model has positions */
    int64_t windows;                   /* evenly spaced over the text; 0, or more than there are, is all of them */
    const int32_t *before, *after;     /* tokens at the sides of every window, such as [CLS] and [SEP], which are */
    int64_t before_count, after_count; /* part of its length; of the encoder, for repeated tokens, with two stacks */
    int64_t repeats;                   /* sequences of random tokens that are repeated once, up to 4096 */
    int64_t repeat_length;             /* tokens before they are repeated; 0: 32, or as many as fit the positions */
    const bool *drawn; /* (vocabulary): tokens that may be drawn if the text has too few of its own; NULL: all */
    uint64_t seed;     /* of the random tokens */
} mha_text_options;

/* clang-format off */
#define MHA_TEXT_DEFAULTS {sizeof(mha_text_options), 0, 64, NULL, NULL, 0, 0, 16, 0, NULL, 1}
/* clang-format on */

MHA_API void mha_text_defaults(mha_text_options *options, size_t size);

typedef struct mha_text_survey mha_text_survey;

/* Surveys the heads of a model over a text. Maps of a few windows exist at a time. Results have the same bits for any number
 * of threads. The model may be changed or freed afterwards. `options` NULL means MHA_TEXT_DEFAULTS. On error *survey is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also if the model does not read tokens, if no sequence has two tokens, or if weights are not
 * finite), MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_text_survey_make(mha_context *ctx, mha_text_survey **survey, mha_model *model,
                                        const mha_text *text, const mha_text_options *options);
MHA_API void mha_text_survey_free(mha_text_survey *survey); /* NULL is legal */

typedef struct mha_text_survey_info {
    size_t size;           /* of this struct, set by the caller; the rest is filled in */
    int64_t windows;       /* or pairs, as they were used */
    bool same;             /* they have the same length */
    int64_t repeats;       /* sequences of repeated tokens; 0 also if the model has too few positions, */
    int64_t repeat_length; /* and their tokens before they are repeated */
    int64_t heads;         /* of all attentions together, without an encoder of audio */
    bool audio;            /* the keys of cross-attention are frames */
} mha_text_survey_info;
MHA_API mha_status mha_text_survey_about(mha_context *ctx, const mha_text_survey *survey, mha_text_survey_info *info);

/* A head. Numbers are means over windows and rows; a row holds the weights of one query token. A number that does not apply
 * is NAN: `next` and `last` of causal attention, `distance` to `previous` and `duplicate` to `content` of cross-attention,
 * `monotone` of all other.
 *
 * `induction` and `duplicate` are measured on random tokens r_1 .. r_n r_1 .. r_n, all different: the mean weight from the second
 * r_i to the token after the first r_i, and to the first r_i itself. `chance` is what equal weights would give. Tokens are drawn
 * from those of the text, which the model knows; if it has fewer than 16 different ones, from the vocabulary; n is at most
 * their number.
 *
 * position and content add up to uniform - entropy. content is the entropy of the rows of the mean map less that of single
 * rows: what depends on the text. position is the rest: what all windows have in common. They are NAN for fewer than 8 windows
 * or windows of unlike length.
 *
 * `words` describe the head by the first rule that applies:
 *
 *     induction                   induction is at least 0.3
 *     the same token before       duplicate is at least 0.3
 *     itself                      a token's own weight is at least 1/2
 *     the previous token,         the key at a fixed offset of up to 8 tokens has at least 1/2, as a mean over the
 *     the next token,             queries that have such a key, if at least half of all have one
 *     3 tokens before
 *     the first token             its weight is at least 1/2 (an attention sink)
 *     the last token              likewise, such as [SEP]
 *     all tokens equally          the entropy is within 0.2 of the uniform one
 *     induction, weakly           induction is at least 0.05 and three times chance
 *     the same token, weakly      likewise duplicate
 *     near tokens                 the mean distance is below a quarter of that of equal weights
 *     partly the first token,     its weight is at least 1/4
 *     partly the last token
 *     by content, by position     content or position is larger; "mixed" if they are NAN
 *
 * and those of cross-attention:
 *
 *     the first source token,     its weight is at least 1/2
 *     the last source token
 *     aligned, in order           the largest weight is at least 1/2, and monotone at least 0.7
 *     single source tokens        the largest weight is at least 1/2
 *     all tokens equally          the entropy is within 0.2 of the uniform one
 *     follows the order           monotone is at least 0.7
 *     by content                  none of these
 *
 * with "frame" in place of "source token" or "token" if the model reads audio. */
typedef struct mha_text_head {
    size_t size;              /* of this struct, set by the caller; the rest is filled in */
    int64_t attention;        /* as in mha_model.h, section 4 */
    int64_t block, head;      /* from 0 */
    bool decoder, cross;      /* of the attention */
    double entropy;           /* of a row, in nats */
    double uniform;           /* that of equal weights on the keys that are visible */
    double effective;         /* 1 / sum of squares of a row */
    double largest;           /* weight of a row */
    double distance;          /* mean distance from tokens to the tokens they attend to, in tokens */
    double self;              /* weight on the token itself, */
    double previous, next;    /* those before and after it, where there are any, */
    double first, last;       /* and those at the ends of the window, of queries that are others and see them */
    double duplicate;         /* as above, */
    double induction, chance; /* NAN if there were no repeats */
    double position, content; /* as above, in nats */
    double monotone; /* correlation of a target token's position and the mean position of its source tokens, -1 to 1 */
    const char *words; /* valid as long as the survey */
} mha_text_head;

/* Head n, counted through all attentions of the survey. MHA_BAD_ARGUMENT if there is none. */
MHA_API mha_status mha_text_head_get(mha_context *ctx, const mha_text_survey *survey, int64_t n, mha_text_head *head);

/* The mean map (queries,keys) of head n over all windows; with windows of unlike length, the map of the first. Valid as long
 * as the survey. NULL if there is no such head. `queries` and `keys` may be NULL. */
MHA_API const float *mha_text_survey_map(const mha_text_survey *survey, int64_t n, int64_t *queries, int64_t *keys);

/* Likewise (tokens,tokens) over the sequences of repeated tokens. NULL also for cross-attention and without repeats. */
MHA_API const float *mha_text_survey_repeat_map(const mha_text_survey *survey, int64_t n, int64_t *tokens);

/* Whether heads follow relations between words, such as dependencies or coreference: how often the word that gets the largest
 * weight of a word is the one that it is linked to. Weights between words are means over the tokens of the query's word of the
 * sums over the tokens of the key's word. All other words are candidates, those before it in a causal model; a link counts
 * in a direction if its target is one. */
typedef struct mha_link {
    int64_t sequence; /* links are in the order of the sequences */
    int64_t from, to; /* words of the sequence, from 0 */
    int64_t relation; /* from 0 */
} mha_link;

typedef struct mha_relations mha_relations;

/* Measures all heads of a model with one stack over whole sequences: sentences with their special tokens, no longer than the
 * model has positions. words (tokens of all sequences): the word of each token, or -1. The model may be changed or freed
 * afterwards. Results have the same bits for any number of threads. On error *relations is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_relations_make(mha_context *ctx, mha_relations **relations, mha_model *model,
                                      const mha_text *text, const int32_t *words, const mha_link *links,
                                      int64_t link_count, int64_t relation_count);
MHA_API void mha_relations_free(mha_relations *relations); /* NULL is legal */

/* A relation in one direction: from a link's `from` to its `to`, or back. */
typedef struct mha_relation {
    size_t size;                 /* of this struct, set by the caller; the rest is filled in */
    int64_t links;               /* that count */
    int64_t best, hits;          /* the head with the most hits, counted through all attentions; and how many */
    int64_t offset, offset_hits; /* what a fixed offset can do: the most frequent one, in words, and its hits */
} mha_relation;
MHA_API mha_status mha_relation_get(mha_context *ctx, const mha_relations *relations, int64_t relation, bool back,
                                    mha_relation *to);

/* The hits of head n; -1 if there is no such head or relation. */
MHA_API int64_t mha_relation_hits(const mha_relations *relations, int64_t relation, bool back, int64_t n);

/* How well a causal model predicts the tokens of a text, in several cases, in each of which other heads are switched off: for
 * every token of a window but the first, the cross-entropy of the prediction from the tokens before it, in nats. exp(loss) is
 * the perplexity. The model is not changed.
 *
 *   off (cases,heads): heads counted through all attentions; NULL: none, for one case        scores (cases)
 *
 * `count` of a score is the tokens that were predicted, `correct` how many had the largest logit. A case costs the part of a
 * pass from the first block on in which a head is off. Results have the same bits for any number of threads. `options` NULL
 * means MHA_TEXT_DEFAULTS; what belongs to repeats is ignored.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for models with two stacks, that are not causal or do not predict tokens, and for
 * logits that are not finite), MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_text_ablate(mha_context *ctx, mha_model *model, mha_score *scores, const bool *off,
                                   int64_t cases, const mha_text *text, const mha_text_options *options);

/* ---- 4 · Embeddings ---------------------------------------------------------------------------------------------- */

/* One vector for each text, from the last hidden states of its tokens:
 *
 *     mha_embedder *e;
 *     float two[2 * 384];
 *     const char *texts[] = {"A cat sleeps.", "A kitten naps."};
 *     if (mha_embedder_create(ctx, &e, model, tok, "minilm", NULL)) return puts(mha_context_error(ctx)), 1;
 *     mha_embedder_run(ctx, e, mha_tensor_2d(two, MHA_FLOAT32, 2, 384), texts, 2, NULL);
 *
 * A folder with a modules.json is followed as sentence-transformers follows it: pooling by the first token, the last one, the
 * mean, the mean with growing weights, the sum over the square root of the number of tokens, or the largest numbers, or
 * several of these side by side; products with activations behind it (Dense); vectors of length 1 (Normalize); the most
 * tokens of a text (max_seq_length), beyond which it is cut; lower case; and prompts, which are put before each text and
 * pooled or not (include_prompt). What cannot be followed is an error. Without a modules.json, an embedding is the mean
 * over all tokens, special ones such as [CLS] included, brought to length 1. */
typedef struct mha_embedder mha_embedder;

typedef struct mha_embedder_options {
    size_t size;      /* of this struct */
    const char *pool; /* "first", "last", "mean", "max", "root", "weighted", or several with '+' between them; NULL: as
                           the folder says */
    const char *prompt; /* the name of one of the folder's prompts; NULL: its default prompt, if it has one */
    bool raw;           /* vectors are not brought to length 1, whatever the folder says */
    bool
        truncate; /* texts that do not fit the model are cut, also where the folder does not say how long they may be */
    bool (*watch)(void *arg, int64_t done, int64_t count); /* called between batches of texts; false stops. Or NULL */
    void *arg;
} mha_embedder_options;

/* clang-format off */
#define MHA_EMBEDDER_DEFAULTS {sizeof(mha_embedder_options), NULL, NULL, false, false, NULL, NULL}
/* clang-format on */

MHA_API void mha_embedder_defaults(mha_embedder_options *options, size_t size);

/* `folder` is what is followed; NULL: what the model was opened from. Model and tokenizer must
 * stay; without a tokenizer (NULL) there is mha_embedder_vector alone. `options` NULL
 * means MHA_EMBEDDER_DEFAULTS. Returns MHA_OK, MHA_BAD_FILE, MHA_BAD_ARGUMENT (also for models that read no text or have two
 * stacks, and for a prompt that the folder does not have) or MHA_NO_MEMORY. On error *embedder is NULL. */
MHA_API mha_status mha_embedder_create(mha_context *ctx, mha_embedder **embedder, mha_model *model,
                                       const mha_tokenizer *tokenizer, const char *folder,
                                       const mha_embedder_options *options);
MHA_API void mha_embedder_free(mha_embedder *embedder); /* NULL is legal */

typedef struct mha_embedder_info {
    size_t size;        /* of this struct */
    int64_t width;      /* numbers of a vector */
    int64_t longest;    /* tokens beyond which a text is cut, or refused; 0: no limit */
    bool follows;       /* the folder has a modules.json */
    bool cuts;          /* longer texts are cut */
    bool normalised;    /* vectors have length 1 */
    bool lower;         /* texts are changed to lower case */
    const char *pool;   /* as in the options */
    const char *prompt; /* the text before each text, or "". Both strings are valid as long as the embedder */
} mha_embedder_info;
MHA_API mha_status mha_embedder_about(mha_context *ctx, const mha_embedder *embedder, mha_embedder_info *info);

/* out (count,width) of texts, which are UTF-8 and end with a NUL. `tokens` (count), or NULL, gets how many tokens of each text
 * went in; those of the prompt count. The vector of a text has the same bits alone and among others.
 * Returns MHA_OK, also if `watch` stopped: rows of later batches are not written then; MHA_TOO_LARGE for a text that does not
 * fit; MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_NO_MEMORY or MHA_NO_DEVICE. The line names a text by its number,
 * from 1. On error nothing of the batch at hand is written; texts are all encoded before the first batch. */
MHA_API mha_status mha_embedder_run(mha_context *ctx, mha_embedder *embedder, mha_tensor out, const char *const *texts,
                                    int64_t count, int64_t *tokens);

/* out (width) from the last hidden states of one text that the caller has: rows (T,M). Nothing of them is left out. */
MHA_API mha_status mha_embedder_vector(mha_context *ctx, const mha_embedder *embedder, mha_tensor out, mha_tensor rows);

#ifdef __cplusplus
}
#endif

#endif
