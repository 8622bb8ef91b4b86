/* Forward and backward over a sample, slab by slab; the gradients of the parameters are thrown away. Each slab has sums
 * of its own, which are added in order. */
#include "inspect/importance.h"
#include "data/augment.h"
#include "model/workers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct sample {
    const nn_workers *workers;
    const nn_mnist_part *part;
    nn_augment_options input;
    int64_t count, heads, parameters;
    float *gradients; /* (workers,parameters), of no interest */
    float *worth;     /* (workers,NN_SLAB*heads) as a backward pass leaves them */
    float *dlogits;   /* (workers,NN_SLAB*classes) */
    double *sums;     /* (slabs,heads) */
} sample;

static void load(const sample *s, const nn_vit_config *c, float *images, uint8_t *labels, int64_t n, int64_t B)
{
    int64_t pixels = c->rows * c->columns;
    for (int64_t b = 0; b < B; b++) {
        int64_t i = nn_importance_pick(n * NN_SLAB + b, s->count, s->part->count);
        nn_augment_plain(images + b * pixels, s->part->images + i * pixels, pixels, &s->input);
        labels[b] = s->part->labels[i];
    }
}

/* Block after block (B,heads of the block) becomes a sum over B for each head. */
static void add_up(double *sums, const float *worth, const nn_transformer_config *c, int64_t B)
{
    for (int64_t l = 0; l < c->depth; l++) {
        int64_t H = nn_transformer_heads(c, l);
        for (int64_t h = 0; h < H; h++) {
            double sum = 0;
            for (int64_t b = 0; b < B; b++) sum += (double)worth[b * H + h];
            sums[h] = sum;
        }
        sums += H;
        worth += B * H;
    }
}

static bool measure_slab(void *arg, nn_worker *w, int64_t n)
{
    const sample *s = arg;
    const nn_vit_config *c = nn_vit_shape(w->net);
    int64_t B = nn_slab_images(s->count, n), me = w - s->workers->workers;
    uint8_t labels[NN_SLAB];
    float *dlogits = s->dlogits + me * NN_SLAB * c->classes;
    nn_transformer_call call = {.importance = s->worth + me * NN_SLAB * s->heads};
    nn_loss loss;
    load(s, c, w->images, labels, n, B);
    const float *logits = nn_vit_forward(w->net, w->ctx, w->images, B, &call);
    if (!logits || nn_cross_entropy(w->ctx, &w->workspace, &loss, dlogits, logits, labels, B, c->classes, 0))
        return false;
    for (int64_t i = 0; i < B * c->classes; i++) dlogits[i] *= (float)B; /* of each image's loss, not of their mean */
    if (!nn_vit_backward(w->net, w->ctx, dlogits, s->gradients + me * s->parameters)) return false;
    add_up(s->sums + n * s->heads, call.importance, &c->body, B);
    return true;
}

static bool make_room(sample *s, const nn_vit_config *c)
{
    size_t workers = (size_t)s->workers->count, slab = NN_SLAB * sizeof(float);
    s->gradients = calloc(workers, (size_t)s->parameters * sizeof(float));
    s->worth = calloc(workers, (size_t)s->heads * slab);
    s->dlogits = calloc(workers, (size_t)c->classes * slab);
    s->sums = calloc((size_t)nn_slabs(s->count), (size_t)s->heads * sizeof(double));
    return s->gradients && s->worth && s->dlogits && s->sums;
}

bool nn_importance_measure(double *importance, mha_context *ctx, const nn_vit_config *config, float *parameters,
                           nn_vit_input input, const nn_mnist_part *part, int64_t count, char *error, size_t error_size)
{
    sample s = {.part = part,
                .input = {.mean = input.mean, .deviation = input.deviation},
                .count = count,
                .heads = nn_transformer_all_heads(&config->body),
                .parameters = nn_vit_count(config, error, error_size)};
    nn_workers *c = nn_workers_create(ctx, config, parameters, true, error, error_size);
    bool ok = c;
    s.workers = c;
    if (ok && !(ok = make_room(&s, config)))
        snprintf(error, error_size, "not enough memory to measure the importance of heads");
    if (ok && !(ok = nn_workers_each(c, ctx, nn_slabs(count), measure_slab, &s)))
        snprintf(error, error_size, "%s", c->error);
    for (int64_t h = 0; ok && h < s.heads; h++) {
        double sum = 0;
        for (int64_t n = 0; n < nn_slabs(count); n++) sum += s.sums[n * s.heads + h];
        importance[h] = sum / (double)count;
    }
    free(s.gradients);
    free(s.worth);
    free(s.dlogits);
    free(s.sums);
    nn_workers_free(c);
    return ok;
}
