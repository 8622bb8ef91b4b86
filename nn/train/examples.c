#include "train/examples.h"
#include <stdlib.h>

static bool reads_patches(const nn_stack_config *s) { return s->blocks.depth && s->input.kind == NN_INPUT_PATCHES; }
static bool reads_tokens(const nn_stack_config *s) { return s->blocks.depth && s->input.kind == NN_INPUT_TOKENS; }

const char *nn_examples_problem(const nn_examples *e, const nn_description *d)
{
    const nn_stack_config *last = nn_description_last(d);
    const nn_input_config *in = reads_patches(&d->encoder) ? &d->encoder.input : &d->decoder.input;
    int64_t T = nn_input_tokens(&last->input) ? nn_input_tokens(&last->input) : e->tokens;
    if (reads_patches(&d->encoder) || reads_patches(&d->decoder)) {
        if (e->rows != in->rows || e->columns != in->columns || e->pixels != in->rows * in->columns * in->channels)
            return "the images do not have the size of the model's input";
    }
    if ((reads_tokens(&d->encoder) || reads_tokens(&d->decoder)) && e->tokens < 1) return "the examples have no tokens";
    if (e->classes != d->output.classes) return "the model does not have as many classes as the data set";
    if (e->labels != (d->output.pool ? 1 : T)) return "the examples do not have one label for each result of the model";
    return e->count < 1 ? "there are no examples" : NULL;
}

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
