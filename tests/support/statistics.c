/* Statistics against the oracle.
 *
 * With dp what bounds.c allows the softmax and a few roundings of p, every bound follows:
 *
 *     entropy     sum dp (|log p| + 1)           effective   |1/S - 1/(S -+ dS)|, dS = sum dp (2 p + dp)
 *     largest     max dp, and so the n-th        mass, received, heatmap   sum dp
 *     distance    (sum d dp + D sum dp) / sum p  cosine, divergence        likewise, over all rows
 *
 * plus roundings of sums: a few u times the sum of absolute terms. */
#include "support/statistics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define U 0x1p-24

enum { ENTROPY, EFFECTIVE, LARGEST, DISTANCE, MASS, TOP_WEIGHTS, TOP_KEYS, RECEIVED, HEATMAP, DIVERGENCE, COSINE };

static const char *const names[STATISTICS] = {"entropy",  "effective", "largest", "distance",   "mass",  "top_weights",
                                              "top_keys", "received",  "heatmap", "divergence", "cosine"};

const char *statistics_name(int n) { return names[n]; }

static mha_tensor *field(mha_stats *s, int n)
{
    mha_tensor *all[STATISTICS] = {&s->entropy,  &s->effective, &s->largest, &s->distance,   &s->mass,  &s->top_weights,
                                   &s->top_keys, &s->received,  &s->heatmap, &s->divergence, &s->cosine};
    return all[n];
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

static void make_sets(statistics *s, rng *r)
{
    const attention_case *c = &s->p->c;
    int64_t count = rng_between(r, 0, 3), size[2] = {count, c->Tk};
    s->sets = store_make(r, MHA_BOOL, count ? 2 : -1, size, c->layout_rest);
    bool *set = array(count * c->Tk, sizeof *set);
    for (int64_t n = 0; n < count; n++)
        for (int64_t j = 0; j < c->Tk; j++) {
            set[n * c->Tk + j] = rng_chance(r, 0.4);
            store_set(&s->sets, n, j, 0, 0, set[n * c->Tk + j] ? (double)rng_between(r, 1, 255) : 0);
        }
    s->ref.sets = count;
    s->ref.set = set;
    s->options.sets = s->sets.view;
}

/* What a call may write: rows and keys of sequences, or all. */
static void allow(statistics *s, int n)
{
    const problem *p = s->p;
    store *to = &s->result[n];
    const int64_t *starts = n == RECEIVED ? p->key_starts : p->query_starts,
                  *rows = n == RECEIVED ? p->keys : p->padded;
    store_guard(to);
    if (n >= HEATMAP) {
        store_allow_all(to);
        return;
    }
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < p->c.H; h++)
            for (int64_t i = 0; i < rows[b]; i++)
                for (int64_t l = 0; l < (to->view.rank > 3 ? to->view.size[3] : 1); l++)
                    store_allow(to, starts ? 0 : b, h, starts ? starts[b] + i : i, l);
}

statistics *statistics_make(const attention_case *c)
{
    statistics *s = array(1, sizeof *s);
    attention_case with = *c;
    rng r = rng_make(c->data_seed, 4711);
    with.softmax = true;
    problem *p = s->p = problem_make(&with);
    s->options = (mha_stats_options)MHA_STATS_DEFAULTS;
    make_sets(s, &r);
    s->ref.columns = s->options.grid_columns = rng_chance(&r, 0.5) ? rng_between(&r, 1, 9) : 0;
    s->ref.first = s->options.grid_first = rng_between(&r, 0, 2);
    s->ref.heat_rows = rng_chance(&r, 0.3) ? c->Tq : rng_between(&r, 0, c->Tq + 3);
    s->ref.heat_cols = rng_chance(&r, 0.3) ? c->Tk : rng_between(&r, 0, c->Tk + 3);
    int64_t top = rng_between(&r, 0, 9), keys = c->ragged_k ? 1 : c->B, queries = c->ragged_q ? 1 : c->B;
    const int64_t row[4] = {queries, c->H, p->query_rows, 0}, key[3] = {keys, c->H, p->key_rows};
    const int64_t mass[4] = {row[0], row[1], row[2], 4 + s->ref.sets}, tops[4] = {row[0], row[1], row[2], top};
    const int64_t heat[4] = {c->B, c->H, s->ref.heat_rows, s->ref.heat_cols}, pair[3] = {c->B, c->H, c->H};
    const int64_t *sizes[STATISTICS] = {row, row, row, row, mass, tops, tops, key, heat, pair, pair};
    for (int n = 0; n < STATISTICS; n++) {
        int rank = n < MASS || n == RECEIVED || n >= DIVERGENCE ? 3 : 4;
        layout how = c->layout_rest == LAYOUT_BROADCAST ? LAYOUT_ANY : c->layout_rest;
        s->result[n] = store_make(&r, n == TOP_KEYS ? MHA_INT64 : MHA_FLOAT32, rank, sizes[n], how);
        allow(s, n);
    }
    return s;
}

