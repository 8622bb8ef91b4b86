#include "model/examples.h"
#include <stdlib.h>

bool nn_slab_create(nn_slab *slab, const nn_examples *e, int64_t most)
{
    *slab = (nn_slab){.images = calloc((size_t)(most * e->pixels) + 1, sizeof(float)),
                      .tokens = calloc((size_t)(most * e->tokens) + 1, sizeof(int32_t)),
                      .labels = calloc((size_t)(most * e->labels) + 1, sizeof(int32_t))};
    slab->batch.encoder = (nn_sequences){.T = e->tokens, .tokens = slab->tokens, .images = slab->images};
    slab->batch.decoder = slab->batch.encoder;
    if (slab->images && slab->tokens && slab->labels) return true;
    nn_slab_free(slab);
    return false;
}

void nn_slab_free(nn_slab *slab)
{
    free(slab->images);
    free(slab->tokens);
    free(slab->labels);
    *slab = (nn_slab){0};
}

void nn_slab_load(nn_slab *slab, const nn_examples *e, const int64_t *which, int64_t first, int64_t B,
                  const nn_variation *vary)
{
    slab->batch.B = B;
    for (int64_t b = 0; b < B; b++) e->load(e, slab, b, which ? which[b] : first + b, vary);
}
