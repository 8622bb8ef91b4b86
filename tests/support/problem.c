/* From a case to memory: sequences first, then inputs, then what the library and the oracle are told about them. */
#include "support/problem.h"

#include <stdlib.h>
#include <string.h>

/* ---- Sequences -------------------------------------------------------------------------------------------------- */

/* Lengths up to `most`; packed ones get starts with a margin that belongs to nobody before the first. */
static int64_t *draw_rows(rng *r, int64_t B, int64_t most, bool ragged, int64_t **starts)
{
    int64_t *rows = array(B, sizeof *rows);
    *starts = ragged ? array(B + 1, sizeof **starts) : NULL;
    if (ragged) (*starts)[0] = rng_between(r, 0, 2);
    for (int64_t b = 0; b < B; b++) {
        rows[b] = !ragged || rng_chance(r, 0.3) ? most : rng_between(r, 0, most);
        if (ragged) (*starts)[b + 1] = (*starts)[b] + rows[b];
    }
    return rows;
}

static void draw_sequences(problem *p, rng *r)
{
    const attention_case *c = &p->c;
    p->padded = draw_rows(r, c->B, c->Tq, c->ragged_q, &p->query_starts);
    p->queries = array(c->B, sizeof(int64_t));
    p->keys = draw_rows(r, c->B, c->Tk, c->ragged_k, &p->key_starts);
    p->query_rows = c->ragged_q ? p->query_starts[c->B] + rng_between(r, 0, 2) : c->Tq;
    p->key_rows = c->ragged_k ? p->key_starts[c->B] + rng_between(r, 0, 2) : c->Tk;
    p->key_lengths = c->lengths ? array(c->B, sizeof(int64_t)) : NULL;
    p->offsets = c->align == MHA_ALIGN_OFFSET ? array(c->B, sizeof(int64_t)) : NULL;
    for (int64_t b = 0; b < c->B; b++) {
        p->queries[b] = c->padding && !rng_chance(r, 0.2) ? rng_between(r, 0, p->padded[b]) : p->padded[b];
        if (c->lengths) p->key_lengths[b] = rng_chance(r, 0.2) ? p->keys[b] : rng_between(r, 0, p->keys[b]);
        if (p->offsets) p->offsets[b] = c->offset + b;
    }
}

/* Where row n of sequence b lies: on axis 0 and on axis 2. */
static int64_t outer(const int64_t *starts, int64_t b) { return starts ? 0 : b; }
static int64_t inner(const int64_t *starts, int64_t b, int64_t n) { return starts ? starts[b] + n : n; }

/* ---- Inputs ----------------------------------------------------------------------------------------------------- */

static store make_rows(rng *r, mha_type type, layout how, int64_t B, int64_t heads, int64_t rows, int64_t width)
{
    int64_t size[4] = {B, heads, rows, width};
    return store_make(r, type, 4, size, how);
}

static void fill_rows(rng *r, store *s, const problem *p, const int64_t *starts, const int64_t *rows, int salt)
{
    int64_t index = 0;
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < s->view.size[1]; h++)
            for (int64_t n = 0; n < rows[b]; n++)
                for (int64_t d = 0; d < s->view.size[3]; d++) {
                    double x = p->c.fill == FILL_PAINTED ? painted(index++, salt) : rng_normal(r);
                    store_set(s, outer(starts, b), h, inner(starts, b, n), d, x);
                }
}

static store make_broadcast(rng *r, mha_type type, const problem *p, broadcast shape)
{
    const int64_t full[4] = {p->c.B, p->c.H, p->c.Tq, p->c.Tk};
    int64_t size[4];
    for (int a = 0; a < shape.rank; a++) {
        int axis = 4 - shape.rank + a;
        size[a] = shape.full >> axis & 1 ? full[axis] : 1;
    }
    return store_make(r, type, shape.rank, size, p->c.layout_maps);
}

