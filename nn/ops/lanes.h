/* Sums along a row. A compiler may not reorder a plain sum; here element i is added to lane i % 16, which vectorizes
 * for every vector width up to 16, and the lanes are added pairwise at the end: the same bits for every instruction
 * set.
 *
 * The lanes are stored in memory, (rows,16) for a block of rows, and the totals are computed in a separate loop: in the
 * same loop, gcc extracts the lanes from registers one by one, which takes longer than the sum itself for a row of
 * 64. */
#ifndef NN_OPS_LANES_H
#define NN_OPS_LANES_H

#include "ops/clones.h"

enum { NN_LANES = 16 };

/* The number of elements of a row in complete sets of lanes. */
NN_INLINE int64_t nn_lanes_whole(int64_t width) { return width - width % NN_LANES; }

NN_INLINE void nn_lanes_clear(float *lanes)
{
    for (int l = 0; l < NN_LANES; l++) lanes[l] = 0;
}

NN_INLINE float nn_lanes_total(const float *lanes)
{
    float eight[8], four[4];
    for (int l = 0; l < 8; l++) eight[l] = lanes[l] + lanes[l + 8];
    for (int l = 0; l < 4; l++) four[l] = eight[l] + eight[l + 4];
    return (four[0] + four[2]) + (four[1] + four[3]);
}

#endif
