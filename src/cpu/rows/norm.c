/* Normalisation, RMS or with the mean subtracted, and its gradients: of the rows of a model, and of heads.
 *
 * A unit is what is normalised together: a row (b,h,t), or all H rows of a position. Kernels take a block of rows, in
 * place where they are float32 numbers side by side, else as float32 copies on the stack. Most units are one row that fits
 * a block, and a block has many of them; a unit that does not fit is measured block by block, and the sums of its blocks
 * are added in float64. Only the first look at a block reads from memory, the others find it in the cache.
 *
 * The mean is computed from x - x[0]: its error is then a few u of the spread of the unit plus one rounding, however
 * large the numbers are, and constant numbers give exactly their bias. The variance is computed from differences to that
 * mean; the mean of squares minus the square of the mean would cancel.
 *
 * Backward, with h = (x - mean) * by, by = the inverse root, g = gain * dy:
 *
 *     dx = by * (g - mean(g) - h * mean(g h))        without mean(g) for an RMS norm
 *     dgain = sum over units of dy * h               dbias = sum over units of dy
 *
 * Sums over units are taken in chunks of a fixed number of them, each by one task, and the chunks are added in order. */
#include "core/tensor.h"
#include "cpu/isa/kernels.h"
#include "cpu/rows/rows.h"
#include <string.h>

enum { PIECE = 256, NARROW = 256, LESS_ROWS = 8 }; /* columns on the stack; wider rows go in blocks of LESS_ROWS: L1 */

typedef struct job {
    const mha_kernels *kernels;
    mha_tensor to, from; /* results, y or dx; and x */
    mha_tensor dy;
    mha_tensor residual; /* added to x first, or none */
    const float *gain, *bias;
    float *kept;         /* (units,2): the mean, and the inverse root; or NULL */
    int64_t own;         /* numbers from the gains of a head to those of the next; 0: all have the same */
    int64_t rows, units; /* rows of a unit */
    float epsilon;
    bool centred, add;
    bool in_blocks;  /* units are rows that fit a block */
    bool flat;       /* rows lie along axis 2 alone, as those of a model do: they are found without divisions */
    float *partials; /* (chunks,pitch) sums of dgain and, behind them, of dbias; or NULL */
    int64_t pitch, gains;
    bool has_dbias;
} job;

/* Columns k to k + columns - 1 of rows n to n + rows - 1, which lie at equal distances. */
typedef struct block {
    int64_t n, rows, k, columns;
    int64_t at, ldg; /* of its gains */
} block;

typedef struct room {
    float numbers[MHA_ROWS * PIECE];
} room;

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static bool is_plain(mha_tensor x) { return x.type == MHA_FLOAT32 && x.stride[3] == 1; }

static char *row_at(const job *j, mha_tensor x, int64_t n, int64_t k)
{
    if (j->flat) return (char *)x.data + (n * x.stride[2] + k * x.stride[3]) * (int64_t)mha_type_size(x.type);
    return mha_cpu_row(x, n, k);
}

/* The axis along which the rows of a block lie: one position's heads or, if there is one head alone, positions. */
static int line_axis(const job *j) { return j->from.size[1] == 1 ? 2 : 1; }

/* The block from row n, column k on; it ends before row `end`. */
static block block_at(const job *j, int64_t n, int64_t k, int64_t end)
{
    int64_t line = j->from.size[line_axis(j)], columns = j->from.size[3] - k;
    if (!j->in_blocks || !is_plain(j->from) || !is_plain(j->to)) columns = smaller(columns, PIECE);
    block b = {.n = n, .k = k, .columns = columns, .ldg = j->own, .at = k};
    b.rows = smaller(columns > NARROW ? LESS_ROWS : MHA_ROWS, end - n);
    if (j->flat) return b;
    b.rows = smaller(b.rows, line - n % line);
    b.at += n % j->from.size[1] * j->own;
    return b;
}

/* Where the numbers of a block lie: in place, or a copy in the room. */
static const float *block_in_float32(const job *j, mha_tensor x, const block *b, room *home, int64_t *ld)
{
    if (is_plain(x)) {
        *ld = b->rows > 1 ? x.stride[line_axis(j)] : 0;
        return (const float *)(const void *)row_at(j, x, b->n, b->k);
    }
    *ld = PIECE;
    for (int64_t r = 0; r < b->rows; r++)
        mha_row_load(j->kernels, home->numbers + r * PIECE, row_at(j, x, b->n + r, b->k), x.type, x.stride[3],
                     b->columns);
    return home->numbers;
}

