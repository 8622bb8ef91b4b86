/* The library's results for a problem of layers.h, compared with the oracle's. */
#include "layer/layers.h"
#include <stdio.h>

/* How far numbers may be off: collects the largest of what is wanted and the largest difference. */
typedef struct gap {
    double largest, off;
} gap;

static void see(gap *g, double want, double have)
{
    double off = fabs(want - have);
    if (fabs(want) > g->largest) g->largest = fabs(want);
    if (!(off <= g->off)) g->off = isnan(off) ? INFINITY : off;
}

static bool near(const layer_problem *p, gap g, double size, mha_type type, const char *name, char *why, size_t room)
{
    bool half = p->c.options.compute == MHA_BFLOAT16;
    double relative = half ? 4e-2 : 3e-6, rounding = type == MHA_BFLOAT16 ? 0x1p-8 : type == MHA_FLOAT16 ? 0x1p-11 : 0;
    double bound = relative * (g.largest + size) + rounding * g.largest;
    if (g.off <= bound) return true;
    snprintf(why, room, "%s is off by %.3g, may be %.3g (largest %.3g)", name, g.off, bound, g.largest);
    return false;
}

static bool check_rows(const layer_problem *p, const store *have, const int64_t *starts, const int64_t *rows,
                       const double *want, int64_t T, double before, double size, const char *name, char *why,
                       size_t room)
{
    gap g = {0, 0};
    int64_t W = have->view.size[2];
    for (int64_t b = 0; b < p->c.B; b++)
        for (int64_t t = 0; t < rows[b]; t++)
            for (int64_t m = 0; m < W; m++)
                see(&g, want[(b * T + t) * W + m] + before, layer_row_at(have, starts, b, t, m));
    return near(p, g, size, have->view.type, name, why, room);
}

static bool check_weights(const layer_problem *p, char *why, size_t room)
{
    gap g = {0, 0};
    mha_tensor t = p->weights.view;
    int64_t H = p->c.options.heads, columns = p->c.Tk + ref_layer_extra(&p->ref);
    for (int64_t b = 0; t.rank && b < p->c.B; b++)
        for (int64_t i = 0; i < p->c.Tq; i++) /* also past the end of a sequence, where all is zero */
            for (int64_t j = 0; j < columns; j++) {
                if (t.rank == 3)
                    see(&g, p->want_mean[(b * p->c.Tq + i) * columns + j], store_get(&p->weights, b, i, j, 0));
                for (int64_t h = 0; t.rank == 4 && h < H; h++)
                    see(&g, p->want_weights[((b * H + h) * p->c.Tq + i) * columns + j],
                        store_get(&p->weights, b, h, i, j));
            }
    return near(p, g, 0.1, MHA_FLOAT32, "weights", why, room);
}

/* Of every row of a sequence; minus infinity where it sees no key. */
static bool check_lse(const layer_problem *p, char *why, size_t room)
{
    gap g = {0, 0};
    int64_t H = p->c.options.heads;
    for (int64_t b = 0; p->lse.view.rank && b < p->c.B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < p->queries[b]; i++) {
                double want = p->want_lse[(b * H + h) * p->c.Tq + i];
                double have =
                    p->c.ragged ? store_get(&p->lse, 0, h, p->query_starts[b] + i, 0) : store_get(&p->lse, b, h, i, 0);
                if (isinf(want) || isinf(have)) see(&g, 0, want == have ? 0 : INFINITY);
                else see(&g, want, have);
            }
    return near(p, g, 1, MHA_FLOAT32, "lse", why, room);
}

/* Where row t of sequence b lies in what is between: the axes 0 and 2. */
static void place_between(const layer_problem *p, int n, int64_t b, int64_t t, int64_t at[2])
{
    const int64_t *starts = layer_between_keys(n) ? p->key_starts : p->query_starts;
    at[0] = p->c.ragged ? 0 : b;
    at[1] = p->c.ragged ? starts[b] + t : t;
}

