/* The softmax of rows: what turns a score into a weight. Forward leaves it for backward and statistics, which otherwise
 * compute it from q and k. */
#ifndef MHA_ATTENTION_SOFTMAX_H
#define MHA_ATTENTION_SOFTMAX_H

#include "cpu/attention/careful.h"

/* Row r of a tile, from its running maximum and sum over all keys, with the sink's share in it. Where these are not
 * finite, in float64: the maximum is then infinite if float32 cannot hold it, not even nearly. */
mha_softmax_row mha_softmax_of(const mha_tile *tile, int64_t r);

/* The same for every row of a call, at mha_row_index: weight = exp(score - max) * factor. A max of +infinity marks a row
 * that sees no key, NaN one whose weights float32 cannot give. */
typedef struct mha_softmax_rows {
    float *max, *factor;
} mha_softmax_rows;

/* Fills in the queries of a range of head h of a sequence: from what forward wrote, or, if `anew`, by a pass over Q and K.
 * Returns whether the scores of some row left float32. */
bool mha_softmax_fill(mha_softmax_rows rows, mha_tile *tile, const mha_sequence *sequence, int64_t h, mha_range queries,
                      bool anew);

#endif
