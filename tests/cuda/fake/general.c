#include "cuda/fake/general.h"
#include "core/philox.h"
#include "support/numbers.h"

#include <math.h>
#include <stdlib.h>

/* ---- Numbers and sequences -------------------------------------------------------------------------------------- */

static void *at(const mha_cuda_view *t, int64_t i, int64_t j, int64_t k, int64_t l)
{
    static const int64_t bytes[] = {4, 2, 2, 1, 8, 4}; /* by type */
    int64_t place = i * t->stride[0] + j * t->stride[1] + k * t->stride[2] + l * t->stride[3];
    return (char *)t->data + place * bytes[t->type];
}

static double get(const mha_cuda_view *t, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return element_get(at(t, i, j, k, l), (mha_type)t->type);
}

static void set(const mha_cuda_view *t, int64_t i, int64_t j, int64_t k, int64_t l, double x)
{
    element_set(at(t, i, j, k, l), (mha_type)t->type, x);
}

static int64_t integer(const mha_cuda_view *t, int64_t n)
{
    const void *where = at(t, n, 0, 0, 0);
    return t->type == MHA_INT32 ? *(const int32_t *)where : *(const int64_t *)where;
}

typedef struct sequence {
    int64_t b, queries, length, padded, keys, query_batch, query_row, key_batch, key_row, offset;
} sequence;