/* Every row of a sequence, with the zeros of padding. */
static bool check_between(const layer_problem *p, char *why, size_t room)
{
    static const char *const names[BETWEEN] = {"q", "k", "v", "heads"};
    for (int n = 0; n < BETWEEN; n++) {
        const store *s = &p->between[n];
        int64_t heads = s->view.size[1], W = s->view.size[3], T = layer_between_keys(n) ? p->c.Tk : p->c.Tq, at[2];
        const int64_t *rows = layer_between_keys(n) ? p->keys : p->padded;
        gap g = {0, 0};
        for (int64_t b = 0; s->view.rank && b < p->c.B; b++)
            for (int64_t h = 0; h < heads; h++)
                for (int64_t i = 0; i < rows[b] * W; i++) {
                    place_between(p, n, b, i / W, at);
                    see(&g, p->want_between[n][(b * heads + h) * T * W + i], store_get(s, at[0], h, at[1], i % W));
                }
        if (!near(p, g, 1, s->view.type, names[n], why, room)) return false;
    }
    return true;
}

/* Rows that belong to no sequence may not change. */
static void guard_between(layer_problem *p)
{
    for (int n = 0; n < BETWEEN; n++) {
        store *s = &p->between[n];
        const int64_t *rows = layer_between_keys(n) ? p->keys : p->padded;
        int64_t at[2];
        store_guard(s);
        for (int64_t b = 0; s->view.rank && b < p->c.B; b++)
            for (int64_t h = 0; h < s->view.size[1]; h++)
                for (int64_t i = 0; i < rows[b] * s->view.size[3]; i++) {
                    place_between(p, n, b, i / s->view.size[3], at);
                    store_allow(s, at[0], h, at[1], i % s->view.size[3]);
                }
    }
}

static bool check_forward(const layer_problem *p, char *why, size_t room)
{
    const int64_t *starts = p->c.ragged ? p->query_starts : NULL;
    return check_rows(p, &p->out, starts, p->padded, p->want_out, p->c.Tq, 0, 1, "out", why, room) &&
           check_weights(p, why, room) && check_lse(p, why, room) && check_between(p, why, room);
}

/* What the oracle has for one input, summed over those that stood for it. Gradients held 1 before. */
static bool check_inputs(const layer_problem *p, char *why, size_t room)
{
    const layer_case *c = &p->c;
    const int64_t *qs = c->ragged ? p->query_starts : NULL, *ks = c->ragged ? p->key_starts : NULL;
    bool self = c->inputs == SELF, three = c->inputs == THREE;
    int64_t nq = c->B * c->Tq * p->ref.M, nk = c->B * c->Tk * p->ref.Mk;
    for (int64_t n = 0; !three && n < nk; n++) p->want.key[n] += p->want.value[n];
    for (int64_t n = 0; self && n < nq; n++) p->want.query[n] += p->want.key[n];
    return check_rows(p, &p->dquery, qs, p->padded, p->want.query, c->Tq, 1, 3, "dquery", why, room) &&
           (self || check_rows(p, &p->dkey, ks, p->keys, p->want.key, c->Tk, 1, 3, "dkey", why, room)) &&
           (!three || check_rows(p, &p->dvalue, ks, p->keys, p->want.value, c->Tk, 1, 3, "dvalue", why, room));
}

static bool check_parameters(const layer_problem *p, const mha_layer_parts *parts, char *why, size_t room)
{
    static const char *const names[] = {"q_weight",   "k_weight", "v_weight",    "q_bias",     "k_bias", "v_bias",
                                        "out_weight", "out_bias", "bias_k",      "bias_v",     "q_norm", "k_norm",
                                        "sinks",      "gates",    "q_norm_bias", "k_norm_bias"};
    const mha_tensor all[] = {parts->q_weight, parts->k_weight, parts->v_weight,    parts->q_bias,
                              parts->k_bias,   parts->v_bias,   parts->out_weight,  parts->out_bias,
                              parts->bias_k,   parts->bias_v,   parts->q_norm,      parts->k_norm,
                              parts->sinks,    parts->gates,    parts->q_norm_bias, parts->k_norm_bias};
    double rows = sqrt((double)(p->c.B * (p->c.Tq + p->c.Tk) + 1));
    for (int n = 0; n < 16; n++) {
        gap g = {0, 0};
        int64_t first = all[n].rank ? (float *)all[n].data - p->parameters : 0;
        int64_t count = !all[n].rank ? 0 : all[n].size[0] * (all[n].rank == 2 ? all[n].size[1] : 1);
        for (int64_t k = first; k < first + count; k++) see(&g, p->want_parameters[k] + 1, (double)p->gradients[k]);
        if (!near(p, g, 3 * rows, MHA_FLOAT32, names[n], why, room)) return false;
    }
    return true;
}

