/* Two passes: the norm must be known before the first update. Both process pieces of PIECE numbers that threads take
 * from a queue; each piece has its own sum of squares, and the sums are added in order.
 *
 * Moments and average are updated as m += (1 - beta1) (g - m). In beta1 m + (1 - beta1) g the two factors, each rounded
 * to float32, do not add up to 1, which causes a relative error of 1e-5 for beta2 = 0.999. Likewise the update of a
 * weight, including decay, is summed before it is subtracted, so the weight is rounded once. */
#include "train/optimizer.h"
#include "train/clones.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 4096, LANES = 16, ALIGN = 64 }; /* numbers per piece, parallel sums; bytes */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t piece_count(int64_t count) { return count / PIECE + (count % PIECE > 0); }

/* ---- Creation --------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static bool fail(char *error, size_t error_size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (error_size) vsnprintf(error, error_size, format, args);
    va_end(args);
    return false;
}

/* Written so that NaN fails. */
static bool options_sound(const nn_optimizer_options *options, int64_t count, char *error, size_t error_size)
{
    if (!(options->beta1 >= 0 && options->beta1 < 1))
        return fail(error, error_size, "beta1 is %g; it must be in [0,1)", options->beta1);
    if (!(options->beta2 >= 0 && options->beta2 < 1))
        return fail(error, error_size, "beta2 is %g; it must be in [0,1)", options->beta2);
    if (!(options->epsilon >= 1e-30 && options->epsilon <= 1e30))
        return fail(error, error_size, "epsilon is %g; it must be in [1e-30,1e30]", options->epsilon);
    if (!(options->clip >= 0)) return fail(error, error_size, "clip is %g; it must not be negative", options->clip);
    if (!(options->average >= 0 && options->average < 1))
        return fail(error, error_size, "average is %g; it must be in [0,1)", options->average);
    int64_t end = 0;
    for (int64_t n = 0; n < options->group_count; n++) {
        nn_optimizer_group group = options->groups[n];
        if (group.first < end || group.count < 0 || group.count > count - group.first)
            return fail(error, error_size, "group %lld overlaps the previous one or exceeds the parameters",
                        (long long)n);
        if (!(group.decay >= 0 && group.decay < INFINITY))
            return fail(error, error_size, "group %lld has a decay of %g, which must be finite and not negative",
                        (long long)n, (double)group.decay);
        end = group.first + group.count;
    }
    return true;
}

/* Zeroed and aligned memory. One extra element, so that a count of 0 also returns memory. */
static void *zeros(int64_t count, size_t size)
{
    if ((uint64_t)count > (SIZE_MAX - ALIGN) / size - 1) return NULL;
    size_t bytes = (((size_t)count + 1) * size + ALIGN - 1) / ALIGN * ALIGN;
    void *memory = aligned_alloc(ALIGN, bytes);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

static const nn_optimizer_options *options_copy(const nn_optimizer_options *from)
{
    size_t bytes = (size_t)from->group_count * sizeof *from->groups;
    nn_optimizer_options *copy = malloc(sizeof *copy);
    nn_optimizer_group *groups = malloc(bytes + 1);
    if (!copy || !groups) {
        free(copy);
        free(groups);
        return NULL;
    }
    if (bytes) memcpy(groups, from->groups, bytes);
    *copy = *from;
    copy->groups = groups;
    return copy;
}

nn_optimizer *nn_optimizer_create(float *parameters, float *gradient, int64_t count,
                                  const nn_optimizer_options *options, char *error, size_t error_size)
{
    static const nn_optimizer_options defaults = NN_OPTIMIZER_DEFAULTS;
    if (!options) options = &defaults;
    if (count < 0 || (count && (!parameters || !gradient))) {
        fail(error, error_size, "%lld parameters, or a NULL block of parameters or gradients", (long long)count);
        return NULL;
    }
    if (!options_sound(options, count, error, error_size)) return NULL;
    nn_optimizer *o = calloc(1, sizeof *o);
    if (!o) goto no_memory;
    *o = (nn_optimizer){.parameters = parameters, .gradient = gradient, .count = count};
    if (!(o->options = options_copy(options)) || !(o->moment1 = zeros(count, sizeof(float))) ||
        !(o->moment2 = zeros(count, sizeof(float))) || !(o->partials = zeros(piece_count(count), sizeof(double))) ||
        (options->average > 0 && !(o->average = zeros(count, sizeof(float)))))
        goto no_memory;
    if (o->average && count) memcpy(o->average, parameters, (size_t)count * sizeof(float));
    return o;
no_memory:
    fail(error, error_size, "not enough memory for the optimizer of %lld parameters", (long long)count);
    nn_optimizer_free(o);
    return NULL;
}

void nn_optimizer_free(nn_optimizer *o)
{
    if (!o) return;
    if (o->options) free((void *)o->options->groups);
    free((void *)o->options);
    free(o->moment1);
    free(o->moment2);
    free(o->average);
    free(o->partials);
    free(o);
}

/* ---- The norm --------------------------------------------------------------------------------------------------- */

/* A fixed number of parallel sums, which can be vectorized without changing the result. */
NN_CLONES static double squares(const float *x, int64_t count)
{
    double sum[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++) sum[lane] += (double)x[i + lane] * (double)x[i + lane];
    for (int lane = 0; i < count; i++, lane++) sum[lane] += (double)x[i] * (double)x[i];
    for (int half = LANES / 2; half; half /= 2)
        for (int lane = 0; lane < half; lane++) sum[lane] += sum[lane + half];
    return sum[0];
}

static void sum_piece(void *arg, int64_t n)
{
    const nn_optimizer *o = arg;
    o->partials[n] = squares(o->gradient + n * PIECE, smaller(PIECE, o->count - n * PIECE));
}

static double gradient_norm(nn_optimizer *o, mha_context *ctx)
{
    double sum = 0;
    mha_context_each(ctx, piece_count(o->count), sum_piece, o);
    for (int64_t n = 0; n < piece_count(o->count); n++) sum += o->partials[n];
    return sqrt(sum);
}

/* ---- The update ------------------------------------------------------------------------------------------------- */

/* The constants of a step, each rounded to float32 once. */
typedef struct sweep {
    const nn_optimizer *o;
    double rate;
    float clip;                /* the factor of the gradient */
    float to_first, to_second; /* 1 - beta1, 1 - beta2 */
    float size;                /* rate / (1 - beta1^t) */
    float unbias;              /* 1 / sqrt(1 - beta2^t) */
    float epsilon;
    float to_average; /* 1 - s */
} sweep;

NN_CLONES static void update(float *restrict w, float *restrict m, float *restrict v, const float *restrict g,
                             int64_t count, const sweep *s, float decay)
{
    float clip = s->clip, to_first = s->to_first, to_second = s->to_second;
    float size = s->size, unbias = s->unbias, epsilon = s->epsilon;
    for (int64_t i = 0; i < count; i++) {
        float x = g[i] * clip;
        float first = m[i] + to_first * (x - m[i]);
        float second = v[i] + to_second * (x * x - v[i]);
        m[i] = first;
        v[i] = second;
        w[i] -= decay * w[i] + size * first / (sqrtf(second) * unbias + epsilon);
    }
}

NN_CLONES static void follow(float *restrict a, const float *restrict w, int64_t count, float share)
{
    for (int64_t i = 0; i < count; i++) a[i] += share * (w[i] - a[i]);
}

/* The first group that ends after `at`; group_count if there is none. */
static int64_t group_behind(const nn_optimizer_options *options, int64_t at)
{
    int64_t low = 0, high = options->group_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (options->groups[middle].first + options->groups[middle].count > at) high = middle;
        else low = middle + 1;
    }
    return low;
}