/* Fills a mask with true of probability `kept`, or a bias with normal numbers, -infinity where it hides. */
static void fill_broadcast(rng *r, store *s, bool is_mask, double kept)
{
    int64_t n[4] = {1, 1, 1, 1};
    for (int a = 0; a < s->view.rank; a++) n[a] = s->view.size[a];
    for (int64_t i = 0; s->bytes && i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                for (int64_t l = 0; l < n[3]; l++) {
                    bool keep = rng_chance(r, kept);
                    double truth = (double)(rng_chance(r, 0.5) ? 1 : rng_between(r, 2, 255));
                    double x = is_mask ? (keep ? truth : 0) : keep ? rng_normal(r) : -INFINITY;
                    store_set(s, i, j, k, l, x);
                }
}

static void make_head_values(problem *p, rng *r)
{
    const attention_case *c = &p->c;
    int64_t by_head[2] = {c->B, c->H};
    p->sinks = store_make(r, MHA_FLOAT32, c->sinks ? 1 : -1, by_head + 1, c->layout_rest);
    p->alibi =
        store_make(r, MHA_FLOAT32, c->alibi ? c->alibi : -1, c->alibi == 2 ? by_head : by_head + 1, c->layout_rest);
    for (int64_t h = 0; h < c->H; h++) {
        if (c->sinks) store_set(&p->sinks, h, 0, 0, 0, 2 * rng_normal(r));
        for (int64_t b = 0; b < (c->alibi == 2 ? c->B : c->alibi); b++) {
            double slope = ldexp(rng_chance(r, 0.1) ? -1 : 1, -(int)rng_between(r, 1, 8));
            store_set(&p->alibi, c->alibi == 2 ? b : h, h, 0, 0, slope);
        }
    }
}

static void make_inputs(problem *p, rng *r)
{
    const attention_case *c = &p->c;
    int64_t query_batches = c->ragged_q ? 1 : c->B, key_batches = c->ragged_k ? 1 : c->B;
    p->q = make_rows(r, c->type_q, c->layout_q, query_batches, c->H, p->query_rows, c->D);
    p->k = make_rows(r, c->type_k, c->layout_k, key_batches, c->G, p->key_rows, c->D);
    p->v = make_rows(r, c->type_v, c->layout_v, key_batches, c->G, p->key_rows, c->E);
    fill_rows(r, &p->q, p, p->query_starts, p->queries, 11);
    fill_rows(r, &p->k, p, p->key_starts, p->keys, 83);
    fill_rows(r, &p->v, p, p->key_starts, p->keys, 167);
    p->mask = make_broadcast(r, MHA_BOOL, p, c->mask);
    p->bias = make_broadcast(r, c->type_bias, p, c->bias);
    fill_broadcast(r, &p->mask, true, rng_chance(r, 0.3) ? 0.1 : 0.8);
    fill_broadcast(r, &p->bias, false, c->bias_hides ? 0.7 : 1);
    make_head_values(p, r);
}

/* ---- Outputs ---------------------------------------------------------------------------------------------------- */

static void make_outputs(problem *p, rng *r)
{
    const attention_case *c = &p->c;
    int64_t batches = c->ragged_q ? 1 : c->B;
    int64_t rows[4] = {batches, c->H, p->query_rows, 2};
    int64_t each[4] = {c->B, c->H, c->Tq, c->Tk}, mean[3] = {c->B, c->Tq, c->Tk};
    p->out = make_rows(r, c->type_out, c->layout_out, batches, c->H, p->query_rows, c->E);
    p->lse = store_make(r, MHA_FLOAT32, c->lse ? 3 : -1, rows, c->layout_rest);
    p->softmax = store_make(r, MHA_FLOAT32, c->softmax ? 4 : -1, rows, c->layout_rest);
    if (c->weights == 1) p->weights = store_make(r, c->type_weights, 4, each, c->layout_rest);
    if (c->weights == 2) p->weights = store_make(r, c->type_weights, 3, mean, c->layout_rest);
    p->scores = store_make(r, c->type_scores, c->scores >= 0 ? 4 : -1, each, c->layout_rest);
}

/* Rows of out, lse and softmax that belong to no sequence stay as they are; weights and scores are written whole. */
static void guard(problem *p)
{
    store *all[] = {&p->q,     &p->k,   &p->v,   &p->mask,    &p->bias,    &p->alibi,
                    &p->sinks, &p->out, &p->lse, &p->softmax, &p->weights, &p->scores};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) store_guard(all[n]);
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < p->c.H; h++)
            for (int64_t i = 0; i < p->padded[b]; i++) {
                int64_t batch = outer(p->query_starts, b), row = inner(p->query_starts, b, i);
                for (int64_t e = 0; e < p->c.E; e++) store_allow(&p->out, batch, h, row, e);
                if (p->c.lse) store_allow(&p->lse, batch, h, row, 0);
                for (int64_t n = 0; p->c.softmax && n < 2; n++) store_allow(&p->softmax, batch, h, row, n);
            }
    store_allow_all(&p->weights);
    store_allow_all(&p->scores);
}

/* ---- The library's call ----------------------------------------------------------------------------------------- */

