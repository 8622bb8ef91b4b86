/* The gradient of the bias: dS, summed over the axes that the bias broadcasts.
 *
 * An element of the bias may be shared by many batches, heads, rows and keys, so here the element is what is owned: a
 * piece of work is one (batch, head, pair of row blocks) of the bias itself, or all rows where they share it, and goes
 * over everything that it stands for in order. Only those who ask for it pay for computing dS a second time. */
#include "attention/backward.h"
#include "attention/careful.h"

static int64_t row_pieces(const mha_backward *call)
{
    return call->dbias.size[2] == 1 ? 1 : (call->dbias.size[2] + MHA_PAIR - 1) / MHA_PAIR;
}

int64_t mha_bias_pieces(const mha_backward *call)
{
    return call->dbias.rank ? call->dbias.size[0] * call->dbias.size[1] * row_pieces(call) : 0;
}

/* Element (b,h,i,j) of the gradient, wherever it broadcasts to. */
static float *element(const mha_backward *call, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return mha_at(call->dbias, b, h, i, j);
}

static void add_block(const mha_backward *call, mha_span *s, int64_t r, int64_t n)
{
    mha_tile *t = &s->tile;
    bool broken = false;
    int64_t count = mha_span_ds(s, call, r, n, &broken), h = t->first_head;
    for (int64_t i = 0; i < mha_tile_height(t, r); i++)
        for (int64_t j = 0; j < count; j++)
            *element(call, t->sequence.b, h, mha_tile_query(t, r + i), t->key + j) += s->ds[j * MHA_BLOCK + i];
}

/* Rows [first, last) of one head of one sequence. */
static void add_rows(const mha_backward *call, mha_span *s, const mha_sequence *sequence, int64_t h, int64_t first,
                     int64_t last)
{
    int64_t width = MHA_TILES * MHA_KEYS;
    for (int64_t row = first; row < last; row += MHA_PAIR)
        for (int64_t key = 0; key < sequence->length; key += width) {
            int64_t rows = last - row < MHA_PAIR ? last - row : MHA_PAIR;
            mha_span_place(s, sequence, h, 1, row, rows);
            if (s->tile.seen.high <= key || s->tile.seen.low >= key + width) continue;
            mha_span_keys(s, call, key, sequence->length - key < width ? sequence->length : key + width);
            mha_span_load(s, call);
            for (int64_t n = 0; s->key + n * MHA_KEYS < s->end; n++)
                for (int64_t r = 0; r < rows; r += MHA_BLOCK) add_block(call, s, r, n);
        }
}

/* What one element of the bias stands for: [from, to) of an axis. */
static mha_range axis_of(const mha_backward *call, int axis, int64_t index, int64_t size)
{
    return call->dbias.size[axis] == 1 ? (mha_range){0, size} : (mha_range){index, index + 1};
}

/* One element in float64, over everything that it stands for. */
static float sum_carefully(const mha_backward *call, double *wide, int64_t batch, int64_t head, int64_t row,
                           int64_t key)
{
    const mha_problem *p = &call->problem;
    mha_range bs = axis_of(call, 0, batch, p->B), hs = axis_of(call, 1, head, p->H);
    double sum = 0;
    for (int64_t b = bs.low; b < bs.high; b++) {
        mha_sequence s = mha_sequence_get(p, b);
        mha_range rows = axis_of(call, 2, row, s.queries), keys = axis_of(call, 3, key, s.length);
        for (int64_t h = hs.low; h < hs.high; h++)
            for (int64_t i = rows.low; i < rows.high && i < s.queries; i++) {
                double statistics[3];
                mha_careful_statistics(call, &s, h, i, statistics, wide);
                for (int64_t j = keys.low; j < keys.high && j < s.length; j++)
                    sum += mha_careful_ds(call, &s, h, i, j, statistics);
            }
    }
    return (float)sum;
}

/* Whether the scores of a head that the element stands for left float32. */
static bool is_broken(const mha_backward *call, int64_t batch, int64_t head)
{
    const mha_problem *p = &call->problem;
    mha_range bs = axis_of(call, 0, batch, p->B), hs = axis_of(call, 1, head, p->H);
    for (int64_t b = bs.low; b < bs.high; b++)
        for (int64_t h = hs.low; h < hs.high; h++)
            if (atomic_load(&call->doubts[b * p->G + h / p->share]) >= MHA_BROKEN) return true;
    return false;
}

void mha_bias_piece(const mha_backward *call, mha_span *s, int64_t piece)
{
    const mha_problem *p = &call->problem;
    mha_tensor to = call->dbias;
    int64_t pieces = row_pieces(call), head = piece / pieces % to.size[1], batch = piece / pieces / to.size[1];
    int64_t first = piece % pieces * MHA_PAIR, last = first + MHA_PAIR < to.size[2] ? first + MHA_PAIR : to.size[2];
    mha_range bs = axis_of(call, 0, batch, p->B), hs = axis_of(call, 1, head, p->H);
    for (int64_t i = first; i < last; i++)
        for (int64_t j = 0; j < to.size[3]; j++) *element(call, batch, head, i, j) = 0.0f;
    for (int64_t b = bs.low; b < bs.high; b++) {
        mha_sequence sequence = mha_sequence_get(p, b);
        int64_t end = to.size[2] == 1 || last > sequence.queries ? sequence.queries : last;
        for (int64_t h = hs.low; h < hs.high; h++) add_rows(call, s, &sequence, h, first, end);
    }
    bool broken = is_broken(call, batch, head);
    for (int64_t i = first; i < last; i++)
        for (int64_t j = 0; j < to.size[3]; j++) {
            float *at = element(call, batch, head, i, j);
            if (broken || !isfinite(*at)) *at = sum_carefully(call, s->wide, batch, head, i, j);
        }
}
