/* The choice of a token from scores (V): the largest, or at random.
 *
 *     greedy    the largest score; of equal ones the first
 *     sampling  scores / temperature; then of the tokens are left, in this order,
 *               top_k   those whose score is at least the k-th largest (with equal scores there may be more than k)
 *               top_p   the most likely ones until their probabilities reach p, and at least one
 *               min_p   those with at least p times the probability of the most likely one
 *               and one of these is drawn by its share
 *
 * as `transformers` does. Of tokens with equal scores at the edge of top_p, those with larger ids are left. The draw depends
 * on its seed, stream and step alone (mha_random_block), so that a sequence does not depend on its batch.
 *
 * Candidates are kept in heaps, never sorted as a whole: V may be 256,000 and top_k 40. Nothing is allocated after
 * nn_choice_create. */
#ifndef NN_GENERATE_SAMPLING_H
#define NN_GENERATE_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct nn_choice_options {
    float temperature; /* > 0 */
    int64_t top_k;     /* 0: all */
    float top_p;       /* 1: all */
    float min_p;       /* 0: all */
    uint64_t seed, stream;
} nn_choice_options;

typedef struct nn_candidate {
    float score; /* then its share of the draw, not normalised */
    int32_t id;
} nn_candidate;

typedef struct nn_choice {
    nn_candidate *list; /* (V) */
    int64_t V;
} nn_choice;

bool nn_choice_create(nn_choice *c, int64_t V); /* false: out of memory */
void nn_choice_free(nn_choice *c);              /* all zero is legal */

/* Whether scores (V) can be chosen from: none is NaN or +infinity, and not all are -infinity. Else says why not. */
bool nn_scores_are_good(const float *scores, int64_t V, const char **why);
extern const char nn_scores_all_suppressed[];

int32_t nn_choice_largest(const float *scores, int64_t V);

/* Leaves the tokens that may be drawn in c->list, with their shares; returns how many there are, and the sum of their
 * shares. */
int64_t nn_choice_filter(nn_choice *c, const float *scores, const nn_choice_options *o, double *sum);

/* Draws token number `step` of the sequence. */
int32_t nn_choice_draw(nn_choice *c, const float *scores, const nn_choice_options *o, uint32_t step);

#endif
