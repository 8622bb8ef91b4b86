/* Activations. A task processes a piece that fits L1; each number is read once and written once. Forward stores the
 * derivative for backward, which is then one product: forward has already computed the exponential, and the derivative
 * replaces z, so it needs no extra memory. */
#include "ops/chunks.h"
#include "ops/functions.h"
#include "ops/ops.h"

enum { PIECE = 4096 }; /* numbers of one task; a multiple of NN_LANES */

/* ---- One number in, one out ------------------------------------------------------------------------------------- */

typedef struct sweep {
    mha_activation activation;
    float *h, *slope; /* slope NULL: not computed */
    const float *z;
    int64_t count;
} sweep;

NN_INLINE void finish(const sweep *s, int64_t i, nn_slope f)
{
    nn_store(s->h + i, f.value);
    if (s->slope) nn_store(s->slope + i, f.slope);
}

/* s->count is a multiple of NN_LANES. */
NN_CLONES static void sweep_lanes(const sweep *s)
{
    const int64_t count = s->count;
    switch (s->activation) {
    case MHA_RELU:
        for (int64_t i = 0; i < count; i += NN_LANES) finish(s, i, nn_relu(nn_load(s->z + i)));
        break;
    case MHA_GELU:
        for (int64_t i = 0; i < count; i += NN_LANES) finish(s, i, nn_gelu(nn_load(s->z + i)));
        break;
    case MHA_GELU_TANH:
        for (int64_t i = 0; i < count; i += NN_LANES) finish(s, i, nn_gelu_tanh(nn_load(s->z + i)));
        break;
    case MHA_SILU:
        for (int64_t i = 0; i < count; i += NN_LANES) finish(s, i, nn_silu(nn_load(s->z + i)));
        break;
    case MHA_LINEAR:
        break;
    }
}

/* The last numbers, padded to a full set of lanes. */
static void sweep_rest(const sweep *s, int64_t rest)
{
    float h[NN_LANES], slope[NN_LANES], z[NN_LANES] = {0};
    memcpy(z, s->z, (size_t)rest * sizeof *z);
    sweep_lanes(&(sweep){s->activation, h, slope, z, NN_LANES});
    memcpy(s->h, h, (size_t)rest * sizeof *h);
    if (s->slope) memcpy(s->slope, slope, (size_t)rest * sizeof *slope);
}

static sweep sweep_at(const sweep *s, int64_t i, int64_t count)
{
    return (sweep){s->activation, s->h + i, s->slope ? s->slope + i : NULL, s->z + i, count};
}

static void sweep_piece(void *arg, int64_t n)
{
    const sweep *s = arg;
    const int64_t first = n * PIECE, left = s->count - first, count = left < PIECE ? left : PIECE;
    const int64_t whole = nn_lanes_whole(count);
    sweep lanes = sweep_at(s, first, whole), rest = sweep_at(s, first + whole, 0);
    sweep_lanes(&lanes);
    if (whole < count) sweep_rest(&rest, count - whole);
}

