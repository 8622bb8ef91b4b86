/* The streaming softmax, fused: no Tq x Tk buffer.
 *
 *     for each tile of keys:                                   max, total, sums start at -inf, 0, 0
 *         S = scale K Q^T, softcap, bias, mask                 a block of rows at a time, in L1
 *         max' = max(max, S),  P = exp(S - max')
 *         fade = exp(max - max'),  total = fade total + sum of P
 *         sums = fade sums + V^T dropout(P)
 *
 * A block goes through a whole span of tiles, so that its queries, scores and sums stay in L1 while packed keys and
 * values stream by from L2. Tiles start at multiples of their size, and products run over keys in order, so the bits
 * of a row do not depend on the rows beside it: keys that a row does not see add exact zeros.
 *
 * That last sentence fails when a hidden value is infinite or NaN, for 0 * inf is NaN. Testing every V in advance
 * would cost everyone, so the result is tested instead: a piece with a row that is not finite is done again with the
 * unseen values of each row wiped out: same bits for all else.
 *
 * A narrow tile has at most MHA_NARROW rows: a step of a decoder. It is bound by reading K and V, so they are read
 * as they lie, once for all rows; scores are dot products along D and lie row by row, and values are added up along
 * E. */
#include "attention/attend.h"
#include "attention/careful.h"
#include <string.h>

/* V without the keys to which one row gives no weight, weights `stride` apart; as the engine wants it, where there is
 * one. */
static void clean_values(mha_tile *t, const float *weights, int64_t stride, int64_t count)
{
    int64_t E = t->problem->E, width = t->engine ? E : t->plan->Ep;
    int64_t bytes = t->value_stride * (int64_t)mha_type_size(t->value_type);
    memset(t->clean, 0, (size_t)(count * t->plan->Ep) * sizeof *t->clean);
    for (int64_t j = 0; j < count; j++) {
        const void *from = (const char *)t->values + j * bytes;
        if (weights[j * stride] == 0.0f) continue;
        if (t->engine) memcpy((uint16_t *)t->clean + j * width, from, (size_t)E * sizeof(uint16_t));
        else mha_row_load(t->problem->kernels, t->clean + j * width, from, t->value_type, 1, E);
    }
    if (t->engine) t->engine->pack_left(t->left_clean, (const uint16_t *)t->clean, E, false, E, count);
}

/* sums = fade sums + V^T P for row r alone. The whole vector that its lane is in goes along; only that lane is kept. */
static void add_clean_lane(mha_tile *t, int64_t r, int64_t count)
{
    int64_t Em = t->plan->Em, lanes = t->problem->kernels->lanes, lane = r % MHA_BLOCK, base = lane / lanes * lanes;
    float *sums = mha_tile_sums(t, r - lane) + base, *copy = t->staged;
    const float *fade = t->blocks[r / MHA_BLOCK].begun ? t->fade + r - lane + base : NULL;
    clean_values(t, t->scores + lane, MHA_BLOCK, count);
    for (int64_t e = 0; e < Em; e++) memcpy(copy + e * lanes, sums + e * MHA_BLOCK, (size_t)lanes * sizeof *copy);
    if (t->engine) {
        t->engine->round_right(t->right_weights, t->scores + base, MHA_BLOCK, lanes, count);
        t->engine->product(copy, lanes, fade, 1.0f, t->left_clean, t->right_weights, t->problem->E, lanes, count);
    } else {
        t->problem->kernels->product(copy, lanes, fade, t->clean, t->plan->Ep, t->scores + base, MHA_BLOCK, Em, lanes,
                                     count);
    }
    for (int64_t e = 0; e < Em; e++) sums[e * MHA_BLOCK + lane - base] = copy[e * lanes + lane - base];
}

static void add_values(mha_tile *t, int64_t r, int64_t count, bool clean)
{
    int64_t lanes = mha_tile_lanes(t, r);
    const float *fade = t->blocks[r / MHA_BLOCK].begun ? t->fade + r : NULL; /* the first sums have nothing to join */
    for (int64_t i = 0; clean && i < mha_tile_height(t, r); i++) add_clean_lane(t, r + i, count);
    if (clean) return;
    if (!t->engine) {
        t->problem->kernels->product(mha_tile_sums(t, r), MHA_BLOCK, fade, t->values, t->value_stride, t->scores,
                                     MHA_BLOCK, t->plan->Em, lanes, count);
        return;
    }
    if (!t->engine->softmax || t->problem->options.dropout > 0) {
        memset(t->scores + count * MHA_BLOCK, 0, (size_t)((t->count - count) * MHA_BLOCK) * sizeof *t->scores);
        t->engine->round_right(t->right_weights, t->scores, MHA_BLOCK, lanes, t->count);
    }
    t->engine->product(mha_tile_sums(t, r), MHA_BLOCK, fade, 1.0f, t->left_values, t->right_weights, t->problem->E,
                       lanes, t->count);
}

