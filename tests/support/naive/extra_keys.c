/* The keys that a layer adds, on the naive table. A row with the softmax (m, sum) over the keys of the input, and further
 * keys with scores s_n, has with m' = max(m, s_n)
 *
 *     all = exp(m - m') sum + sum_n exp(s_n - m'),     weight_n = exp(s_n - m') / all
 *
 * and what it had so far fades by exp(m - m') sum / all. The learned key is the first; the key of zeros has a score and a
 * value of 0. */
#include "support/naive/naive.h"

#include <stdlib.h>

typedef struct row {
    mha_sequence s;
    int64_t h, g, i;
    double score[MHA_EXTRA_KEYS];
    double kept[MHA_EXTRA_KEYS]; /* what dropout multiplies its weight by */
} row;

/* Element d of the row in a tensor (B,H,Tq,*). */
static double get(mha_tensor x, const row *r, int64_t d)
{
    return naive_get(x, r->s.query_batch, r->h, r->s.query_row + r->i, d);
}

static void set(mha_tensor x, const row *r, int64_t d, double value)
{
    naive_set(x, r->s.query_batch, r->h, r->s.query_row + r->i, d, value);
}

/* Number d of the row's learned key or value: part (G*width). */
static double learned(mha_tensor part, const row *r, int64_t d, int64_t width)
{
    return naive_get(part, r->g * width + d, 0, 0, 0);
}

static double score_of(const mha_extra_keys_call *e, const row *r, bool is_learned)
{
    const mha_attention_options *o = &e->problem.options;
    double score = 0, cap = (double)o->softcap;
    for (int64_t d = 0; is_learned && d < e->problem.D; d++)
        score += (double)o->scale * get(e->problem.q, r, d) * learned(e->bias_k, r, d, e->problem.D);
    return cap > 0 ? cap * tanh(score / cap) : score;
}

/* For dropout, extra keys stand behind those that the sequence has. */
static row look(const mha_extra_keys_call *e, const mha_sequence *s, int64_t h, int64_t i)
{
    const mha_attention_options *o = &e->problem.options;
    row r = {.s = *s, .h = h, .g = h / e->problem.share, .i = i};
    for (int64_t n = 0; n < e->count; n++) {
        bool keeps =
            ref_keeps((double)o->dropout, o->dropout_seed, o->dropout_stream + (uint64_t)s->b, h, i, s->length + n);
        r.score[n] = score_of(e, &r, n == 0 && e->bias_k.rank);
        r.kept[n] = keeps ? 1 / (1 - (double)o->dropout) : 0;
    }
    return r;
}

