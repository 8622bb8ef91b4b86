/* Normalisation of heads, RMS or with the mean subtracted, and its gradients.
 *
 * A unit is what is normalised together: a row (b,h,t), or all H rows of a position. It is read twice, or three times
 * with a mean, and written once, a piece at a time through float32 on the stack; its sums are kept in float64. Sums over
 * units are taken in chunks of a fixed number of them, each by one task, and the chunks are added in order. */
#include "core/tensor.h"
#include "cpu/isa/kernels.h"
#include "cpu/rows/rows.h"
#include <string.h>

enum { PIECE = 256 }; /* floats on the stack */

typedef struct job {
    const mha_kernels *kernels;
    mha_tensor to, from; /* forward: result and input; backward: dy, which becomes dx, and the input */
    const float *gain, *bias;
    int64_t own;  /* numbers from the gains of a head to those of the next; 0: all have the same */
    int64_t rows; /* of a unit */
    double epsilon;
    bool centred;
    float *partials; /* (chunks,pitch) sums of dgain and, behind them, of dbias; or NULL */
    int64_t pitch, gains;
} job;

/* Elements k to k + count - 1 of row n. */
typedef struct piece {
    int64_t n, k, count;
    int64_t at; /* of its gains */
} piece;

static bool next(const job *j, piece *p, int64_t unit)
{
    int64_t D = j->from.size[3];
    if (!p->count) *p = (piece){.n = unit * j->rows};
    else p->k += p->count;
    if (p->k >= D) p->n++, p->k = 0;
    p->count = D - p->k < PIECE ? D - p->k : PIECE;
    p->at = j->own ? p->n % j->from.size[1] * j->own + p->k : p->k;
    return p->n < (unit + 1) * j->rows;
}

static void load(const job *j, float *to, mha_tensor x, const piece *p)
{
    mha_row_load(j->kernels, to, mha_cpu_row(x, p->n, p->k), x.type, x.stride[3], p->count);
}

/* The mean that is subtracted, 0 if none is, and 1/sqrt(mean of squares of the rest + epsilon). */
typedef struct moments {
    double mean, inverse;
} moments;

static moments measure(const job *j, int64_t unit)
{
    float x[PIECE];
    double sum = 0, squares = 0, count = (double)(j->rows * j->from.size[3]);
    moments m = {0, 0};
    for (piece p = {0}; j->centred && next(j, &p, unit);) {
        load(j, x, j->from, &p);
        for (int64_t i = 0; i < p.count; i++) sum += (double)x[i];
    }
    if (j->centred) m.mean = sum / count;
    for (piece p = {0}; next(j, &p, unit);) {
        load(j, x, j->from, &p);
        for (int64_t i = 0; !j->centred && i < p.count; i++) squares += (double)x[i] * (double)x[i];
        for (int64_t i = 0; j->centred && i < p.count; i++)
            squares += ((double)x[i] - m.mean) * ((double)x[i] - m.mean);
    }
    m.inverse = 1 / sqrt(squares / count + j->epsilon);
    return m;
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

/* A row that fits one piece, without a mean: it is read once. The same bits as `normalize`. */
static void normalize_short(const job *j, int64_t n)
{
    float x[PIECE];
    double squares = 0;
    piece p = {0};
    next(j, &p, n);
    const float *gain = j->gain + p.at, *bias = j->bias ? j->bias + p.at : NULL;
    load(j, x, j->from, &p);
    for (int64_t i = 0; i < p.count; i++) squares += (double)x[i] * (double)x[i];
    float by = (float)(1 / sqrt(squares / (double)p.count + j->epsilon));
    for (int64_t i = 0; i < p.count; i++) x[i] = x[i] * by * gain[i];
    for (int64_t i = 0; bias && i < p.count; i++) x[i] += bias[i];
    mha_row_store(j->kernels, mha_cpu_row(j->to, n, 0), j->to.type, j->to.stride[3], x, p.count);
}

static void normalize(const job *j, int64_t unit)
{
    float x[PIECE];
    moments m = measure(j, unit);
    float by = (float)m.inverse;
    for (piece p = {0}; next(j, &p, unit);) {
        const float *gain = j->gain + p.at, *bias = j->bias ? j->bias + p.at : NULL;
        load(j, x, j->from, &p);
        for (int64_t i = 0; j->centred && i < p.count; i++) x[i] = (float)((double)x[i] - m.mean);
        for (int64_t i = 0; i < p.count; i++) x[i] = x[i] * by * gain[i];
        for (int64_t i = 0; bias && i < p.count; i++) x[i] += bias[i];
        mha_row_store(j->kernels, mha_cpu_row(j->to, p.n, p.k), j->to.type, j->to.stride[3], x, p.count);
    }
}

static int64_t unit_count(const job *j) { return j->from.size[0] * j->from.size[1] * j->from.size[2] / j->rows; }

static int64_t chunk_end(const job *j, int64_t chunk)
{
    int64_t end = (chunk + 1) * MHA_CPU_CHUNK, units = unit_count(j);
    return end < units ? end : units;
}

static int64_t chunk_count(const job *j) { return j->rows ? (unit_count(j) + MHA_CPU_CHUNK - 1) / MHA_CPU_CHUNK : 0; }

static void normalize_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    bool is_short = j->rows == 1 && j->from.size[3] <= PIECE && !j->centred;
    for (int64_t unit = chunk * MHA_CPU_CHUNK; unit < chunk_end(j, chunk); unit++)
        (is_short ? normalize_short : normalize)(j, unit);
}