static void make_options(problem *p)
{
    const attention_case *c = &p->c;
    mha_attention_options o = MHA_ATTENTION_DEFAULTS;
    o.scale = c->scale;
    o.softcap = c->softcap;
    o.causal = c->causal;
    o.align = c->align;
    o.offsets = integers(p->offsets, c->B);
    o.window_left = c->window_left;
    o.window_right = c->window_right;
    o.query_lengths = integers(c->padding ? p->queries : NULL, c->B);
    o.key_lengths = integers(p->key_lengths, c->B);
    o.mask = p->mask.view;
    o.bias = p->bias.view;
    o.alibi_slopes = p->alibi.view;
    o.sinks = p->sinks.view;
    o.query_starts = integers(p->query_starts, c->B + 1);
    o.key_starts = integers(p->key_starts, c->B + 1);
    o.dropout = c->dropout;
    o.dropout_seed = c->dropout_seed;
    o.dropout_stream = c->dropout_stream;
    p->options = o;
    mha_stage stage = c->scores >= 0 ? (mha_stage)c->scores : MHA_STAGE_SCALED;
    p->extras = (mha_attention_extras){.lse = p->lse.view,
                                       .softmax = p->softmax.view,
                                       .weights = p->weights.view,
                                       .scores = p->scores.view,
                                       .scores_stage = stage};
}

/* The kernels of a GPU that are named after what they compute round weights to the type of the inputs. */
static bool rounds_weights(const char *kernel)
{
    static const char *const first[] = {"forward_", "decode_", "small_"};
    for (size_t n = 0; n < sizeof first / sizeof *first; n++)
        if (!strncmp(kernel, first[n], strlen(first[n]))) return true;
    return false;
}

mha_status problem_run(problem *p, mha_context *ctx)
{
    store_reset(&p->out);
    store_reset(&p->lse);
    store_reset(&p->softmax);
    store_reset(&p->weights);
    store_reset(&p->scores);
    mha_attention_plan plan;
    mha_status status =
        mha_attention_explain(ctx, &plan, p->out.view, &p->extras, p->q.view, p->k.view, p->v.view, &p->options);
    p->tensor_cores = !status && rounds_weights(plan.kernel);
    p->engine = p->tensor_cores || (!status && !strcmp(plan.kernel, "fused-engine"));
    return mha_attention_forward(ctx, p->out.view, &p->extras, p->q.view, p->k.view, p->v.view, &p->options);
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

problem *problem_make(const attention_case *c)
{
    problem *p = array(1, sizeof *p);
    rng r = rng_make(c->data_seed, 0);
    p->c = *c;
    draw_sequences(p, &r);
    make_inputs(p, &r);
    make_outputs(p, &r);
    problem_refresh(p);
    if (c->poison) {
        oracle_poison(p, &r);
        problem_refresh(p);
    }
    return p;
}

void problem_refresh(problem *p)
{
    make_options(p);
    oracle_ask(p);
    guard(p);
}

void problem_free(problem *p)
{
    store *all[] = {&p->q,     &p->k,   &p->v,   &p->mask,    &p->bias,    &p->alibi,
                    &p->sinks, &p->out, &p->lse, &p->softmax, &p->weights, &p->scores};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) store_free(all[n]);
    free(p->queries);
    free(p->padded);
    free(p->keys);
    free(p->key_lengths);
    free(p->offsets);
    free(p->query_starts);
    free(p->key_starts);
    oracle_free(p);
    free(p);
}

void *problem_out(const problem *p, int64_t b, int64_t h, int64_t i, int64_t e)
{
    return store_at(&p->out, outer(p->query_starts, b), h, inner(p->query_starts, b, i), e);
}

void *problem_lse(const problem *p, int64_t b, int64_t h, int64_t i)
{
    return store_at(&p->lse, outer(p->query_starts, b), h, inner(p->query_starts, b, i), 0);
}

void *problem_softmax(const problem *p, int64_t b, int64_t h, int64_t i, int64_t n)
{
    return store_at(&p->softmax, outer(p->query_starts, b), h, inner(p->query_starts, b, i), n);
}

void *problem_q(const problem *p, int64_t b, int64_t h, int64_t i, int64_t d)
{
    return store_at(&p->q, outer(p->query_starts, b), h, inner(p->query_starts, b, i), d);
}

void *problem_k(const problem *p, int64_t b, int64_t g, int64_t j, int64_t d)
{
    return store_at(&p->k, outer(p->key_starts, b), g, inner(p->key_starts, b, j), d);
}

void *problem_v(const problem *p, int64_t b, int64_t g, int64_t j, int64_t e)
{
    return store_at(&p->v, outer(p->key_starts, b), g, inner(p->key_starts, b, j), e);
}
