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
 * Sections, from simple to advanced. Each can be read alone; most programs need 1 and 2.
 *
 *     1  Tokenizers    text to ids and back
 *     2  Generation    continuing prompts: greedily, by sampling, with beam search; probabilities of next tokens
 *     3  Text heads    what every head of a text model attends to: induction, previous token, alignment, ...
 *     4  Embeddings    one vector for each text, as sentence-transformers computes it
 *
 * Part of libmha-model; the rules of mha_model.h hold. */
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
 *     mha_status status = mha_tokenizer_open(ctx, &tok, "tokenizer.json", NULL);
 *     if (!status) status = mha_tokenizer_encode(ctx, tok, ids, 64, &count, "Hello world", 11, NULL);
 *     if (status) puts(mha_context_error(ctx));
 *     for (int64_t i = 0; !status && i < count; i++) printf("%d %s\n", ids[i], mha_tokenizer_piece(tok, ids[i], NULL));
 *     mha_tokenizer_free(tok);
 *
 * Results are those of the libraries that the files come from. Threads with a context each may share a tokenizer.
 * Encoding takes time linear in the text's length (times its logarithm for BPE of long words).
 *
 * No file can make a call slow: searches of regular expressions take at most 200 steps per byte of text and a million
 * more, text grows at most 64 times and by 64 KiB, and a template adds at most 1024 tokens. Beyond that, calls return
 * MHA_BAD_ARGUMENT or, for the template, MHA_BAD_FILE. */
typedef struct mha_tokenizer mha_tokenizer;

typedef struct mha_tokenizer_options {
    size_t size; /* of this struct */
    bool target; /* use the target's of two vocabularies, such as Marian's source.spm and target.spm */
    bool cased;  /* for vocab.txt without tokenizer_config.json: keep upper case */
} mha_tokenizer_options;

/* clang-format off */
#define MHA_TOKENIZER_DEFAULTS {sizeof(mha_tokenizer_options), false, false}
/* clang-format on */

MHA_API void mha_tokenizer_defaults(mha_tokenizer_options *options, size_t size);

/* Opens a tokenizer:
 *
 *     tokenizer.json              of `tokenizers`: BPE, Unigram, WordPiece or WordLevel; without truncation and padding
 *     *.model, *.spm              of SentencePiece: Unigram or BPE
 *     vocab.json and merges.txt   byte-level BPE like GPT-2's; the path names either of them
 *     vocab.txt                   WordPiece like BERT's
 *     tokenizer.bin               of llama2.c, and *.tokenizer.json of type "bpe-by-score"
 *     *.vocabulary.json           {"source": [...], "target": [...]}: one token for each character
 *     a folder                    with one of these, the first in this order; or the name of a model on the Hugging
 *                                 Face hub, in its cache, as in mha_model_open
 *
 * Special tokens, and those that are added at the ends, come from the file, tokenizer_config.json and
 * special_tokens_map.json. A file with unsupported parts is refused with a line that names them.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE or MHA_NO_MEMORY. */
MHA_API mha_status mha_tokenizer_open(mha_context *ctx, mha_tokenizer **tokenizer, const char *path,
                                      const mha_tokenizer_options *options);
MHA_API void mha_tokenizer_free(mha_tokenizer *tokenizer);

/* Versions of Unicode, at most 32 bytes each: `tables` of utf8proc, for normalization, case, accents and the character
 * classes of normalizers and pre-tokenizers; `expressions` of PCRE2, for the classes of regular expressions. "" for a
 * library that this build lacks. Newer characters are unassigned: of no class, and never changed. The tables of
 * `tokenizers` may differ, so that it may split such characters in another way. */
MHA_API void mha_tokenizer_unicode(char *tables, char *expressions);

typedef struct mha_tokenizer_info {
    size_t size;                                /* of this struct, set by the caller */
    const char *kind;                           /* "BPE", "Unigram", "WordPiece", "WordLevel" or "characters" */
    const char *format;                         /* of the file: "tokenizer.json", "SentencePiece", ... */
    int64_t tokens;                             /* upper bound of ids; some of them may have no piece */
    int32_t bos, eos, unk, pad, mask, cls, sep; /* ids of tokens with these roles; -1 for none */
    const char *file;                           /* path of the file that was read */
} mha_tokenizer_info;
MHA_API mha_status mha_tokenizer_about(mha_context *ctx, const mha_tokenizer *tokenizer, mha_tokenizer_info *info);

