/* The streaming softmax, fused: no Tq x Tk buffer.
 *
 *     for each tile of keys:                                   max, total, sums start at -inf, 0, 0
 *         S = scale K Q^T, softcap, bias, mask                 a block of rows at a time, in L1
 *         max' = max(max, S), or a little less,  P = exp(S - max')
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
#include "cpu/attention/attend.h"
#include "cpu/attention/careful.h"
#include <string.h>

/* V without the keys to which one row gives no weight, weights `stride` apart; as the engine wants it, where there is
 * one. */
static void clean_values(mha_tile *t, const float *weights, int64_t stride, int64_t count)
{
    int64_t E = t->problem->E, width = t->engine ? E : t->plan->Ep;
    int64_t bytes = t->keys.values.stride * (int64_t)mha_type_size(t->keys.values.type);
    memset(t->clean, 0, (size_t)(count * t->plan->Ep) * sizeof *t->clean);
    for (int64_t j = 0; j < count; j++) {
        const void *from = (const char *)t->keys.values.data + j * bytes;
        if (weights[j * stride] == 0.0f) continue;
        if (t->engine) memcpy((uint16_t *)t->clean + j * width, from, (size_t)E * sizeof(uint16_t));
        else mha_row_load(t->plan->kernels, t->clean + j * width, from, t->keys.values.type, 1, E);
    }
    if (t->engine) t->engine->pack_left(t->halves.clean, (const uint16_t *)t->clean, E, false, E, count);
}

/* sums = fade sums + V^T P for row r alone. The whole vector that its lane is in goes along; only that lane is kept. */
static void add_clean_lane(mha_tile *t, int64_t r, int64_t count)
{
    int64_t Em = t->plan->Em, lanes = t->plan->kernels->lanes, lane = r % MHA_BLOCK, base = lane / lanes * lanes;
    float *sums = mha_tile_sums(t, r - lane) + base, *copy = t->staged;
    const float *fade = t->blocks[r / MHA_BLOCK].begun ? t->fade + r - lane + base : NULL;
    clean_values(t, t->scores.lanes + lane, MHA_BLOCK, count);
    for (int64_t e = 0; e < Em; e++) memcpy(copy + e * lanes, sums + e * MHA_BLOCK, (size_t)lanes * sizeof *copy);
    if (t->engine) {
        t->engine->round_right(t->halves.weights, t->scores.lanes + base, MHA_BLOCK, lanes, count);
        t->engine->product(
            &(mha_product){copy, lanes, fade, 1.0f, t->halves.clean, t->halves.weights, t->problem->E, lanes, count});
    } else {
        t->plan->kernels->product(copy, lanes, fade, t->clean, t->plan->Ep, t->scores.lanes + base, MHA_BLOCK, Em,
                                  lanes, count);
    }
    for (int64_t e = 0; e < Em; e++) sums[e * MHA_BLOCK + lane - base] = copy[e * lanes + lane - base];
}

static void add_clean_lanes(mha_tile *t, int64_t r, int64_t count)
{
    for (int64_t i = 0; i < mha_tile_height(t, r); i++) add_clean_lane(t, r + i, count);
}

/* sums = fade sums + V^T P with an engine, whose factor P is ready; for all keys, as V was packed. */
static mha_product value_product(const mha_tile *t, int64_t r, const float *fade)
{
    return (mha_product){.c = mha_tile_sums(t, r),
                         .ldc = MHA_BLOCK,
                         .fade = t->blocks[r / MHA_BLOCK].begun ? fade : NULL, /* the first have nothing to join */
                         .scale = 1.0f,
                         .a = t->room.left_values,
                         .b = t->halves.weights,
                         .m = t->problem->E,
                         .n = mha_tile_lanes(t, r),
                         .k = t->keys.count};
}

/* The factor P from the weights. */
static void round_weights(mha_tile *t, int64_t r, int64_t count)
{
    memset(t->scores.lanes + count * MHA_BLOCK, 0,
           (size_t)((t->keys.count - count) * MHA_BLOCK) * sizeof *t->scores.lanes);
    t->engine->round_right(t->halves.weights, t->scores.lanes, MHA_BLOCK, mha_tile_lanes(t, r), t->keys.count);
}

static void add_values(mha_tile *t, int64_t r, int64_t count, bool clean)
{
    const float *fade = t->blocks[r / MHA_BLOCK].begun ? t->fade + r : NULL; /* the first sums have nothing to join */
    if (clean) {
        add_clean_lanes(t, r, count);
        return;
    }
    if (t->engine) {
        round_weights(t, r, count);
        mha_product product = value_product(t, r, t->fade + r);
        t->engine->product(&product);
        return;
    }
    t->plan->kernels->product(mha_tile_sums(t, r), MHA_BLOCK, fade, t->keys.values.data, t->keys.values.stride,
                              t->scores.lanes, MHA_BLOCK, t->plan->Em, mha_tile_lanes(t, r), count);
}