/* Updates runs of parameters with the same decay; then averages and clears the piece while it is in L1. */
static void update_piece(void *arg, int64_t n)
{
    const sweep *s = arg;
    const nn_optimizer *o = s->o;
    const nn_optimizer_options *options = o->options;
    int64_t begin = n * PIECE, end = smaller(begin + PIECE, o->count), group = group_behind(options, begin), to;
    for (int64_t at = begin; at < end; at = to) {
        float decay = 0;
        to = end;
        if (group < options->group_count) {
            nn_optimizer_group here = options->groups[group];
            bool inside = at >= here.first;
            to = smaller(end, inside ? here.first + here.count : here.first);
            if (inside) decay = (float)(s->rate * (double)here.decay), group++;
        }
        update(o->parameters + at, o->moment1 + at, o->moment2 + at, o->gradient + at, to - at, s, decay);
    }
    if (o->average) follow(o->average + begin, o->parameters + begin, end - begin, s->to_average);
    if (options->clear) memset(o->gradient + begin, 0, (size_t)(end - begin) * sizeof(float));
}

/* x^n by squaring: only products, which are bitwise identical on every machine. */
static double power(double x, int64_t n)
{
    double result = 1;
    for (; n > 0; n /= 2) {
        if (n % 2) result *= x;
        x *= x;
    }
    return result;
}

bool nn_optimizer_step(nn_optimizer *o, mha_context *ctx, double rate, double *norm)
{
    const nn_optimizer_options *options = o->options;
    double length = gradient_norm(o, ctx), clip = 1, average = options->average, t = (double)(o->steps + 1);
    if (norm) *norm = length;
    if (options->clip > 0 && options->clip < length + 1e-6) clip = options->clip / (length + 1e-6);
    if (!(length * clip <= NN_OPTIMIZER_NORM_MAX) || !isfinite(rate)) return false;
    if (options->average_ramp && average > t / (t + 9)) average = t / (t + 9);
    o->steps++;
    sweep s = {
        .o = o,
        .rate = rate,
        .clip = (float)clip,
        .to_first = (float)(1 - options->beta1),
        .to_second = (float)(1 - options->beta2),
        .size = (float)(rate / (1 - power(options->beta1, o->steps))),
        .unbias = (float)(1 / sqrt(1 - power(options->beta2, o->steps))),
        .epsilon = (float)options->epsilon,
        .to_average = (float)(1 - average),
    };
    mha_context_each(ctx, piece_count(o->count), update_piece, &s);
    return true;
}