/* The piece of an id as the file spells it: UTF-8 that ends with a NUL and is valid as long as the tokenizer; NULL if
 * there is none. `length`, or NULL, receives its bytes, which may include a NUL. */
MHA_API const char *mha_tokenizer_piece(const mha_tokenizer *tokenizer, int64_t id, size_t *length);

/* The id of a piece, -1 if there is none; and whether an id is a special token, which decoding can leave out. */
MHA_API int32_t mha_tokenizer_id(const mha_tokenizer *tokenizer, const char *piece);
MHA_API bool mha_tokenizer_is_special(const mha_tokenizer *tokenizer, int64_t id);

typedef struct mha_encode_options {
    size_t size;  /* of this struct */
    bool special; /* add the special tokens of the post-processor, such as [CLS] and [SEP] */
    bool literal; /* treat special tokens that are spelled out in the text as text: for untrusted text */
    bool lower;   /* change text to lower case first */
} mha_encode_options;

/* clang-format off */
#define MHA_ENCODE_DEFAULTS {sizeof(mha_encode_options), true, false, false}
/* clang-format on */

MHA_API void mha_encode_defaults(mha_encode_options *options, size_t size);

/* The tokens of a text of `length` bytes of UTF-8: ids (capacity). `count` receives their number, even if it is larger
 * than the capacity, with which nothing is written to `ids`. A capacity of 0, with which `ids` may be NULL, asks for
 * the number.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for text that is not UTF-8, with the byte in the line, or that has no token
 * while there is no unknown token), MHA_FULL (the capacity is neither 0 nor enough), MHA_TOO_LARGE (more than 1 GiB)
 * or MHA_NO_MEMORY. */
MHA_API mha_status mha_tokenizer_encode(mha_context *ctx, const mha_tokenizer *tokenizer, int32_t *ids,
                                        int64_t capacity, int64_t *count, const char *text, size_t length,
                                        const mha_encode_options *options);

/* The tokens of one text or two, with their origin. */
typedef struct mha_encoding mha_encoding;

typedef struct mha_token {
    int32_t id;          /* of the token */
    int32_t type;        /* number of the segment, as in BERT */
    int32_t text;        /* text that it comes from, 0 or 1; -1: added by the post-processor */
    bool special;        /* a special token, added or spelled out */
    int64_t start;       /* first byte of the text that it stands for; 0 for added tokens */
    int64_t end;         /* byte after that text. Tokens that share characters have the same range */
    const char *piece;   /* of the id, ends with a NUL; for an unknown token of Unigram, the text */
    size_t piece_length; /* bytes of the piece */
} mha_token;

/* Encodes a text, or a pair if `pair` is not NULL. Returns as mha_tokenizer_encode. */
MHA_API mha_status mha_encoding_make(mha_context *ctx, mha_encoding **encoding, const mha_tokenizer *tokenizer,
                                     const char *text, size_t length, const char *pair, size_t pair_length,
                                     const mha_encode_options *options);
MHA_API void mha_encoding_free(mha_encoding *encoding);

/* How many tokens there are, and token n, valid as long as the encoding: all zero if there is none. */
MHA_API int64_t mha_encoding_count(const mha_encoding *encoding);
MHA_API mha_token mha_encoding_get(const mha_encoding *encoding, int64_t n);

/* The text of ids (count): text (capacity), with a NUL at the end. `length` receives its bytes without the NUL, even
 * if they do not fit, with which nothing is written to `text`. A capacity of 0 asks for the length. Invalid UTF-8
 * becomes U+FFFD. `special` false leaves out special tokens. Ids without a piece are always left out.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_FULL or MHA_NO_MEMORY. */
MHA_API mha_status mha_tokenizer_decode(mha_context *ctx, const mha_tokenizer *tokenizer, char *text, size_t capacity,
                                        size_t *length, const int32_t *ids, int64_t count, bool special);

/* The text of one token in the middle of a text, with the space before it, like mha_tokenizer_decode. A special token,
 * and one that is no text alone, such as part of a character, gives its piece; an id without one gives "". Returns as
 * mha_tokenizer_decode. */