/* The same for a narrow tile. */
static void add_value_rows(mha_tile *t, int64_t count, bool clean)
{
    const mha_kernels *kernels = t->plan->kernels;
    int64_t Ep = t->plan->Ep, n = mha_whole(kernels, t->problem->E);
    const float *fade = t->blocks->begun ? t->fade : NULL;
    if (!clean)
        kernels->blend(t->running.sums, Ep, fade, t->scores.rows, MHA_KEYS, t->rows, t->keys.values.data,
                       t->keys.values.type, t->keys.values.stride, count, n);
    for (int64_t r = 0; clean && r < t->rows; r++) {
        float *weights = t->scores.rows + r * MHA_KEYS;
        clean_values(t, weights, 1, count);
        kernels->blend(t->running.sums + r * Ep, Ep, fade ? fade + r : fade, weights, MHA_KEYS, 1, t->clean,
                       MHA_FLOAT32, Ep, count, n);
    }
}

/* The rows of a narrow tile against the keys at work. */
static void attend_rows(mha_tile *t, int64_t count, bool clean)
{
    const mha_kernels *kernels = t->plan->kernels;
    mha_tile_score_rows(t, count);
    if (t->scores.suspect) mha_careful_give_up(t, 0, count);
    kernels->softmax_rows(t->scores.rows, MHA_KEYS, t->rows, count, t->running.max, t->running.total, t->fade);
    if (t->problem->options.dropout > 0) {
        kernels->transpose(t->scores.lanes, MHA_BLOCK, t->scores.rows, MHA_KEYS, t->rows, count, NULL);
        mha_tile_drop(t, t->scores.lanes, 0, count);
        kernels->transpose(t->scores.rows, MHA_KEYS, t->scores.lanes, MHA_BLOCK, count, t->rows, NULL);
    }
    add_value_rows(t, count, clean);
}

static void attend_lanes(mha_tile *t, int64_t r, int64_t count, bool clean)
{
    mha_tile_scores(t, r, count, MHA_STAGE_MASKED);
    if (t->scores.suspect) mha_careful_give_up(t, r, count);
    t->plan->kernels->softmax(t->scores.lanes, MHA_BLOCK, count, mha_tile_lanes(t, r), t->running.max + r,
                              t->running.total + r, t->fade + r);
    mha_tile_drop(t, t->scores.lanes, r, count);
    add_values(t, r, count, clean);
}

/* The block that starts at row r against the keys at work. */
static void attend_block(mha_tile *t, int64_t r, bool clean)
{
    int64_t count = mha_tile_seen(t, r);
    if (!count) return;
    if (t->narrow) attend_rows(t, count, clean);
    else attend_lanes(t, r, count, clean);
    t->blocks[r / MHA_BLOCK].begun = true;
}

static void swap(float **a, float **b)
{
    float *held = *a;
    *a = *b;
    *b = held;
}

static void swap_halves(uint16_t **a, uint16_t **b)
{
    uint16_t *held = *a;
    *a = *b;
    *b = held;
}

/* Whether nothing between product and softmax asks for the scale: then the softmax may bring it. */
static bool may_stay_raw(const mha_tile *t)
{
    const mha_attention_options *o = &t->problem->options;
    return t->plan->score_scale > 0 && !(o->softcap > 0) && !o->alibi_slopes.rank && !o->bias.rank;
}

/* A block of rows that meets a tile of the span, and how many keys of it any row may see. */
typedef struct meeting {
    int64_t r, n, count;
} meeting;

/* Turns to the next meeting after `m`, or to m itself if it is one; false if there is none. */
static bool find_meeting(mha_tile *t, meeting *m, int64_t tiles)
{
    for (; m->r < t->rows; m->r += MHA_BLOCK, m->n = 0)
        for (; m->n < tiles; m->n++) {
            mha_tile_turn(t, m->n);
            m->count = mha_tile_seen(t, m->r);
            if (m->count) return true;
        }
    return false;
}

/* All blocks against all tiles of the span, with an engine that multiplies while exponentials are taken: the values of
 * the meeting before, and the scores of the next one. */