static job make_job(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_norm_about *norm)
{
    int64_t D = from.size[3];
    return (job){.kernels = ctx->kernels,
                 .to = to,
                 .from = from,
                 .gain = norm->gain.data,
                 .bias = norm->bias.data,
                 .own = norm->gain.size[0] == D ? 0 : D,
                 .rows = norm->all_heads ? from.size[1] : 1,
                 .epsilon = (double)norm->epsilon,
                 .centred = norm->centred,
                 .gains = norm->gain.size[0]};
}

void mha_cpu_normalize(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_norm_about *norm)
{
    job j = make_job(ctx, to, from, norm);
    mha_parallel_each(ctx, chunk_count(&j), normalize_chunk, &j);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* With r the inverse root, c = x - mean (x itself in RMS) and y = c r gain + bias:
 *
 *     dx = r (gain dy - c r^2 mean(gain dy c) - mean(gain dy)),  dgain = sum of dy c r,  dbias = sum of dy
 *
 * the last term of dx with a mean alone. */
static void normalize_back(const job *j, int64_t unit, float *dgain, float *dbias)
{
    float x[PIECE], dy[PIECE];
    moments m = measure(j, unit);
    double r = m.inverse, dot = 0, sum = 0, count = (double)(j->rows * j->from.size[3]);
    bool zero = true;
    for (piece p = {0}; next(j, &p, unit);) {
        load(j, x, j->from, &p);
        load(j, dy, j->to, &p);
        for (int64_t i = 0; i < p.count; i++) {
            if (dy[i] == 0) continue; /* a row that nobody looked at may be NaN */
            zero = false;
            float from_mean = j->centred ? (float)((double)x[i] - m.mean) : x[i];
            if (j->centred) sum += (double)(j->gain[p.at + i] * dy[i]);
            dot += (double)(j->gain[p.at + i] * dy[i]) * (double)from_mean;
            if (dgain) dgain[p.at + i] += dy[i] * from_mean * (float)r;
            if (dbias) dbias[p.at + i] += dy[i];
        }
    }
    if (zero) return;
    float by = (float)r, less = (float)(r * r * r * dot / count), shift = (float)(r * sum / count);
    for (piece p = {0}; next(j, &p, unit);) {
        load(j, x, j->from, &p);
        load(j, dy, j->to, &p);
        for (int64_t i = 0; j->centred && i < p.count; i++) x[i] = (float)((double)x[i] - m.mean);
        for (int64_t i = 0; i < p.count; i++) dy[i] = by * j->gain[p.at + i] * dy[i] - less * x[i];
        for (int64_t i = 0; j->centred && i < p.count; i++) dy[i] -= shift;
        mha_row_store(j->kernels, mha_cpu_row(j->to, p.n, p.k), j->to.type, j->to.stride[3], dy, p.count);
    }
}

static void normalize_chunk_back(void *arg, int64_t chunk)
{
    const job *j = arg;
    float *dgain = j->partials ? j->partials + chunk * j->pitch : NULL;
    float *dbias = dgain && j->bias ? dgain + j->gains : NULL;
    if (dgain) memset(dgain, 0, (size_t)j->pitch * sizeof *dgain);
    for (int64_t unit = chunk * MHA_CPU_CHUNK; unit < chunk_end(j, chunk); unit++)
        normalize_back(j, unit, dgain, dbias);
}

void mha_cpu_normalize_back(mha_context *ctx, mha_tensor dy, mha_tensor x, const mha_norm_about *norm, mha_tensor dgain,
                            mha_tensor dbias, float *partials)
{
    job j = make_job(ctx, dy, x, norm);
    j.partials = dgain.rank ? partials : NULL;
    j.pitch = j.gains * (j.bias ? 2 : 1);
    mha_parallel_each(ctx, chunk_count(&j), normalize_chunk_back, &j);
    if (dgain.rank) mha_cpu_add_partials(ctx, dgain, partials, chunk_count(&j), j.pitch);
    if (dbias.rank) mha_cpu_add_partials(ctx, dbias, partials + j.gains, chunk_count(&j), j.pitch);
}