MHA_API mha_status mha_tokenizer_word(mha_context *ctx, const mha_tokenizer *tokenizer, char *text, size_t capacity,
                                      size_t *length, int32_t id);

/* The text of ids that come one by one, in whole characters:
 *
 *     mha_status status = mha_text_stream_create(ctx, &stream, tok, false);
 *     while (!status && (id = next()) >= 0) {
 *         status = mha_text_stream_push(ctx, stream, id, &text, &length);
 *         if (!status) fwrite(text, 1, length, stdout);
 *     }
 *     if (!status && !mha_text_stream_end(ctx, stream, &text, &length)) fwrite(text, 1, length, stdout);
 *     mha_text_stream_free(stream);
 *
 * All texts together are that of mha_tokenizer_decode. Up to 16 tokens are held back until their character is
 * complete; mha_text_stream_end gives the rest and restarts the stream. A text ends with a NUL and is valid until the
 * next call. The tokenizer must outlive the stream. All return MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
typedef struct mha_text_stream mha_text_stream;
MHA_API mha_status mha_text_stream_create(mha_context *ctx, mha_text_stream **stream, const mha_tokenizer *tokenizer,
                                          bool special);
MHA_API void mha_text_stream_free(mha_text_stream *stream);
MHA_API mha_status mha_text_stream_push(mha_context *ctx, mha_text_stream *stream, int32_t id, const char **text,
                                        size_t *length);
MHA_API mha_status mha_text_stream_end(mha_context *ctx, mha_text_stream *stream, const char **text, size_t *length);

typedef struct mha_tokenizer_train_options {
    size_t size;         /* of this struct */
    int64_t tokens;      /* size of the vocabulary (special token, 256 bytes, merges), from 257 to 2^24 */
    int64_t least;       /* minimum number of occurrences of a pair that is merged, at least 1 */
    const char *special; /* the special token, id 0 */
} mha_tokenizer_train_options;

/* clang-format off */
#define MHA_TOKENIZER_TRAIN_DEFAULTS {sizeof(mha_tokenizer_train_options), 4096, 1, "<|endoftext|>"}
/* clang-format on */

MHA_API void mha_tokenizer_train_defaults(mha_tokenizer_train_options *options, size_t size);

/* Learns a byte-level BPE tokenizer from a text and saves it as a tokenizer.json, which is replaced atomically. Lines
 * are split into words as in GPT-2. The merges are those of `tokenizers`: the most frequent pair inside words, of
 * equals that of the smaller ids. `made`, or NULL, receives the number of tokens, which is smaller than asked for if
 * there are no more pairs.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a text that is not UTF-8), MHA_TOO_LARGE, MHA_BAD_FILE or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_tokenizer_train(mha_context *ctx, const char *path, const char *text, size_t length,
                                       const mha_tokenizer_train_options *options, int64_t *made);

/* ---- 2 · Generation --------------------------------------------------------------------------------------------- */

/* Continues prompts, by one token each in every step:
 *
 *     static bool show(void *user, const mha_generation_event *event)
 *     {
 *         return fwrite(event->text, 1, event->length, stdout) == event->length;
 *     }
 *     ...
 *     mha_generation_options options = MHA_GENERATION_DEFAULTS;
 *     options.method = MHA_GENERATE_SAMPLE, options.temperature = 0.8f;
 *     options.tokenizer = tok, options.callback = show;
 *     mha_generation_inputs prompts = {.count = 1, .tokens = ids, .starts = (const int64_t[]){0, count}};
 *     mha_status status = mha_generation_create(ctx, &g, model, &prompts, &options);
 *     if (!status) status = mha_generation_run(ctx, g);
 *     if (status) puts(mha_context_error(ctx));
 *     mha_generation_free(g);
 *
 * Prompts of unlike length run side by side without padding. The result of a sequence depends on its prompt, the
 * options and the seed, not on its batch. (Each of several equal prompts has random numbers of its own.) A model with
 * an encoder reads prompts there, and its decoder starts with the token of generation_config.json.
 *
 * Logits are changed in the order of `transformers`: repetition penalty, n-grams that may not be repeated, banned
 * words, minimum length, forced first and last tokens, suppressed tokens; then, in sampling, temperature, top_k,
 * top_p, min_p. Greedy decoding and beam search give its results. */

