/* The scores of a block of rows against a tile of keys, stage by stage: product, softcap, bias, slopes, what is not seen;
 * and dropout. Whatever a row does not see becomes -inf by selection, not by addition: a NaN in a hidden key is gone
 * here. */
#include "cpu/attention/tile.h"
#include "cpu/isa/repeat.h"
#include <string.h>

/* The bias of row r against the loaded keys. */
static void load_bias_row(mha_tile *t, float *to, int64_t r, int64_t count)
{
    mha_tensor bias = t->problem->options.bias;
    const void *from = mha_at(bias, t->sequence.b, mha_tile_head(t, r), mha_tile_query(t, r), t->keys.first);
    mha_row_load(t->plan->kernels, to, from, bias.type, bias.stride[3], count);
}

/* Whether a tensor looks the same to all rows of a block. */
static bool is_shared(const mha_tile *t, mha_tensor x)
{
    return x.stride[2] == 0 && (x.stride[1] == 0 || t->heads == 1);
}

/* The bias of a block, added where it lies if it can be; otherwise it goes through float32 rows. */
static void add_bias(mha_tile *t, int64_t r, int64_t count)
{
    const mha_problem *p = t->problem;
    mha_tensor bias = p->options.bias;
    int64_t height = mha_tile_height(t, r), lanes = mha_tile_lanes(t, r);
    if (is_shared(t, bias)) {
        load_bias_row(t, t->staged, r, count);
        for (int64_t j = 0; j < count; j++)
            for (int64_t i = 0; i < lanes; i++) t->scores.bias[j * MHA_BLOCK + i] = t->staged[j];
        t->plan->kernels->add_bias(t->scores.lanes, MHA_BLOCK, count, lanes, t->scores.bias, MHA_BLOCK);
        return;
    }
    const float *rows = t->staged;
    int64_t stride = MHA_KEYS;
    if (bias.type == MHA_FLOAT32 && bias.stride[3] == 1 && t->heads == 1) {
        rows = mha_at(bias, t->sequence.b, mha_tile_head(t, r), mha_tile_query(t, r), t->keys.first);
        stride = bias.stride[2];
    } else {
        for (int64_t i = 0; i < height; i++) load_bias_row(t, t->staged + i * MHA_KEYS, r + i, count);
    }
    t->plan->kernels->add_bias_rows(t->scores.lanes, MHA_BLOCK, count, height, rows, stride);
}

/* Halves of four, two and one byte change places across the diagonal: `low` names the lower half. */
static inline void exchange(uint64_t *a, uint64_t *b, int bits, uint64_t low)
{
    uint64_t moved = ((*a >> bits) ^ *b) & low;
    *a ^= moved << bits;
    *b ^= moved;
}

/* Transposes 8 x 8 bytes, one row a word. */
static inline void transpose_bytes(uint64_t x[8])
{
    REPEAT (i, 4) exchange(&x[i], &x[i + 4], 32, UINT64_C(0x00000000ffffffff));
    REPEAT (i, 4) exchange(&x[i / 2 * 4 + i % 2], &x[i / 2 * 4 + i % 2 + 2], 16, UINT64_C(0x0000ffff0000ffff));
    REPEAT (i, 4) exchange(&x[2 * i], &x[2 * i + 1], 8, UINT64_C(0x00ff00ff00ff00ff));
}

/* The mask of eight rows from r on, into lanes of `seen` (count,MHA_BLOCK); past the last row it is repeated. */
static void load_mask(const mha_tile *t, uint8_t *seen, int64_t r, int64_t count)
{
    mha_tensor mask = t->problem->options.mask;
    const uint8_t *row[8];
    int64_t stride = mask.stride[3], j = 0;
    for (int i = 0; i < 8; i++) {
        int64_t at = r + i < t->rows ? r + i : t->rows - 1;
        row[i] = mha_at(mask, t->sequence.b, mha_tile_head(t, at), mha_tile_query(t, at), t->keys.first);
    }
    for (; stride == 1 && j + 8 <= count; j += 8) {
        uint64_t x[8];
        for (int i = 0; i < 8; i++) memcpy(&x[i], row[i] + j, sizeof x[i]);
        transpose_bytes(x);
        for (int i = 0; i < 8; i++) memcpy(seen + (j + i) * MHA_BLOCK, &x[i], sizeof x[i]);
    }
    for (; j < count; j++)
        for (int i = 0; i < 8; i++) seen[j * MHA_BLOCK + i] = row[i][j * stride];
}