/* The same for a narrow tile. */
static void add_value_rows(mha_tile *t, int64_t count, bool clean)
{
    const mha_kernels *kernels = t->problem->kernels;
    int64_t Ep = t->plan->Ep, n = (t->problem->E + kernels->lanes - 1) / kernels->lanes * kernels->lanes;
    const float *fade = t->blocks->begun ? t->fade : NULL;
    if (!clean)
        kernels->blend(t->sums, Ep, fade, t->score_rows, MHA_KEYS, t->rows, t->values, t->value_type, t->value_stride,
                       count, n);
    for (int64_t r = 0; clean && r < t->rows; r++) {
        float *weights = t->score_rows + r * MHA_KEYS;
        clean_values(t, weights, 1, count);
        kernels->blend(t->sums + r * Ep, Ep, fade ? fade + r : fade, weights, MHA_KEYS, 1, t->clean, MHA_FLOAT32, Ep,
                       count, n);
    }
}

/* A row that sees a score which left float32 cannot be trusted any more, even if softcap made it look harmless: a NaN
 * as its maximum sends it the careful way. */
static void give_up_broken(mha_tile *t, int64_t r, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < mha_tile_height(t, r); i++)
            if (t->broken[j * MHA_BLOCK + i] && mha_careful_sees(t->problem, &t->sequence, mha_tile_head(t, r + i),
                                                                 mha_tile_query(t, r + i), t->key + j))
                t->max[r + i] = NAN;
}

/* The rows of a narrow tile against the keys at work. */
static void attend_rows(mha_tile *t, int64_t count, bool clean)
{
    const mha_kernels *kernels = t->problem->kernels;
    mha_tile_score_rows(t, count);
    if (t->suspect) give_up_broken(t, 0, count);
    kernels->softmax_rows(t->score_rows, MHA_KEYS, t->rows, count, t->max, t->total, t->fade);
    if (t->problem->options.dropout > 0) {
        kernels->transpose(t->scores, MHA_BLOCK, t->score_rows, MHA_KEYS, t->rows, count, NULL);
        mha_tile_drop(t, t->scores, 0, count);
        kernels->transpose(t->score_rows, MHA_KEYS, t->scores, MHA_BLOCK, count, t->rows, NULL);
    }
    add_value_rows(t, count, clean);
}

static void attend_lanes(mha_tile *t, int64_t r, int64_t count, bool clean)
{
    mha_tile_scores(t, r, count, MHA_STAGE_MASKED);
    if (t->suspect) give_up_broken(t, r, count);
    int64_t lanes = mha_tile_lanes(t, r);
    float *max = t->max + r, *total = t->total + r, *fade = t->fade + r;
    if (t->engine && t->engine->softmax) /* all keys, as V was packed */
        t->engine->softmax(t->right_weights, t->scores, MHA_BLOCK, count, t->count, lanes, max, total, fade);
    else t->problem->kernels->softmax(t->scores, MHA_BLOCK, count, lanes, max, total, fade);
    mha_tile_drop(t, t->scores, r, count);
    add_values(t, r, count, clean);
}

/* The block that starts at row r against the keys at work. */
static void attend_block(mha_tile *t, int64_t r, bool clean)
{
    mha_block *block = &t->blocks[r / MHA_BLOCK];
    if (block->any.high <= t->key || block->any.low >= t->key + t->count) return;
    int64_t count = block->any.high - t->key < t->count ? block->any.high - t->key : t->count;
    if (t->narrow) attend_rows(t, count, clean);
    else attend_lanes(t, r, count, clean);
    block->begun = true;
}