static void drop(const void *owned) { free((void *)(uintptr_t)owned); }

static void forget(statistics *s)
{
    double *all[] = {s->ref.entropy,  s->ref.effective, s->ref.largest,    s->ref.distance, s->ref.mass,
                     s->ref.received, s->ref.heatmap,   s->ref.divergence, s->ref.cosine,   s->error};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) drop(all[n]);
}

void statistics_free(statistics *s)
{
    forget(s);
    drop(s->ref.set);
    store_free(&s->sets);
    for (int n = 0; n < STATISTICS; n++) store_free(&s->result[n]);
    problem_free(s->p);
    free(s);
}

mha_stats statistics_asked(const statistics *s)
{
    mha_stats want = s->want;
    for (int n = 0; n < STATISTICS; n++) *field(&want, n) = s->result[n].view;
    return want;
}

mha_status statistics_run(statistics *s, mha_context *ctx, int only)
{
    const problem *p = s->p;
    mha_stats want = s->want;
    mha_stats_options options = s->options;
    mha_status status = problem_run(s->p, ctx);
    if (status) return status;
    for (int n = 0; n < STATISTICS; n++) {
        store_reset(&s->result[n]);
        if (only < 0 || only == n) *field(&want, n) = s->result[n].view;
    }
    if (!want.mass.rank) options.sets = (mha_tensor)MHA_NO_TENSOR;
    return mha_attention_stats(ctx, &want, p->q.view, p->k.view, p->softmax.view, &p->options, &options);
}

/* ---- The answer ------------------------------------------------------------------------------------------------- */

void statistics_solve(statistics *s)
{
    problem *p = s->p;
    const attention_case *c = &p->c;
    int64_t heads = c->B * c->H, rows = heads * c->Tq;
    problem_solve(p);
    forget(s);
    s->ref.entropy = array(rows, sizeof(double));
    s->ref.effective = array(rows, sizeof(double));
    s->ref.largest = array(rows, sizeof(double));
    s->ref.distance = array(rows, sizeof(double));
    s->ref.mass = array(rows * (4 + s->ref.sets), sizeof(double));
    s->ref.received = array(heads * c->Tk, sizeof(double));
    s->ref.heatmap = array(heads * s->ref.heat_rows * s->ref.heat_cols, sizeof(double));
    s->ref.divergence = array(heads * c->H, sizeof(double));
    s->ref.cosine = array(heads * c->H, sizeof(double));
    s->error = array(rows * c->Tk, sizeof(double));
    ref_attention_stats(&p->ref, &s->ref, p->want.stage[REF_SOFTMAX]);
    for (int64_t n = 0; n < rows * c->Tk; n++) {
        s->error[n] = p->allowed.softmax[n] + 4 * U * p->want.stage[REF_SOFTMAX][n] + 1e-37;
    }
}

typedef struct verdict {
    char *why;
    size_t size;
} verdict;

static bool near(verdict v, const char *what, int64_t b, int64_t h, int64_t i, int64_t l, double got, double want,
                 double bound)
{
    if (fabs(got - want) <= bound) return true;
    snprintf(v.why, v.size, "%s (%lld,%lld,%lld,%lld): %.9g, not %.9g, off by %.2g where %.2g is allowed", what,
             (long long)b, (long long)h, (long long)i, (long long)l, got, want, fabs(got - want), bound);
    return false;
}