static bool check_attention(const layer_problem *p, char *why, size_t room)
{
    const layer_case *c = &p->c;
    gap bias = {0, 0}, slopes = {0, 0};
    for (int64_t h = 0; h < c->options.heads; h++) {
        for (int64_t b = 0; c->slopes && b < c->B; b++)
            see(&slopes, 1 + p->want.alibi_slopes[b * c->options.heads + h], store_get(&p->dslopes, b, h, 0, 0));
        for (int64_t n = 0; c->bias && n < c->Tq * c->Tk; n++) {
            double sum = 1;
            for (int64_t b = 0; b < c->B; b++) sum += p->want.bias[(b * c->options.heads + h) * c->Tq * c->Tk + n];
            see(&bias, sum, store_get(&p->dbias, 0, h, n / c->Tk, n % c->Tk));
        }
    }
    return near(p, bias, 3, MHA_FLOAT32, "dbias", why, room) &&
           near(p, slopes, 10 * (double)(c->Tq + c->Tk + 10), MHA_FLOAT32, "dslopes", why, room);
}

static void ones(store *s)
{
    mha_tensor t = s->view;
    int64_t n[4] = {1, 1, 1, 1};
    for (int axis = 0; axis < t.rank; axis++) n[axis] = t.size[axis];
    for (int64_t i = 0; t.rank && i < n[0]; i++)
        for (int64_t j = 0; j < n[1]; j++)
            for (int64_t k = 0; k < n[2]; k++)
                for (int64_t l = 0; l < n[3]; l++) store_set(s, i, j, k, l, 1);
}

static void guard(store *s)
{
    store_guard(s);
    store_allow_all(s);
}

bool layer_problem_run(layer_problem *p, mha_context *ctx, bool gradients, char *why, size_t room)
{
    store *outputs[] = {&p->out, &p->weights, &p->lse, &p->dquery, &p->dkey, &p->dvalue, &p->dbias, &p->dslopes};
    mha_layer *layer = NULL;
    mha_tape *tape = NULL;
    bool good = false;
    for (int n = 3; n < 8; n++) ones(outputs[n]);
    for (int n = 0; n < 8; n++) guard(outputs[n]);
    guard_between(p);
    for (int64_t n = 0; n < p->count; n++) p->gradients[n] = 1;
    mha_status status = p->borrowed ? mha_layer_create_over(ctx, &layer, &p->c.options, &p->borrowed->weights)
                                    : mha_layer_create(ctx, &layer, &p->c.options, p->parameters);
    mha_layer_freeze(layer, p->c.seed % 2);
    if (!status && gradients) status = mha_tape_create(ctx, &tape);
    if (!status) status = mha_layer_forward(ctx, layer, p->out.view, &p->extras, &p->inputs, &p->attend, tape);
    if (!status && gradients) {
        mha_layer_gradients g = {.accumulate = true,
                                 .query = p->dquery.view,
                                 .key = p->dkey.view,
                                 .value = p->dvalue.view,
                                 .parameters = p->gradients,
                                 .bias = p->dbias.view,
                                 .alibi_slopes = p->dslopes.view};
        status = mha_layer_backward(ctx, layer, &g, p->dout.view, tape);
    }
    if (status) {
        snprintf(why, room, "%s: %s", mha_status_name(status), mha_context_error(ctx));
    } else {
        mha_layer_parts parts = mha_layer_view(layer, p->parameters);
        good = check_forward(p, why, room) &&
               (!gradients || (check_inputs(p, why, room) && check_parameters(p, &parts, why, room) &&
                               check_attention(p, why, room)));
        for (int n = 0; good && n < 8; n++)
            if (!store_intact(outputs[n])) snprintf(why, room, "output %d: bytes beside it changed", n), good = false;
        for (int n = 0; good && n < BETWEEN; n++)
            if (!store_intact(&p->between[n]))
                snprintf(why, room, "between %d: bytes beside it changed", n), good = false;
    }
    mha_tape_free(tape);
    mha_layer_free(layer);
    return good;
}
