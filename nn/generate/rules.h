/* Which tokens may follow, and how scores change with what is there already: everything before the choice itself.
 *
 * The rules are those of `transformers`, in its order, on one sequence's scores (V):
 *
 *     encoder_penalty   scores of tokens that the encoder read: times the penalty if negative (divided otherwise, and
 *                       with 1/penalty: above 1 prefers them)
 *     repetition        the same for tokens of the history, prompt included, each once: s < 0 ? s * p : s / p
 *     no_repeat_ngram   a token that would complete n tokens that the history has already
 *     encoder_ngram     a token that would complete n tokens that the encoder read
 *     banned            the last token of a banned sequence whose other tokens the history ends with
 *     min_length, min_new_tokens   no end token before that
 *     forced_bos        the only token behind a history of one token
 *     forced_end        the only tokens at the last place, max_length - 1
 *     suppressed        never; suppressed_first: not as the first new token
 *
 * What may not follow gets the score -infinity. Nothing is allocated after nn_marks_create. */
#ifndef NN_GENERATE_RULES_H
#define NN_GENERATE_RULES_H

#include "generate/tokens.h"

typedef struct nn_rules {
    float encoder_penalty, repetition_penalty; /* > 0; 1: none */
    int64_t no_repeat_ngram, encoder_ngram;    /* 0: none */
    nn_tokens banned;                          /* sequences, one behind another */
    const int64_t *banned_ends;                /* (banned_count): where each ends */
    int64_t banned_count;
    nn_tokens end;
    int64_t min_length, min_new_tokens;
    int64_t max_length; /* of the history, prompt included */
    int32_t forced_bos; /* -1: none */
    nn_tokens forced_end, suppressed, suppressed_first;
} nn_rules;

/* Which tokens have been met in a pass over a history. */
typedef struct nn_marks {
    uint32_t *mark; /* (V) */
    uint32_t pass;
} nn_marks;

bool nn_marks_create(nn_marks *m, int64_t V); /* false: out of memory */
void nn_marks_free(nn_marks *m);              /* all zero is legal */

/* Whether the rules change any score of this history. */
bool nn_rules_matter(const nn_rules *r, const nn_history *h);

/* Changes scores (V). Tokens of lists that are not below V are left out. */
void nn_rules_apply(const nn_rules *r, float *scores, int64_t V, const nn_history *h, nn_marks *marks);

#endif
