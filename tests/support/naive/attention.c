/* Attention on the naive table: a problem becomes the oracle's question, and the answer goes where the problem says.
 *
 * The oracle has a batch of sequences of unlike length, each at the front of its rows; here is where they lie in the
 * tensors of a ragged call. */
#include "support/naive/naive.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Rows of sequences ------------------------------------------------------------------------------------------ */

static int64_t width_of(mha_tensor t) { return t.rank == 4 ? t.size[3] : 1; }

double *naive_dense(const mha_problem *p, mha_tensor from, bool of_keys)
{
    int64_t heads = from.size[1], most = of_keys ? p->Tk : p->Tq, width = width_of(from);
    double *dense = array(p->B * heads * most * width, sizeof *dense);
    for (int64_t b = 0; b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        int64_t batch = of_keys ? s.key_batch : s.query_batch, first = of_keys ? s.key_row : s.query_row;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t n = 0; n < (of_keys ? s.keys : s.queries); n++)
                for (int64_t d = 0; d < width; d++)
                    dense[((b * heads + h) * most + n) * width + d] = naive_get(from, batch, h, first + n, d);
    }
    return dense;
}

void naive_put(const mha_problem *p, mha_tensor to, const double *from, bool of_keys)
{
    int64_t heads = to.size[1], most = of_keys ? p->Tk : p->Tq, width = width_of(to);
    for (int64_t b = 0; to.rank && b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        int64_t batch = of_keys ? s.key_batch : s.query_batch, first = of_keys ? s.key_row : s.query_row;
        for (int64_t h = 0; h < heads; h++)
            for (int64_t n = 0; n < (of_keys ? s.keys : s.padded); n++)
                for (int64_t d = 0; d < width; d++)
                    naive_set(to, batch, h, first + n, d, from[((b * heads + h) * most + n) * width + d]);
    }
}

void naive_put_heads(const mha_problem *p, mha_tensor to, const double *from)
{
    for (int64_t h = 0; to.rank && h < p->H; h++) {
        double sum = 0;
        for (int64_t b = 0; b < p->B; b++) sum += from[b * p->H + h];
        for (int64_t b = 0; to.rank == 2 && b < to.size[0]; b++) /* a call without rows and keys has no sequences */
            naive_set(to, b, h, 0, 0, b < p->B ? from[b * p->H + h] : 0);
        if (to.rank == 1) naive_set(to, h, 0, 0, 0, sum);
    }
}

/* ---- The question ----------------------------------------------------------------------------------------------- */

/* Mask and bias of the rows and keys that are there: beyond them the memory may hold anything. */
static void ask_maps(naive_question *question)
{
    const mha_problem *p = question->problem;
    mha_tensor mask = p->options.mask, bias = p->options.bias;
    int64_t count = p->B * p->H * p->Tq * p->Tk;
    bool *seen = mask.rank ? array(count, sizeof *seen) : NULL;
    double *added = bias.rank ? array(count, sizeof *added) : NULL;
    for (int64_t row = 0; row < p->B * p->H * p->Tq; row++) {
        int64_t b = row / p->Tq / p->H, h = row / p->Tq % p->H, i = row % p->Tq;
        mha_sequence s = mha_sequence_get(p, b);
        for (int64_t j = 0; i < s.queries && j < s.keys; j++) {
            if (seen) seen[row * p->Tk + j] = naive_get(mask, b, h, i, j) != 0;
            if (added) added[row * p->Tk + j] = naive_get(bias, b, h, i, j);
        }
    }
    question->ref.mask = seen;
    question->ref.bias = added;
}

static void ask_heads(naive_question *question)
{
    const mha_problem *p = question->problem;
    const mha_attention_options *o = &p->options;
    double *slopes = o->alibi_slopes.rank ? array(p->B * p->H, sizeof *slopes) : NULL;
    double *sinks = o->sinks.rank ? array(p->H, sizeof *sinks) : NULL;
    for (int64_t h = 0; h < p->H; h++) {
        if (sinks) sinks[h] = naive_get(o->sinks, 0, h, 0, 0);
        for (int64_t b = 0; slopes && b < p->B; b++) slopes[b * p->H + h] = naive_get(o->alibi_slopes, b, h, 0, 0);
    }
    question->ref.alibi_slopes = slopes;
    question->ref.sinks = sinks;
}