/* The largest n weights of a row, by simple selection. */
static bool check_top(const statistics *s, verdict v, int64_t b, int64_t h, int64_t i, double off)
{
    const problem *p = s->p;
    int64_t Tk = p->c.Tk, n = ((b * p->c.H + h) * p->c.Tq + i) * Tk, top = s->result[TOP_KEYS].view.size[3];
    int64_t batch = p->query_starts ? 0 : b, row = p->query_starts ? p->query_starts[b] + i : i;
    bool *taken = array(Tk, sizeof *taken), *seen = array(Tk, sizeof *seen), good = true;
    for (int64_t t = 0; t < top && good; t++) {
        int64_t best = -1, key = (int64_t)store_get(&s->result[TOP_KEYS], batch, h, row, t);
        double got = store_get(&s->result[TOP_WEIGHTS], batch, h, row, t);
        for (int64_t j = 0; j < Tk; j++)
            if (!taken[j] && (best < 0 || p->want.stage[REF_SOFTMAX][n + j] > p->want.stage[REF_SOFTMAX][n + best]))
                best = j;
        if (best >= 0) taken[best] = true;
        double want = best < 0 ? 0 : p->want.stage[REF_SOFTMAX][n + best];
        good = near(v, "top_weights", b, h, i, t, got, want, off);
        if (!good) break;
        if (key < 0 ? key != -1 || got != 0 : key >= Tk || seen[key]) {
            snprintf(v.why, v.size, "top_keys (%lld,%lld,%lld,%lld): %lld with weight %g", (long long)b, (long long)h,
                     (long long)i, (long long)t, (long long)key, got);
            good = false;
        } else if (key >= 0) {
            seen[key] = true;
            good = near(v, "weight of top_keys", b, h, i, t, p->want.stage[REF_SOFTMAX][n + key], got, off);
        }
    }
    free(taken);
    free(seen);
    return good;
}

static bool check_row(const statistics *s, verdict v, int64_t b, int64_t h, int64_t i)
{
    const problem *p = s->p;
    int64_t Tk = p->c.Tk, n = (b * p->c.H + h) * p->c.Tq + i, position = ref_position(&p->ref, b, i);
    int64_t batch = p->query_starts ? 0 : b, row = p->query_starts ? p->query_starts[b] + i : i;
    const double *w = p->want.stage[REF_SOFTMAX] + n * Tk, *e = s->error + n * Tk;
    bool places = false;
    double logs = 0, squares = 0, square_error = 0, most = 0, far = 0, far_error = 0, placed = 0, placed_error = 0;
    for (int64_t j = 0; j < Tk; j++) {
        double d = ref_distance(&s->ref, position, j);
        logs += (e[j] + 8 * U * w[j]) * (fabs(log(fmax(w[j], 1e-37))) + 1);
        squares += w[j] * w[j];
        square_error += e[j] * (2 * w[j] + e[j]) + 8 * U * w[j] * w[j];
        most = fmax(most, e[j]);
        if (d < 0) continue;
        places = true;
        far += w[j] * d, placed += w[j];
        far_error += e[j] * d + 40 * U * w[j] * d, placed_error += e[j] + 40 * U * w[j];
    }
    for (int m = 0; m < 4 + s->ref.sets; m++) {
        double bound = 0;
        for (int64_t j = 0; j < Tk; j++) bound += m < 4 ? fmax(most, 0) / (double)Tk : e[j] + 40 * U * w[j];
        if (!near(v, "mass", b, h, i, m, store_get(&s->result[MASS], batch, h, row, m),
                  s->ref.mass[n * (4 + s->ref.sets) + m], bound))
            return false;
    }
    double effective = s->ref.effective[n],
           worst = squares > square_error ? square_error / (squares - square_error) : 1e30;
    double shift = placed > placed_error ? (far_error + far / placed * placed_error) / (placed - placed_error) : 1e30;
    if (!places) shift = 0;
    return near(v, "entropy", b, h, i, 0, store_get(&s->result[ENTROPY], batch, h, row, 0), s->ref.entropy[n], logs) &&
           near(v, "effective", b, h, i, 0, store_get(&s->result[EFFECTIVE], batch, h, row, 0), effective,
                effective * (worst + 2 * U)) &&
           near(v, "largest", b, h, i, 0, store_get(&s->result[LARGEST], batch, h, row, 0), s->ref.largest[n], most) &&
           near(v, "distance", b, h, i, 0, store_get(&s->result[DISTANCE], batch, h, row, 0), s->ref.distance[n],
                shift + 2 * U * s->ref.distance[n]) &&
           check_top(s, v, b, h, i, most);
}