typedef enum mha_generation_method {
    MHA_GENERATE_AUTO = 0,   /* as generation_config.json says, or else greedy */
    MHA_GENERATE_GREEDY = 1, /* the most likely token, of equals the smallest id */
    MHA_GENERATE_SAMPLE = 2, /* a random token, by its probability */
    MHA_GENERATE_BEAMS = 3   /* beam search: the best of several sequences that are continued side by side */
} mha_generation_method;

/* When a beam search ends. */
typedef enum mha_early_stopping {
    MHA_EARLY_AUTO = 0, /* as generation_config.json says, or else MHA_EARLY_NO */
    MHA_EARLY_NO = 1,   /* when no running beam, scored at its length, is better than any finished one */
    MHA_EARLY_YES = 2,  /* when there are as many finished sequences as beams */
    MHA_EARLY_NEVER = 3 /* when no running beam can become better at any length */
} mha_early_stopping;

/* Why a sequence has ended. */
typedef enum mha_finish {
    MHA_FINISH_NONE = 0,     /* it has not ended */
    MHA_FINISH_END = 1,      /* by an end token of the model, or a stop token */
    MHA_FINISH_STOP = 2,     /* by a stop string */
    MHA_FINISH_LENGTH = 3,   /* it has max_new_tokens, or one token more than the model has positions */
    MHA_FINISH_CANCELLED = 4 /* the callback returned false */
} mha_finish;

/* A new token. All tokens of a beam search are new when it ends. */
typedef struct mha_generation_event {
    int64_t sequence;  /* number of the sequence, from 0 */
    int32_t token;     /* id of the token */
    mha_finish finish; /* MHA_FINISH_NONE, except for the last token */
    const char *text;  /* with a tokenizer: new text in whole characters, without a possible stop string; else "" */
    size_t length;     /* bytes of the text, which ends with a NUL and is valid during the call */
} mha_generation_event;

/* A value that is not given is that of the model's generation_config.json, or else the one in brackets. */
typedef struct mha_generation_options {
    size_t size;                  /* of this struct */
    mha_generation_method method; /* how tokens are chosen */
    int64_t max_new_tokens;       /* of each sequence; 0: not given (256) */
    int64_t min_new_tokens;       /* no end token before so many; -1: not given (0) */
    float temperature;            /* divides logits, > 0; NAN: not given (1) */
    int64_t top_k;                /* draw from so many most likely tokens; 0: all; -1: not given (50) */
    float top_p;                  /* draw from the most likely tokens of this total probability; NAN: not given (1) */
    float min_p;                  /* draw from tokens of this share of the largest probability; NAN: not given (0) */
    float repetition_penalty;     /* divides positive and multiplies negative logits, > 0; NAN: not given (1) */
    int64_t no_repeat_ngram;      /* length of n-grams that may not be repeated; 0: none; -1: not given (0) */
    uint64_t seed;                /* of sampling */
    int64_t beams;                /* of a beam search, at most 1024; 0: not given (1) */
    float length_penalty;         /* a beam's score is divided by (new tokens)^this; NAN: not given (1) */
    mha_early_stopping early_stopping; /* of a beam search */
    const int32_t *stop_tokens;        /* (stop_token_count): further end tokens */
    int64_t stop_token_count;          /* number of stop tokens */
    const char *const *stop_strings;   /* (stop_string_count): the text ends before one; not for beam search */
    int64_t stop_string_count;         /* number of stop strings */
    const mha_tokenizer *tokenizer;    /* for texts and stop strings, must outlive the generation; or NULL */
    mha_type cache;                    /* of keys and values: any float type */

    /* Called for each new token on the thread that runs the step; must not use its context. Returns whether to go on:
     * false ends all sequences. Or NULL. */
    bool (*callback)(void *user, const mha_generation_event *event);
    void *user; /* first argument of the callback */
} mha_generation_options;

/* clang-format off */
#define MHA_GENERATION_DEFAULTS                                                                                        \
    {sizeof(mha_generation_options), MHA_GENERATE_AUTO, 0, -1, NAN, -1, NAN, NAN, NAN, -1, 0, 0, NAN, MHA_EARLY_AUTO,  \
     NULL, 0, NULL, 0, NULL, MHA_FLOAT32, NULL, NULL}
/* clang-format on */

