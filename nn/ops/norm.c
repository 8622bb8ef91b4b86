/* LayerNorm and RMS norm. A task processes a chunk of rows, in blocks that fit L1, in three passes: sums for the mean,
 * sums for the variance, the result. Only the first pass reads from memory.
 *
 * The mean is computed from x - x[0]: its error is then a few u of the spread of the row plus one rounding, however
 * large the numbers are, and a constant row gives exactly its bias. The variance is computed from differences to that
 * mean; the mean of squares minus the square of the mean would cancel.
 *
 * Backward, with h = (x - mean) * by, by = the inverse root, g = gain * dy:
 *
 *     dx = by * (g - mean(g) - h * mean(g h))        without mean(g) for an RMS norm
 *     dgain = sum over rows of dy * h                dbias = sum over rows of dy */
#include "ops/chunks.h"
#include "ops/lanes.h"
#include "ops/ops.h"
#include <string.h>

enum { BLOCK = 8 }; /* rows; a divisor of NN_CHUNK. 8 rows of 1024 are 32 KB */

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

/* lanes (rows,16): sums of x - x[0]. */
NN_CLONES static void sum_block(float *restrict lanes, const float *restrict x, int64_t rows, int64_t width)
{
    const int64_t whole = nn_lanes_whole(width);
    for (int64_t r = 0; r < rows; r++, x += width, lanes += NN_LANES) {
        const float first = x[0];
        nn_lanes_clear(lanes);
        for (int64_t i = 0; i < whole; i += NN_LANES)
            for (int l = 0; l < NN_LANES; l++) lanes[l] += x[i + l] - first;
        for (int64_t i = whole; i < width; i++) lanes[i - whole] += x[i] - first;
    }
}

NN_CLONES static void add_block(float *restrict x, const float *restrict r, int64_t count)
{
    for (int64_t i = 0; i < count; i++) x[i] += r[i];
}

/* lanes (rows,16): sums of (x - mean)^2; kept (rows,2). */
NN_CLONES static void square_block(float *restrict lanes, const float *restrict x, const float *restrict kept,
                                   int64_t rows, int64_t width)
{
    const int64_t whole = nn_lanes_whole(width);
    for (int64_t r = 0; r < rows; r++, x += width, lanes += NN_LANES) {
        const float mean = kept[2 * r];
        nn_lanes_clear(lanes);
        for (int64_t i = 0; i < whole; i += NN_LANES)
            for (int l = 0; l < NN_LANES; l++) lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
        for (int64_t i = whole; i < width; i++) lanes[i - whole] += (x[i] - mean) * (x[i] - mean);
    }
}

NN_CLONES static void scale_block(float *restrict y, const float *restrict x, const float *restrict kept,
                                  const float *restrict gain, const float *restrict bias, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        const float mean = kept[2 * r], by = kept[2 * r + 1];
        if (bias)
            for (int64_t i = 0; i < width; i++) y[i] = (x[i] - mean) * by * gain[i] + bias[i];
        else
            for (int64_t i = 0; i < width; i++) y[i] = (x[i] - mean) * by * gain[i];
    }
}

typedef struct sum {
    float *x;
    const float *r;
    int64_t count;
} sum;

enum { PIECE = 4096 }; /* numbers of one task */

static void add_piece(void *arg, int64_t n)
{
    const sum *s = arg;
    int64_t at = n * PIECE, left = s->count - at;
    add_block(s->x + at, s->r + at, left < PIECE ? left : PIECE);
}

void nn_add(mha_context *ctx, float *x, const float *r, int64_t count)
{
    sum s = {x, r, count};
    mha_context_each(ctx, (count + PIECE - 1) / PIECE, add_piece, &s);
}

typedef struct forward {
    nn_norm norm;
    float *y, *kept, *sum; /* sum: receives x + r; NULL without r */
    const float *x, *r;
    int64_t rows;
} forward;

