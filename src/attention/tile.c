/* Loading rows, keys and values into padded float32 tiles, and scoring them.
 *
 * Everything irregular ends here: types, strides, ragged sequences, head groups, odd widths. Padding is zero, which
 * adds exact zeros to every product, so the kernels know no tails. Whatever a row does not see becomes -inf by
 * selection, not by addition: a NaN in a hidden key is gone here. */
#include "attention/tile.h"
#include <string.h>

size_t mha_tile_layout(mha_tile *tile, char *memory, const mha_problem *p, const mha_plan *plan)
{
    mha_tile ignored;
    mha_tile *t = tile ? tile : &ignored;
    *t = (mha_tile){.problem = p, .plan = plan};
    int64_t rows = mha_padded(plan->rows);
    const struct {
        void *place; /* the address of a pointer */
        int64_t count;
        size_t width;
    } parts[] = {{&t->ranges, rows, sizeof(mha_range)},
                 {&t->queries, rows * plan->Dp, sizeof(float)},
                 {&t->sums, rows * plan->Ep, sizeof(float)},
                 {&t->max, rows, sizeof(float)},
                 {&t->total, rows, sizeof(float)},
                 {&t->fade, rows, sizeof(float)},
                 {&t->keys, plan->Dp * plan->keys, sizeof(float)},
                 {&t->values, plan->keys * plan->Ep, sizeof(float)},
                 {&t->clean, plan->keys * plan->Ep, sizeof(float)},
                 {&t->staged, plan->keys * plan->Dp, sizeof(float)},
                 {&t->scores, mha_padded(plan->block) * plan->keys, sizeof(float)},
                 {&t->broken, mha_padded(plan->block) * plan->keys, sizeof(uint8_t)},
                 {&t->bias_row, plan->keys, sizeof(float)},
                 {&t->mask_row, plan->keys, sizeof(uint8_t)},
                 {&t->mean, mha_padded(plan->block) * plan->keys, sizeof(float)},
                 {&t->wide, p->E, sizeof(double)}};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *here = memory ? memory + bytes : NULL;
        memcpy(parts[i].place, &here, sizeof here);
        bytes += mha_align_up((size_t)parts[i].count * parts[i].width);
    }
    return bytes;
}

/* Whether a slope times a distance may leave float32, or come so near that a sum with it may. */
static bool may_be_steep(const mha_tile *t)
{
    mha_tensor slopes = t->problem->options.alibi_slopes;
    double far = fabs((double)t->sequence.offset) + (double)(t->sequence.queries + t->sequence.length), most = 0;
    for (int64_t h = t->first_head; slopes.rank && h < t->first_head + t->heads; h++)
        most = fmax(most, fabs((double)*(const float *)mha_at(slopes, t->sequence.b, h, 0, 0)));
    return !(most * far < 1e37);
}

void mha_tile_rows(mha_tile *t, const mha_sequence *sequence, int64_t first_head, int64_t heads, int64_t first,
                   int64_t rows)
{
    const mha_problem *p = t->problem;
    int64_t Dp = t->plan->Dp;
    t->sequence = *sequence;
    t->first_head = first_head;
    t->heads = heads;
    t->first = first;
    t->rows = rows;
    t->seen = (mha_range){INT64_MAX, 0};
    for (int64_t r = 0; r < rows; r++) {
        int64_t i = mha_tile_query(t, r), h = mha_tile_head(t, r);
        float *to = t->queries + r * Dp;
        const void *from = mha_at(p->q, sequence->query_batch, h, sequence->query_row + i, 0);
        mha_row_load(p->kernels, to, from, p->q.type, p->q.stride[3], p->D);
        memset(to + p->D, 0, (size_t)(Dp - p->D) * sizeof *to);
        p->kernels->multiply(to, Dp, p->options.scale);
        mha_range range = t->ranges[r] = mha_range_get(p, sequence, i);
        if (range.low >= range.high) continue;
        if (range.low < t->seen.low) t->seen.low = range.low;
        if (range.high > t->seen.high) t->seen.high = range.high;
    }
    if (t->seen.high == 0) t->seen.low = 0;
    t->largest = p->kernels->largest(t->queries, rows * Dp);
    t->steep = may_be_steep(t);
}

/* Whether a sum of products of the loaded rows and keys may overflow float32 somewhere on its way: a bound, far from
 * every ordinary number, so that nobody else pays for looking at scores one by one. */
static bool may_overflow(const mha_tile *t)
{
    float largest = t->problem->kernels->largest(t->keys, t->problem->D * t->plan->keys);
    return !((double)t->problem->D * (double)t->largest * (double)largest < 1e38);
}

