/* What is done to rows one by one, on the naive table: copies, norm, gates, sums, rotary embedding. */
#include "attention/angles.h"
#include "support/naive/naive.h"

#include <stdlib.h>

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

void naive_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add)
{
    mha_tensor a = mha_broadcast(to), b = mha_broadcast(from);
    for (int64_t i = 0; !ctx->rehearsing && i < a.size[0]; i++)
        for (int64_t j = 0; j < a.size[1]; j++)
            for (int64_t k = 0; k < a.size[2]; k++)
                for (int64_t l = 0; l < a.size[3]; l++)
                    naive_set(a, i, j, k, l, naive_get(b, i, j, k, l) + (add ? naive_get(a, i, j, k, l) : 0));
}

void naive_fill(mha_context *ctx, mha_tensor to, float value)
{
    mha_tensor from = to;
    from.data = &value;
    from.type = MHA_FLOAT32;
    for (int axis = 0; axis < to.rank; axis++) from.stride[axis] = 0;
    naive_copy(ctx, to, from, false);
}

void naive_upload(mha_context *ctx, void *to, const void *from, size_t bytes)
{
    for (size_t n = 0; !ctx->rehearsing && n < bytes; n++) ((char *)to)[n] = ((const char *)from)[n];
}

/* Row t of a packed batch belongs to the sequence whose stretch holds it; -1: to none. */
static int64_t sequence_of(mha_tensor starts, int64_t t)
{
    for (int64_t b = 0; b + 1 < starts.size[0]; b++)
        if (t >= mha_integer_at(starts, b) && t < mha_integer_at(starts, b + 1)) return b;
    return -1;
}

void naive_clear(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts)
{
    for (int axes = x.rank; axes < 4; axes++) x.size[axes] = 1, x.stride[axes] = 0;
    int64_t n[4] = {0};
    for (; !ctx->rehearsing && mha_element_count(x) && n[0] < x.size[0];) {
        int64_t t = n[axis], b = starts.rank ? sequence_of(starts, t) : n[0];
        int64_t at = starts.rank && b >= 0 ? t - mha_integer_at(starts, b) : t;
        if (b < 0 || (lengths.rank && at >= mha_integer_at(lengths, b))) naive_set(x, n[0], n[1], n[2], n[3], 0);
        for (int k = 3; k >= 0 && (++n[k] == x.size[k]) && k; k--) n[k] = 0;
    }
}

void naive_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends)
{
    int64_t T = places.size[1], *at = places.data;
    for (int64_t n = 0; !ctx->rehearsing && n < places.size[0] * T; n++) {
        int64_t b = starts.rank ? sequence_of(starts, n) : n / T, start = starts.rank ? 0 : b * T, end = start + T;
        if (starts.rank && b >= 0) start = mha_integer_at(starts, b), end = mha_integer_at(starts, b + 1);
        int64_t place = b < 0 ? 0 : n - start + (ends.rank ? mha_integer_at(ends, b) - (end - start) : 0);
        at[n] = place < 0 ? 0 : place;
    }
}

void naive_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends)
{
    for (int64_t n = 0; !ctx->rehearsing && n < from.size[0] * from.size[1] * from.size[2]; n++) {
        int64_t t = n % from.size[2], g = n / from.size[2] % from.size[1], batch = n / from.size[2] / from.size[1];
        int64_t b = starts.rank ? sequence_of(starts, t) : batch;
        if (b < 0) continue;
        int64_t row = mha_integer_at(ends, b) - (starts.rank ? mha_integer_at(starts, b + 1) : from.size[2]) + t;
        for (int64_t d = 0; d < from.size[3]; d++) naive_set(to, b, g, row, d, naive_get(from, batch, g, t, d));
    }
}

/* to (B,Tq,Tk) */
void naive_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps)
{
    for (int64_t b = 0; !ctx->rehearsing && b < to.size[0]; b++)
        for (int64_t i = 0; i < to.size[1]; i++)
            for (int64_t j = 0; j < to.size[2]; j++) {
                double sum = 0;
                for (int64_t h = 0; h < maps.size[1]; h++) sum += naive_get(maps, b, h, i, j);
                naive_set(to, b, i, j, 0, sum / (double)maps.size[1]);
            }
}

/* ---- Rows of heads ---------------------------------------------------------------------------------------------- */

/* Calls a function for each row (b,h,t) of (B,H,T,*), unless the context rehearses. */
typedef void row_work(void *arg, int64_t b, int64_t h, int64_t t);

static void each_row(mha_context *ctx, mha_tensor x, row_work *work, void *arg)
{
    for (int64_t b = 0; !ctx->rehearsing && b < x.size[0]; b++)
        for (int64_t h = 0; h < x.size[1]; h++)
            for (int64_t t = 0; t < x.size[2]; t++) work(arg, b, h, t);
}

/* ---- Gates ------------------------------------------------------------------------------------------------------ */

typedef struct gating {
    mha_tensor to, from, gates;
} gating;

static void gate_row(void *arg, int64_t b, int64_t h, int64_t t)
{
    const gating *g = arg;
    double gate = naive_get(g->gates, h, 0, 0, 0);
    for (int64_t e = 0; e < g->to.size[3]; e++)
        naive_set(g->to, b, h, t, e, gate == 0 ? 0 : gate * naive_get(g->from, b, h, t, e));
}

void naive_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates)
{
    gating g = {to, from, gates};
    each_row(ctx, from, gate_row, &g);
}

