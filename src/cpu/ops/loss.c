/* Cross-entropy with label smoothing. With top the largest logit of a row, e = exp(x - top) and S = sum of e:
 *
 *     log softmax(x)[c] = (x[c] - top) - log S
 *     loss = log S - (1 - smoothing) (x[label] - top) - smoothing * mean(x - top)
 *
 * Nothing here can overflow. e, top and S are those of the softmax of attention. The loss of a row is float64 from S on;
 * the losses of a chunk, and then the chunks, are added in order. */
#include "core/arena.h"
#include "cpu/isa/kernels.h"
#include "cpu/ops/ops.h"
#include "cpu/rows/rows.h"
#include <string.h>

typedef struct job {
    const mha_kernels *kernels;
    float *dlogits; /* or NULL */
    const float *logits;
    mha_tensor labels;
    mha_loss *partials; /* (chunks): sums, not means */
    float *room;        /* (chunks,padded classes) */
    int64_t rows, classes, padded, counted;
    float smoothing;
} job;

static int64_t first_of(const float *x, float top, int64_t classes)
{
    int64_t c = 0;
    while (c < classes && x[c] != top) c++;
    return c;
}

/* The sum of x - top, in four parts, which do not wait for each other. */
static double sum_of(const float *x, float top, int64_t classes)
{
    double sum[4] = {0, 0, 0, 0}, most = (double)top;
    for (int64_t c = 0; c + 4 <= classes; c += 4)
        for (int k = 0; k < 4; k++) sum[k] += (double)x[c + k] - most;
    for (int64_t c = classes / 4 * 4; c < classes; c++) sum[0] += (double)x[c] - most;
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* dx (classes) = (e/total - target) / rows */
static void write_gradient(const job *j, float *dx, const float *e, float total, int64_t label)
{
    const float share = j->smoothing / (float)j->classes, by = 1 / (float)j->counted, inverse = 1 / total;
    j->kernels->affine(dx, e, inverse * by, NULL, -share * by, j->classes);
    dx[label] = (e[label] * inverse - (1 - j->smoothing + share)) * by;
}

static void loss_row(const job *j, int64_t r, float *e, mha_loss *sum)
{
    const float *x = j->logits + r * j->classes;
    float *dx = j->dlogits ? j->dlogits + r * j->classes : NULL, top = -INFINITY, total = 0, fade;
    const int64_t label = mha_integer_at(j->labels, r);
    if (label < 0) {
        if (dx) memset(dx, 0, (size_t)j->classes * sizeof *dx);
        return;
    }
    memcpy(e, x, (size_t)j->classes * sizeof *e);
    j->kernels->softmax_rows(e, j->padded, 1, j->classes, &top, &total, &fade);
    if (dx) write_gradient(j, dx, e, total, label);

    double smoothing = (double)j->smoothing, others = smoothing > 0 ? sum_of(x, top, j->classes) : 0;
    sum->mean += log((double)total) - (1 - smoothing) * ((double)x[label] - (double)top) -
                 smoothing * others / (double)j->classes;
    sum->correct += first_of(x, top, j->classes) == label;
}

static void loss_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t first = chunk * MHA_CPU_CHUNK, end = first + MHA_CPU_CHUNK < j->rows ? first + MHA_CPU_CHUNK : j->rows;
    mha_loss sum = {0, 0, 0};
    for (int64_t r = first; r < end; r++) loss_row(j, r, j->room + chunk * j->padded, &sum);
    j->partials[chunk] = sum;
}

static void lay(job *j, mha_arena *arena, int64_t chunks)
{
    MHA_TAKE(arena, j->partials, chunks);
    MHA_TAKE(arena, j->room, mha_arena_times(chunks, j->padded));
}

/* Checks the labels, and counts those that are there. */
static mha_status count_labels(mha_context *ctx, job *j)
{
    for (int64_t r = 0; r < j->rows; r++) {
        int64_t label = mha_integer_at(j->labels, r);
        if (label < -1 || label >= j->classes)
            return mha_fail(ctx, MHA_BAD_ARGUMENT, "labels: number %lld is %lld, must be from -1 to %lld", (long long)r,
                            (long long)label, (long long)j->classes - 1);
        j->counted += label >= 0;
    }
    return MHA_OK;
}

mha_status mha_cpu_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                 mha_tensor labels, float smoothing)
{
    job j = {.kernels = ctx->kernels,
             .dlogits = dlogits.data,
             .logits = logits.data,
             .labels = labels,
             .rows = logits.size[0],
             .classes = logits.size[1],
             .padded = mha_padded(logits.size[1]),
             .smoothing = smoothing};
    int64_t chunks = (j.rows + MHA_CPU_CHUNK - 1) / MHA_CPU_CHUNK;
    mha_arena measure = {0};
    mha_loss sum = {0, 0, 0};
    TRY(count_labels(ctx, &j));
    lay(&j, &measure, chunks);
    if (measure.too_large) return mha_fail(ctx, MHA_TOO_LARGE, "logits: their copies do not fit memory");
    TRY(mha_scratch_reserve(ctx, measure.used + MHA_ALIGNMENT));
    lay(&j, &(mha_arena){.base = ctx->scratch}, chunks);
    mha_parallel_each(ctx, chunks, loss_chunk, &j);
    for (int64_t n = 0; n < chunks; n++) {
        sum.mean += j.partials[n].mean;
        sum.correct += j.partials[n].correct;
    }
    if (j.counted) sum.mean /= (double)j.counted;
    sum.counted = j.counted;
    *loss = sum;
    return MHA_OK;
}