MHA_API void mha_generation_defaults(mha_generation_options *options, size_t size);

/* Fills in the values of `options` that are not given, except those of stop tokens and strings. max_new_tokens stays 0
 * where generation_config.json gives a length of prompt and new tokens together. Returns as mha_generation_create. */
MHA_API mha_status mha_generation_resolve(mha_context *ctx, mha_generation_options *options, const mha_model *model);

/* Prompts: sequence b is tokens starts[b] to starts[b+1] - 1. An empty one becomes the model's first token, where
 * there is one. Everything is copied. */
typedef struct mha_generation_inputs {
    int64_t count;                 /* B, at least 1 */
    const int32_t *tokens;         /* ids of all prompts; for the encoder, where there is one */
    const int64_t *starts;         /* (B+1) */
    const int32_t *decoder_tokens; /* ids of all first tokens of a decoder behind an encoder; NULL: the start token */
    const int64_t *decoder_starts; /* (B+1), for decoder_tokens */
    mha_tensor features;           /* any float type (B,bins,frames): audio for the encoder, in place of tokens */
} mha_generation_inputs;

typedef struct mha_generation mha_generation;

/* Checks everything, allocates the caches, and runs the encoder, where there is one. Several generations may share a
 * model, one step at a time; it must outlive them unchanged.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a model that cannot generate, a prompt longer than its positions, or a
 * generation_config.json with unsupported settings), MHA_BAD_SHAPE, MHA_BAD_TYPE or MHA_NO_MEMORY. */
MHA_API mha_status mha_generation_create(mha_context *ctx, mha_generation **g, mha_model *model,
                                         const mha_generation_inputs *inputs, const mha_generation_options *options);
MHA_API void mha_generation_free(mha_generation *g);

/* Adds one token to each sequence that has not ended; the first step also runs the prompts. `run` steps until all have
 * ended. After an error, such as logits that are not finite, sequences keep their tokens, and further steps fail.
 * Returns MHA_OK, MHA_BAD_ARGUMENT or MHA_NO_MEMORY. */
MHA_API mha_status mha_generation_step(mha_context *ctx, mha_generation *g);
MHA_API mha_status mha_generation_run(mha_context *ctx, mha_generation *g);
MHA_API bool mha_generation_finished(const mha_generation *g);

/* A sequence as it is now, valid until the next step. All zero if there is no such sequence. */
typedef struct mha_generated {
    const int32_t *tokens; /* (count): the (decoder's) prompt, then new tokens, an end token included */
    int64_t count;         /* number of tokens */
    int64_t prompt;        /* number of these that are the prompt */
    mha_finish finish;     /* why it has ended */
    float score;           /* of a beam search: sum of log-probabilities / (new tokens)^length_penalty */
    const char *text;      /* with a tokenizer: text of the new tokens without special ones; ends with a NUL */
    size_t length;         /* bytes of the text */
} mha_generated;
MHA_API mha_generated mha_generation_get(const mha_generation *g, int64_t sequence);

/* A possible next token. */
typedef struct mha_candidate {
    int32_t token;     /* id of the token */
    float probability; /* that a step draws it */
} mha_candidate;

/* The distribution that a step would draw from, for a row of logits (classes) of a run:
 *
 *     best (capacity): the most likely candidates, in decreasing order, of equals the smallest id first
 *     count: number of all candidates, whose probabilities add up to 1
 *
 * It is that after all rules, temperature, top_k, top_p and min_p. `before` has one sequence, the tokens before the
 * row; with an encoder, these are its decoder_tokens, and its tokens are what the encoder read. NULL: no rules that
 * need them, as for a masked token. With MHA_GENERATE_GREEDY there is one candidate.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for logits that are not finite, beam search, and a model without logits for
 * tokens) or MHA_NO_MEMORY. */
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
 *     mha_status status = mha_text_survey_make(ctx, &survey, model, &text, NULL);
 *     if (status) puts(mha_context_error(ctx));
 *     for (int64_t n = 0; !status && !mha_text_head_get(ctx, survey, n, &head); n++)
 *         printf("block %lld, head %lld: %s\n", (long long)head.block, (long long)head.head, head.words);
 *     mha_text_survey_free(survey);
 *
 * With one stack, a sequence is cut into windows, without a rest that does not fill one; a shorter sequence is a
 * window. With two stacks, a sequence is a source and its target, and is not cut. With audio, the decoder and its
 * cross-attention are surveyed, not the encoder. */
