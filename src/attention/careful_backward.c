/* The backward pass in float64, score by score: for key/value heads whose gradients float32 could not hold, or whose
 * hidden parts are NaN. Slow, and nobody pays for it who does not need it. What a row does not see is not looked at. */
#include "attention/backward.h"
#include "attention/careful.h"
#include "core/half.h"

typedef enum which { MAX, SUM, DELTA } which;

static double dot_dout(const mha_backward *call, const mha_sequence *s, int64_t h, int64_t i, int64_t j)
{
    const mha_problem *p = &call->problem;
    double sum = 0;
    for (int64_t e = 0; e < p->E; e++)
        sum += (double)mha_load(mha_at(call->dout, s->query_batch, h, s->query_row + i, e), call->dout.type) *
               (double)mha_load(mha_at(p->v, s->key_batch, h / p->share, s->key_row + j, e), p->v.type);
    return sum;
}

void mha_careful_statistics(const mha_backward *call, const mha_sequence *s, int64_t h, int64_t i, double statistics[3],
                            double *wide)
{
    const mha_problem *p = &call->problem;
    mha_careful_row row = mha_careful_softmax(p, s, h, i);
    double delta = 0;
    if (row.max != -INFINITY) {
        mha_careful_values(wide, p, s, h, i, row);
        for (int64_t e = 0; e < p->E; e++)
            delta +=
                wide[e] * (double)mha_load(mha_at(call->dout, s->query_batch, h, s->query_row + i, e), call->dout.type);
        if (call->dlse.rank)
            delta -= (double)*(const float *)mha_at(call->dlse, s->query_batch, h, s->query_row + i, 0);
    }
    statistics[MAX] = row.max;
    statistics[SUM] = row.sum;
    statistics[DELTA] = delta;
}

/* The weight of a key, before dropout or after it; 0 where it is not seen. */
static double weight_of(const mha_backward *call, const mha_sequence *s, int64_t h, int64_t i, int64_t j,
                        const double statistics[3], bool dropped)
{
    if (statistics[MAX] == -INFINITY) return 0;
    double score = mha_careful_score(&call->problem, s, h, i, j, MHA_STAGE_MASKED);
    mha_careful_row row = {statistics[MAX], statistics[SUM]};
    return mha_careful_weight(&call->problem, s, h, i, j, score, row, dropped);
}

double mha_careful_ds(const mha_backward *call, const mha_sequence *s, int64_t h, int64_t i, int64_t j,
                      const double statistics[3])
{
    double weight = weight_of(call, s, h, i, j, statistics, false);
    if (weight == 0) return 0;
    double kept = weight_of(call, s, h, i, j, statistics, true) / weight;
    return weight * ((kept == 0 ? 0 : kept * dot_dout(call, s, h, i, j)) - statistics[DELTA]);
}

/* ds with the slope of the softcap. */
static double ds_of_product(const mha_backward *call, const mha_sequence *s, int64_t h, int64_t i, int64_t j, double ds)
{
    double cap = (double)call->problem.options.softcap;
    if (!(cap > 0) || ds == 0) return ds;
    double capped = mha_careful_score(&call->problem, s, h, i, j, MHA_STAGE_CAPPED) / cap;
    return ds * (1 - capped * capped);
}

static void clear(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) x[i] = 0;
}

static void write(mha_tensor to, int64_t b, int64_t h, int64_t row, const double *from, double factor)
{
    for (int64_t d = 0; to.rank && d < to.size[3]; d++)
        mha_store(mha_at(to, b, h, row, d), to.type, (float)(from[d] * factor));
}

/* dQ of one row, and its sum for slopes. */
static double query_gradient(const mha_backward *call, double *dq, const mha_sequence *s, int64_t h, int64_t i,
                             const double *statistics)
{
    const mha_problem *p = &call->problem;
    mha_range range = mha_range_get(p, s, i);
    double slopes = 0;
    clear(dq, p->D);
    for (int64_t j = range.low; j < range.high; j++) {
        double ds = mha_careful_ds(call, s, h, i, j, statistics);
        if (ds == 0) continue;
        slopes += ds * fabs((double)(i + s->offset - j));
        ds = ds_of_product(call, s, h, i, j, ds);
        for (int64_t d = 0; d < p->D; d++)
            dq[d] += ds * (double)mha_load(mha_at(p->k, s->key_batch, h / p->share, s->key_row + j, d), p->k.type);
    }
    return slopes;
}

/* dK and dV of one key, from all rows of its head. */
static void key_gradient(const mha_backward *call, mha_span *span, const mha_sequence *s, int64_t g, int64_t j)
{
    const mha_problem *p = &call->problem;
    double *dk = span->wide, *dv = span->wide + p->D;
    clear(dk, p->D + p->E);
    for (int64_t r = 0; r < p->share * s->queries; r++) {
        int64_t h = g * p->share + r % p->share, i = r / p->share, row = s->query_row + i;
        const double *statistics = span->statistics + 3 * r;
        double weight = weight_of(call, s, h, i, j, statistics, true);
        double ds = ds_of_product(call, s, h, i, j, mha_careful_ds(call, s, h, i, j, statistics));
        for (int64_t e = 0; weight != 0 && e < p->E; e++)
            dv[e] += weight * (double)mha_load(mha_at(call->dout, s->query_batch, h, row, e), call->dout.type);
        for (int64_t d = 0; ds != 0 && d < p->D; d++)
            dk[d] += ds * (double)mha_load(mha_at(p->q, s->query_batch, h, row, d), p->q.type);
    }
    write(call->gradients.k, s->key_batch, g, s->key_row + j, dk, (double)p->options.scale);
    write(call->gradients.v, s->key_batch, g, s->key_row + j, dv, 1);
}

void mha_careful_backward(const mha_backward *call, mha_span *span, const mha_sequence *s, int64_t g, float *slopes)
{
    const mha_problem *p = &call->problem;
    for (int64_t r = 0; r < p->share * s->queries; r++) {
        int64_t h = g * p->share + r % p->share, i = r / p->share;
        double *statistics = span->statistics + 3 * r;
        mha_careful_statistics(call, s, h, i, statistics, span->wide);
        double sum = query_gradient(call, span->wide, s, h, i, statistics);
        write(call->gradients.q, s->query_batch, h, s->query_row + i, span->wide, (double)p->options.scale);
        if (slopes) slopes[r] = (float)sum;
    }
    for (int64_t j = 0; j < s->length && (call->gradients.k.rank || call->gradients.v.rank); j++)
        key_gradient(call, span, s, g, j);
}
