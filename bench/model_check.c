/* Whether a Vision Transformer is right: against the oracle (ref/transformer.h), one image at a time.
 *
 * A gradient is checked by its norm, which is the slope of the loss along itself, and that is two runs of the oracle:
 * whatever part of it is wrong shows, unless it is at a right angle to the rest. */
#include "data/digits.h"
#include "model.h"
#include "model_oracle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 4 };

/* A model of images, its oracle, and room for one image. */
typedef struct check {
    bench_oracle oracle;
    const nn_examples *images;
    nn_slab slab;
    double *pixels;
} check;

static bool make_check(check *c, const nn_model *net, const nn_examples *images)
{
    *c = (check){.images = images};
    bool ok = bench_oracle_make(&c->oracle, nn_model_description(net), nn_model_parameters(net)) &&
              nn_slab_create(&c->slab, images, 1);
    if (ok) c->pixels = malloc((size_t)images->pixels * sizeof(double));
    c->oracle.ref.B = 1;
    c->oracle.ref.encoder.T = nn_input_tokens(&nn_model_description(net)->encoder.input);
    c->oracle.ref.encoder.images = c->pixels;
    return ok && c->pixels;
}

static void free_check(check *c)
{
    bench_oracle_free(&c->oracle);
    nn_slab_free(&c->slab);
    free(c->pixels);
}

/* The oracle's logits of image i. */
static void look_at(check *c, double *logits, int64_t i)
{
    nn_slab_load(&c->slab, c->images, NULL, i, 1, NULL);
    for (int64_t n = 0; n < c->images->pixels; n++) c->pixels[n] = (double)c->slab.images[n];
    ref_transformer_forward(&c->oracle.ref, logits, NULL, NULL);
}

/* ---- Inference -------------------------------------------------------------------------------------------------- */

double bench_logits_error(const nn_model *net, const nn_examples *images, const float *logits)
{
    check c;
    int64_t samples = images->count < SAMPLES ? images->count : SAMPLES, classes = images->classes;
    double want[NN_MNIST_CLASSES], worst = 0, largest = 0;
    bool made = make_check(&c, net, images);
    for (int64_t n = 0; made && n < samples; n++) {
        int64_t i = (images->count - 1) * (n + 1) / samples; /* the last one is among them */
        look_at(&c, want, i);
        for (int64_t k = 0; k < classes; k++) {
            worst = bench_worse(worst, fabs((double)logits[i * classes + k] - want[k]));
            if (fabs(want[k]) > largest) largest = fabs(want[k]);
        }
    }
    free_check(&c);
    return made ? worst / largest : NAN;
}

/* ---- Training --------------------------------------------------------------------------------------------------- */

/* The mean cross-entropy of all images, with parameters `at` + step * `along`. */
static double loss_at(check *c, const float *at, const float *along, double step)
{
    double loss = 0, logits[NN_MNIST_CLASSES];
    for (int64_t i = 0; i < c->oracle.ref.count; i++) c->oracle.numbers[i] = (double)at[i] + step * (double)along[i];
    for (int64_t i = 0; i < c->images->count; i++) {
        double sum = 0;
        look_at(c, logits, i);
        for (int64_t k = 0; k < c->images->classes; k++) sum += exp(logits[k]);
        loss += (log(sum) - logits[c->slab.labels[0]]) / (double)c->images->count;
    }
    return loss;
}

/* The first moment after one step is the gradient times 1 - beta1. */
static double slope_error(check *c, const nn_trainer *t, const float *start)
{
    const float *moment = t->adam->moment1;
    double square = 0, step = 1e-5, keep = 1 - t->adam->options->beta1;
    for (int64_t i = 0; i < t->count; i++) square += (double)moment[i] * (double)moment[i];
    double length = sqrt(square), norm = length / keep;
    double rise = loss_at(c, start, moment, step / length) - loss_at(c, start, moment, -step / length);
    return fabs(rise / (2 * step) - norm) / norm;
}

static double first_step_error(check *c, nn_trainer *t, mha_context *ctx)
{
    nn_trainer_report report;
    double error = INFINITY;
    float *start = malloc((size_t)t->count * sizeof *start);
    if (!start) return NAN;
    memcpy(start, t->parameters, (size_t)t->count * sizeof *start);
    if (nn_trainer_step(t, ctx, &report) == NN_TRAINER_WENT_ON) {
        double want = loss_at(c, start, start, 0);
        error = bench_worse(fabs(report.loss - want) / want, slope_error(c, t, start));
    }
    free(start);
    return error;
}

double bench_training_error(mha_context *ctx, mha_type type, int64_t batch)
{
    char error[200];
    check c = {.images = NULL};
    nn_image_set images;
    nn_trainer_options options = bench_model_options(batch < SAMPLES ? batch : SAMPLES);
    nn_mnist *set = nn_digits_make(options.batch, 1, 1, error, sizeof error);
    nn_trainer *t = NULL;
    double worst = NAN;
    if (set) {
        nn_description d = bench_model_config(type, set);
        nn_image_set_make(&images, set, &d, NULL);
        t = nn_trainer_create(ctx, &d, &images.train, &images.test, &options, error, sizeof error);
    }
    if (t && make_check(&c, t->net, &images.train)) worst = first_step_error(&c, t, ctx);
    free_check(&c);
    nn_trainer_free(t);
    nn_mnist_free(set);
    return worst;
}
