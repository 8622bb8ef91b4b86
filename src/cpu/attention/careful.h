/* One row in float64, key by key: the way for rows whose scores or sums left the range of float32. */
#ifndef MHA_ATTENTION_CAREFUL_H
#define MHA_ATTENTION_CAREFUL_H

#include "cpu/attention/tile.h"

/* The score of key j for head h and query i up to `stage` (at most MHA_STAGE_MASKED), in float64. At MHA_STAGE_MASKED a
 * key that is not visible scores -inf and is not looked at. */
double mha_careful_score(const mha_problem *problem, const mha_sequence *sequence, int64_t h, int64_t i, int64_t j,
                         mha_stage stage);

/* Whether the query sees the key. */
bool mha_careful_sees(const mha_problem *problem, const mha_sequence *sequence, int64_t h, int64_t i, int64_t j);

/* The maximum of a row's scores and the sum of exp(score - maximum), the sink included; -inf and 0 if the row sees no
 * key. */
typedef struct mha_softmax_row {
    double max, sum;
} mha_softmax_row;

mha_softmax_row mha_careful_softmax(const mha_problem *problem, const mha_sequence *sequence, int64_t h, int64_t i);

/* The weight of a key with this score: after dropout if `dropped`, else before it. */
double mha_careful_weight(const mha_problem *problem, const mha_sequence *sequence, int64_t h, int64_t i, int64_t j,
                          double score, mha_softmax_row row, bool dropped);

/* out (E) = the row's weighted values. Values with no weight are not looked at. */
void mha_careful_values(double *out, const mha_problem *problem, const mha_sequence *sequence, int64_t h, int64_t i,
                        mha_softmax_row row);

/* Rows of the block at row r that see a score which left float32 cannot be trusted, even if softcap made it look
 * harmless: a NaN as their running maximum says so. */
void mha_careful_give_up(mha_tile *tile, int64_t r, int64_t count);

#endif