static void attend_stream(mha_tile *t, int64_t tiles, bool clean)
{
    const mha_problem *p = t->problem;
    bool raw = may_stay_raw(t), drops = p->options.dropout > 0;
    float fade[MHA_BLOCK];
    mha_product waiting[MHA_MEANWHILE];
    int values = 0; /* products of values that are waiting */
    meeting now = {0}, next;
    bool more = find_meeting(t, &now, tiles);
    if (!more) return;
    mha_product first = mha_tile_product(t, now.r, now.count, t->scores.lanes, raw);
    t->engine->product(&first);
    for (; more; now = next) {
        next = (meeting){now.r, now.n + 1, 0};
        more = find_meeting(t, &next, tiles);
        if (more) waiting[values] = mha_tile_product(t, next.r, next.count, t->halves.other_scores, raw);
        mha_tile_turn(t, now.n);
        mha_tile_scored(t, now.r, now.count, MHA_STAGE_MASKED);
        if (t->scores.suspect) mha_careful_give_up(t, now.r, now.count);
        mha_weighing w = {.to = t->halves.weights,
                          .k = t->keys.count,
                          .s = t->scores.lanes,
                          .lds = MHA_BLOCK,
                          .count = now.count,
                          .n = mha_tile_lanes(t, now.r),
                          .scale = raw ? t->plan->score_scale : 1.0f,
                          .kept = drops || clean,
                          .max = t->running.max + now.r,
                          .sum = t->running.total + now.r,
                          .fade = t->fade + now.r};
        t->engine->weigh(&w, waiting, values + more);
        mha_tile_drop(t, t->scores.lanes, now.r, now.count);
        if (drops) round_weights(t, now.r, now.count);
        if (clean) add_clean_lanes(t, now.r, now.count);
        memcpy(fade, t->fade + now.r, sizeof fade);
        waiting[0] = value_product(t, now.r, fade);
        values = !clean;
        t->blocks[now.r / MHA_BLOCK].begun = true;
        swap(&t->scores.lanes, &t->halves.other_scores);
        swap_halves(&t->halves.weights, &t->halves.other_weights);
    }
    if (values) t->engine->product(&waiting[0]);
}

/* One chunk of keys from the start. */
static void attend_chunk(mha_tile *t, int64_t low, int64_t high, bool clean)
{
    int64_t lanes = (t->rows + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK;
    for (int64_t r = 0; r < lanes; r++) {
        t->running.max[r] = -INFINITY;
        t->running.total[r] = 0.0f;
    }
    for (int64_t r = 0; r < lanes; r += MHA_BLOCK) t->blocks[r / MHA_BLOCK].begun = false;
    for (int64_t key = low / MHA_KEYS * MHA_KEYS, next; key < high; key = next) {
        next = mha_tile_span(t, key, high);
        int64_t tiles = (next - key) / MHA_KEYS;
        if (t->engine && t->engine->weigh) {
            attend_stream(t, tiles, clean);
            continue;
        }
        for (int64_t r = 0; r < t->rows; r += MHA_BLOCK)
            for (int64_t n = 0; n < tiles; n++) {
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
    const mha_kernels *kernels = t->plan->kernels;
    for (int64_t r = 0; t->narrow && r < t->rows; r++)
        kernels->fold_row(t->folded.sums + r * t->plan->Ep, t->folded.max + r, t->folded.total + r,
                          t->running.sums + r * t->plan->Ep, t->running.max[r], t->running.total[r], t->plan->Ep);
    for (int64_t r = 0; !t->narrow && r < t->rows; r += MHA_BLOCK)
        kernels->fold(t->folded.sums + r * t->plan->Em, t->folded.max + r, t->folded.total + r, mha_tile_sums(t, r),
                      t->running.max + r, t->running.total + r, MHA_BLOCK, t->problem->E, mha_tile_lanes(t, r));
}

/* The results so far change places with those of the chunk. */
static void exchange(mha_tile *t)
{
    mha_running held = t->running;
    t->running = t->folded;
    t->folded = held;
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
        t->plan->kernels->unsound(unsound, mha_tile_sums(t, r), MHA_BLOCK, t->problem->E, mha_tile_lanes(t, r));
        return;
    }
    for (int64_t i = 0; i < t->rows; i++) /* a finite number times 0 is 0 */
        unsound[i] = t->plan->kernels->largest(t->running.sums + i * t->plan->Ep, 0, 1, t->problem->E) * 0.0f;
}

/* Judges every row. Returns whether some row's softmax is sound but its values are not: the mark of a hidden NaN. */
static bool judge(mha_tile *t)
{
    int hidden = 0;
    for (int64_t r = 0; r < t->rows; r += MHA_BLOCK) {
        float unsound[MHA_BLOCK];
        find_unsound(t, r, unsound);
        for (int64_t i = 0; i < mha_tile_height(t, r); i++) { /* a finite number times 0 is 0 */
            int softmax = t->running.max[r + i] * 0.0f + t->running.total[r + i] * 0.0f == 0.0f,
                sound = softmax & (unsound[i] == 0.0f);
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
        memcpy(rows + i * E, t->running.sums + i * t->plan->Ep, (size_t)E * sizeof *rows);
    if (!t->narrow) t->plan->kernels->transpose(rows, E, mha_tile_sums(t, r), MHA_BLOCK, E, height, NULL);
}
