/* The steps behind pooling: products with activations, and vectors of length 1. */
#include "public/text/sentence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double activate(nn_sentence_activation a, double x)
{
    switch (a) {
    case NN_SENTENCE_TANH:
        return tanh(x);
    case NN_SENTENCE_RELU:
        return x > 0 ? x : 0;
    case NN_SENTENCE_GELU:
        return x * 0.5 * (1 + erf(x / sqrt(2)));
    case NN_SENTENCE_SILU:
        return x / (1 + exp(-x));
    case NN_SENTENCE_SIGMOID:
        return 1 / (1 + exp(-x));
    default:
        return x;
    }
}

static double row_times(const float *row, const double *x, int64_t width)
{
    double sum = 0;
    for (int64_t k = 0; k < width; k++) sum += (double)row[k] * x[k];
    return sum;
}

static void normalize(double *x, int64_t width)
{
    double square = 0;
    for (int64_t i = 0; i < width; i++) square += x[i] * x[i];
    double length = sqrt(square);
    if (length < 1e-12) length = 1e-12; /* a vector of zeros stays one */
    for (int64_t i = 0; i < width; i++) x[i] /= length;
}

bool nn_sentence_finish(const nn_sentence *s, double *vector, int64_t *width, bool normalized)
{
    for (int n = 0; n < s->step_count; n++) {
        const nn_sentence_step *d = &s->steps[n];
        if (!d->weight && normalized) normalize(vector, *width);
        if (!d->weight) continue;
        double *x = malloc((size_t)d->in * sizeof *x);
        if (!x) return false;
        memcpy(x, vector, (size_t)d->in * sizeof *x);
        for (int64_t i = 0; i < d->out; i++) {
            double y = row_times(d->weight + i * d->in, x, d->in) + (d->bias ? (double)d->bias[i] : 0);
            y = activate(d->activation, y);
            if (d->adds) y += d->residual ? row_times(d->residual + i * d->in, x, d->in) : x[i];
            vector[i] = y;
        }
        free(x);
        *width = d->out;
    }
    if (s->dimensions && *width > s->dimensions) *width = s->dimensions;
    return true;
}

int64_t nn_sentence_widest(const nn_sentence *s, int64_t width)
{
    for (int n = 0; n < s->step_count; n++)
        if (s->steps[n].weight && s->steps[n].out > width) width = s->steps[n].out;
    return width;
}