void nn_activation_forward(mha_context *ctx, mha_activation activation, float *h, float *slope, const float *z,
                           int64_t count)
{
    sweep s = {activation, h, slope, z, count};
    mha_context_each(ctx, (count + PIECE - 1) / PIECE, sweep_piece, &s);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

NN_CLONES static void multiply(float *restrict to, const float *restrict by, int64_t count)
{
    for (int64_t i = 0; i < count; i++) to[i] *= by[i];
}

static void multiply_piece(void *arg, int64_t n)
{
    const sweep *s = arg;
    const int64_t first = n * PIECE, left = s->count - first;
    multiply(s->h + first, s->z + first, left < PIECE ? left : PIECE);
}

void nn_activation_backward(mha_context *ctx, float *dh, const float *slope, int64_t count)
{
    sweep s = {.h = dh, .z = slope, .count = count};
    mha_context_each(ctx, (count + PIECE - 1) / PIECE, multiply_piece, &s);
}

/* ---- Gates: two numbers in -------------------------------------------------------------------------------------- */

typedef struct gates {
    mha_activation activation;
    float *h, *slope;
    const float *z, *dh;
    int64_t rows, width;
} gates;

NN_INLINE void finish_gate(float *h, float *da, float *db, const float *b, int64_t i, nn_slope f)
{
    nn_floats other = nn_load(b + i);
    nn_store(h + i, f.value * other);
    if (!da) return;
    nn_store(da + i, f.slope * other);
    nn_store(db + i, f.value);
}

/* h (width) from a (width) and b (width), a multiple of NN_LANES; da, db (width) the slopes, or NULL. */
NN_CLONES static void gate_lanes(mha_activation activation, float *h, float *da, float *db, const float *a,
                                 const float *b, int64_t width)
{
    switch (activation) {
    case MHA_RELU:
        for (int64_t i = 0; i < width; i += NN_LANES) finish_gate(h, da, db, b, i, nn_relu(nn_load(a + i)));
        break;
    case MHA_GELU:
        for (int64_t i = 0; i < width; i += NN_LANES) finish_gate(h, da, db, b, i, nn_gelu(nn_load(a + i)));
        break;
    case MHA_GELU_TANH:
        for (int64_t i = 0; i < width; i += NN_LANES) finish_gate(h, da, db, b, i, nn_gelu_tanh(nn_load(a + i)));
        break;
    case MHA_SILU:
        for (int64_t i = 0; i < width; i += NN_LANES) finish_gate(h, da, db, b, i, nn_silu(nn_load(a + i)));
        break;
    case MHA_LINEAR:
        for (int64_t i = 0; i < width; i += NN_LANES) {
            nn_floats x = nn_load(a + i);
            finish_gate(h, da, db, b, i, (nn_slope){x, (nn_floats){0} + 1});
        }
        break;
    }
}

static void gate_row(mha_activation activation, float *h, float *da, float *db, const float *a, const float *b,
                     int64_t width)
{
    const int64_t whole = nn_lanes_whole(width);
    const size_t rest = (size_t)(width - whole) * sizeof(float);
    gate_lanes(activation, h, da, db, a, b, whole);
    if (!rest) return;
    float last[5][NN_LANES] = {{0}};
    memcpy(last[3], a + whole, rest);
    memcpy(last[4], b + whole, rest);
    gate_lanes(activation, last[0], last[1], last[2], last[3], last[4], NN_LANES);
    memcpy(h + whole, last[0], rest);
    if (da) memcpy(da + whole, last[1], rest);
    if (da) memcpy(db + whole, last[2], rest);
}

static void gate_chunk(void *arg, int64_t n)
{
    const gates *s = arg;
    const int64_t first = n * NN_CHUNK, end = first + nn_chunk_rows(s->rows, n), width = s->width;
    for (int64_t r = first; r < end; r++) {
        const float *a = s->z + 2 * r * width;
        float *da = s->slope ? s->slope + 2 * r * width : NULL, *db = da ? da + width : NULL;
        gate_row(s->activation, s->h + r * width, da, db, a, a + width, width);
    }
}

void nn_gated_forward(mha_context *ctx, mha_activation activation, float *h, float *slope, const float *z, int64_t rows,
                      int64_t width)
{
    gates s = {.activation = activation, .h = h, .slope = slope, .z = z, .rows = rows, .width = width};
    mha_context_each(ctx, nn_chunks(rows), gate_chunk, &s);
}

static void gate_chunk_back(void *arg, int64_t n)
{
    const gates *s = arg;
    const int64_t first = n * NN_CHUNK, end = first + nn_chunk_rows(s->rows, n), width = s->width;
    for (int64_t r = first; r < end; r++) {
        multiply(s->slope + 2 * r * width, s->dh + r * width, width);
        multiply(s->slope + (2 * r + 1) * width, s->dh + r * width, width);
    }
}

void nn_gated_backward(mha_context *ctx, float *slope, const float *dh, int64_t rows, int64_t width)
{
    gates s = {.slope = slope, .dh = dh, .rows = rows, .width = width};
    mha_context_each(ctx, nn_chunks(rows), gate_chunk_back, &s);
}