/* Keys as columns: (D,count), with zero columns up to a whole tile and zero rows up to a multiple of 4. */
void mha_tile_keys(mha_tile *t, int64_t key, int64_t count)
{
    const mha_problem *p = t->problem;
    mha_tensor k = p->k;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + key, width = t->plan->keys, ldf = k.stride[2];
    const float *from = mha_at(k, t->sequence.key_batch, g, row, 0);
    t->key = key;
    t->count = count;
    if (k.type != MHA_FLOAT32 || k.stride[3] != 1) {
        for (int64_t j = 0; j < count; j++)
            mha_row_load(p->kernels, t->staged + j * t->plan->Dp, mha_at(k, t->sequence.key_batch, g, row + j, 0),
                         k.type, k.stride[3], p->D);
        from = t->staged;
        ldf = t->plan->Dp;
    }
    p->kernels->transpose(t->keys, width, from, ldf, count, p->D);
    int64_t deep = (p->D + 3) & ~INT64_C(3);
    if (count < width)
        for (int64_t d = 0; d < p->D; d++)
            memset(t->keys + d * width + count, 0, (size_t)(width - count) * sizeof(float));
    memset(t->keys + p->D * width, 0, (size_t)((deep - p->D) * width) * sizeof(float));
    t->suspect = t->steep || may_overflow(t);
}

void mha_tile_values(mha_tile *t)
{
    const mha_problem *p = t->problem;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + t->key, Ep = t->plan->Ep;
    for (int64_t j = 0; j < t->count; j++) {
        float *to = t->values + j * Ep;
        mha_row_load(p->kernels, to, mha_at(p->v, t->sequence.key_batch, g, row + j, 0), p->v.type, p->v.stride[3],
                     p->E);
        memset(to + p->E, 0, (size_t)(Ep - p->E) * sizeof *to);
    }
    int64_t deep = (t->count + 3) & ~INT64_C(3);
    memset(t->values + t->count * Ep, 0, (size_t)((deep - t->count) * Ep) * sizeof(float));
}

/* The bias of one row, in place if it lies ready, else converted. */
static const float *bias_row(mha_tile *t, int64_t h, int64_t i, int64_t count)
{
    mha_tensor bias = t->problem->options.bias;
    const void *from = mha_at(bias, t->sequence.b, h, i, t->key);
    if (bias.type == MHA_FLOAT32 && bias.stride[3] == 1 && count % MHA_PAD == 0) return from;
    mha_row_load(t->problem->kernels, t->bias_row, from, bias.type, bias.stride[3], count);
    return t->bias_row;
}

static const uint8_t *mask_row(mha_tile *t, int64_t h, int64_t i, int64_t count)
{
    mha_tensor mask = t->problem->options.mask;
    const uint8_t *from = mha_at(mask, t->sequence.b, h, i, t->key);
    if (mask.stride[3] == 1 && count % MHA_PAD == 0) return from;
    for (int64_t j = 0; j < count; j++) t->mask_row[j] = from[j * mask.stride[3]];
    return t->mask_row;
}

static void fill(float *s, int64_t from, int64_t to)
{
    for (int64_t j = from; j < to; j++) s[j] = -INFINITY;
}

static int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* Adds to the notes which scores are not finite. */
static void note_broken(uint8_t *broken, const float *s, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        if (!isfinite(s[j])) broken[j] = 1;
}

/* One row of raw scores through ALiBi, bias and visibility. The bias comes after the slope, so that its -inf has the
 * last word. */
static void mask_scores(mha_tile *t, float *s, uint8_t *broken, int64_t r, int64_t count)
{
    const mha_problem *p = t->problem;
    const mha_attention_options *o = &p->options;
    int64_t h = mha_tile_head(t, r), i = mha_tile_query(t, r), padded = mha_padded(count);
    if (o->alibi_slopes.rank) {
        float slope = *(const float *)mha_at(o->alibi_slopes, t->sequence.b, h, 0, 0);
        p->kernels->add_slope(s, padded, slope, (float)(i + t->sequence.offset - t->key));
        if (t->steep) note_broken(broken, s, count);
    }
    if (o->bias.rank) p->kernels->add_bias(s, bias_row(t, h, i, count), padded);
    if (o->mask.rank) p->kernels->hide(s, mask_row(t, h, i, count), padded);
    fill(s, 0, clamp(t->ranges[r].low - t->key, 0, count));
    fill(s, clamp(t->ranges[r].high - t->key, 0, count), padded);
}

void mha_tile_scores(mha_tile *t, int64_t r, int64_t rows, int64_t count, mha_stage stage)
{
    const mha_problem *p = t->problem;
    int64_t width = t->plan->keys, padded = mha_padded(count), deep = (p->D + 3) & ~INT64_C(3);
    p->kernels->product(t->scores, width, NULL, t->queries + r * t->plan->Dp, t->plan->Dp, t->keys, width, rows, padded,
                        deep);
    for (int64_t i = 0; i < rows; i++) {
        float *s = t->scores + i * width;
        uint8_t *broken = t->broken + i * width;
        if (t->suspect) {
            memset(broken, 0, (size_t)count);
            note_broken(broken, s, count);
        }
        if (stage >= MHA_STAGE_CAPPED && p->options.softcap > 0) p->kernels->softcap(s, padded, p->options.softcap);
        if (stage >= MHA_STAGE_MASKED) mask_scores(t, s, broken, r + i, count);
    }
}
