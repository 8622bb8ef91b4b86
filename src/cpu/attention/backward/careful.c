/* The backward pass in float64, score by score: for key/value heads whose gradients float32 could not hold, or whose
 * hidden parts are NaN. Slow, and nobody pays for it who does not need it. What a row does not see is not looked at. */
#include "cpu/attention/backward/careful.h"
#include "cpu/attention/careful.h"
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

double mha_careful_dot_out(const mha_backward *call, const mha_sequence *s, int64_t h, int64_t i, double *wide)
{
    const mha_problem *p = &call->problem;
    int64_t at = s->query_row + i;
    double given = 0, made = 0;
    for (int64_t e = 0; e < p->E; e++)
        given += (double)mha_load(mha_at(call->dout, s->query_batch, h, at, e), call->dout.type) *
                 (double)mha_load(mha_at(p->out, s->query_batch, h, at, e), p->out.type);
    if (isfinite(given)) return given;
    mha_careful_values(wide, p, s, h, i, mha_careful_softmax(p, s, h, i));
    for (int64_t e = 0; e < p->E; e++)
        made += wide[e] * (double)mha_load(mha_at(call->dout, s->query_batch, h, at, e), call->dout.type);
    return made;
}

void mha_careful_statistics(const mha_backward *call, const mha_sequence *s, int64_t h, int64_t i, double statistics[3],
                            double *wide)
{
    mha_softmax_row row = mha_careful_softmax(&call->problem, s, h, i);
    double delta = 0;
    if (row.max != -INFINITY) {
        delta = mha_careful_dot_out(call, s, h, i, wide);
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
    mha_softmax_row row = {statistics[MAX], statistics[SUM]};
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

/* Whether a row of a gradient is as good as float32 could make it. */
static bool is_finite(mha_tensor t, int64_t b, int64_t h, int64_t row)
{
    for (int64_t d = 0; t.rank && d < t.size[3]; d++)
        if (!isfinite(mha_load(mha_at(t, b, h, row, d), t.type))) return false;
    return true;
}

/* dQ of one row. */
static void query_gradient(const mha_backward *call, double *dq, const mha_sequence *s, int64_t h, int64_t i,
                           const double *statistics)
{
    const mha_problem *p = &call->problem;
    mha_range range = mha_visible_keys(p, s, i);
    clear(dq, p->D);
    for (int64_t j = range.low; j < range.high; j++) {
        double ds = ds_of_product(call, s, h, i, j, mha_careful_ds(call, s, h, i, j, statistics));
        for (int64_t d = 0; ds != 0 && d < p->D; d++)
            dq[d] += ds * (double)mha_load(mha_at(p->k, s->key_batch, h / p->share, s->key_row + j, d), p->k.type);
    }
}

double mha_careful_distances(const mha_backward *call, const mha_sequence *s, int64_t h, int64_t i, double *wide)
{
    mha_range range = mha_visible_keys(&call->problem, s, i);
    double sum = 0, statistics[3];
    mha_careful_statistics(call, s, h, i, statistics, wide);
    for (int64_t j = range.low; j < range.high; j++)
        sum += mha_careful_ds(call, s, h, i, j, statistics) * fabs((double)(i + s->offset - j));
    return sum;
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

void mha_careful_backward(const mha_backward *call, mha_span *span, const mha_sequence *s, int64_t g, bool all)
{
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *to = &call->gradients;
    for (int64_t r = 0; r < p->share * s->queries; r++) {
        int64_t h = g * p->share + r % p->share, i = r / p->share, row = s->query_row + i;
        double *statistics = span->statistics + 3 * r;
        mha_careful_statistics(call, s, h, i, statistics, span->wide);
        if (!all && is_finite(to->q, s->query_batch, h, row)) continue;
        query_gradient(call, span->wide, s, h, i, statistics);
        write(to->q, s->query_batch, h, row, span->wide, (double)p->options.scale);
    }
    for (int64_t j = 0; j < s->length; j++) {
        bool fine =
            is_finite(to->k, s->key_batch, g, s->key_row + j) && is_finite(to->v, s->key_batch, g, s->key_row + j);
        if (all || !fine) key_gradient(call, span, s, g, j);
    }
}