static void hide_unseen(mha_tile *t, int64_t r, int64_t count)
{
    uint8_t *seen = (uint8_t *)t->staged;
    int64_t lanes = mha_tile_lanes(t, r);
    if (is_shared(t, t->problem->options.mask)) {
        mha_tensor mask = t->problem->options.mask;
        const uint8_t *row = mha_at(mask, t->sequence.b, mha_tile_head(t, r), 0, t->keys.first);
        for (int64_t j = 0; j < count; j++) memset(seen + j * MHA_BLOCK, row[j * mask.stride[3]], (size_t)lanes);
    } else {
        for (int64_t i = 0; i < lanes; i += 8) load_mask(t, seen + i, r + i, count);
    }
    t->plan->kernels->hide(t->scores.lanes, MHA_BLOCK, count, lanes, seen, MHA_BLOCK);
}

void mha_tile_distances(const mha_tile *t, int64_t r, float distance[MHA_BLOCK])
{
    memset(distance, 0, MHA_BLOCK * sizeof *distance);
    for (int64_t i = 0; i < mha_tile_height(t, r); i++)
        distance[i] = (float)(mha_tile_query(t, r + i) + t->sequence.offset - t->keys.first);
}

static void add_slopes(mha_tile *t, int64_t r, int64_t count)
{
    float slope[MHA_BLOCK] = {0}, distance[MHA_BLOCK];
    for (int64_t i = 0; i < mha_tile_height(t, r); i++) {
        int64_t h = mha_tile_head(t, r + i);
        slope[i] = *(const float *)mha_at(t->problem->options.alibi_slopes, t->sequence.b, h, 0, 0);
    }
    mha_tile_distances(t, r, distance);
    t->plan->kernels->add_slopes(t->scores.lanes, MHA_BLOCK, count, mha_tile_lanes(t, r), slope, distance);
}

static float clamp(int64_t x, int64_t low, int64_t high) { return (float)(x < low ? low : x > high ? high : x); }

/* Hides what lies outside the rows' ranges, if any row's range ends inside the tile. */
static void limit(mha_tile *t, int64_t r, int64_t count)
{
    mha_range all = t->blocks[r / MHA_BLOCK].all;
    if (all.low <= t->keys.first && all.high >= t->keys.first + count) return;
    float low[MHA_BLOCK] = {0}, high[MHA_BLOCK] = {0};
    for (int64_t i = 0; i < mha_tile_height(t, r); i++) {
        mha_range range = t->ranges[r + i];
        low[i] = clamp(range.low - t->keys.first, 0, count);
        high[i] = clamp(range.high - t->keys.first, 0, count);
    }
    t->plan->kernels->limit(t->scores.lanes, MHA_BLOCK, count, mha_tile_lanes(t, r), low, high);
}

/* Adds to the notes which scores are not finite. */
static void note_broken(mha_tile *t, int64_t count)
{
    for (int64_t i = 0; i < count * MHA_BLOCK; i++)
        if (!isfinite(t->scores.lanes[i])) t->scores.broken[i] = 1;
}

static bool are_finite(const mha_tile *t, int64_t count)
{
    return isfinite(t->plan->kernels->largest(t->scores.rows, MHA_KEYS, t->rows, count));
}

mha_product mha_tile_product(const mha_tile *t, int64_t r, int64_t count, float *scores, bool raw)
{
    const mha_problem *p = t->problem;
    return (mha_product){.c = scores,
                         .ldc = MHA_BLOCK,
                         .scale = raw ? 1.0f : t->plan->score_scale,
                         .a = t->room.left_keys,
                         .b = mha_tile_right(t, r),
                         .m = count,
                         .n = mha_tile_lanes(t, r),
                         .k = p->D};
}

/* scale * q.k of a narrow tile by the engine's dots, which do not have the scale unless the queries do. */
static void multiply_halves(mha_tile *t, int64_t count)
{
    int64_t D = t->problem->D;
    float scale = t->plan->score_scale;
    t->dots->dots(t->scores.rows, MHA_KEYS, t->halves.queries, D, t->rows, t->keys.rows.data, t->keys.rows.stride,
                  count, D);
    for (int64_t r = 0; scale != 1.0f && r < t->rows; r++)
        for (int64_t j = 0; j < count; j++) t->scores.rows[r * MHA_KEYS + j] *= scale;
}

/* scale * q.k, but for blocks of an engine. */
static void multiply(mha_tile *t, int64_t r, int64_t count)
{
    const mha_problem *p = t->problem;
    if (t->dots) multiply_halves(t, count);
    else if (t->narrow)
        t->plan->kernels->dots(t->scores.rows, MHA_KEYS, t->queries.data, p->D, t->rows, t->keys.rows.data,
                               t->keys.rows.type, t->keys.rows.stride, count, p->D);
    else if (t->plan->kernels->along)
        t->plan->kernels->product_along(t->scores.lanes, MHA_BLOCK, NULL, t->keys.rows.data, t->keys.rows.stride,
                                        t->queries.data + r * p->D, MHA_BLOCK, count, mha_tile_lanes(t, r), p->D);
    else
        t->plan->kernels->product(t->scores.lanes, MHA_BLOCK, NULL, t->room.keys, MHA_KEYS, t->queries.data + r * p->D,
                                  MHA_BLOCK, (count + 3) & ~INT64_C(3), mha_tile_lanes(t, r), p->D);
}