static void ask_sequences(naive_question *question)
{
    const mha_problem *p = question->problem;
    int64_t *queries = array(p->B, sizeof *queries), *keys = array(p->B, sizeof *keys);
    int64_t *lengths = array(p->B, sizeof *lengths), *offsets = array(p->B, sizeof *offsets);
    for (int64_t b = 0; b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        queries[b] = s.queries;
        keys[b] = s.keys;
        lengths[b] = s.length;
        offsets[b] = s.offset;
    }
    question->ref.queries = queries;
    question->ref.keys = keys;
    question->ref.key_lengths = lengths;
    question->ref.align = REF_OFFSET;
    question->ref.offsets = offsets;
}

static void answer(naive_question *question)
{
    const ref_attention *a = &question->ref;
    int64_t rows = a->B * a->H * a->Tq;
    ref_result *r = &question->result;
    r->out = array(rows * a->E, sizeof *r->out);
    r->lse = array(rows, sizeof *r->lse);
    r->mean = array(a->B * a->Tq * a->Tk, sizeof *r->mean);
    for (int s = 0; s < REF_STAGES; s++) r->stage[s] = array(rows * a->Tk, sizeof *r->stage[s]);
    ref_attention_forward(a, r);
}

void naive_ask(naive_question *question, const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    *question = (naive_question){.problem = p,
                                 .ref = {.B = p->B,
                                         .H = p->H,
                                         .G = p->G,
                                         .Tq = p->Tq,
                                         .Tk = p->Tk,
                                         .D = p->D,
                                         .E = p->E,
                                         .scale = (double)o->scale,
                                         .softcap = (double)o->softcap,
                                         .causal = o->causal,
                                         .window_left = o->window_left,
                                         .window_right = o->window_right,
                                         .dropout = (double)o->dropout,
                                         .dropout_seed = o->dropout_seed,
                                         .dropout_stream = o->dropout_stream}};
    question->ref.q = naive_dense(p, p->q, false);
    question->ref.k = naive_dense(p, p->k, true);
    question->ref.v = naive_dense(p, p->v, true);
    ask_sequences(question);
    ask_maps(question);
    ask_heads(question);
    answer(question);
}

/* The arrays are the oracle's to read and this file's to own. */
static void drop(const void *owned) { free((void *)(uintptr_t)owned); }

void naive_forget(naive_question *question)
{
    const ref_attention *a = &question->ref;
    const void *owned[] = {a->q,       a->k,    a->v,    a->queries,      a->keys, a->key_lengths,
                           a->offsets, a->mask, a->bias, a->alibi_slopes, a->sinks};
    for (size_t n = 0; n < sizeof owned / sizeof *owned; n++) drop(owned[n]);
    free(question->result.out);
    free(question->result.lse);
    free(question->result.mean);
    for (int s = 0; s < REF_STAGES; s++) free(question->result.stage[s]);
}

/* ---- The softmax ------------------------------------------------------------------------------------------------ */

/* The largest of a row's scores and the sum of exp(score - it), the sink included. Not from lse, which has no bits left for
 * the sum where scores are large. */
static naive_softmax softmax_of_scores(const naive_question *question, int64_t b, int64_t h, int64_t i)
{
    const ref_attention *a = &question->ref;
    const double *scores = question->result.stage[REF_MASKED] + ((b * a->H + h) * a->Tq + i) * a->Tk;
    double max = -INFINITY, sum = 0;
    bool blind = true;
    for (int64_t j = 0; j < a->Tk; j++) {
        blind = blind && !ref_visible(a, b, h, i, j);
        max = fmax(max, scores[j]);
    }
    if (blind) return (naive_softmax){-INFINITY, 0};
    if (a->sinks) max = fmax(max, a->sinks[h]);
    for (int64_t j = 0; j < a->Tk; j++)
        if (ref_visible(a, b, h, i, j)) sum += exp(scores[j] - max);
    return (naive_softmax){max, sum + (a->sinks ? exp(a->sinks[h] - max) : 0)};
}

