/* From a case to memory and back: incoming gradients, room for the outgoing ones, the two calls, the comparison. */
#include "support/gradients.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cases ------------------------------------------------------------------------------------------------------ */

/* The bias is -infinity in places or of any type; its gradient is float32 like those of slopes and sinks. */
gradient_case gradient_plain(attention_case forward)
{
    gradient_case c = {.forward = forward, .dlse = true, .wanted = GRAD_ALL};
    c.forward.lse = c.forward.softmax = true;
    c.forward.weights = 0;
    c.forward.scores = -1;
    c.type_dout = forward.type_out;
    c.type_grad[GRAD_Q] = forward.type_q;
    c.type_grad[GRAD_K] = forward.type_k;
    c.type_grad[GRAD_V] = forward.type_v;
    return c;
}

static gradient_case random_for(rng *r, attention_case forward)
{
    gradient_case c = gradient_plain(forward);
    bool mixed = rng_chance(r, 0.3);
    if (mixed) c.type_dout = (mha_type)rng_between(r, MHA_FLOAT32, MHA_FLOAT16);
    for (int n = GRAD_Q; mixed && n <= GRAD_V; n++) c.type_grad[n] = (mha_type)rng_between(r, MHA_FLOAT32, MHA_FLOAT16);
    c.layout_dout = (layout)rng_between(r, 0, LAYOUTS - 1);
    for (int n = 0; n < GRADS; n++) c.layout_grad[n] = (layout)rng_between(r, 0, LAYOUT_ANY);
    c.dlse = rng_chance(r, 0.5);
    c.anew = rng_chance(r, 0.2);
    if (rng_chance(r, 0.4)) c.wanted = (unsigned)rng_between(r, 0, GRAD_ALL);
    return c;
}

gradient_case gradient_random(rng *r) { return random_for(r, case_random(r)); }

gradient_case gradient_random_float32(rng *r)
{
    gradient_case c = random_for(r, case_random_float32(r));
    c.type_dout = MHA_FLOAT32;
    return c;
}

void gradient_describe(const gradient_case *c, char *text, size_t size)
{
    const char *kind[] = {"dense", "swapped", "any", "broadcast"},
               *name[] = {"dq", "dk", "dv", "dbias", "dslopes", "dsinks", "importance"};
    case_describe(&c->forward, text, size);
    size_t used = strlen(text);
    used += (size_t)snprintf(text + used, size - used, "\n      dout %s %s%s;", mha_type_name(c->type_dout),
                             kind[c->layout_dout], c->dlse ? " dlse" : "");
    if (c->anew && used < size) used += (size_t)snprintf(text + used, size - used, " anew");
    for (int n = 0; n < GRADS && used < size; n++)
        if (c->wanted >> n & 1)
            used += (size_t)snprintf(text + used, size - used, " %s %s %s", name[n], mha_type_name(c->type_grad[n]),
                                     kind[c->layout_grad[n]]);
}

/* ---- Elements --------------------------------------------------------------------------------------------------- */

static void *row_element(const store *s, const int64_t *starts, int64_t b, int64_t h, int64_t n, int64_t d)
{
    return store_at(s, starts ? 0 : b, h, starts ? starts[b] + n : n, d);
}

void *query_element(const problem *p, const store *s, int64_t b, int64_t h, int64_t i, int64_t d)
{
    return row_element(s, p->query_starts, b, h, i, d);
}

void *key_element(const problem *p, const store *s, int64_t b, int64_t g, int64_t j, int64_t d)
{
    return row_element(s, p->key_starts, b, g, j, d);
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static bool row_sees_any(const problem *p, int64_t b, int64_t h, int64_t i)
{
    for (int64_t j = 0; j < p->c.Tk; j++)
        if (ref_visible(&p->ref, b, h, i, j)) return true;
    return false;
}

/* A row that sees no key has no gradient, whatever comes back to it; rows of no sequence stay NaN. */
static void fill_incoming(gradients *g, rng *r)
{
    const problem *p = g->p;
    bool poison = p->c.poison && g->c.layout_dout != LAYOUT_BROADCAST;
    int64_t index = 0;
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < p->c.H; h++)
            for (int64_t i = 0; i < p->queries[b]; i++) {
                bool spoilt = poison && !row_sees_any(p, b, h, i);
                double log = rng_normal(r);
                for (int64_t e = 0; e < p->c.E; e++) {
                    double x = p->c.fill == FILL_PAINTED ? painted(index++, 31) : rng_normal(r);
                    element_set(query_element(p, &g->dout, b, h, i, e), g->c.type_dout, spoilt ? NAN : x);
                }
                if (g->c.dlse) element_set(query_element(p, &g->dlse, b, h, i, 0), MHA_FLOAT32, spoilt ? NAN : log);
            }
}