typedef struct mha_text {
    int64_t count;                 /* number of sequences, at least 1 */
    const int32_t *tokens;         /* ids: sequence b is starts[b] to starts[b+1] - 1; for the first stack */
    const int64_t *starts;         /* (count+1) */
    const int32_t *decoder_tokens; /* ids for a second stack, start token included */
    const int64_t *decoder_starts; /* (count+1), for decoder_tokens */
    mha_tensor features;           /* any float type (count,bins,frames): audio for the encoder, in place of tokens */
} mha_text;

typedef struct mha_text_options {
    size_t size;           /* of this struct */
    int64_t window;        /* tokens of a window; 0: 128, or as many as the model has positions */
    int64_t windows;       /* evenly spaced over the text; 0, or more than there are, is all of them */
    const int32_t *before; /* (before_count): first tokens of every window, such as [CLS], part of its length */
    const int32_t *after;  /* (after_count): last tokens of every window, such as [SEP], part of its length */
    int64_t before_count;  /* number of tokens in `before` */
    int64_t after_count;   /* number of tokens in `after` */
    int64_t repeats;       /* sequences of random tokens that are repeated once, up to 4096 */
    int64_t repeat_length; /* tokens before they are repeated; 0: 32, or as many as fit the positions */
    const bool *drawn;     /* (vocabulary): tokens to draw if the text has fewer than 16 different ones; NULL: all */
    uint64_t seed;         /* of the random tokens */
} mha_text_options;

/* clang-format off */
#define MHA_TEXT_DEFAULTS {sizeof(mha_text_options), 0, 64, NULL, NULL, 0, 0, 16, 0, NULL, 1}
/* clang-format on */

MHA_API void mha_text_defaults(mha_text_options *options, size_t size);

typedef struct mha_text_survey mha_text_survey;

/* Surveys the heads of a model over a text. The model may be changed or freed afterwards.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also if the model does not read tokens, no sequence has two tokens, or weights are
 * not finite), MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_text_survey_make(mha_context *ctx, mha_text_survey **survey, mha_model *model,
                                        const mha_text *text, const mha_text_options *options);
MHA_API void mha_text_survey_free(mha_text_survey *survey);

typedef struct mha_text_survey_info {
    size_t size;           /* of this struct, set by the caller */
    int64_t windows;       /* windows or pairs that were used */
    bool same;             /* all windows have the same length */
    int64_t repeats;       /* sequences of repeated tokens; 0 also if the model has too few positions */
    int64_t repeat_length; /* tokens of these before they are repeated */
    int64_t heads;         /* of all surveyed attentions together */
    bool audio;            /* the keys of cross-attention are audio frames */
} mha_text_survey_info;
MHA_API mha_status mha_text_survey_about(mha_context *ctx, const mha_text_survey *survey, mha_text_survey_info *info);

/* A head. Numbers are means over windows and rows; a row has the weights of one query token.
 *
 * `induction` and `duplicate` are measured on random tokens r_1 .. r_n r_1 .. r_n, all different, drawn from those of
 * the text: the weight from the second r_i to the token after the first r_i, and to the first r_i. `chance` is that of
 * equal weights.
 *
 * position + content = uniform - entropy. content, what depends on the text, is the entropy of the mean map's rows
 * minus that of single rows; position is what all windows have in common. Both need 8 windows of equal length.
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
    size_t size;       /* of this struct, set by the caller */
    int64_t attention; /* number of the attention, as in mha_model.h, section 4 */
    int64_t block;     /* number of the block, from 0 */
    int64_t head;      /* number in its attention, from 0 */
    bool decoder;      /* it belongs to a decoder */
    bool cross;        /* it belongs to a cross-attention */
    double entropy;    /* entropy of a row, in nats */
    double uniform;    /* entropy of equal weights on the visible keys, in nats */
    double effective;  /* 1 / sum of squares of a row */
    double largest;    /* largest weight of a row */
    double distance;   /* weighted distance to the keys, in tokens; NAN for cross-attention */
    double self;       /* weight on the token itself; NAN for cross-attention */
    double previous;   /* weight on the token before, where there is one; NAN for cross-attention */
    double next;       /* weight on the token after, where there is one; NAN if causal or for cross-attention */
    double first;      /* weight on the first token of the window, of other queries */
    double last;       /* weight on the last token of the window, of other queries; NAN if causal */
    double duplicate;  /* weight on the same token before: see above; NAN without repeats or for cross-attention */
    double induction;  /* weight on the token after the same token: see above; NAN like duplicate */
    double chance;     /* what equal weights give for induction; NAN like duplicate */
    double position;   /* see above, in nats; NAN for cross-attention or too few windows */
    double content;    /* see above, in nats; NAN for cross-attention or too few windows */
    double monotone;   /* correlation of a target's position and the mean position of its sources; NAN unless cross */
    const char *words; /* see above; valid as long as the survey */
} mha_text_head;

