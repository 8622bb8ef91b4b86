#include "inspect/shuffles.h"
#include "ops/philox.h"

#include <math.h>
#include <stdlib.h>

/* A number from 0 to below n, for n below 2^31: the high half of a product is even enough, by 2^-32 n. */
static int64_t below(nn_philox *draw, int64_t n)
{
    return (int64_t)((uint64_t)nn_philox_next(draw) * (uint64_t)n >> 32);
}

bool nn_shuffles_draw(nn_shuffles *s, int64_t count, int64_t size, uint64_t seed, uint32_t stream)
{
    *s = (nn_shuffles){.count = count, .size = size};
    if (!(s->order = calloc((size_t)count, (size_t)size * sizeof *s->order))) return false;
    for (int64_t k = 0; k < count; k++) {
        nn_philox draw = nn_philox_at(seed, NN_PHILOX_SHUFFLES, stream, (uint64_t)k);
        for (int64_t i = 0; i < size; i++) { /* each thing takes the place of one before it, or its own */
            int64_t at = below(&draw, i + 1);
            s->order[i * count + k] = s->order[at * count + k];
            s->order[at * count + k] = (int32_t)i;
        }
    }
    return true;
}

void nn_shuffles_free(nn_shuffles *s)
{
    free(s->order);
    *s = (nn_shuffles){0};
}

void nn_tally_add(nn_tally *t, const nn_shuffles *s, int64_t i, const float *row)
{
    const int32_t *order = s->order + i * s->count;
    for (int64_t j = 0; j < s->size; j++) t->squares += (double)row[j] * (double)row[j];
    for (int64_t k = 0; k < s->count; k++) t->sums[k] += (double)row[order[k]];
    t->sum += (double)row[i];
}

float nn_tally_finish(float *shuffled, const nn_tally *t, const nn_shuffles *s)
{
    double scale = s->size > 1 && t->squares > 0 ? 1 / sqrt(t->squares / (double)(s->size - 1)) : 0;
    for (int64_t k = 0; k < s->count; k++) shuffled[k] = (float)(t->sums[k] * scale);
    return (float)(t->sum * scale);
}
