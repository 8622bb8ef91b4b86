/* A piece of work through its keys: the streaming softmax. */
#ifndef MHA_ATTENTION_ATTEND_H
#define MHA_ATTENTION_ATTEND_H

#include "cpu/attention/tile.h"

/* Takes the loaded rows through keys [low, high): leaves each row's maximum, sum, weighted values and whether they are
 * sound in the tile. */
void mha_attend(mha_tile *tile, int64_t low, int64_t high);

/* The weighted values of the block that starts at row r, not yet divided, as rows (height,E). */
void mha_attend_rows(const mha_tile *tile, int64_t r, float *rows);

#endif