/* Head n, counted through all surveyed attentions. Returns MHA_OK or MHA_BAD_ARGUMENT (there is none). */
MHA_API mha_status mha_text_head_get(mha_context *ctx, const mha_text_survey *survey, int64_t n, mha_text_head *head);

/* The mean map (queries,keys) of head n over all windows, or the map of the first if their lengths differ. Valid as
 * long as the survey; NULL if there is no such head. `queries` and `keys` may be NULL. */
MHA_API const float *mha_text_survey_map(const mha_text_survey *survey, int64_t n, int64_t *queries, int64_t *keys);

/* The mean map (tokens,tokens) of head n over the sequences of repeated tokens; NULL also for cross-attention. */
MHA_API const float *mha_text_survey_repeat_map(const mha_text_survey *survey, int64_t n, int64_t *tokens);

/* Whether heads follow relations between words, such as dependencies or coreference: how often the word with a word's
 * largest weight is the one that it is linked to. The weight between words is the mean over the query word's tokens of
 * the sum over the key word's tokens. Candidates are all other words, in a causal model those before. A link counts in
 * a direction if its target is a candidate. */
typedef struct mha_link {
    int64_t sequence; /* number of the sequence; links are in their order */
    int64_t from;     /* word of the sequence, from 0 */
    int64_t to;       /* word of the sequence, from 0 */
    int64_t relation; /* number of the relation, from 0 */
} mha_link;

typedef struct mha_relations mha_relations;

/* Measures all heads of a model with one stack over sequences that are not cut. words (tokens of all sequences): the
 * word of each token, or -1. The model may be changed or freed afterwards.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_relations_make(mha_context *ctx, mha_relations **relations, mha_model *model,
                                      const mha_text *text, const int32_t *words, const mha_link *links,
                                      int64_t link_count, int64_t relation_count);
MHA_API void mha_relations_free(mha_relations *relations);

/* A relation in one direction: from a link's `from` to its `to`, or with `back` the other way. */
typedef struct mha_relation {
    size_t size;         /* of this struct, set by the caller */
    int64_t links;       /* links that count */
    int64_t best;        /* head with the most hits, counted through all attentions */
    int64_t hits;        /* hits of that head */
    int64_t offset;      /* most frequent offset of linked words: a baseline */
    int64_t offset_hits; /* hits of always choosing that offset */
} mha_relation;
MHA_API mha_status mha_relation_get(mha_context *ctx, const mha_relations *relations, int64_t relation, bool back,
                                    mha_relation *to);

/* The hits of head n; -1 if there is no such head or relation. */
MHA_API int64_t mha_relation_hits(const mha_relations *relations, int64_t relation, bool back, int64_t n);

/* How well a causal model predicts a text with different heads switched off in each of several cases: the
 * cross-entropy of every token of a window but the first, in nats. exp(loss) is the perplexity. The model is not
 * changed.
 *
 *   off (cases,heads): heads counted through all attentions; NULL: none, for one case        scores (cases)
 *
 * Of a score, `count` is the predicted tokens and `correct` those with the largest logit. A case costs the part of a
 * pass from the first block with a head that is off. Options of repeats are ignored.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for two stacks, models that are not causal or do not predict tokens, and
 * logits that are not finite), MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_text_ablate(mha_context *ctx, mha_model *model, mha_score *scores, const bool *off,
                                   int64_t cases, const mha_text *text, const mha_text_options *options);

/* ---- 4 · Embeddings --------------------------------------------------------------------------------------------- */