/* Whether a sum of products of the loaded rows and keys may overflow float32 somewhere on its way: a bound, far from
 * every ordinary number, so that nobody else pays for looking at scores one by one. */
static bool may_overflow(const mha_tile *t)
{
    return !((double)t->problem->D * (double)t->queries.largest * (double)t->keys.largest < 1e38);
}

/* Whether a score may have left float32. A sum that overflowed anywhere on its way ends as infinity or NaN, so looking
 * at the end is enough; where rows are many, the bound of may_overflow spares even that. */
static bool may_be_broken(const mha_tile *t, int64_t count)
{
    return t->scores.steep || (t->narrow ? !are_finite(t, count) : may_overflow(t));
}

/* From products to `stage`, in lanes. */
static void modify(mha_tile *t, int64_t r, int64_t count, mha_stage stage)
{
    const mha_kernels *kernels = t->plan->kernels;
    float cap = t->problem->options.softcap;
    if (t->narrow) kernels->transpose(t->scores.lanes, MHA_BLOCK, t->scores.rows, MHA_KEYS, t->rows, count, NULL);
    if (t->scores.suspect) {
        memset(t->scores.broken, 0, (size_t)(count * MHA_BLOCK));
        note_broken(t, count);
    }
    if (stage >= MHA_STAGE_CAPPED && cap > 0)
        kernels->softcap(t->scores.lanes, MHA_BLOCK, count, mha_tile_lanes(t, r), cap);
    if (stage >= MHA_STAGE_MASKED) mha_tile_mask(t, r, count);
}

void mha_tile_scored(mha_tile *t, int64_t r, int64_t count, mha_stage stage)
{
    t->scores.suspect = may_be_broken(t, count);
    modify(t, r, count, stage);
}

void mha_tile_scores(mha_tile *t, int64_t r, int64_t count, mha_stage stage)
{
    if (t->engine) {
        mha_product product = mha_tile_product(t, r, count, t->scores.lanes, false);
        t->engine->product(&product);
    } else {
        multiply(t, r, count);
    }
    mha_tile_scored(t, r, count, stage);
}

/* What most calls ask for needs no lanes. */
void mha_tile_score_rows(mha_tile *t, int64_t count)
{
    const mha_attention_options *o = &t->problem->options;
    multiply(t, 0, count);
    t->scores.suspect = may_be_broken(t, count);
    if (t->scores.suspect || o->softcap > 0 || o->alibi_slopes.rank || o->bias.rank || o->mask.rank) {
        modify(t, 0, count, MHA_STAGE_MASKED);
        t->plan->kernels->transpose(t->scores.rows, MHA_KEYS, t->scores.lanes, MHA_BLOCK, count, t->rows, NULL);
        return;
    }
    mha_range all = t->blocks->all;
    if (all.low <= t->keys.first && all.high >= t->keys.first + count) return;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t j = 0; j < count; j++)
            if (t->keys.first + j < t->ranges[r].low || t->keys.first + j >= t->ranges[r].high)
                t->scores.rows[r * MHA_KEYS + j] = -INFINITY;
}

/* Bias and mask come after the slopes, so that their -inf has the last word. */
void mha_tile_mask(mha_tile *t, int64_t r, int64_t count)
{
    const mha_attention_options *o = &t->problem->options;
    if (o->alibi_slopes.rank) add_slopes(t, r, count);
    if (t->scores.steep) note_broken(t, count);
    if (o->bias.rank) add_bias(t, r, count);
    if (o->mask.rank) hide_unseen(t, r, count);
    limit(t, r, count);
}

void mha_tile_drop(const mha_tile *t, float *weights, int64_t r, int64_t count)
{
    const mha_problem *p = t->problem;
    if (!(p->options.dropout > 0)) return;
    mha_drop drop = mha_drop_get(p, &t->sequence);
    for (int64_t i = 0; i < mha_tile_height(t, r); i++) {
        drop.query[i] = (uint32_t)mha_tile_query(t, r + i);
        drop.head[i] = (uint32_t)mha_tile_head(t, r + i);
    }
    t->plan->kernels->drop(weights, MHA_BLOCK, count, mha_tile_lanes(t, r), t->keys.first, &drop);
}