static void make_outgoing(gradients *g, rng *r)
{
    problem *p = g->p;
    const store *like[GRAD_WORTH] = {&p->q, &p->k, &p->v, &p->bias, &p->alibi, &p->sinks};
    const int64_t heads[2] = {p->c.B, p->c.H};
    for (int n = 0; n < GRAD_WORTH; n++) {
        if (!(g->c.wanted >> n & 1) || !like[n]->bytes) continue;
        g->grad[n] = store_make(r, g->c.type_grad[n], like[n]->view.rank, like[n]->view.size, g->c.layout_grad[n]);
    }
    if (g->c.wanted >> GRAD_WORTH & 1)
        g->grad[GRAD_WORTH] = store_make(r, MHA_FLOAT32, 2, heads, g->c.layout_grad[GRAD_WORTH]);
}

/* Rows and keys that belong to no sequence stay as they are; the rest is written whole. */
static void guard(gradients *g)
{
    const problem *p = g->p;
    store_guard(&g->dout);
    store_guard(&g->dlse);
    for (int n = 0; n < GRADS; n++) {
        store *s = &g->grad[n];
        store_guard(s);
        if (n >= GRAD_BIAS) store_allow_all(s);
        const int64_t *starts = n == GRAD_Q ? p->query_starts : p->key_starts;
        const int64_t *rows = n == GRAD_Q ? p->padded : p->keys;
        for (int64_t b = 0; s->bytes && n < GRAD_BIAS && b < p->c.B; b++)
            for (int64_t h = 0; h < s->view.size[1]; h++)
                for (int64_t i = 0; i < rows[b]; i++)
                    for (int64_t d = 0; d < s->view.size[3]; d++)
                        store_allow(s, starts ? 0 : b, h, starts ? starts[b] + i : i, d);
    }
}

gradients *gradients_make(const gradient_case *c)
{
    gradients *g = array(1, sizeof *g);
    rng r = rng_make(c->forward.data_seed, 77);
    g->c = *c;
    g->p = problem_make(&c->forward);
    g->dout = store_make(&r, c->type_dout, 4, g->p->out.view.size, c->layout_dout);
    g->dlse = store_make(&r, MHA_FLOAT32, c->dlse ? 3 : -1, g->p->out.view.size, c->layout_dout);
    fill_incoming(g, &r);
    make_outgoing(g, &r);
    guard(g);
    return g;
}

static void forget_answer(gradients *g)
{
    for (int n = 0; n < GRADS; n++) {
        free(g->want[n]);
        free(g->allowed[n]);
        g->want[n] = g->allowed[n] = NULL;
    }
}

void gradients_refresh(gradients *g)
{
    forget_answer(g);
    problem_refresh(g->p);
    guard(g);
}

void gradients_free(gradients *g)
{
    forget_answer(g);
    for (int n = 0; n < GRADS; n++) store_free(&g->grad[n]);
    store_free(&g->dout);
    store_free(&g->dlse);
    problem_free(g->p);
    free(g);
}

/* ---- The calls -------------------------------------------------------------------------------------------------- */

mha_attention_gradients gradients_asked(const gradients *g)
{
    return (mha_attention_gradients){.q = g->grad[GRAD_Q].view,
                                     .k = g->grad[GRAD_K].view,
                                     .v = g->grad[GRAD_V].view,
                                     .bias = g->grad[GRAD_BIAS].view,
                                     .alibi_slopes = g->grad[GRAD_SLOPES].view,
                                     .sinks = g->grad[GRAD_SINKS].view,
                                     .importance = g->grad[GRAD_WORTH].view};
}

mha_status gradients_back(gradients *g, mha_context *ctx)
{
    problem *p = g->p;
    mha_attention_gradients asked = gradients_asked(g);
    for (int n = 0; n < GRADS; n++) store_reset(&g->grad[n]);
    mha_tensor softmax = g->c.anew ? (mha_tensor)MHA_NO_TENSOR : p->softmax.view;
    const mha_attention_saved saved = {p->q.view, p->k.view, p->v.view, p->out.view, softmax};
    return mha_attention_backward(ctx, &asked, &saved, g->dout.view, g->dlse.view, &p->options);
}

/* What forward wrote is an input of backward: from there on it may not change. */
mha_status gradients_run(gradients *g, mha_context *ctx)
{
    mha_status status = problem_run(g->p, ctx);
    if (status) return status;
    store_guard(&g->p->out);
    store_guard(&g->p->softmax);
    return gradients_back(g, ctx);
}

