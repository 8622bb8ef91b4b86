/* Permutation tests on a matrix of products.
 *
 * Given products (n,n), where entry (a,b) says how well a and b fit together, is the sum of the diagonal larger than if a
 * were paired with b at random? Over all pairings, the sum of n entries has mean 0 if all rows and columns of the
 * products sum to 0, and then its variance is the sum of all squares over n - 1 (Wald and Wolfowitz, 1944). z is the sum
 * in units of that deviation. Random pairings give the distribution of z itself, without the assumption that it is
 * normal. */
#ifndef NN_INSPECT_SHUFFLES_H
#define NN_INSPECT_SHUFFLES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct nn_shuffles {
    int64_t count, size; /* how many, and of how many things */
    int32_t *order;      /* (size,count): what the thing is paired with in each shuffle */
} nn_shuffles;

/* Draws `count` random orders of `size` things, the same for the same seed and stream. Returns false if out of memory;
 * nothing needs to be freed then. */
bool nn_shuffles_draw(nn_shuffles *s, int64_t count, int64_t size, uint64_t seed, uint32_t stream);
void nn_shuffles_free(nn_shuffles *s); /* a zeroed one is legal */

/* A test takes the rows of the products (size,size) in any order, a few at a time, so that they need not all be in memory:
 *
 *     nn_tally t = {.sums = sums};
 *     for each row i: nn_tally_add(&t, &s, i, row);
 *     z = nn_tally_finish(shuffled, &t, &s);
 */
typedef struct nn_tally {
    double sum, squares; /* of the diagonal; of all products */
    double *sums;        /* (count) of each random pairing; zeros at first */
} nn_tally;

void nn_tally_add(nn_tally *t, const nn_shuffles *s, int64_t i, const float *row);

/* z of the diagonal, and `shuffled` (count): z of each random pairing. All are 0 if all products are. */
float nn_tally_finish(float *shuffled, const nn_tally *t, const nn_shuffles *s);

#endif
