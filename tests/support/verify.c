/* The outputs of a call against the oracle, element by element. A number that no type of the output can hold (a score
 * beyond float32) must come out as the infinity of its sign; NaN is never right. */
#include "support/problem.h"

#include <stdio.h>
#include <string.h>

/* The message of the first mismatch. */
typedef struct verdict {
    char *why;
    size_t size;
} verdict;

/* A 16-bit output is rounded once more. */
static bool near(double got, double want, double bound, mha_type type)
{
    if (isnan(got)) return false;
    if (isinf(want)) return got == want;
    double low = round_to(type, want - bound), high = round_to(type, want + bound);
    if (isinf(got)) return got == low || got == high;
    return fabs(got - want) <= bound + (type == MHA_FLOAT32 ? 0 : half_ulp(type, fmax(fabs(want), fabs(got))));
}

static bool complain(verdict v, const char *what, const int64_t at[4], double got, double want, double bound)
{
    snprintf(v.why, v.size, "%s[%lld,%lld,%lld,%lld] is %.9g, the oracle says %.9g +- %.2g", what, (long long)at[0],
             (long long)at[1], (long long)at[2], (long long)at[3], got, want, bound);
    return false;
}

/* ---- Rows: out and lse ------------------------------------------------------------------------------------------ */

/* 16-bit outputs: at most twice the naive computation's error on top of what float32 may lose. Only where float32 may
 * lose so much that the rounding can go to another neighbour is half a unit of the type added. */
static double out_bound(const problem *p, int64_t head, double float32, double want, double got)
{
    mha_type type = p->c.type_out;
    double half = half_ulp(type, fmax(fabs(want), fabs(got)));
    if (type == MHA_FLOAT32) return float32;
    return 2 * p->allowed.naive[head] + 2 * float32 + (float32 > half / 8 ? half : 0);
}

static bool check_out_row(const problem *p, verdict v, int64_t b, int64_t h, int64_t i)
{
    const attention_case *c = &p->c;
    int64_t row = (b * c->H + h) * c->Tq + i;
    for (int64_t e = 0; e < c->E; e++) {
        double got = element_get(problem_out(p, b, h, i, e), c->type_out), want = p->want.out[row * c->E + e];
        double rounded = p->engine ? p->allowed.rounded[row * c->E + e] : 0, float32 = p->allowed.out[row * c->E + e];
        double bound = out_bound(p, b * c->H + h, float32, want, got) + rounded;
        bool good = isfinite(got) ? fabs(got - want) <= bound : near(got, want, float32, c->type_out);
        if (!good) return complain(v, "out", (int64_t[]){b, h, i, e}, got, want, bound);
    }
    return true;
}

/* A maximum and a sum that make lse; a row that sees nothing has (-infinity, 0). What the maximum is exactly is left to
 * the library, and it may be infinite where scores are huge. */
static bool check_softmax(const problem *p, verdict v, int64_t b, int64_t h, int64_t i, double want, double bound)
{
    double max = element_get(problem_softmax(p, b, h, i, 0), MHA_FLOAT32);
    double sum = element_get(problem_softmax(p, b, h, i, 1), MHA_FLOAT32), got = max + log(sum);
    bool nobody = want == -INFINITY, good = nobody ? max == -INFINITY && sum == 0 : sum > 0;
    if (!nobody) good = good && (isinf(max) ? fabs(want) > 1e8 : fabs(got - want) <= bound);
    return good || complain(v, "softmax", (int64_t[]){b, h, i, 0}, got, want, bound);
}

static bool check_rows(const problem *p, verdict v)
{
    const attention_case *c = &p->c;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->H; h++)
            for (int64_t i = 0; i < p->padded[b]; i++) {
                int64_t row = (b * c->H + h) * c->Tq + i;
                if (!check_out_row(p, v, b, h, i)) return false;
                if (c->softmax && !check_softmax(p, v, b, h, i, p->want.lse[row], p->allowed.lse[row])) return false;
                if (!c->lse) continue;
                double got = element_get(problem_lse(p, b, h, i), MHA_FLOAT32);
                if (!near(got, p->want.lse[row], p->allowed.lse[row], MHA_FLOAT32))
                    return complain(v, "lse", (int64_t[]){b, h, i, 0}, got, p->want.lse[row], p->allowed.lse[row]);
            }
    return true;
}

/* ---- Maps: weights, their mean, scores -------------------------------------------------------------------------- */

static bool check_map(const problem *p, verdict v, const char *what, const store *s, const double *want,
                      const double *allowed)
{
    const attention_case *c = &p->c;
    int64_t n = 0;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t h = 0; h < c->H; h++)
            for (int64_t i = 0; i < c->Tq; i++)
                for (int64_t j = 0; j < c->Tk; j++, n++) {
                    double got = store_get(s, b, h, i, j);
                    if (!near(got, want[n], allowed[n], s->view.type))
                        return complain(v, what, (int64_t[]){b, h, i, j}, got, want[n], allowed[n]);
                }
    return true;
}

static bool check_mean(const problem *p, verdict v)
{
    const attention_case *c = &p->c;
    for (int64_t b = 0; b < c->B; b++)
        for (int64_t i = 0; i < c->Tq; i++)
            for (int64_t j = 0; j < c->Tk; j++) {
                double got = store_get(&p->weights, b, i, j, 0), want = p->want.mean[(b * c->Tq + i) * c->Tk + j];
                double bound = 0;
                for (int64_t h = 0; h < c->H; h++)
                    bound += p->allowed.weights[((b * c->H + h) * c->Tq + i) * c->Tk + j] / (double)c->H;
                bound += (want + bound) * 0x1p-24 * (double)(c->H + 2);
                if (!near(got, want, bound, c->type_weights))
                    return complain(v, "mean weights", (int64_t[]){b, i, j, 0}, got, want, bound);
            }
    return true;
}

static bool check_maps(const problem *p, verdict v)
{
    int stage = p->c.scores;
    const bounds *a = &p->allowed;
    const double *allowed[] = {a->scores[0], a->scores[1], a->scores[2], a->softmax, a->weights};
    if (stage >= 0 && !check_map(p, v, "scores", &p->scores, p->want.stage[stage], allowed[stage])) return false;
    if (p->c.weights == 2) return check_mean(p, v);
    if (!p->c.weights) return true;
    return check_map(p, v, "weights", &p->weights, p->want.stage[REF_DROPPED], p->allowed.weights);
}

/* ---- Writes where none belong ----------------------------------------------------------------------------------- */

static bool check_guards(const problem *p, verdict v)
{
    const store *all[] = {&p->q,     &p->k,   &p->v,   &p->mask,    &p->bias,    &p->alibi,
                          &p->sinks, &p->out, &p->lse, &p->softmax, &p->weights, &p->scores};
    const char *name[] = {"q",     "k",   "v",   "mask",    "bias",    "alibi_slopes",
                          "sinks", "out", "lse", "softmax", "weights", "scores"};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (!store_intact(all[n])) {
            snprintf(v.why, v.size, "%s: memory changed that the call must not write", name[n]);
            return false;
        }
    return true;
}

bool problem_check(const problem *p, char *why, size_t size)
{
    verdict v = {why, size};
    return check_guards(p, v) && check_rows(p, v) && check_maps(p, v);
}