/* Where the results of a block are to go: in place, or the room; and from there to where they belong. */
static float *aim(const job *j, const block *b, room *home, int64_t *ld)
{
    *ld = is_plain(j->to) ? (b->rows > 1 ? j->to.stride[line_axis(j)] : 0) : PIECE;
    return is_plain(j->to) ? (float *)(void *)row_at(j, j->to, b->n, b->k) : home->numbers;
}

static void put(const job *j, const block *b, const room *home)
{
    for (int64_t r = 0; !is_plain(j->to) && r < b->rows; r++)
        mha_row_store(j->kernels, row_at(j, j->to, b->n + r, b->k), j->to.type, j->to.stride[3],
                      home->numbers + r * PIECE, b->columns);
}

/* ---- Mean and inverse root -------------------------------------------------------------------------------------- */

static void set_all(float *to, float x)
{
    for (int r = 0; r < MHA_ROWS; r++) to[r] = x;
}

/* Goes through the blocks of a unit: false behind the last one. Starts with rows of 0. */
static bool next(const job *j, block *b, int64_t unit)
{
    int64_t n = unit * j->rows, k = 0, end = n + j->rows;
    if (b->rows) {
        n = b->n, k = b->k + b->columns;
        if (k >= j->from.size[3]) n += b->rows, k = 0;
    }
    if (n >= end) return false;
    *b = block_at(j, n, k, end);
    return true;
}

/* The sum of x - from over a unit, or of its square. */
static double unit_sum(const job *j, int64_t unit, float from, bool squared)
{
    float sum[MHA_ROWS], shift[MHA_ROWS];
    double total = 0;
    room home;
    set_all(shift, from);
    for (block b = {0}; next(j, &b, unit);) {
        int64_t ldx;
        const float *x = block_in_float32(j, j->from, &b, &home, &ldx);
        j->kernels->row_sums(sum, x, ldx, b.rows, b.columns, shift, squared);
        for (int64_t r = 0; r < b.rows; r++) total += (double)sum[r];
    }
    return total;
}

static void measure_unit(const job *j, mha_normal *of, int64_t unit)
{
    double count = (double)(j->rows * j->from.size[3]);
    float first = 0, mean = 0;
    if (j->centred) {
        mha_row_load(j->kernels, &first, mha_cpu_row(j->from, unit * j->rows, 0), j->from.type, 1, 1);
        mean = (float)((double)first + unit_sum(j, unit, first, false) / count);
    }
    set_all(of->mean, mean);
    set_all(of->by, (float)(1 / sqrt(unit_sum(j, unit, mean, true) / count + (double)j->epsilon)));
}

static void keep(const job *j, const mha_normal *of, int64_t unit, int64_t units)
{
    for (int64_t r = 0; j->kept && r < units; r++) {
        j->kept[2 * (unit + r)] = of->mean[r];
        j->kept[2 * (unit + r) + 1] = of->by[r];
    }
}

