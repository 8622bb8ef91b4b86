/* What a model's generation_config.json says, in its own words: `transformers` writes one beside a model. It gives the
 * defaults of a generation.
 *
 *     nn_generation_config c;
 *     nn_generation_config_defaults(&c);
 *     if (!nn_generation_config_read(&c, text, size, &to)) return false;
 *     ...
 *     nn_generation_config_free(&c);
 *
 * Defaults are those of `transformers`, for keys that are missing or null. config.json of older models has some of the
 * same keys: read it first, and generation_config.json, where there is one, over it. A key that would change what is
 * generated and that this library does not know is no error here, because the model can do other things: `unsupported`
 * names it. */
#ifndef NN_GENERATE_CONFIG_H
#define NN_GENERATE_CONFIG_H

#include "generate/tokens.h"
#include "io/failure.h"

typedef enum nn_early_stopping {
    NN_EARLY_NO,    /* false: stop when the best running beam cannot improve at its present length */
    NN_EARLY_YES,   /* true: stop when there are as many finished sequences as beams */
    NN_EARLY_NEVER, /* "never": stop when no running beam can improve at any length */
} nn_early_stopping;

typedef struct nn_generation_config {
    bool sample;                       /* do_sample */
    double temperature;                /* 1 */
    int64_t top_k;                     /* 50; 0: all */
    double top_p;                      /* 1 */
    double min_p;                      /* 0 */
    double repetition_penalty;         /* 1 */
    double encoder_repetition_penalty; /* 1 */
    int64_t no_repeat_ngram;           /* no_repeat_ngram_size; 0 */
    int64_t encoder_no_repeat_ngram;   /* encoder_no_repeat_ngram_size; 0 */
    int64_t beams;                     /* num_beams; 1 */
    double length_penalty;             /* 1 */
    nn_early_stopping early_stopping;
    bool renormalize;           /* renormalize_logits */
    int64_t max_length;         /* prompt included; 0: it does not say */
    int64_t max_new_tokens;     /* 0: it does not say */
    int64_t min_length;         /* prompt included; 0 */
    int64_t min_new_tokens;     /* 0 */
    int32_t bos, pad;           /* bos_token_id, pad_token_id; -1: none */
    int32_t decoder_start;      /* decoder_start_token_id; -1: none */
    int32_t forced_bos;         /* forced_bos_token_id; -1: none */
    nn_tokens end;              /* eos_token_id, a number or a list */
    nn_tokens forced_end;       /* forced_eos_token_id, likewise */
    nn_tokens suppressed;       /* suppress_tokens */
    nn_tokens suppressed_first; /* begin_suppress_tokens */
    nn_tokens banned;           /* bad_words_ids, one sequence behind another: */
    const int64_t *banned_ends; /* (banned_count): where each ends in `banned` */
    int64_t banned_count;
    char unsupported[64]; /* "", or the key that this library does not know */
    void *memory[5];      /* behind the lists above */
} nn_generation_config;

void nn_generation_config_defaults(nn_generation_config *c);
void nn_generation_config_free(nn_generation_config *c); /* one with defaults, or all zero, is legal */

/* Reads a JSON object over what `c` holds. False, with one line in `to`, if it is damaged, a key has a value of the wrong
 * kind or range, or memory is out; `c` can be freed then. Numbers are read in the C locale, which the caller has set. */
bool nn_generation_config_read(nn_generation_config *c, const char *text, size_t size, const nn_failure *to);

#endif