unsigned char *gradients_bytes(const gradients *g, size_t *size)
{
    *size = 0;
    for (int n = 0; n < GRADS; n++) *size += g->grad[n].size;
    unsigned char *bytes = array((int64_t)*size, 1);
    for (size_t n = 0, at = 0; n < GRADS; at += g->grad[n++].size)
        if (g->grad[n].bytes) memcpy(bytes + at, g->grad[n].bytes, g->grad[n].size);
    return bytes;
}

/* ---- The comparison --------------------------------------------------------------------------------------------- */

static const char *const names[GRADS] = {"dq", "dk", "dv", "dbias", "dslopes", "dsinks", "importance"};

/* NaN is never right. A bound that is not finite says that float32 cannot tell. */
static bool near(double got, double want, double bound, mha_type type)
{
    if (isnan(got)) return false;
    if (!isfinite(bound)) return true;
    if (isinf(got)) return got == round_to(type, want - bound) || got == round_to(type, want + bound);
    return fabs(got - want) <= bound + (type == MHA_FLOAT32 ? 0 : half_ulp(type, fmax(fabs(want), fabs(got))));
}

typedef struct verdict {
    char *why;
    size_t size;
} verdict;

static bool check_element(const gradients *g, verdict v, int n, const void *element, int64_t index, const int64_t at[4])
{
    double got = element_get(element, g->c.type_grad[n]), want = g->want[n][index], bound = g->allowed[n][index];
    if (near(got, want, bound, g->c.type_grad[n])) return true;
    snprintf(v.why, v.size, "%s[%lld,%lld,%lld,%lld] is %.9g, the oracle says %.9g +- %.2g", names[n], (long long)at[0],
             (long long)at[1], (long long)at[2], (long long)at[3], got, want, bound);
    return false;
}

/* dq, dk, dv: by sequence and place in it. */
static bool check_rows(const gradients *g, verdict v, int n)
{
    const problem *p = g->p;
    const store *s = &g->grad[n];
    int64_t heads = s->view.size[1], width = s->view.size[3], most = n == GRAD_Q ? p->c.Tq : p->c.Tk;
    const int64_t *rows = n == GRAD_Q ? p->padded : p->keys;
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < rows[b]; i++)
                for (int64_t d = 0; d < width; d++) {
                    const void *element = n == GRAD_Q ? query_element(p, s, b, h, i, d) : key_element(p, s, b, h, i, d);
                    int64_t index = ((b * heads + h) * most + i) * width + d;
                    if (!check_element(g, v, n, element, index, (int64_t[]){b, h, i, d})) return false;
                }
    return true;
}

/* dbias, dslopes, dsinks, importance: by place in the view. */
static bool check_view(const gradients *g, verdict v, int n)
{
    const store *s = &g->grad[n];
    int64_t size[4] = {1, 1, 1, 1}, index = 0;
    for (int a = 0; a < s->view.rank; a++) size[a] = s->view.size[a];
    for (int64_t i = 0; i < size[0]; i++)
        for (int64_t j = 0; j < size[1]; j++)
            for (int64_t k = 0; k < size[2]; k++)
                for (int64_t l = 0; l < size[3]; l++, index++)
                    if (!check_element(g, v, n, store_at(s, i, j, k, l), index, (int64_t[]){i, j, k, l})) return false;
    return true;
}

static bool check_guards(const gradients *g, verdict v)
{
    const problem *p = g->p;
    const store *inputs[] = {&p->q,     &p->k,   &p->v,       &p->mask, &p->bias, &p->alibi,
                             &p->sinks, &p->out, &p->softmax, &g->dout, &g->dlse};
    const char *input[] = {"q", "k", "v", "mask", "bias", "alibi_slopes", "sinks", "out", "softmax", "dout", "dlse"};
    const char *changed = NULL;
    for (size_t n = 0; n < sizeof inputs / sizeof *inputs; n++)
        if (!store_intact(inputs[n])) changed = input[n];
    for (int n = 0; n < GRADS; n++)
        if (!store_intact(&g->grad[n])) changed = names[n];
    if (changed) snprintf(v.why, v.size, "%s: memory changed that the call must not write", changed);
    return !changed;
}

bool gradients_check(const gradients *g, char *why, size_t size)
{
    verdict v = {why, size};
    if (!check_guards(g, v)) return false;
    for (int n = 0; n < GRADS; n++)
        if (g->grad[n].bytes && !(n < GRAD_BIAS ? check_rows(g, v, n) : check_view(g, v, n))) return false;
    return true;
}