static void recall(const job *j, mha_normal *of, int64_t unit, int64_t units)
{
    for (int64_t r = 0; r < units; r++) {
        of->mean[r] = j->kept[2 * (unit + r)];
        of->by[r] = j->kept[2 * (unit + r) + 1];
    }
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static void scale(const job *j, const block *b, const mha_normal *of, const float *x, int64_t ldx)
{
    room home;
    int64_t ldy;
    float *y = aim(j, b, &home, &ldy);
    j->kernels->row_scale(y, ldy, x, ldx, b->rows, b->columns, of->mean, of->by, j->gain + b->at,
                          j->bias ? j->bias + b->at : NULL, b->ldg);
    put(j, b, &home);
}

/* Both are float32 numbers side by side; whole rows that lie one behind another are one long row. */
static void add_residual(const job *j, const block *b)
{
    if (!j->residual.rank) return;
    int64_t ldx = j->from.stride[line_axis(j)], ldr = j->residual.stride[line_axis(j)], n = b->columns;
    float *x = (float *)(void *)row_at(j, j->from, b->n, b->k);
    const float *r = (const float *)(const void *)row_at(j, j->residual, b->n, b->k);
    if (ldx == n && ldr == n) j->kernels->add(x, r, b->rows * n);
    else
        for (int64_t row = 0; row < b->rows; row++) j->kernels->add(x + row * ldx, r + row * ldr, n);
}

static void normalize_rows(const job *j, const block *b)
{
    mha_normal of;
    room home;
    int64_t ldx;
    add_residual(j, b);
    const float *x = block_in_float32(j, j->from, b, &home, &ldx);
    j->kernels->row_moments(of.mean, of.by, x, ldx, b->rows, b->columns, j->epsilon, j->centred);
    keep(j, &of, b->n, b->rows);
    scale(j, b, &of, x, ldx);
}

static void normalize_unit(const job *j, int64_t unit)
{
    mha_normal of;
    room home;
    for (block b = {0}; next(j, &b, unit);) add_residual(j, &b);
    measure_unit(j, &of, unit);
    keep(j, &of, unit, 1);
    for (block b = {0}; next(j, &b, unit);) {
        int64_t ldx;
        const float *x = block_in_float32(j, j->from, &b, &home, &ldx);
        scale(j, &b, &of, x, ldx);
    }
}

static void normalize_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t end = smaller((chunk + 1) * MHA_CPU_CHUNK, j->units);
    for (int64_t unit = chunk * MHA_CPU_CHUNK; unit < end;) {
        if (j->in_blocks) {
            block b = block_at(j, unit, 0, end);
            normalize_rows(j, &b);
            unit += b.rows;
        } else normalize_unit(j, unit++);
    }
}

static job make_job(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_norm_about *norm)
{
    int64_t D = from.size[3], rows = norm->all_heads ? from.size[1] : 1;
    return (job){.kernels = ctx->kernels,
                 .to = to,
                 .from = from,
                 .gain = norm->gain.data,
                 .bias = norm->bias.data,
                 .own = norm->gain.size[0] == D ? 0 : D,
                 .rows = rows,
                 .units = rows ? from.size[0] * from.size[1] * from.size[2] / rows : 0,
                 .epsilon = norm->epsilon,
                 .centred = norm->centred,
                 .flat = from.size[0] == 1 && from.size[1] == 1,
                 .in_blocks = rows == 1 && (D <= PIECE || (is_plain(from) && is_plain(to))),
                 .gains = norm->gain.size[0]};
}

static int64_t chunk_count(const job *j) { return (j->units + MHA_CPU_CHUNK - 1) / MHA_CPU_CHUNK; }

