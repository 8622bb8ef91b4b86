/* Statistics of heads on the naive table: the oracle's, of weights that follow from the softmax of the call. */
#include "support/naive/naive.h"

#include <stdlib.h>

/* p (B,H,Tq,Tk): weights before dropout, rounded as if they were stored: what is 0 then has no place among the largest. */
static double *weigh(const naive_question *question)
{
    const ref_attention *a = &question->ref;
    const double *scores = question->result.stage[REF_MASKED];
    double *p = array(a->B * a->H * a->Tq * a->Tk, sizeof *p);
    for (int64_t b = 0; b < a->B; b++) {
        mha_sequence s = mha_sequence_get(question->problem, b);
        for (int64_t h = 0; h < a->H; h++)
            for (int64_t i = 0; i < s.queries; i++) {
                naive_softmax soft = naive_softmax_of(question, &s, h, i);
                int64_t at = ((b * a->H + h) * a->Tq + i) * a->Tk;
                for (int64_t j = 0; j < a->Tk; j++)
                    if (ref_visible(a, b, h, i, j))
                        p[at + j] = round_to(MHA_FLOAT32, exp(scores[at + j] - soft.max) / soft.sum);
            }
    }
    return p;
}

/* The largest weight of a row that has not been taken; the first of equals, -1 if only zeros are left. */
static int64_t next_of(double *weights, int64_t Tk)
{
    int64_t best = -1;
    for (int64_t j = 0; j < Tk; j++)
        if (weights[j] > 0 && (best < 0 || weights[j] > weights[best])) best = j;
    return best;
}

/* Takes the weights out of p, one after another, so it comes last. */
static void put_tops(const mha_stats_call *call, double *p)
{
    const mha_problem *problem = &call->problem;
    mha_tensor weights = call->want.top_weights, keys = call->want.top_keys;
    int64_t count = weights.rank ? weights.size[3] : keys.rank ? keys.size[3] : 0, rows = problem->B * problem->H;
    double *best = array(rows * problem->Tq * count, sizeof *best), *whose = array(rows * problem->Tq * count, 8);
    for (int64_t n = 0; n < rows * problem->Tq * count; n++) {
        double *row = p + n / count * problem->Tk;
        int64_t j = next_of(row, problem->Tk);
        best[n] = j < 0 ? 0 : row[j];
        whose[n] = (double)j;
        if (j >= 0) row[j] = 0;
    }
    naive_put(problem, weights, best, false);
    naive_put(problem, keys, whose, false);
    free(best);
    free(whose);
}

/* A dense array of the sizes of a tensor that has one place for each sequence. */
static void put_whole(mha_tensor to, const double *from)
{
    int64_t last = to.rank == 4 ? to.size[3] : 1;
    for (int64_t n = 0; to.rank && n < to.size[0] * to.size[1] * to.size[2] * last; n++)
        naive_set(to, n / last / to.size[2] / to.size[1], n / last / to.size[2] % to.size[1], n / last % to.size[2],
                  n % last, from[n]);
}

static bool *ask_sets(const mha_stats_call *call)
{
    mha_tensor sets = call->options.sets;
    int64_t Tk = call->problem.Tk;
    bool *set = sets.rank ? array(sets.size[0] * Tk, sizeof *set) : NULL;
    for (int64_t n = 0; set && n < sets.size[0] * Tk; n++)
        set[n] = n % Tk < sets.size[1] && naive_get(sets, n / Tk, n % Tk, 0, 0) != 0;
    return set;
}

static ref_stats make(const mha_stats_call *call, const bool *set)
{
    const mha_problem *p = &call->problem;
    const mha_stats *w = &call->want;
    int64_t heads = p->B * p->H, rows = heads * p->Tq, heat_rows = w->heatmap.rank ? w->heatmap.size[2] : 0;
    int64_t heat_cols = w->heatmap.rank ? w->heatmap.size[3] : 0, sets = set ? call->options.sets.size[0] : 0;
    return (ref_stats){.sets = sets,
                       .set = set,
                       .columns = call->options.grid_columns,
                       .first = call->options.grid_first,
                       .heat_rows = heat_rows,
                       .heat_cols = heat_cols,
                       .entropy = array(rows, sizeof(double)),
                       .effective = array(rows, sizeof(double)),
                       .largest = array(rows, sizeof(double)),
                       .distance = array(rows, sizeof(double)),
                       .mass = array(rows * (4 + sets), sizeof(double)),
                       .received = array(heads * p->Tk, sizeof(double)),
                       .heatmap = array(heads * heat_rows * heat_cols, sizeof(double)),
                       .divergence = array(heads * p->H, sizeof(double)),
                       .cosine = array(heads * p->H, sizeof(double))};
}

static void put(const mha_stats_call *call, const ref_stats *s)
{
    const mha_problem *p = &call->problem;
    const mha_stats *w = &call->want;
    naive_put(p, w->entropy, s->entropy, false);
    naive_put(p, w->effective, s->effective, false);
    naive_put(p, w->largest, s->largest, false);
    naive_put(p, w->distance, s->distance, false);
    naive_put(p, w->mass, s->mass, false);
    naive_put(p, w->received, s->received, true);
    put_whole(w->heatmap, s->heatmap);
    put_whole(w->divergence, s->divergence);
    put_whole(w->cosine, s->cosine);
}

mha_status naive_attention_stats(const mha_stats_call *call)
{
    naive_question question;
    if (call->problem.ctx->rehearsing) return MHA_OK;
    naive_ask(&question, &call->problem);
    bool *set = ask_sets(call);
    double *p = weigh(&question);
    ref_stats s = make(call, set);
    ref_attention_stats(&question.ref, &s, p);
    put(call, &s);
    put_tops(call, p);
    double *owned[] = {s.entropy,  s.effective, s.largest,    s.distance, s.mass,
                       s.received, s.heatmap,   s.divergence, s.cosine,   p};
    for (size_t n = 0; n < sizeof owned / sizeof *owned; n++) free(owned[n]);
    free(set);
    naive_forget(&question);
    return MHA_OK;
}