/* One chunk of keys from the start. */
static void attend_chunk(mha_tile *t, int64_t low, int64_t high, bool clean)
{
    int64_t lanes = (t->rows + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK;
    for (int64_t r = 0; r < lanes; r++) {
        t->max[r] = -INFINITY;
        t->total[r] = 0.0f;
    }
    for (int64_t r = 0; r < lanes; r += MHA_BLOCK) t->blocks[r / MHA_BLOCK].begun = false;
    for (int64_t key = low / MHA_KEYS * MHA_KEYS, next; key < high; key = next) {
        next = mha_tile_span(t, key, high);
        for (int64_t r = 0; r < t->rows; r += MHA_BLOCK)
            for (int64_t n = 0; key + n * MHA_KEYS < next; n++) {
                mha_tile_turn(t, n);
                attend_block(t, r, clean);
            }
    }
    int64_t size = t->narrow ? t->rows * t->plan->Ep : MHA_BLOCK * t->plan->Em;
    for (int64_t r = 0; r < lanes; r += MHA_BLOCK) /* who saw nothing */
        if (!t->blocks[r / MHA_BLOCK].begun) memset(mha_tile_sums(t, r), 0, (size_t)size * sizeof(float));
}

/* Adds the chunk that has just been taken to the ones before it. */
static void fold_chunk(mha_tile *t)
{
    const mha_kernels *kernels = t->problem->kernels;
    for (int64_t r = 0; t->narrow && r < t->rows; r++)
        kernels->fold_row(t->all_sums + r * t->plan->Ep, t->all_max + r, t->all_total + r, t->sums + r * t->plan->Ep,
                          t->max[r], t->total[r], t->plan->Ep);
    for (int64_t r = 0; !t->narrow && r < t->rows; r += MHA_BLOCK)
        kernels->fold(t->all_sums + r * t->plan->Em, t->all_max + r, t->all_total + r, mha_tile_sums(t, r), t->max + r,
                      t->total + r, MHA_BLOCK, t->problem->E, mha_tile_lanes(t, r));
}

static void swap(float **a, float **b)
{
    float *held = *a;
    *a = *b;
    *b = held;
}

/* The results so far change places with those of the chunk. */
static void exchange(mha_tile *t)
{
    swap(&t->max, &t->all_max);
    swap(&t->total, &t->all_total);
    swap(&t->sums, &t->all_sums);
}

/* The first chunk needs no folding, and most calls have only that one. */
static void attend(mha_tile *t, int64_t low, int64_t high, bool clean)
{
    int64_t keys = mha_chunks_get(&t->sequence).keys, first = keys ? low / keys * keys : 0;
    attend_chunk(t, low, first + keys < high ? first + keys : high, clean);
    if (first + keys >= high) return;
    exchange(t);
    for (int64_t chunk = first + keys; chunk < high; chunk += keys) {
        attend_chunk(t, chunk, chunk + keys < high ? chunk + keys : high, clean);
        fold_chunk(t);
    }
    exchange(t);
}

/* 0 for each row of the block whose sums are finite, else NaN. */
static void find_unsound(const mha_tile *t, int64_t r, float unsound[MHA_BLOCK])
{
    if (!t->narrow) {
        t->problem->kernels->unsound(unsound, mha_tile_sums(t, r), MHA_BLOCK, t->problem->E, mha_tile_lanes(t, r));
        return;
    }
    for (int64_t i = 0; i < t->rows; i++) {
        unsound[i] = 0.0f;
        for (int64_t e = 0; e < t->problem->E; e++) unsound[i] += t->sums[i * t->plan->Ep + e] * 0.0f;
    }
}

/* Judges every row. Returns whether some row's softmax is sound but its values are not: the mark of a hidden NaN. */
static bool judge(mha_tile *t)
{
    int hidden = 0;
    for (int64_t r = 0; r < t->rows; r += MHA_BLOCK) {
        float unsound[MHA_BLOCK];
        find_unsound(t, r, unsound);
        for (int64_t i = 0; i < mha_tile_height(t, r); i++) { /* a finite number times 0 is 0 */
            int softmax = t->max[r + i] * 0.0f + t->total[r + i] * 0.0f == 0.0f, sound = softmax & (unsound[i] == 0.0f);
            t->sound[r + i] = sound;
            hidden |= softmax ^ sound;
        }
    }
    return hidden;
}

void mha_attend(mha_tile *t, int64_t low, int64_t high)
{
    if (low < t->seen.low) low = t->seen.low;
    if (high > t->seen.high) high = t->seen.high;
    attend(t, low, high, false);
    if (!judge(t)) return;
    attend(t, low, high, true);
    judge(t);
}

void mha_attend_rows(const mha_tile *t, int64_t r, float *rows)
{
    int64_t height = mha_tile_height(t, r), E = t->problem->E;
    for (int64_t i = 0; t->narrow && i < height; i++)
        memcpy(rows + i * E, t->sums + i * t->plan->Ep, (size_t)E * sizeof *rows);
    if (!t->narrow) t->problem->kernels->transpose(rows, E, mha_tile_sums(t, r), MHA_BLOCK, E, height, NULL);
}