void mha_cpu_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                       const mha_norm_about *norm)
{
    job j = make_job(ctx, to, from, norm);
    j.kept = kept.data;
    j.residual = residual;
    if (from.size[3]) mha_parallel_each(ctx, chunk_count(&j), normalize_chunk, &j);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* dy and x of a block, and where they lie. */
typedef struct pair {
    room dy_home, x_home;
    const float *dy, *x;
    int64_t ldd, ldx;
} pair;

static void look_at_both(const job *j, pair *p, const block *b)
{
    p->x = block_in_float32(j, j->from, b, &p->x_home, &p->ldx);
    p->dy = block_in_float32(j, j->dy, b, &p->dy_home, &p->ldd);
}

static bool is_zero(const pair *p, const block *b, int64_t r)
{
    for (int64_t i = 0; i < b->columns; i++)
        if (p->dy[r * p->ldd + i] != 0) return false;
    return true;
}

static void dots(const job *j, float *g, float *gh, const pair *p, const block *b, const mha_normal *of)
{
    j->kernels->row_dots(g, gh, p->dy, p->ldd, p->x, p->ldx, b->rows, b->columns, of, j->gain + b->at, b->ldg);
}

/* dx over dy, if that is where it goes, and the sums over units. */
static void spread(const job *j, pair *p, const block *b, const mha_normal *of, float *sums)
{
    int64_t ldo;
    float *dx = aim(j, b, &p->dy_home, &ldo);
    j->kernels->row_gradient(dx, ldo, j->add, sums ? sums + b->at : NULL,
                             sums && j->has_dbias ? sums + j->gains + b->at : NULL, p->dy, p->ldd, p->x, p->ldx,
                             b->rows, b->columns, of, j->gain + b->at, b->ldg);
    put(j, b, &p->dy_home);
}

/* A row that nobody looked at may be NaN: its dy is 0, and it must neither get a gradient nor give one. The first try is
 * without a look at dy; where a sum is not finite, the block is computed again with care. */
static void back_rows(const job *j, const block *b, float *sums)
{
    mha_normal of = {.centred = j->centred};
    float g[MHA_ROWS], gh[MHA_ROWS], share = 1 / (float)b->columns;
    bool broken = false;
    pair p;
    look_at_both(j, &p, b);
    if (j->kept) recall(j, &of, b->n, b->rows);
    else j->kernels->row_moments(of.mean, of.by, p.x, p.ldx, b->rows, b->columns, j->epsilon, j->centred);
    dots(j, g, gh, &p, b, &of);
    for (int64_t r = 0; r < b->rows; r++) broken |= gh[r] - gh[r] != 0;
    if (broken) {
        for (int64_t r = 0; r < b->rows; r++)
            if (is_zero(&p, b, r)) of.mean[r] = 0, of.by[r] = -1;
        dots(j, g, gh, &p, b, &of);
    }
    for (int64_t r = 0; r < b->rows; r++) {
        of.less[r] = j->centred ? g[r] * share : 0;
        of.less_h[r] = gh[r] * share;
    }
    spread(j, &p, b, &of, sums);
}

/* The same for a unit of several blocks. */
static void back_unit(const job *j, int64_t unit, float *sums)
{
    mha_normal of = {.centred = j->centred};
    float g[MHA_ROWS], gh[MHA_ROWS];
    double sum = 0, dot = 0, count = (double)(j->rows * j->from.size[3]);
    bool zero = true;
    pair p;
    if (j->kept) recall(j, &of, unit, 1), set_all(of.by, of.by[0]), set_all(of.mean, of.mean[0]);
    else measure_unit(j, &of, unit);
    for (block b = {0}; next(j, &b, unit);) {
        look_at_both(j, &p, &b);
        dots(j, g, gh, &p, &b, &of);
        for (int64_t r = 0; r < b.rows; r++)
            sum += (double)g[r], dot += (double)gh[r], zero = zero && is_zero(&p, &b, r);
    }
    if (zero) set_all(of.mean, 0), set_all(of.by, -1), sum = dot = 0;
    set_all(of.less, j->centred ? (float)(sum / count) : 0);
    set_all(of.less_h, (float)(dot / count));
    for (block b = {0}; next(j, &b, unit);) {
        look_at_both(j, &p, &b);
        spread(j, &p, &b, &of, sums);
    }
}

static void back_chunk(void *arg, int64_t chunk)
{
    const job *j = arg;
    int64_t end = smaller((chunk + 1) * MHA_CPU_CHUNK, j->units);
    float *sums = j->partials ? j->partials + chunk * j->pitch : NULL;
    if (sums) memset(sums, 0, (size_t)j->pitch * sizeof *sums);
    for (int64_t unit = chunk * MHA_CPU_CHUNK; unit < end;) {
        if (j->in_blocks) {
            block b = block_at(j, unit, 0, end);
            back_rows(j, &b, sums);
            unit += b.rows;
        } else back_unit(j, unit++, sums);
    }
}

void mha_cpu_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                            const mha_norm_about *norm, float *partials)
{
    job j = make_job(ctx, to->dx, x, norm);
    bool wanted = to->dgain.rank || to->dbias.rank;
    j.dy = dy;
    j.kept = kept.data;
    j.add = to->add;
    j.partials = wanted ? partials : NULL;
    j.has_dbias = to->dbias.rank > 0;
    j.pitch = j.gains * (j.has_dbias ? 2 : 1);
    j.in_blocks = j.in_blocks && (x.size[3] <= PIECE || is_plain(dy));
    if (!x.size[3]) return;
    mha_parallel_each(ctx, chunk_count(&j), back_chunk, &j);
    if (to->dgain.rank) mha_cpu_add_partials(ctx, to->dgain, partials, chunk_count(&j), j.pitch);
    if (to->dbias.rank) mha_cpu_add_partials(ctx, to->dbias, partials + j.gains, chunk_count(&j), j.pitch);
}