static void forward_block(const forward *f, int64_t row, int64_t rows)
{
    const int64_t width = f->norm.width, at = row * width;
    float lanes[BLOCK * NN_LANES], *kept = f->kept + 2 * row;
    const float *x = f->x + at;
    if (f->sum) add_block(f->sum + at, f->r + at, rows * width);
    if (f->norm.kind == NN_LAYER_NORM) sum_block(lanes, x, rows, width);
    else memset(lanes, 0, sizeof lanes);
    for (int64_t r = 0; r < rows; r++)
        kept[2 * r] =
            f->norm.kind == NN_LAYER_NORM ? x[r * width] + nn_lanes_total(lanes + r * NN_LANES) / (float)width : 0.0f;
    square_block(lanes, x, kept, rows, width);
    for (int64_t r = 0; r < rows; r++)
        kept[2 * r + 1] = 1 / sqrtf(nn_lanes_total(lanes + r * NN_LANES) / (float)width + f->norm.epsilon);
    scale_block(f->y + at, x, kept, f->norm.gain, f->norm.bias, rows, width);
}

static void forward_chunk(void *arg, int64_t n)
{
    const forward *f = arg;
    int64_t rows = nn_chunk_rows(f->rows, n);
    for (int64_t r = 0; r < rows; r += BLOCK) forward_block(f, n * NN_CHUNK + r, rows - r < BLOCK ? rows - r : BLOCK);
}

void nn_norm_forward(mha_context *ctx, const nn_norm *norm, float *y, float *kept, const float *x, int64_t rows)
{
    forward f = {.norm = *norm, .y = y, .kept = kept, .x = x, .rows = rows};
    mha_context_each(ctx, nn_chunks(rows), forward_chunk, &f);
}