/* One vector for each text, from the last hidden states of its tokens:
 *
 *     mha_embedder *e;
 *     float two[2 * 384];
 *     const char *texts[] = {"A cat sleeps.", "A kitten naps."};
 *     mha_status status = mha_embedder_create(ctx, &e, model, tok, "minilm", NULL);
 *     mha_tensor out = mha_tensor_2d(two, MHA_FLOAT32, 2, 384);
 *     if (!status) status = mha_embedder_run(ctx, e, out, texts, 2, NULL);
 *     if (status) puts(mha_context_error(ctx));
 *     mha_embedder_free(e);
 *
 * A folder with a modules.json is used as sentence-transformers uses it: pooling by first, last, mean, weighted mean,
 * sum over the root of the number of tokens, or maximum, or several side by side; Dense; Normalize; max_seq_length;
 * lower case; prompts, pooled or not (include_prompt). Anything else in it is an error. Without a modules.json, an
 * embedding is the mean over all tokens, special ones included, with length 1. */
typedef struct mha_embedder mha_embedder;

typedef struct mha_embedder_options {
    size_t size;      /* of this struct */
    const char *pool; /* "first", "last", "mean", "max", "root", "weighted", or several with '+'; NULL: the folder's */
    const char *prompt; /* name of one of the folder's prompts; NULL: its default prompt, if it has one */
    bool raw;           /* do not normalize vectors to length 1, whatever the folder says */
    bool truncate;      /* cut texts that do not fit the model, even if the folder does not say so */
    bool (*watch)(void *arg, int64_t done, int64_t count); /* called between batches of texts; false stops. Or NULL */
    void *arg;                                             /* first argument of `watch` */
} mha_embedder_options;

/* clang-format off */
#define MHA_EMBEDDER_DEFAULTS {sizeof(mha_embedder_options), NULL, NULL, false, false, NULL, NULL}
/* clang-format on */

MHA_API void mha_embedder_defaults(mha_embedder_options *options, size_t size);

/* `folder` NULL: what the model was opened from. Model and tokenizer must outlive the embedder; without a tokenizer
 * (NULL) only mha_embedder_vector works.
 * Returns MHA_OK, MHA_BAD_FILE, MHA_BAD_ARGUMENT (also for models that read no text or have two stacks, and for an
 * unknown prompt) or MHA_NO_MEMORY. */
MHA_API mha_status mha_embedder_create(mha_context *ctx, mha_embedder **embedder, mha_model *model,
                                       const mha_tokenizer *tokenizer, const char *folder,
                                       const mha_embedder_options *options);
MHA_API void mha_embedder_free(mha_embedder *embedder);

typedef struct mha_embedder_info {
    size_t size;        /* of this struct */
    int64_t width;      /* numbers of a vector */
    int64_t longest;    /* maximum number of tokens of a text; 0: no limit */
    bool follows;       /* the folder has a modules.json */
    bool cuts;          /* longer texts are cut; false: refused */
    bool normalised;    /* vectors have length 1 */
    bool lower;         /* texts are changed to lower case */
    const char *pool;   /* as in the options; valid as long as the embedder */
    const char *prompt; /* text before each text, or ""; valid as long as the embedder */
} mha_embedder_info;
MHA_API mha_status mha_embedder_about(mha_context *ctx, const mha_embedder *embedder, mha_embedder_info *info);

/* out (count,width) of texts (count), which are UTF-8 and end with a NUL. `tokens` (count), or NULL, receives how many
 * tokens of each text went in, prompt included. The vector of a text has the same bits alone and among others. All
 * texts are encoded before the first batch; on error, nothing of the current batch is written.
 * Returns MHA_OK (also if `watch` stopped: rows of later batches are not written), MHA_TOO_LARGE (a text does not fit;
 * the line has its number, from 1), MHA_BAD_ARGUMENT, MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_embedder_run(mha_context *ctx, mha_embedder *embedder, mha_tensor out, const char *const *texts,
                                    int64_t count, int64_t *tokens);

/* out (width) from the last hidden states (T,M) of one text, all of which are pooled. Returns as mha_embedder_run. */
MHA_API mha_status mha_embedder_vector(mha_context *ctx, const mha_embedder *embedder, mha_tensor out, mha_tensor rows);

#ifdef __cplusplus
}
#endif

#endif
