/* Forward and backward over a sample, slab by slab; the gradients of the parameters are discarded. Each slab has its
 * own sums, which are added in order. */
#include "inspect/importance.h"
#include "train/workers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct sample {
    const nn_workers *workers;
    const nn_examples *examples;
    int64_t count, heads, parameters;
    int64_t logits;   /* of a slab */
    float *gradients; /* (workers,parameters), not used */
    float *worth;     /* (workers,NN_SLAB*heads), from the backward pass */
    float *dlogits;   /* (workers,logits) */
    double *sums;     /* (slabs,heads) */
} sample;

/* Sums (B, heads of the layer) over B, for the heads of all attention layers. */
static void add_up(double *sums, const float *worth, const nn_description *d, int64_t B)
{
    for (int64_t n = 0; n < nn_description_attentions(d); n++) {
        int64_t H = nn_description_attention(d, n).heads;
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
    const nn_description *d = nn_model_description(w->net);
    int64_t B = nn_slab_examples(s->count, n), me = w - s->workers->workers, which[NN_SLAB];
    int64_t rows = B * s->examples->labels, numbers = rows * d->output.classes;
    float *dlogits = s->dlogits + me * s->logits;
    nn_call call = {.importance = s->worth + me * NN_SLAB * s->heads};
    mha_loss loss;
    for (int64_t b = 0; b < B; b++) which[b] = nn_importance_pick(n * NN_SLAB + b, s->count, s->examples->count);
    nn_slab_load(&w->slab, s->examples, which, 0, B, NULL);
    const float *logits = nn_model_forward(w->net, w->ctx, &w->slab.batch, &call);
    if (!logits || mha_cross_entropy(w->ctx, &loss, mha_tensor_2d(dlogits, MHA_FLOAT32, rows, d->output.classes),
                                     mha_tensor_2d(logits, MHA_FLOAT32, rows, d->output.classes),
                                     mha_tensor_1d(w->slab.labels, MHA_INT32, rows), NULL))
        return false;
    for (int64_t i = 0; i < numbers; i++)
        dlogits[i] *= (float)loss.counted; /* gradient of each label's loss, not of the mean */
    if (!nn_model_backward(w->net, w->ctx, dlogits, s->gradients + me * s->parameters)) return false;
    add_up(s->sums + n * s->heads, call.importance, d, B);
    return true;
}

static bool make_room(sample *s)
{
    size_t workers = (size_t)s->workers->count, slab = NN_SLAB * sizeof(float);
    s->gradients = calloc(workers, (size_t)s->parameters * sizeof(float));
    s->worth = calloc(workers, (size_t)s->heads * slab);
    s->dlogits = calloc(workers, (size_t)s->logits * sizeof(float));
    s->sums = calloc((size_t)nn_slabs(s->count), (size_t)s->heads * sizeof(double));
    return s->gradients && s->worth && s->dlogits && s->sums;
}

bool nn_importance_measure(double *importance, mha_context *ctx, const nn_description *d, float *parameters,
                           const nn_examples *examples, int64_t count, char *error, size_t error_size)
{
    sample s = {.examples = examples,
                .count = count,
                .heads = nn_description_all_heads(d),
                .parameters = nn_model_count(d, error, error_size),
                .logits = NN_SLAB * examples->labels * d->output.classes};
    if (count < 1 || count > examples->count) {
        snprintf(error, error_size, "importance is measured on 1 to %lld examples", (long long)examples->count);
        return false;
    }
    nn_workers *c = nn_workers_create(ctx, d, parameters, examples, true, error, error_size);
    bool ok = c;
    s.workers = c;
    if (ok && !(ok = make_room(&s)))
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