naive_softmax naive_softmax_of(const naive_question *question, const mha_sequence *s, int64_t h, int64_t i)
{
    mha_tensor given = question->problem->extras.softmax;
    if (given.rank) {
        double max = naive_get(given, s->query_batch, h, s->query_row + i, 0);
        double sum = naive_get(given, s->query_batch, h, s->query_row + i, 1);
        if (isfinite(max) || sum == 0) return (naive_softmax){max, sum};
    }
    return softmax_of_scores(question, s->b, h, i);
}

void naive_put_softmax(mha_tensor to, const mha_sequence *s, int64_t h, int64_t i, naive_softmax row)
{
    double max = round_to(MHA_FLOAT32, row.max), off = row.max - max; /* by which it moves when it is kept */
    bool held = row.sum == 0 || fabs(off) < 64;
    if (row.sum != 0) row.sum *= held ? exp(off) : 1;
    naive_set(to, s->query_batch, h, s->query_row + i, 0, held ? max : INFINITY);
    naive_set(to, s->query_batch, h, s->query_row + i, 1, row.sum);
}

/* ---- The answer ------------------------------------------------------------------------------------------------- */

static void put_all_softmax(const naive_question *question)
{
    const mha_problem *p = question->problem;
    for (int64_t b = 0; p->extras.softmax.rank && b < p->B; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        for (int64_t h = 0; h < p->H; h++)
            for (int64_t i = 0; i < s.padded; i++)
                naive_put_softmax(p->extras.softmax, &s, h, i, softmax_of_scores(question, b, h, i));
    }
}

/* A map (B,heads,Tq,Tk), and `nothing` where the tensor is larger. */
static void put_map(const mha_problem *p, mha_tensor to, const double *from, double nothing)
{
    for (int64_t b = 0; to.rank && b < to.size[0]; b++)
        for (int64_t h = 0; h < to.size[1]; h++)
            for (int64_t i = 0; i < to.size[2]; i++)
                for (int64_t j = 0; j < to.size[3]; j++) {
                    bool there = i < p->Tq && j < p->Tk;
                    double value = there ? from[((b * to.size[1] + h) * p->Tq + i) * p->Tk + j] : nothing;
                    naive_set(to, b, h, i, j, value);
                }
}

/* (B,Tq,Tk) as (B,1,Tq,Tk). */
static mha_tensor with_one_head(mha_tensor t)
{
    return (mha_tensor){
        t.data, t.type, 4, {t.size[0], 1, t.size[1], t.size[2]}, {t.stride[0], 0, t.stride[1], t.stride[2]}};
}

mha_status naive_attention_forward(const mha_problem *p)
{
    naive_question question;
    mha_tensor weights = p->extras.weights;
    mha_stage stage = p->extras.scores_stage;
    if (p->ctx->rehearsing) return MHA_OK;
    naive_ask(&question, p);
    const ref_result *r = &question.result;
    naive_put(p, p->out, r->out, false);
    naive_put(p, p->extras.lse, r->lse, false);
    put_all_softmax(&question);
    if (weights.rank == 3) put_map(p, with_one_head(weights), r->mean, 0);
    else put_map(p, weights, r->stage[REF_DROPPED], 0);
    put_map(p, p->extras.scores, r->stage[stage], stage < MHA_STAGE_SOFTMAX ? -INFINITY : 0);
    naive_forget(&question);
    return MHA_OK;
}

mha_status naive_attention_explain(const mha_problem *p, mha_attention_plan *plan)
{
    *plan = (mha_attention_plan){
        .isa = p->ctx->isa, .kernel = "naive", .threads = 1, .tile_rows = p->Tq, .tile_keys = p->Tk, .pieces = 1};
    snprintf(plan->why, sizeof plan->why, "the context's device is the naive one of the tests");
    return MHA_OK;
}

mha_status naive_attention_explain_backward(const mha_gradient_call *call, mha_attention_plan *plan)
{
    return naive_attention_explain(&call->problem, plan);
}

mha_status naive_attention_explain_stats(const mha_stats_call *call, mha_attention_plan *plan)
{
    return naive_attention_explain(&call->problem, plan);
}