static sequence sequence_of(const mha_cuda_general *c, int64_t b)
{
    sequence s = {.b = b, .padded = c->Tq, .keys = c->Tk, .query_batch = b, .key_batch = b};
    if (c->query_starts.data) {
        s.query_batch = 0, s.query_row = integer(&c->query_starts, b);
        s.padded = integer(&c->query_starts, b + 1) - s.query_row;
    }
    if (c->key_starts.data) {
        s.key_batch = 0, s.key_row = integer(&c->key_starts, b);
        s.keys = integer(&c->key_starts, b + 1) - s.key_row;
    }
    s.queries = c->query_lengths.data ? integer(&c->query_lengths, b) : s.padded;
    s.length = c->key_lengths.data ? integer(&c->key_lengths, b) : s.keys;
    s.offset = c->align == MHA_ALIGN_OFFSET         ? integer(&c->offsets, b)
               : c->align == MHA_ALIGN_BOTTOM_RIGHT ? s.length - s.queries
                                                    : 0;
    return s;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static bool sees(const mha_cuda_general *c, const sequence *s, int64_t h, int64_t i, int64_t j)
{
    int64_t p = i + s->offset;
    if (i >= s->queries || j >= s->length || (c->causal && j > p)) return false;
    if ((c->window_left >= 0 && p - j > c->window_left) || (c->window_right >= 0 && j - p > c->window_right))
        return false;
    if (c->mask.data && !*(const unsigned char *)at(&c->mask, s->b, h, i, j)) return false;
    return !c->bias.data || get(&c->bias, s->b, h, i, j) != -INFINITY;
}

/* The five stages of a row, keys each, and its softmax. */
typedef struct row {
    double *stage[5], reference, sum;
} row;

static double score(const mha_cuda_general *c, const sequence *s, int64_t h, int64_t i, int64_t j)
{
    double dot = 0;
    for (int64_t d = 0; d < c->D; d++)
        dot += get(&c->q, s->query_batch, h, s->query_row + i, d) *
               get(&c->k, s->key_batch, h / c->share, s->key_row + j, d);
    return (double)c->scale * dot;
}

static bool keeps(const mha_cuda_general *c, const sequence *s, int64_t h, int64_t i, int64_t j)
{
    uint64_t stream = c->stream + (uint64_t)s->b;
    uint32_t x[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, (uint32_t)stream};
    mha_philox(x, mha_philox_key(c->seed, stream));
    return x[j % 4] >= c->dropped;
}

static void weigh(const mha_cuda_general *c, const sequence *s, int64_t h, int64_t i, row *r)
{
    bool any = false;
    r->reference = -INFINITY, r->sum = 0;
    for (int64_t j = 0; j < s->keys; j++) {
        bool there = i < s->queries, visible = sees(c, s, h, i, j);
        double x = there ? score(c, s, h, i, j) : -INFINITY;
        bool shown = there && (visible || isfinite(x));
        r->stage[0][j] = shown ? x : -INFINITY;
        if (c->softcap > 0) x = (double)c->softcap * tanh(x / (double)c->softcap);
        r->stage[1][j] = shown ? x : -INFINITY;
        if (visible && c->bias.data) x += get(&c->bias, s->b, h, i, j);
        if (visible && c->slopes.data) x -= get(&c->slopes, s->b, h, 0, 0) * fabs((double)(i + s->offset - j));
        r->stage[2][j] = visible ? x : -INFINITY;
        if (visible) r->reference = fmax(r->reference, x), any = true;
    }
    double sink = c->sinks.data ? get(&c->sinks, 0, h, 0, 0) : -INFINITY;
    if (any) r->reference = fmax(r->reference, sink);
    for (int64_t j = 0; j < s->keys; j++) {
        r->stage[3][j] = sees(c, s, h, i, j) ? exp(r->stage[2][j] - r->reference) : 0;
        r->sum += r->stage[3][j];
    }
    if (any && c->sinks.data) r->sum += exp(sink - r->reference);
    for (int64_t j = 0; j < s->keys; j++) {
        if (any) r->stage[3][j] /= r->sum;
        r->stage[4][j] = !c->dropped ? r->stage[3][j] : keeps(c, s, h, i, j) ? r->stage[3][j] * (double)c->kept : 0;
    }
}

static row row_make(const mha_cuda_general *c)
{
    row r;
    for (int n = 0; n < 5; n++) r.stage[n] = array(c->k.size[2] + 1, sizeof(double));
    return r;
}

static void row_free(row *r)
{
    for (int n = 0; n < 5; n++) free(r->stage[n]);
}

/* ---- Kernels ---------------------------------------------------------------------------------------------------- */

static void put_row(const mha_cuda_general *c, const sequence *s, int64_t h, int64_t i, const row *r)
{
    int64_t place = s->query_row + i;
    for (int64_t e = 0; c->out.data && e < c->E; e++) {
        double sum = 0;
        for (int64_t j = 0; j < s->keys; j++)
            if (r->stage[4][j] != 0) sum += r->stage[4][j] * get(&c->v, s->key_batch, h / c->share, s->key_row + j, e);
        set(&c->out, s->query_batch, h, place, e, sum);
    }
    if (c->lse.data) set(&c->lse, s->query_batch, h, place, 0, r->sum > 0 ? r->reference + log(r->sum) : -INFINITY);
    if (c->softmax.data) {
        double reference = round_to(MHA_FLOAT32, r->reference), off = r->sum > 0 ? r->reference - reference : 0;
        set(&c->softmax, s->query_batch, h, place, 0, fabs(off) <= 4 ? reference : INFINITY);
        set(&c->softmax, s->query_batch, h, place, 1, fabs(off) <= 4 ? r->sum * exp(off) : r->sum);
    }
}

static void forward_of(const mha_cuda_general *c, const sequence *s, row *r)
{
    for (int64_t h = 0; h < c->H; h++)
        for (int64_t i = 0; i < s->padded; i++) {
            weigh(c, s, h, i, r);
            put_row(c, s, h, i, r);
        }
}

void fake_general_forward(const mha_cuda_general *c)
{
    row r = row_make(c);
    for (int64_t b = 0; b < c->B; b++) {
        sequence s = sequence_of(c, b);
        forward_of(c, &s, &r);
    }
    row_free(&r);
}

void fake_general_forward_of(const mha_cuda_general *c, mha_cuda_ways ways, mha_cuda_way way)
{
    row r = row_make(c);
    for (int64_t b = 0; b < c->B; b++) {
        sequence s = sequence_of(c, b);
        if (mha_cuda_way_of(ways, (int32_t)s.queries, (int32_t)s.length) == way) forward_of(c, &s, &r);
    }
    row_free(&r);
}

void fake_general_map(const mha_cuda_general *c)
{
    const mha_cuda_view *m = &c->map;
    int64_t each = c->H / (m->size[1] ? m->size[1] : 1);
    row r = row_make(c);
    for (int64_t n = 0; n < m->size[0] * m->size[1] * m->size[2]; n++) {
        int64_t i = n % m->size[2], own = n / m->size[2] % m->size[1], b = n / m->size[2] / m->size[1];
        sequence s = sequence_of(c, b);
        for (int64_t j = 0; j < m->size[3]; j++) set(m, b, own, i, j, c->stage < MHA_STAGE_SOFTMAX ? -INFINITY : 0);
        double *sums = array(s.keys + 1, sizeof *sums);
        for (int64_t h = own * each; i < s.queries && h < (own + 1) * each; h++) {
            weigh(c, &s, h, i, &r);
            for (int64_t j = 0; j < s.keys; j++) sums[j] += r.stage[c->stage][j];
        }
        for (int64_t j = 0; i < s.queries && j < s.keys; j++)
            set(m, b, own, i, j, each > 1 ? sums[j] / (double)each : sums[j]);
        free(sums);
    }
    row_free(&r);
}
