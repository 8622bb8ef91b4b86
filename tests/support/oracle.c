/* From stores to the oracle's dense arrays. Whatever the view's layout, the oracle gets (B,heads,rows,width) with each
 * sequence at the front of its rows, so that it needs to know of neither strides nor packing. */
#include "support/problem.h"

#include <stdlib.h>

/* ---- The question ----------------------------------------------------------------------------------------------- */

static const double *dense_rows(const problem *p, const store *s, problem_element *element, const int64_t *rows,
                                int64_t most)
{
    int64_t heads = s->view.size[1], width = s->view.size[3];
    double *dense = array(p->c.B * heads * most * width, sizeof *dense);
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t n = 0; n < rows[b]; n++)
                for (int64_t d = 0; d < width; d++)
                    dense[((b * heads + h) * most + n) * width + d] = element_get(element(p, b, h, n, d), s->view.type);
    return dense;
}

/* Element (b,h,i,j) of a mask or bias, whose missing axes and axes of size 1 repeat. */
static double broadcast_get(const store *s, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t index[4] = {b, h, i, j};
    int64_t own[4] = {0};
    for (int a = 0; a < s->view.rank; a++) own[a] = s->view.size[a] == 1 ? 0 : index[4 - s->view.rank + a];
    return store_get(s, own[0], own[1], own[2], own[3]);
}

static void ask_maps(problem *p)
{
    const attention_case *c = &p->c;
    int64_t count = c->B * c->H * c->Tq * c->Tk, n = 0;
    bool *mask = p->mask.bytes ? array(count, sizeof *mask) : NULL;
    double *bias = p->bias.bytes ? array(count, sizeof *bias) : NULL;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->H; h++)
            for (int64_t i = 0; i < c->Tq; i++)
                for (int64_t j = 0; j < c->Tk; j++, n++) {
                    if (mask) mask[n] = broadcast_get(&p->mask, b, h, i, j) != 0;
                    if (bias) bias[n] = broadcast_get(&p->bias, b, h, i, j);
                }
    p->ref.mask = mask;
    p->ref.bias = bias;
}

static void ask_heads(problem *p)
{
    const attention_case *c = &p->c;
    double *slopes = c->alibi ? array(c->B * c->H, sizeof *slopes) : NULL;
    double *sinks = c->sinks ? array(c->H, sizeof *sinks) : NULL;
    for (int64_t h = 0; h < c->H; h++) {
        if (sinks) sinks[h] = store_get(&p->sinks, h, 0, 0, 0);
        for (int64_t b = 0; slopes && b < c->B; b++)
            slopes[b * c->H + h] = c->alibi == 2 ? store_get(&p->alibi, b, h, 0, 0) : store_get(&p->alibi, h, 0, 0, 0);
    }
    p->ref.alibi_slopes = slopes;
    p->ref.sinks = sinks;
}

void oracle_ask(problem *p)
{
    const attention_case *c = &p->c;
    oracle_free(p);
    p->ref = (ref_attention){.B = c->B,
                             .H = c->H,
                             .G = c->G,
                             .Tq = c->Tq,
                             .Tk = c->Tk,
                             .D = c->D,
                             .E = c->E,
                             .queries = p->queries,
                             .keys = p->keys,
                             .key_lengths = p->key_lengths,
                             .scale = (double)c->scale,
                             .softcap = (double)c->softcap,
                             .causal = c->causal,
                             .align = (ref_align)c->align,
                             .offsets = p->offsets,
                             .window_left = c->window_left,
                             .window_right = c->window_right,
                             .dropout = (double)c->dropout,
                             .dropout_seed = c->dropout_seed,
                             .dropout_stream = c->dropout_stream};
    p->ref.q = dense_rows(p, &p->q, problem_q, p->queries, c->Tq);
    p->ref.k = dense_rows(p, &p->k, problem_k, p->keys, c->Tk);
    p->ref.v = dense_rows(p, &p->v, problem_v, p->keys, c->Tk);
    ask_maps(p);
    ask_heads(p);
}

/* ---- The answer ------------------------------------------------------------------------------------------------- */

