/* The forward kernels with options and with maps. */
#include "core/philox.h"
#include "cuda/fake/kernels.h"
#include "mha.h"

#include <math.h>
#include <stdlib.h>

/* ---- Spans ------------------------------------------------------------------------------------------------------ */

static void *place(const mha_cuda_view *t, int64_t i, int64_t j, int64_t k, int64_t l)
{
    static const int64_t bytes[] = {4, 2, 2, 1, 8, 4}; /* by type */
    int64_t at = i * t->stride[0] + j * t->stride[1] + k * t->stride[2] + l * t->stride[3];
    return (char *)t->data + at * bytes[t->type];
}

static double get(const mha_cuda_view *t, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return element_get(place(t, i, j, k, l), (mha_type)t->type);
}

static int64_t integer(const mha_cuda_view *t, int64_t n)
{
    const void *where = place(t, n, 0, 0, 0);
    return t->type == MHA_INT32 ? *(const int32_t *)where : *(const int64_t *)where;
}

static int64_t limit(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* Sequence b, from its first row on. */
static mha_cuda_span sequence_of(const mha_cuda_spans *c, int32_t b)
{
    mha_cuda_span s = {.batch = b, .padded = c->Tq, .query_batch = b, .key_batch = b};
    int64_t keys = c->Tk, offset = 0, right = c->causal ? 0 : c->window_right;
    if (c->query_starts.data) {
        s.query_batch = 0, s.query_row = (int32_t)integer(&c->query_starts, b);
        s.padded = (int32_t)integer(&c->query_starts, b + 1) - s.query_row;
    }
    if (c->key_starts.data) {
        s.key_batch = 0, s.key_row = (int32_t)integer(&c->key_starts, b);
        keys = integer(&c->key_starts, b + 1) - s.key_row;
    }
    s.queries = c->query_lengths.data ? (int32_t)integer(&c->query_lengths, b) : s.padded;
    s.length = (int32_t)(c->key_lengths.data ? integer(&c->key_lengths, b) : keys);
    if (c->align == MHA_ALIGN_BOTTOM_RIGHT) offset = s.length - s.queries;
    if (c->align == MHA_ALIGN_OFFSET) offset = integer(&c->offsets, b);
    s.offset = (int32_t)limit(offset, -(1 << 30), 1 << 30);
    s.left = (int32_t)(c->window_left < 0 ? -c->Tq : limit(offset - c->window_left, -c->Tq, c->Tk));
    s.right = (int32_t)(right < 0 ? c->Tk : limit(offset + right, -c->Tq, c->Tk));
    return s;
}

const char *fake_spans(const fake_launch *l)
{
    const mha_cuda_spans *c = (const void *)l->parameter;
    int64_t threads = (int64_t)l->blocks * l->threads, all = (int64_t)c->B * c->row_tiles;
    if (l->threads != MHA_CUDA_SPAN_THREADS || threads < all || threads >= all + l->threads) return "blocks or threads";
    for (int n = 0; n < MHA_CUDA_SPAN_COUNTS; n++) c->counts[n] = 0;
    for (int64_t n = 0; n < all * c->H * c->rows / 64; n++) c->lost[n] = 0;
    for (int32_t b = 0; b < c->B; b++) {
        mha_cuda_span s = sequence_of(c, b);
        mha_cuda_way way = mha_cuda_way_of(c->ways, s.queries, s.length);
        if ((int)way >= MHA_CUDA_SPAN_LISTS) c->counts[way]++;
    }
    for (int32_t level = c->row_tiles - 1; level >= 0; level--)
        for (int32_t b = 0; b < c->B; b++) {
            mha_cuda_span s = sequence_of(c, b);
            mha_cuda_way way = mha_cuda_way_of(c->ways, s.queries, s.length);
            s.row = level * c->rows;
            if ((int)way < MHA_CUDA_SPAN_LISTS && s.row < s.padded) c->lists[way][c->counts[way]++] = s;
        }
    return NULL;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static bool sees(const mha_cuda_forward *c, const mha_cuda_span *s, int h, int64_t i, int64_t j)
{
    if (i >= s->queries || j >= s->length || j < i + s->left || j > i + s->right) return false;
    if (c->mask.data && !*(const unsigned char *)place(&c->mask, s->batch, h, i, j)) return false;
    return !c->bias.data || get(&c->bias, s->batch, h, i, j) != -INFINITY;
}

/* In units of log 2. */
static double score(const mha_cuda_forward *c, const mha_cuda_span *s, int h, int64_t i, int64_t j, double dot)
{
    const double log2_e = 1.4426950408889634;
    if (c->cap > 0) dot = (double)c->cap * tanh(dot * (double)c->cap_inverse / (2 * log2_e));
    else if (c->modified) dot *= (double)c->scale;
    if (c->bias.data) dot += get(&c->bias, s->batch, h, i, j) * (double)c->bias_by;
    if (c->slopes)
        dot -= (double)c->slopes[s->batch * c->slope_batch + h * c->slope_head] * log2_e *
               fabs((double)(i + s->offset - j));
    return dot * (double)c->scale_after;
}

static bool keeps(const mha_cuda_forward *c, const mha_cuda_span *s, int h, int64_t i, int64_t j)
{
    uint64_t stream = c->stream + (uint64_t)s->batch;
    uint32_t x[4] = {(uint32_t)(j / 4), (uint32_t)i, (uint32_t)h, (uint32_t)stream};
    mha_philox(x, mha_philox_key(c->seed, stream));
    return x[j % 4] >= c->dropped;
}

static void put_lse(const mha_cuda_forward *c, const mha_cuda_span *s, int h, int64_t i, double lse)
{
    int64_t row = s->query_row + i;
    if (c->lse.data) *(float *)place(&c->lse, s->query_batch, h, row, 0) = (float)lse;
    if (!c->softmax.data) return;
    *(float *)place(&c->softmax, s->query_batch, h, row, 0) = (float)lse;
    *(float *)place(&c->softmax, s->query_batch, h, row, 1) = isinf(lse) ? 0.0f : 1.0f;
}

static void row_of(const mha_cuda_forward *c, const mha_cuda_span *s, int h, int64_t i)
{
    fake_map q = fake_map_of(&c->q), k = fake_map_of(&c->k), v = fake_map_of(&c->v), o = fake_map_of(&c->o);
    double *x = array(s->length + 1, sizeof *x), top = -INFINITY, sum = 0, out[256] = {0};
    for (int64_t j = 0; j < s->length; j++) {
        double dot = 0;
        x[j] = -INFINITY;
        if (!sees(c, s, h, i, j)) continue;
        for (int64_t d = 0; d < c->D; d++)
            dot += fake_number(fake_row(&q, s->query_batch, h, s->query_row + i), d, q.half) *
                   fake_number(fake_row(&k, s->key_batch, h / c->group, s->key_row + j), d, q.half);
        top = fmax(top, x[j] = score(c, s, h, i, j, dot));
    }
    bool any = top > -INFINITY;
    double sink = c->sinks ? (double)c->sinks[h * c->sink_head] / log(2) : -INFINITY;
    top = fmax(top, sink);
    if (any) sum = exp2(sink - top);
    for (int64_t j = 0; any && j < s->length; j++) {
        double w = exp2(x[j] - top);
        sum += w;
        if (w == 0 || (c->dropped && !keeps(c, s, h, i, j))) continue;
        if (c->dropped) w *= (double)c->kept;
        for (int64_t e = 0; e < c->E; e++)
            out[e] += w * fake_number(fake_row(&v, s->key_batch, h / c->group, s->key_row + j), e, q.half);
    }
    for (int64_t e = 0; e < c->E; e++)
        fake_put(fake_row(&o, s->query_batch, h, s->query_row + i), e, o.half, any ? out[e] / sum : 0);
    put_lse(c, s, h, i, any ? (top + log2(sum)) * log(2) : -INFINITY);
    free(x);
}

static void tile_of(const mha_cuda_forward *c, const mha_cuda_span *s, int rows)
{
    for (int h = 0; h < c->H; h++) {
        for (int64_t i = s->row; i < s->row + rows && i < s->padded; i++) row_of(c, s, h, i);
        for (int n = 0; n < rows / 64; n++)
            c->lost[((int64_t)(s->batch * c->H + h) * c->row_tiles * rows + s->row) / 64 + n] = 0;
    }
}

void fake_forward_options(const mha_cuda_forward *c, int rows)
{
    for (int n = 0; c->spans && n < *c->span_count; n++) tile_of(c, &c->spans[n], rows);
    for (int n = 0; !c->spans && n < c->B * c->row_tiles; n++) {
        int32_t b = n / c->row_tiles;
        mha_cuda_span s = {.row = n % c->row_tiles * rows,
                           .batch = b,
                           .queries = c->Tq,
                           .padded = c->Tq,
                           .length = c->Tk,
                           .query_batch = b,
                           .key_batch = b,
                           .offset = c->offset,
                           .left = c->left,
                           .right = c->right};
        tile_of(c, &s, rows);
    }
}