void nn_norm_forward_add(mha_context *ctx, const nn_norm *norm, float *y, float *kept, float *x, const float *r,
                         int64_t rows)
{
    forward f = {.norm = *norm, .y = y, .kept = kept, .sum = x, .x = x, .r = r, .rows = rows};
    mha_context_each(ctx, nn_chunks(rows), forward_chunk, &f);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

typedef struct backward {
    nn_norm norm;
    float *dx, *partials; /* partials (chunks,2,width): dgain, dbias */
    const float *dy, *x, *kept;
    bool add;
    int64_t rows;
} backward;

/* g (rows,16), gh (rows,16): sums of g and of g h. */
NN_CLONES static void dot_block(float *restrict g, float *restrict gh, const float *restrict dy,
                                const float *restrict x, const float *restrict kept, const float *restrict gain,
                                int64_t rows, int64_t width)
{
    const int64_t whole = nn_lanes_whole(width);
    for (int64_t r = 0; r < rows; r++, x += width, dy += width, g += NN_LANES, gh += NN_LANES) {
        const float mean = kept[2 * r], by = kept[2 * r + 1];
        nn_lanes_clear(g);
        nn_lanes_clear(gh);
        for (int64_t i = 0; i < whole; i += NN_LANES)
            for (int l = 0; l < NN_LANES; l++) {
                g[l] += dy[i + l] * gain[i + l];
                gh[l] += dy[i + l] * gain[i + l] * ((x[i + l] - mean) * by);
            }
        for (int64_t i = whole; i < width; i++) {
            g[i - whole] += dy[i] * gain[i];
            gh[i - whole] += dy[i] * gain[i] * ((x[i] - mean) * by);
        }
    }
}

/* dx of one element; less (rows,2) holds mean(g) and mean(g h). */
NN_INLINE float dx_of(float dy, float h, float gain, float by, const float *less)
{
    return by * (dy * gain - less[0] - h * less[1]);
}

/* dx of `rows` rows (a constant) and their partial sums: two rows at once halve the loads and stores of the sums. */
NN_INLINE void spread_rows(const int rows, const bool add, float *restrict dx, float *restrict dgain,
                           float *restrict dbias, const float *restrict dy, const float *restrict x,
                           const float *restrict kept, const float *restrict less, const float *restrict gain,
                           int64_t width)
{
    for (int64_t i = 0; i < width; i++) {
        float h = (x[i] - kept[0]) * kept[1], sum_gain = dy[i] * h, sum_bias = dy[i];
        float d = dx_of(dy[i], h, gain[i], kept[1], less);
        dx[i] = add ? dx[i] + d : d;
        if (rows == 2) {
            const int64_t j = i + width;
            h = (x[j] - kept[2]) * kept[3];
            sum_gain += dy[j] * h;
            sum_bias += dy[j];
            d = dx_of(dy[j], h, gain[i], kept[3], less + 2);
            dx[j] = add ? dx[j] + d : d;
        }
        dgain[i] += sum_gain;
        dbias[i] += sum_bias;
    }
}

NN_INLINE void spread_block(const bool add, float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                            const float *kept, const float *less, const float *gain, int64_t rows, int64_t width)
{
    int64_t r = 0, at = 0;
    for (; r + 2 <= rows; r += 2, at += 2 * width)
        spread_rows(2, add, dx + at, dgain, dbias, dy + at, x + at, kept + 2 * r, less + 2 * r, gain, width);
    if (r < rows) spread_rows(1, add, dx + at, dgain, dbias, dy + at, x + at, kept + 2 * r, less + 2 * r, gain, width);
}

NN_CLONES static void write_block(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                                  const float *kept, const float *less, const float *gain, int64_t rows, int64_t width)
{
    spread_block(false, dx, dgain, dbias, dy, x, kept, less, gain, rows, width);
}

NN_CLONES static void add_to_block(float *dx, float *dgain, float *dbias, const float *dy, const float *x,
                                   const float *kept, const float *less, const float *gain, int64_t rows, int64_t width)
{
    spread_block(true, dx, dgain, dbias, dy, x, kept, less, gain, rows, width);
}

static void backward_block(const backward *b, float *dgain, float *dbias, int64_t row, int64_t rows)
{
    const int64_t width = b->norm.width, at = row * width;
    const float *kept = b->kept + 2 * row;
    float g[BLOCK * NN_LANES], gh[BLOCK * NN_LANES], less[BLOCK * 2];
    dot_block(g, gh, b->dy + at, b->x + at, kept, b->norm.gain, rows, width);
    for (int64_t r = 0; r < rows; r++) {
        less[2 * r] = b->norm.kind == NN_LAYER_NORM ? nn_lanes_total(g + r * NN_LANES) / (float)width : 0.0f;
        less[2 * r + 1] = nn_lanes_total(gh + r * NN_LANES) / (float)width;
    }
    (b->add ? add_to_block : write_block)(b->dx + at, dgain, dbias, b->dy + at, b->x + at, kept, less, b->norm.gain,
                                          rows, width);
}

static void backward_chunk(void *arg, int64_t n)
{
    const backward *b = arg;
    const int64_t width = b->norm.width, rows = nn_chunk_rows(b->rows, n);
    float *dgain = b->partials + 2 * n * width;
    memset(dgain, 0, (size_t)(2 * width) * sizeof *dgain);
    for (int64_t r = 0; r < rows; r += BLOCK)
        backward_block(b, dgain, dgain + width, n * NN_CHUNK + r, rows - r < BLOCK ? rows - r : BLOCK);
}

mha_status nn_norm_backward(mha_context *ctx, nn_workspace *workspace, const nn_norm *norm,
                            const nn_norm_gradients *gradients, const float *dy, const float *x, const float *kept,
                            int64_t rows)
{
    const int64_t width = norm->width, chunks = nn_chunks(rows);
    backward b = {.norm = *norm, .dx = gradients->dx, .dy = dy, .x = x, .kept = kept, .add = gradients->add};
    b.rows = rows;
    b.partials = nn_workspace_take(workspace, (size_t)(2 * chunks * width) * sizeof *b.partials);
    if (!b.partials) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for partial sums");
    mha_context_each(ctx, chunks, backward_chunk, &b);
    nn_add_chunks(ctx, gradients->dgain, b.partials, chunks, 2 * width, width);
    nn_add_chunks(ctx, gradients->dbias, b.partials + width, chunks, 2 * width, width);
    return MHA_OK;
}