void problem_solve(problem *p)
{
    const attention_case *c = &p->c;
    int64_t rows = c->B * c->H * c->Tq;
    p->want.out = array(rows * c->E, sizeof(double));
    p->want.lse = array(rows, sizeof(double));
    p->want.mean = array(c->B * c->Tq * c->Tk, sizeof(double));
    for (int s = 0; s < REF_STAGES; s++) p->want.stage[s] = array(rows * c->Tk, sizeof(double));
    ref_attention_forward(&p->ref, &p->want);
    bounds_make(p);
}

/* The arrays are the oracle's to read and this file's to own. */
static void drop(const void *owned) { free((void *)(uintptr_t)owned); }

void oracle_free(problem *p)
{
    drop(p->ref.q);
    drop(p->ref.k);
    drop(p->ref.v);
    drop(p->ref.mask);
    drop(p->ref.bias);
    drop(p->ref.alibi_slopes);
    drop(p->ref.sinks);
    p->ref = (ref_attention){0};
    drop(p->want.out);
    drop(p->want.lse);
    drop(p->want.mean);
    for (int s = 0; s < REF_STAGES; s++) drop(p->want.stage[s]);
    p->want = (ref_result){0};
    bounds_free(&p->allowed);
}

/* ---- Poison ----------------------------------------------------------------------------------------------------- */

static bool row_sees_any(const problem *p, int64_t b, int64_t h, int64_t i)
{
    for (int64_t j = 0; j < p->c.Tk; j++)
        if (ref_visible(&p->ref, b, h, i, j)) return true;
    return false;
}

static bool key_is_seen(const problem *p, int64_t b, int64_t g, int64_t j)
{
    int64_t share = p->c.H / p->c.G;
    for (int64_t h = g * share; h < (g + 1) * share; h++)
        for (int64_t i = 0; i < p->queries[b]; i++)
            if (ref_visible(&p->ref, b, h, i, j)) return true;
    return false;
}

/* Infinities would make a finite number of a capped score, and the header leaves open which of the two is shown. */
static double bad_number(const problem *p, rng *r)
{
    if (p->c.softcap > 0 || rng_chance(r, 0.5)) return NAN;
    return rng_chance(r, 0.5) ? INFINITY : -INFINITY;
}

static void poison_row(problem *p, const store *s, rng *r, problem_element *element, int64_t b, int64_t h, int64_t n)
{
    int64_t width = s->view.size[3], only = rng_chance(r, 0.5) ? rng_between(r, 0, width - 1) : -1;
    for (int64_t d = 0; d < width; d++)
        if (only < 0 || d == only) element_set(element(p, b, h, n, d), s->view.type, bad_number(p, r));
}

/* Where something other than the bias itself hides a key, its bias may be anything. */
static void poison_bias(problem *p, rng *r)
{
    if (p->c.bias.rank != 4 || p->c.bias.full != 15 || p->c.layout_maps == LAYOUT_BROADCAST) return;
    ref_attention without = p->ref;
    without.bias = NULL;
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < p->c.H; h++)
            for (int64_t i = 0; i < p->c.Tq; i++)
                for (int64_t j = 0; j < p->c.Tk; j++)
                    if (!ref_visible(&without, b, h, i, j)) store_set(&p->bias, b, h, i, j, bad_number(p, r));
}

/* A broadcast input shares its elements between rows that are seen and rows that are not, and stays clean. */
void oracle_poison(problem *p, rng *r)
{
    const attention_case *c = &p->c;
    for (int64_t b = 0; b < c->B; b++) {
        for (int64_t h = 0; h < c->H && c->layout_q != LAYOUT_BROADCAST; h++)
            for (int64_t i = 0; i < p->queries[b]; i++)
                if (!row_sees_any(p, b, h, i)) poison_row(p, &p->q, r, problem_q, b, h, i);
        for (int64_t g = 0; g < c->G; g++)
            for (int64_t j = 0; j < p->keys[b]; j++) {
                if (key_is_seen(p, b, g, j)) continue;
                if (c->layout_k != LAYOUT_BROADCAST) poison_row(p, &p->k, r, problem_k, b, g, j);
                if (c->layout_v != LAYOUT_BROADCAST) poison_row(p, &p->v, r, problem_v, b, g, j);
            }
    }
    poison_bias(p, r);
}