void naive_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates)
{
    for (int64_t h = 0; !ctx->rehearsing && dgates.rank && h < heads.size[1]; h++) {
        double sum = 0;
        for (int64_t b = 0; b < heads.size[0]; b++)
            for (int64_t t = 0; t < heads.size[2]; t++)
                for (int64_t e = 0; e < heads.size[3]; e++)
                    sum += naive_get(dgated, b, h, t, e) * naive_get(heads, b, h, t, e);
        naive_set(dgates, h, 0, 0, 0, naive_get(dgates, h, 0, 0, 0) + sum);
    }
    naive_gate(ctx, dgated, dgated, gates);
}

/* ---- Rows of matrices ------------------------------------------------------------------------------------------- */

void naive_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials)
{
    (void)partials;
    for (int64_t k = 0; !ctx->rehearsing && k < y.size[1]; k++) {
        double all = naive_get(sum, k, 0, 0, 0);
        for (int64_t n = 0; n < y.size[0]; n++) all += naive_get(y, n, k, 0, 0);
        naive_set(sum, k, 0, 0, 0, all);
    }
}

size_t naive_partial_bytes(int64_t rows, int64_t columns)
{
    (void)rows, (void)columns; /* no sum has parts */
    return 0;
}

bool naive_finite(mha_context *ctx, mha_tensor x)
{
    for (int64_t n = 0; !ctx->rehearsing && n < x.size[0]; n++)
        for (int64_t k = 0; k < x.size[1]; k++)
            if (!isfinite(naive_get(x, n, k, 0, 0))) return false;
    return true;
}

static bool is_zero(mha_tensor dy, int64_t n)
{
    for (int64_t k = 0; k < dy.size[1]; k++)
        if (naive_get(dy, n, k, 0, 0) != 0) return false;
    return true;
}

void naive_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy)
{
    for (int64_t n = 0; !ctx->rehearsing && n < x.size[0]; n++) {
        bool zero = is_zero(dy, n);
        for (int64_t k = 0; k < x.size[1]; k++) naive_set(to, n, k, 0, 0, zero ? 0 : naive_get(x, n, k, 0, 0));
    }
}

/* ---- Rotary embedding ------------------------------------------------------------------------------------------- */

/* Not the oracle's angle: float64 alone is off by up to 1e-3 at position 2^40, and every device promises the bits that a
 * longer table would have. So they all take their angles from src/attention. */
static mha_angle angle_of(int64_t position, int64_t pair, int64_t pairs, const mha_frequencies *f)
{
    if (f->values.rank)
        return mha_angle_get((mha_step){naive_get(f->values, pair, 0, 0, 0), 0}, position, f->multiplier);
    mha_step ratio = mha_step_ratio(f->base, pairs), step = {1, 0};
    for (int64_t i = 0; i < pair; i++) step = mha_step_multiply(step, ratio);
    return mha_angle_get(step, position, f->multiplier);
}

void naive_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, const mha_frequencies *frequencies)
{
    for (int64_t p = 0; !ctx->rehearsing && p < cosines.size[0]; p++)
        for (int64_t i = 0; i < cosines.size[1]; i++) {
            mha_angle angle = angle_of(p, i, cosines.size[1], frequencies);
            naive_set(cosines, p, i, 0, 0, (double)angle.cos);
            naive_set(sines, p, i, 0, 0, (double)angle.sin);
        }
}

/* The angles of (b,t): from the tables, or what they would have. */
static void load_angles(const mha_rotation *r, double *cosines, double *sines, int64_t b, int64_t t)
{
    int64_t pairs = r->width / 2, position = mha_rotation_position(r, b, t);
    for (int64_t i = 0; i < pairs; i++) {
        if (mha_rotation_is_beyond(r, b, t)) {
            mha_angle angle = angle_of(position, i, pairs, &r->frequencies);
            cosines[i] = (double)angle.cos;
            sines[i] = (double)angle.sin;
        } else if (r->cos.rank == 2) {
            cosines[i] = naive_get(r->cos, position, i, 0, 0);
            sines[i] = naive_get(r->sin, position, i, 0, 0);
        } else {
            cosines[i] = naive_get(r->cos, b, t, i, 0);
            sines[i] = naive_get(r->sin, b, t, i, 0);
        }
    }
}

typedef struct turning {
    const mha_rotation *rotation;
    double *x, *y, *cosines, *sines; /* (D) twice, (width/2) twice */
} turning;

static void turn_row(void *arg, int64_t b, int64_t h, int64_t t)
{
    turning *w = arg;
    const mha_rotation *r = w->rotation;
    int64_t D = r->x.size[3];
    load_angles(r, w->cosines, w->sines, b, t);
    for (int64_t d = 0; d < D; d++) w->x[d] = naive_get(r->x, b, h, t, d);
    ref_rotary(w->y, w->x, w->cosines, w->sines, 1, D, r->width, r->options.interleaved, r->options.inverse);
    for (int64_t d = 0; d < D; d++) naive_set(r->out, b, h, t, d, w->y[d]);
}

mha_status naive_rotate(const mha_rotation *r)
{
    int64_t D = r->x.size[3];
    double *memory = array(4 * D, sizeof *memory);
    turning w = {r, memory, memory + D, memory + 2 * D, memory + 3 * D};
    each_row(r->ctx, r->x, turn_row, &w);
    free(memory);
    return MHA_OK;
}
