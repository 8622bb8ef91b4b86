/* The gradients of attention on the naive table, one row at a time, by the formulas of mha_attention_backward.
 *
 * Not by the oracle's own backward pass: where the caller has mixed other keys into `out` and the softmax, weights follow
 * from that softmax alone. */
#include "support/naive/naive.h"

#include <stdlib.h>

typedef struct back {
    const mha_gradient_call *call;
    naive_question question;
    double *out, *dout, *dlse;   /* (B,H,Tq,E) twice, (B,H,Tq) or NULL */
    double *dq, *dk, *dv;        /* (B,H,Tq,D), (B,G,Tk,D), (B,G,Tk,E) */
    double *ds;                  /* (B,H,Tq,Tk): by the scores that go into the softmax */
    double *slopes, *sinks, *by; /* (B,H); `by` is the sum of dout . out */
} back;

static double dot(const double *x, const double *y, int64_t n)
{
    double sum = 0;
    for (int64_t d = 0; d < n; d++) sum += x[d] * y[d];
    return sum;
}

/* to += factor * x */
static void add(double *to, double factor, const double *x, int64_t n)
{
    for (int64_t d = 0; d < n; d++) to[d] += factor * x[d];
}

/* What row (b,h,i) and the key j that it sees give each other. */
static void meet(back *c, naive_softmax soft, double delta, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const ref_attention *a = &c->question.ref;
    int64_t row = (b * a->H + h) * a->Tq + i, key = (b * a->G + h / (a->H / a->G)) * a->Tk + j, at = row * a->Tk + j;
    const double *dout = c->dout + row * a->E;
    bool keeps = ref_keeps(a->dropout, a->dropout_seed, a->dropout_stream + (uint64_t)b, h, i, j);
    double kept = keeps ? 1 / (1 - a->dropout) : 0;
    double weight = exp(c->question.result.stage[REF_MASKED][at] - soft.max) / soft.sum;
    double dw = keeps ? kept * dot(dout, a->v + key * a->E, a->E) : 0, ds = weight * (dw - delta);
    double flat = a->softcap > 0 ? c->question.result.stage[REF_CAPPED][at] / a->softcap : 0;
    c->ds[at] = ds;
    c->slopes[b * a->H + h] -= ds * fabs((double)(ref_position(a, b, i) - j));
    add(c->dq + row * a->D, ds * a->scale * (1 - flat * flat), a->k + key * a->D, a->D);
    add(c->dk + key * a->D, ds * a->scale * (1 - flat * flat), a->q + row * a->D, a->D);
    add(c->dv + key * a->E, weight * kept, dout, a->E);
}

static void row_back(back *c, const mha_sequence *s, int64_t h, int64_t i)
{
    const ref_attention *a = &c->question.ref;
    int64_t head = s->b * a->H + h, row = head * a->Tq + i;
    naive_softmax soft = naive_softmax_of(&c->question, s, h, i);
    if (soft.sum == 0) return;
    double by_out = dot(c->dout + row * a->E, c->out + row * a->E, a->E);
    double delta = by_out - (c->dlse ? c->dlse[row] : 0);
    c->by[head] += by_out;
    if (a->sinks) c->sinks[head] -= exp(a->sinks[h] - soft.max) / soft.sum * delta;
    for (int64_t j = 0; j < a->Tk; j++)
        if (ref_visible(a, s->b, h, i, j)) meet(c, soft, delta, s->b, h, i, j);
}

/* Summed over the axes along which the bias repeats. */
static void put_bias(const back *c)
{
    const ref_attention *a = &c->question.ref;
    mha_tensor to = c->call->dbias;
    const int64_t *size = to.size;
    if (!to.rank) return;
    double *sums = array(size[0] * size[1] * size[2] * size[3], sizeof *sums);
    for (int64_t n = 0; n < a->B * a->H * a->Tq * a->Tk; n++) {
        int64_t at[4] = {n / a->Tk / a->Tq / a->H, n / a->Tk / a->Tq % a->H, n / a->Tk % a->Tq, n % a->Tk}, place = 0;
        for (int axis = 0; axis < 4; axis++) place = place * size[axis] + (size[axis] == 1 ? 0 : at[axis]);
        sums[place] += c->ds[n];
    }
    for (int64_t n = 0; n < size[0] * size[1] * size[2] * size[3]; n++)
        naive_set(to, n / size[3] / size[2] / size[1], n / size[3] / size[2] % size[1], n / size[3] % size[2],
                  n % size[3], sums[n]);
    free(sums);
}

static void start(back *c)
{
    const mha_problem *p = &c->call->problem;
    int64_t rows = p->B * p->H * p->Tq, keys = p->B * p->G * p->Tk, heads = p->B * p->H;
    naive_ask(&c->question, p);
    c->out = naive_dense(p, p->out, false);
    c->dout = naive_dense(p, c->call->dout, false);
    c->dlse = c->call->dlse.rank ? naive_dense(p, c->call->dlse, false) : NULL;
    c->dq = array(rows * p->D, sizeof *c->dq);
    c->dk = array(keys * p->D, sizeof *c->dk);
    c->dv = array(keys * p->E, sizeof *c->dv);
    c->ds = array(rows * p->Tk, sizeof *c->ds);
    c->slopes = array(heads, sizeof *c->slopes);
    c->sinks = array(heads, sizeof *c->sinks);
    c->by = array(heads, sizeof *c->by);
}

static void finish(back *c)
{
    const mha_problem *p = &c->call->problem;
    const mha_attention_gradients *g = &c->call->gradients;
    for (int64_t n = 0; n < p->B * p->H; n++) c->by[n] = fabs(c->by[n]);
    naive_put(p, g->q, c->dq, false);
    naive_put(p, g->k, c->dk, true);
    naive_put(p, g->v, c->dv, true);
    naive_put_heads(p, g->alibi_slopes, c->slopes);
    naive_put_heads(p, g->sinks, c->sinks);
    naive_put_heads(p, g->importance, c->by);
    put_bias(c);
    double *owned[] = {c->out, c->dout, c->dlse, c->dq, c->dk, c->dv, c->ds, c->slopes, c->sinks, c->by};
    for (size_t n = 0; n < sizeof owned / sizeof *owned; n++) free(owned[n]);
    naive_forget(&c->question);
}

mha_status naive_attention_backward(const mha_gradient_call *call)
{
    const mha_problem *p = &call->problem;
    back c = {.call = call};
    if (p->ctx->rehearsing) return MHA_OK;
    start(&c);
    for (int64_t b = 0; b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        for (int64_t h = 0; h < p->H; h++)
            for (int64_t i = 0; i < s.queries; i++) row_back(&c, &s, h, i);
    }
    finish(&c);
    return MHA_OK;
}
