/* The gradient of the bias: dS, summed over the axes that the bias broadcasts.
 *
 * An element of the bias may be shared by many batches, heads, rows and keys, so here the element is what is owned: a
 * piece of work is one (batch, head, pair of row blocks) of the bias itself, or all rows where they share it, and goes
 * over everything that it stands for in order. Only those who ask for it pay for computing dS a second time. */
#include "cpu/attention/backward/bias_gradient.h"
#include "cpu/attention/backward/careful.h"
#include "cpu/attention/careful.h"
#include <string.h>

static int64_t row_pieces(const mha_backward *call)
{
    return call->dbias.size[2] == 1 ? 1 : (call->dbias.size[2] + MHA_PAIR - 1) / MHA_PAIR;
}

int64_t mha_bias_pieces(const mha_backward *call)
{
    return call->dbias.rank ? call->dbias.size[0] * call->dbias.size[1] * row_pieces(call) : 0;
}

enum { WIDTH = MHA_TILES * MHA_KEYS }; /* keys of a span */

/* ds of a block against tile n onto the sums: row by row and key by key, or all onto one where the bias broadcasts. */
static void add_block(const mha_backward *call, mha_span *s, int64_t r, int64_t n)
{
    const mha_tile *t = &s->tile;
    bool broken = false, rows = call->dbias.size[2] > 1, keys = call->dbias.size[3] > 1;
    int64_t count = mha_span_ds(s, call, r, n, &broken);
    for (int64_t i = 0; i < mha_tile_height(t, r); i++) {
        double *to = s->bias_sums + (rows ? (r + i) * WIDTH : 0) + (keys ? n * MHA_KEYS : 0);
        for (int64_t j = 0; j < count; j++) to[keys ? j : 0] += (double)s->ds[j * MHA_BLOCK + i];
    }
}

/* Rows [first, last) of one head of one sequence against keys [key, key + WIDTH). */
static void add_rows(const mha_backward *call, mha_span *s, const mha_sequence *sequence, int64_t h, int64_t first,
                     int64_t last, int64_t key)
{
    int64_t end = sequence->length - key < WIDTH ? sequence->length : key + WIDTH;
    for (int64_t row = first; row < last && key < end; row += MHA_PAIR) {
        int64_t rows = last - row < MHA_PAIR ? last - row : MHA_PAIR;
        mha_span_place(s, sequence, h, 1, row, rows);
        if (s->tile.seen.high <= key || s->tile.seen.low >= end) continue;
        mha_span_keys(s, call, key, end);
        mha_span_load(s, call);
        for (int64_t n = 0; key + n * MHA_KEYS < end; n++)
            for (int64_t r = 0; r < rows; r += MHA_BLOCK) add_block(call, s, r, n);
    }
}

/* What one element of the bias stands for: [from, to) of an axis, which has no element if the call has no rows. */
static mha_range axis_of(const mha_backward *call, int axis, int64_t index, int64_t size)
{
    return call->dbias.size[axis] == 1 ? (mha_range){0, size} : (mha_range){index, index < size ? index + 1 : index};
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

/* Rows [first, last) of the bias: the sums of one span of keys. */
static void write_sums(const mha_backward *call, mha_span *s, int64_t batch, int64_t head, int64_t first, int64_t last,
                       int64_t key)
{
    mha_tensor to = call->dbias;
    bool broken = is_broken(call, batch, head);
    for (int64_t i = first; i < last; i++)
        for (int64_t j = key; j < key + WIDTH && j < to.size[3]; j++) {
            float sum = (float)s->bias_sums[(i - first) * WIDTH + j - key];
            if (broken || !isfinite(sum)) sum = sum_carefully(call, s->wide, batch, head, i, j);
            *(float *)mha_at(to, batch, head, i, j) = sum;
        }
}

/* A bias that broadcasts over keys has one number for all spans; else each span is a sum of its own. */
void mha_bias_piece(const mha_backward *call, mha_span *s, int64_t piece)
{
    const mha_problem *p = &call->problem;
    mha_tensor to = call->dbias;
    int64_t pieces = row_pieces(call), head = piece / pieces % to.size[1], batch = piece / pieces / to.size[1];
    int64_t first = piece % pieces * MHA_PAIR, last = first + MHA_PAIR < to.size[2] ? first + MHA_PAIR : to.size[2];
    mha_range bs = axis_of(call, 0, batch, p->B), hs = axis_of(call, 1, head, p->H);
    bool shared = to.size[3] == 1;
    for (int64_t key = 0; key == 0 || key < p->Tk || key < to.size[3]; key += WIDTH) {
        if (key == 0 || !shared) memset(s->bias_sums, 0, MHA_PAIR * WIDTH * sizeof *s->bias_sums);
        for (int64_t b = bs.low; b < bs.high; b++) {
            mha_sequence sequence = mha_sequence_get(p, b);
            int64_t end = to.size[2] == 1 || last > sequence.queries ? sequence.queries : last;
            for (int64_t h = hs.low; h < hs.high; h++) add_rows(call, s, &sequence, h, first, end, key);
        }
        if (!shared) write_sums(call, s, batch, head, first, last, key);
    }
    if (shared) write_sums(call, s, batch, head, first, last, 0);
}
