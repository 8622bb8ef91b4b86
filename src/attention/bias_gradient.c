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

/* The same in float64, where float32 has failed. */
static void add_carefully(const mha_backward *call, mha_span *s, const mha_sequence *sequence, int64_t h, int64_t first,
                          int64_t last)
{
    for (int64_t i = first; i < last; i++) {
        double statistics[3];
        mha_range range = mha_range_get(&call->problem, sequence, i);
        mha_careful_statistics(call, sequence, h, i, statistics, s->wide);
        for (int64_t j = range.low; j < range.high; j++) {
            float ds = (float)mha_careful_ds(call, sequence, h, i, j, statistics);
            if (ds != 0.0f) *element(call, sequence->b, h, i, j) += ds;
        }
    }
}

void mha_bias_piece(const mha_backward *call, mha_span *s, int64_t piece)
{
    const mha_problem *p = &call->problem;
    mha_tensor to = call->dbias;
    int64_t pieces = row_pieces(call), block = piece % pieces, head = piece / pieces % to.size[1];
    int64_t batch = piece / pieces / to.size[1], first = block * MHA_PAIR;
    int64_t last = to.size[2] == 1 ? 1 : first + MHA_PAIR < to.size[2] ? first + MHA_PAIR : to.size[2];
    for (int64_t i = first; i < last; i++)
        for (int64_t j = 0; j < to.size[3]; j++) *element(call, batch, head, i, j) = 0.0f;
    for (int64_t b = to.size[0] == 1 ? 0 : batch; b < (to.size[0] == 1 ? p->B : batch + 1); b++)
        for (int64_t h = to.size[1] == 1 ? 0 : head; h < (to.size[1] == 1 ? p->H : head + 1); h++) {
            mha_sequence sequence = mha_sequence_get(p, b);
            int64_t end = to.size[2] == 1 || last > sequence.queries ? sequence.queries : last;
            if (atomic_load(&call->unsound[b * p->G + h / p->share])) add_carefully(call, s, &sequence, h, first, end);
            else add_rows(call, s, &sequence, h, first, end);
        }
}