/* Sums over rows: received and heatmap of one head. */
static bool check_columns(const statistics *s, verdict v, int64_t b, int64_t h)
{
    const problem *p = s->p;
    int64_t Tk = p->c.Tk, R = s->ref.heat_rows, C = s->ref.heat_cols, head = b * p->c.H + h;
    int64_t keys = p->key_lengths ? p->key_lengths[b] : p->keys[b];
    double *received = array(Tk, sizeof *received), *heat = array(R * C, sizeof *heat);
    bool good = true;
    for (int64_t i = 0; i < p->queries[b]; i++)
        for (int64_t j = 0; j < keys; j++) {
            int64_t n = (head * p->c.Tq + i) * Tk + j;
            double e = s->error[n] + 80 * U * p->want.stage[REF_SOFTMAX][n];
            received[j] += e + 0x1p-50 * (double)p->queries[b]; /* it is counted in fixed point */
            if (R && C) heat[i * R / p->queries[b] * C + j * C / keys] += e;
        }
    for (int64_t j = 0; good && j < p->keys[b]; j++)
        good =
            near(v, "received", b, h, j, 0,
                 store_get(&s->result[RECEIVED], p->key_starts ? 0 : b, h, p->key_starts ? p->key_starts[b] + j : j, 0),
                 s->ref.received[head * Tk + j], received[j]);
    for (int64_t n = 0; good && n < R * C; n++)
        good = near(v, "heatmap", b, h, n / C, n % C, store_get(&s->result[HEATMAP], b, h, n / C, n % C),
                    s->ref.heatmap[head * R * C + n], heat[n]);
    free(received);
    free(heat);
    return good;
}

static bool check_pair(const statistics *s, verdict v, int64_t b, int64_t x, int64_t y)
{
    const problem *p = s->p;
    int64_t map = p->c.Tq * p->c.Tk, H = p->c.H;
    const double *pa = p->want.stage[REF_SOFTMAX] + (b * H + x) * map,
                 *pb = p->want.stage[REF_SOFTMAX] + (b * H + y) * map;
    const double *ea = s->error + (b * H + x) * map, *eb = s->error + (b * H + y) * map;
    double dot = 0, aa = 0, bb = 0, ae = 0, be = 0, logs = 0, rows = 0;
    for (int64_t i = 0; i < p->c.Tq; i++) {
        bool seen = false;
        for (int64_t n = i * p->c.Tk; n < (i + 1) * p->c.Tk; n++) {
            double far = fabs(log(fmax(fmin(pa[n], pb[n]) / 2, 1e-37))) + 2;
            dot += ea[n] * pb[n] + pa[n] * eb[n] + ea[n] * eb[n] + 8 * U * pa[n] * pb[n];
            aa += pa[n] * pa[n], bb += pb[n] * pb[n];
            ae += ea[n] * (2 * pa[n] + ea[n]) + 8 * U * pa[n] * pa[n];
            be += eb[n] * (2 * pb[n] + eb[n]) + 8 * U * pb[n] * pb[n];
            logs += (ea[n] + eb[n]) * far + 8 * U * (pa[n] + pb[n]) * far;
            seen = seen || pa[n] > 0 || pb[n] > 0;
        }
        rows += seen;
    }
    double relative = ae < aa / 2 && be < bb / 2 ? ae / aa + be / bb : 2, norms = sqrt(aa * bb);
    double wanted = s->ref.cosine[(b * H + x) * H + y];
    return near(v, "divergence", b, x, y, 0, store_get(&s->result[DIVERGENCE], b, x, y, 0),
                s->ref.divergence[(b * H + x) * H + y], rows > 0 ? logs / rows : 0) &&
           near(v, "cosine", b, x, y, 0, store_get(&s->result[COSINE], b, x, y, 0), wanted,
                norms > 0 ? 2 * dot / norms + wanted * relative + 4 * U : 0);
}

bool statistics_check(const statistics *s, char *why, size_t size)
{
    const problem *p = s->p;
    verdict v = {why, size};
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t h = 0; h < p->c.H; h++) {
            for (int64_t i = 0; i < p->padded[b]; i++)
                if (!check_row(s, v, b, h, i)) return false;
            if (!check_columns(s, v, b, h)) return false;
            for (int64_t other = 0; other < p->c.H; other++)
                if (!check_pair(s, v, b, h, other)) return false;
        }
    for (int n = 0; n < STATISTICS; n++)
        if (!store_intact(&s->result[n])) {
            snprintf(why, size, "%s: written where nothing belongs", names[n]);
            return false;
        }
    if (store_intact(&p->q) && store_intact(&p->k) && store_intact(&p->mask) && store_intact(&p->bias)) return true;
    snprintf(why, size, "an input was written to");
    return false;
}
