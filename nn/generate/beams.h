/* Beam search of one sequence, as `transformers` 5 does it (generate with num_beams, without sampling).
 *
 * N beams run. In each step every beam gives its scores log softmax(logits), changed by the rules (rules.h), plus the sum
 * of those before: of all N*V continuations the K = max(2, 1 + end tokens) * N best are candidates. A candidate has finished
 * if its token is an end token or the sequence has its greatest length. The best N candidates that have not are the next
 * beams. Those of the first N candidates that have are finished sequences, with the score
 *
 *     sum of log-probabilities / (new tokens)^length_penalty
 *
 * and the best N of all of them are kept. The search ends when all candidates have finished, or, with `early` YES, when N
 * sequences have finished, or, with NO and NEVER, when the best beam, with its score at its present length, or at its
 * greatest if `early` is NEVER and the penalty is positive, is not above the worst of N finished sequences.
 *
 *     nn_beams_begin(b, prompt, count, longest);
 *     while (!nn_beams_ended(b)) {
 *         logits (N,V) of the last token of each beam     the first time, those of the prompt, N times
 *         if (!nn_beams_step(b, logits, ...)) fail
 *         nn_beams_from(b), nn_beams_next(b)              cache row n becomes what row from[n] was; token n goes in
 *     }
 *     nn_beams_best(b, 0)                                 the sequence
 *
 * Sums are kept in float32, as there. Nothing is allocated after nn_beams_create. */
#ifndef NN_GENERATE_BEAMS_H
#define NN_GENERATE_BEAMS_H

#include "generate/config.h"
#include "generate/rules.h"

typedef struct nn_beams_options {
    int64_t beams; /* N, at least 1 */
    float length_penalty;
    nn_early_stopping early;
    bool renormalize; /* log softmax once more after the rules */
    nn_tokens end;
    nn_tokens encoder; /* of an encoder-decoder, what the encoder read */
} nn_beams_options;

typedef struct nn_beams nn_beams;

/* For sequences of up to `longest` tokens, prompt included, over a vocabulary of V. NULL: out of memory. `o` is copied;
 * the lists that it names must stay. */
nn_beams *nn_beams_create(const nn_beams_options *o, int64_t V, int64_t longest);
void nn_beams_free(nn_beams *b); /* NULL is legal */

/* A search from a prompt of `count` tokens to a sequence of at most `longest`, prompt included: more than count, and no
 * more than the room that there is. */
void nn_beams_begin(nn_beams *b, const int32_t *prompt, int64_t count, int64_t longest);

/* One step from logits (N,V), which it changes; with only_first, those of beam 0 alone are given, and serve all beams: in
 * the first step, when all of them are the prompt. False if a logit is not finite or no token may follow; *why says so. */
bool nn_beams_step(nn_beams *b, float *logits, bool only_first, const nn_rules *rules, nn_marks *marks,
                   const char **why);

bool nn_beams_ended(const nn_beams *b);
const int64_t *nn_beams_from(const nn_beams *b); /* (N): the beam of the step before that each beam goes on from */
const int32_t *nn_beams_next(const nn_beams *b); /* (N): its new token */

/* Finished sequence n, the best first: its tokens with the prompt, how many, and its score; NULL if there are not so
 * many. */
const int32_t *nn_beams_best(const nn_beams *b, int64_t n, int64_t *count, float *score);

/* The best beam that is still running, as nn_beams_best: for those who look on. */
const int32_t *nn_beams_running(const nn_beams *b, int64_t *count);

#endif