/* Calls a function for each row of each sequence, unless the context rehearses. */
static void each_row(const mha_extra_keys_call *e, void (*work)(void *arg, const row *r), void *arg)
{
    const mha_problem *p = &e->problem;
    for (int64_t b = 0; !p->ctx->rehearsing && b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        for (int64_t h = 0; h < p->H; h++)
            for (int64_t i = 0; i < s.queries; i++) {
                row r = look(e, &s, h, i);
                work(arg, &r);
            }
    }
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static void put_weights(const mha_extra_keys_call *e, const row *r, double fade, const double *weight)
{
    mha_tensor w = e->weights;
    int64_t Tk = w.size[3] - e->count;
    for (int64_t j = 0; w.rank && j < w.size[3]; j++)
        naive_set(w, r->s.b, r->h, r->i, j, j < Tk ? fade * naive_get(w, r->s.b, r->h, r->i, j) : weight[j - Tk]);
}

static void mix(void *arg, const row *r)
{
    const mha_extra_keys_call *e = arg;
    const mha_problem *p = &e->problem;
    double max = get(e->softmax, r, 0), sum = get(e->softmax, r, 1), weight[MHA_EXTRA_KEYS] = {0};
    if (sum == 0 && p->options.sinks.rank) { /* no key of the input was there for the sink to share with */
        max = naive_get(p->options.sinks, 0, r->h, 0, 0);
        sum = 1;
    }
    if (max == INFINITY) { /* scores beyond float32: next to them no other counts */
        put_weights(e, r, 1, weight);
        return;
    }
    double top = max;
    for (int64_t n = 0; n < e->count; n++) top = fmax(top, r->score[n]);
    double before = sum > 0 ? exp(max - top) * sum : 0, all = before;
    for (int64_t n = 0; n < e->count; n++) all += exp(r->score[n] - top);
    for (int64_t n = 0; n < e->count; n++) weight[n] = exp(r->score[n] - top) / all * r->kept[n];
    for (int64_t d = 0; d < p->E; d++) {
        double value = e->bias_v.rank ? learned(e->bias_v, r, d, p->E) : 0;
        set(p->out, r, d, (before > 0 ? before / all * get(p->out, r, d) : 0) + weight[0] * value);
    }
    put_weights(e, r, before / all, weight);
    naive_put_softmax(e->softmax, &r->s, r->h, r->i, (naive_softmax){top, all});
    if (e->lse.rank) set(e->lse, r, 0, top + log(all));
}

/* The columns of the extra keys in rows past the end of a ragged sequence; attention has cleared the others. */
static void clear_beyond(const mha_extra_keys_call *e)
{
    mha_tensor w = e->weights;
    for (int64_t b = 0; w.rank && b < e->problem.B; b++)
        for (int64_t h = 0; h < w.size[1]; h++)
            for (int64_t i = mha_sequence_get(&e->problem, b).queries; i < w.size[2]; i++)
                for (int64_t j = w.size[3] - e->count; j < w.size[3]; j++) naive_set(w, b, h, i, j, 0);
}

void naive_extra_keys(const mha_extra_keys_call *call)
{
    mha_extra_keys_call e = *call;
    if (e.problem.ctx->rehearsing) return;
    each_row(&e, mix, &e);
    clear_beyond(&e);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

typedef struct back {
    const mha_extra_keys_call *call;
    mha_tensor dheads, dq;
    double *dkey, *dvalue; /* (G*D), (G*E) */
} back;

/* What the learned key and the row give each other. The key of zeros has no gradient and gives none. */
static void mix_back(void *arg, const row *r)
{
    back *c = arg;
    const mha_extra_keys_call *e = c->call;
    const mha_problem *p = &e->problem;
    double weight = exp(r->score[0] - get(e->softmax, r, 0)) / get(e->softmax, r, 1), dw = 0, delta = 0;
    double flat = p->options.softcap > 0 ? r->score[0] / (double)p->options.softcap : 0;
    for (int64_t d = 0; d < p->E; d++) {
        dw += r->kept[0] * get(c->dheads, r, d) * learned(e->bias_v, r, d, p->E);
        delta += get(c->dheads, r, d) * get(p->out, r, d);
        c->dvalue[r->g * p->E + d] += weight * r->kept[0] * get(c->dheads, r, d);
    }
    double ds = weight * (dw - delta) * (double)p->options.scale * (1 - flat * flat);
    for (int64_t d = 0; d < p->D; d++) {
        c->dkey[r->g * p->D + d] += ds * get(p->q, r, d);
        if (c->dq.rank) set(c->dq, r, d, get(c->dq, r, d) + ds * learned(e->bias_k, r, d, p->D));
    }
}

static void add(mha_tensor to, const double *from, int64_t count)
{
    for (int64_t n = 0; to.rank && n < count; n++) naive_set(to, n, 0, 0, 0, naive_get(to, n, 0, 0, 0) + from[n]);
}

void naive_extra_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                           mha_tensor dbias_v, double *sums)
{
    const mha_problem *p = &call->problem;
    (void)sums; /* they are taken in memory of their own */
    if (p->ctx->rehearsing || !call->bias_k.rank) return;
    back c = {.call = call, .dheads = dheads, .dq = dq};
    c.dkey = array(p->G * p->D, sizeof *c.dkey);
    c.dvalue = array(p->G * p->E, sizeof *c.dvalue);
    each_row(call, mix_back, &c);
    add(dbias_k, c.dkey, p->G * p->D);
    add(dbias_v, c.dvalue, p->G * p->E);
    free(c.dkey);
    free(c.dvalue);
}
