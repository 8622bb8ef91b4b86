/* What the backward pass must know of every row before it meets keys: its softmax, and delta = dout . out - dlse. Beside
 * them, what a head is worth. */
#include "cpu/attention/backward/rows.h"
#include "cpu/attention/backward/careful.h"
#include <string.h>

/* Rows [first, first + height) of head h of out or dout, as lanes (E,MHA_BLOCK): by way of `room` (height,Ep) where they
 * cannot be read as they lie. */
static void load_lanes(const mha_backward *call, float *lanes, float *room, mha_tensor x, const mha_sequence *s,
                       int64_t h, int64_t first, int64_t height)
{
    const mha_problem *p = &call->problem;
    int64_t stride = x.stride[2];
    const float *rows = mha_at(x, s->query_batch, h, s->query_row + first, 0);
    if (x.type != MHA_FLOAT32 || x.stride[3] != 1) {
        for (int64_t i = 0; i < height; i++)
            mha_row_load(call->plan.kernels, room + i * call->plan.Ep,
                         mha_at(x, s->query_batch, h, s->query_row + first + i, 0), x.type, x.stride[3], p->E);
        rows = room;
        stride = call->plan.Ep;
    }
    call->plan.kernels->columns(lanes, MHA_BLOCK, rows, stride, height, p->E, 1.0f);
}

/* delta of the rows of a head. dout . out is added up as dout . v will be, so that the two cancel where they are the same:
 * the only key that a row sees has no gradient, not one of rounding errors. */
static void fill_delta(mha_backward *call, mha_span *span, const mha_sequence *s, int64_t h)
{
    const mha_problem *p = &call->problem;
    float *outs = span->douts, *douts = outs + MHA_BLOCK * p->E;
    for (int64_t first = 0; first < s->queries; first += MHA_BLOCK) {
        int64_t height = s->queries - first < MHA_BLOCK ? s->queries - first : MHA_BLOCK;
        float sum[MHA_BLOCK];
        load_lanes(call, outs, span->dout_room, p->out, s, h, first, height);
        load_lanes(call, douts, span->dout_room, call->dout, s, h, first, height);
        call->plan.kernels->dot_lanes(sum, outs, douts, MHA_BLOCK, p->E, mha_whole(call->plan.kernels, height));
        int64_t at = mha_row_index(p, s, h, first);
        for (int64_t i = 0; call->dlse.rank && i < height; i++)
            sum[i] -= *(const float *)mha_at(call->dlse, s->query_batch, h, s->query_row + first + i, 0);
        for (int64_t i = 0; i < height; i++)
            call->delta[at + i] = call->softmax.max[at + i] == INFINITY ? 0.0f : sum[i];
    }
}

/* Where one key has most of the weight, ds = p (dp - delta) is a small difference of large numbers, and the rounding of
 * `out` alone would be more than what is left. There delta is the sum of p dp itself, as an unfused computation has it.
 * Below a weight of 3/4 the difference loses two bits at most. */
static bool is_peaked(const mha_backward *call, int64_t row) { return call->softmax.factor[row] > 0.75f; }

/* A row's sums of p and of p dp. */
typedef struct row_sums {
    double p, p_dp;
} row_sums;

/* Adds those over the keys [key, end), for the rows that the span has been turned to. */
static void add_sums(const mha_backward *call, mha_span *span, int64_t key, int64_t end, row_sums sums[MHA_PAIR])
{
    bool ignored;
    mha_span_keys(span, call, key, end);
    mha_span_load(span, call);
    memset(span->delta, 0, MHA_PAIR * sizeof *span->delta); /* ds is p dp then */
    for (int64_t n = 0; key + n * MHA_KEYS < end; n++)
        for (int64_t r = 0; r < span->tile.rows; r += MHA_BLOCK) {
            int64_t count = mha_span_ds(span, call, r, n, &ignored);
            for (int64_t j = 0; j < count * MHA_BLOCK; j++) {
                sums[r + j % MHA_BLOCK].p += (double)span->tile.scores.lanes[j];
                sums[r + j % MHA_BLOCK].p_dp += (double)span->ds[j];
            }
        }
}

static void fill_peaked(mha_backward *call, mha_span *span, const mha_sequence *s, int64_t h)
{
    enum { WIDTH = MHA_TILES * MHA_KEYS };
    const mha_problem *p = &call->problem;
    mha_tensor sinks = p->options.sinks;
    double sink = sinks.rank ? (double)*(const float *)mha_at(sinks, 0, h, 0, 0) : -INFINITY;
    for (int64_t first = 0; first < s->queries; first += MHA_PAIR) {
        int64_t rows = s->queries - first < MHA_PAIR ? s->queries - first : MHA_PAIR, peaked = 0;
        int64_t at = mha_row_index(p, s, h, first);
        row_sums sums[MHA_PAIR] = {{0, 0}};
        for (int64_t i = 0; i < rows; i++) peaked += is_peaked(call, at + i);
        if (!peaked) continue;
        mha_span_place(span, s, h, 1, first, rows);
        mha_range seen = span->tile.seen;
        for (int64_t key = seen.low / MHA_KEYS * MHA_KEYS; key < seen.high; key += WIDTH)
            add_sums(call, span, key, seen.high - key < WIDTH ? seen.high : key + WIDTH, sums);
        for (int64_t i = 0; i < rows; i++) {
            if (!is_peaked(call, at + i)) continue;
            double beside = exp(sink - (double)call->softmax.max[at + i]) * (double)call->softmax.factor[at + i];
            double delta = sums[i].p_dp / (sums[i].p + beside); /* by what should be 1 */
            if (call->dlse.rank)
                delta -= (double)*(const float *)mha_at(call->dlse, s->query_batch, h, s->query_row + first + i, 0);
            call->delta[at + i] = (float)delta;
        }
    }
}

/* What a head is worth: |the sum of dout . out|, in float64. Where `out` is beyond float32, it is made anew. */
static void write_importance(const mha_backward *call, mha_span *span, const mha_sequence *s, int64_t h)
{
    const mha_problem *p = &call->problem;
    mha_tensor to = call->gradients.importance;
    double all = 0;
    for (int64_t i = 0; i < s->queries; i++)
        if (call->softmax.max[mha_row_index(p, s, h, i)] != INFINITY)
            all += mha_careful_dot_out(call, s, h, i, span->wide);
    ((float *)to.data)[s->b * to.stride[0] + h * to.stride[1]] = (float)fabs(all);
}

void mha_backward_rows(mha_backward *call, mha_span *span, int64_t piece)
{
    const mha_problem *p = &call->problem;
    mha_sequence s = mha_sequence_get(p, piece / p->H);
    int64_t h = piece % p->H;
    if (mha_softmax_fill(call->softmax, &span->tile, &s, h, (mha_range){0, s.queries}, call->anew))
        mha_backward_doubt(call, s.b, h / p->share, MHA_BROKEN);
    fill_delta(call, span, &s, h);
    if (!call->plan.engine && !call->others && p->out.type == MHA_FLOAT32) fill_peaked(call, span, &s, h);
    if (call->gradients.importance.rank) write_importance(call, span, &s, h);
}
