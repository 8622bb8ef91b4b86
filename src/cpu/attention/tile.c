/* Loading rows, keys and values into float32 tiles. Everything irregular ends here: types, strides, ragged sequences, head
 * groups, odd widths. */
#include "cpu/attention/tile.h"
#include <string.h>

/* Turns to the room of tile n of the span. */
static void use_room(mha_tile *t, int64_t n)
{
    const mha_problem *p = t->problem;
    t->room = (mha_key_room){t->rooms.keys + n * p->D * MHA_KEYS, t->rooms.values + n * MHA_KEYS * t->plan->Ep,
                             t->rooms.left_keys + n * mha_engine_size(MHA_KEYS, p->D),
                             t->rooms.left_values + n * mha_engine_size(p->E, MHA_KEYS)};
}

void mha_tile_layout(mha_tile *t, mha_arena *arena, const mha_problem *p, const mha_plan *plan)
{
    *t = (mha_tile){.problem = p, .plan = plan};
    int64_t rows = (plan->rows + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK, square = MHA_KEYS * MHA_BLOCK;
    int64_t packed = plan->engine ? 1 : 0; /* times what an engine needs */
    bool direct = p->v.type == MHA_FLOAT32 && p->v.stride[3] == 1 && p->E % MHA_PAD == 0; /* values need no room */
    MHA_TAKE(arena, t->ranges, rows);
    MHA_TAKE(arena, t->blocks, rows / MHA_BLOCK);
    MHA_TAKE(arena, t->queries.data, rows * p->D);
    MHA_TAKE(arena, t->running.sums, rows * plan->Ep);
    MHA_TAKE(arena, t->running.max, rows);
    MHA_TAKE(arena, t->running.total, rows);
    MHA_TAKE(arena, t->fade, rows);
    MHA_TAKE(arena, t->folded.sums, rows * plan->Ep);
    MHA_TAKE(arena, t->folded.max, rows);
    MHA_TAKE(arena, t->folded.total, rows);
    MHA_TAKE(arena, t->loaded, plan->span);
    MHA_TAKE(arena, t->rooms.keys, plan->span * p->D * MHA_KEYS);
    MHA_TAKE(arena, t->rooms.values, (direct ? 0 : plan->span) * MHA_KEYS * plan->Ep);
    MHA_TAKE(arena, t->clean, MHA_KEYS * plan->Ep);
    MHA_TAKE(arena, t->staged, plan->staged);
    MHA_TAKE(arena, t->halves.queries, packed * rows / MHA_BLOCK * mha_engine_size(MHA_BLOCK, p->D));
    MHA_TAKE(arena, t->rooms.left_keys, packed * plan->span * mha_engine_size(MHA_KEYS, p->D));
    MHA_TAKE(arena, t->rooms.left_values, packed * plan->span * mha_engine_size(p->E, MHA_KEYS));
    MHA_TAKE(arena, t->halves.clean, packed * mha_engine_size(p->E, MHA_KEYS));
    MHA_TAKE(arena, t->halves.weights, packed * mha_engine_size(MHA_BLOCK, MHA_KEYS));
    MHA_TAKE(arena, t->halves.other_weights, packed * mha_engine_size(MHA_BLOCK, MHA_KEYS));
    MHA_TAKE(arena, t->halves.other_scores, packed * square);
    MHA_TAKE(arena, t->scores.broken, square);
    MHA_TAKE(arena, t->scores.lanes, square);
    MHA_TAKE(arena, t->scores.rows, MHA_NARROW * MHA_KEYS);
    MHA_TAKE(arena, t->scores.bias, square);
    MHA_TAKE(arena, t->mean, square);
    MHA_TAKE(arena, t->sound, rows);
    MHA_TAKE(arena, t->wide, p->E);
    if (arena->base) use_room(t, 0);
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

/* Row r of the queries. */
static void load_query(mha_tile *t, float *to, int64_t r)
{
    const mha_problem *p = t->problem;
    int64_t row = t->sequence.query_row + mha_tile_query(t, r);
    const void *from = mha_at(p->q, t->sequence.query_batch, mha_tile_head(t, r), row, 0);
    mha_row_load(t->plan->kernels, to, from, p->q.type, p->q.stride[3], p->D);
}

/* One block of queries, as columns: straight from where they lie if they lie evenly. Returns their largest size. */
static float load_block(mha_tile *t, int64_t r)
{
    const mha_problem *p = t->problem;
    int64_t height = mha_tile_height(t, r), row = t->sequence.query_row + mha_tile_query(t, r), ldf = p->q.stride[2];
    const float *from = mha_at(p->q, t->sequence.query_batch, t->first_head, row, 0);
    if (p->q.type != MHA_FLOAT32 || p->q.stride[3] != 1 || t->heads > 1) {
        for (int64_t i = 0; i < height; i++) load_query(t, t->staged + i * p->D, r + i);
        from = t->staged;
        ldf = p->D;
    }
    return t->plan->kernels->columns(t->queries.data + r * p->D, MHA_BLOCK, from, ldf, height, p->D, p->options.scale);
}

const uint16_t *mha_tile_halves(int64_t *stride, uint16_t *room, mha_tensor x, int64_t batch, int64_t head, int64_t row,
                                int64_t rows)
{
    int64_t n = x.size[3];
    *stride = x.stride[3] == 1 ? x.stride[2] : n;
    if (x.stride[3] == 1) return mha_at(x, batch, head, row, 0);
    for (int64_t r = 0; r < rows; r++) {
        const uint16_t *from = mha_at(x, batch, head, row + r, 0);
        for (int64_t i = 0; i < n; i++) room[r * n + i] = from[i * x.stride[3]];
    }
    return room;
}

/* One block of queries for the engine. Returns the largest size of what they are when scaled. */
static float load_right(mha_tile *t, int64_t r)
{
    const mha_problem *p = t->problem;
    int64_t height = mha_tile_height(t, r), stride = p->D, batch = t->sequence.query_batch;
    uint16_t *room = (uint16_t *)t->staged;
    const uint16_t *from = room;
    if (t->heads == 1)
        from = mha_tile_halves(&stride, room, p->q, batch, t->first_head, t->sequence.query_row + mha_tile_query(t, r),
                               height);
    for (int64_t i = 0; t->heads > 1 && i < height; i++) {
        int64_t row = t->sequence.query_row + mha_tile_query(t, r + i), ignored;
        const uint16_t *one = mha_tile_halves(&ignored, room + i * p->D, p->q, batch, mha_tile_head(t, r + i), row, 1);
        if (one != room + i * p->D) memcpy(room + i * p->D, one, (size_t)p->D * sizeof *one);
    }
    float by = fabsf(p->options.scale); /* scores that are scaled afterwards must fit float32 before, too */
    if (t->plan->score_scale != 1.0f) by = fmaxf(by, 1.0f);
    float largest = t->plan->kernels->largest_bf16(from, stride, height, p->D) * by;
    if (t->plan->score_scale == 1.0f) {
        t->plan->kernels->scale_bf16(room, from, stride, p->options.scale, height, p->D);
        from = room;
        stride = p->D;
    }
    t->engine->pack_right(mha_tile_right(t, r), from, stride, true, height, p->D);
    return largest;
}

/* Row r of the queries of a narrow tile, for an engine's dots. */
static void load_half_query(mha_tile *t, int64_t r)
{
    const mha_problem *p = t->problem;
    int64_t row = t->sequence.query_row + mha_tile_query(t, r), ignored;
    uint16_t *to = t->halves.queries + r * p->D;
    const uint16_t *from =
        mha_tile_halves(&ignored, (uint16_t *)t->staged, p->q, t->sequence.query_batch, mha_tile_head(t, r), row, 1);
    if (t->plan->score_scale == 1.0f) t->plan->kernels->scale_bf16(to, from, p->D, p->options.scale, 1, p->D);
    else memcpy(to, from, (size_t)p->D * sizeof *to);
}

/* What the rows of a block see. */
static void place_block(mha_tile *t, int64_t r)
{
    mha_block *block = &t->blocks[r / MHA_BLOCK];
    const mha_attention_options *o = &t->problem->options;
    bool alike = !o->causal && o->window_left == MHA_UNLIMITED && o->window_right == MHA_UNLIMITED;
    mha_range range = {0, t->sequence.length};
    *block = (mha_block){{INT64_MAX, 0}, {0, INT64_MAX}, false};
    if (alike) {
        bool whole = t->sequence.length == t->sequence.keys; /* then nobody asks for the range of a row */
        for (int64_t i = r; !whole && i < r + mha_tile_height(t, r); i++) t->ranges[i] = range;
        *block = (mha_block){range, range, false};
        return;
    }
    for (int64_t i = r; i < r + mha_tile_height(t, r); i++) {
        range = t->ranges[i] = mha_visible_keys(t->problem, &t->sequence, mha_tile_query(t, i));
        if (range.low > block->all.low) block->all.low = range.low;
        if (range.high < block->all.high) block->all.high = range.high;
        if (range.low >= range.high) continue;
        if (range.low < block->any.low) block->any.low = range.low;
        if (range.high > block->any.high) block->any.high = range.high;
    }
}

void mha_tile_place(mha_tile *t, const mha_sequence *sequence, int64_t first_head, int64_t heads, int64_t first,
                    int64_t rows)
{
    t->sequence = *sequence;
    t->first_head = first_head;
    t->heads = heads;
    t->first = first;
    t->rows = rows;
    t->engine = mha_sequence_engine(t->plan, t->problem, sequence);
    t->narrow = mha_sequence_is_narrow(t->problem, sequence);
    t->dots = t->narrow && t->plan->engine && t->plan->engine->dots ? t->plan->engine : NULL;
    t->seen = (mha_range){INT64_MAX, 0};
    for (int64_t r = 0; r < rows; r += MHA_BLOCK) {
        place_block(t, r);
        mha_range any = t->blocks[r / MHA_BLOCK].any;
        if (any.low < t->seen.low) t->seen.low = any.low;
        if (any.high > t->seen.high) t->seen.high = any.high;
    }
    if (t->seen.high == 0) t->seen.low = 0;
}

void mha_tile_load(mha_tile *t)
{
    t->scores.steep = may_be_steep(t);
    t->queries.largest = 0.0f;
    for (int64_t r = 0; t->dots && r < t->rows; r++) load_half_query(t, r);
    for (int64_t r = 0; t->narrow && !t->dots && r < t->rows; r++) {
        float *to = t->queries.data + r * t->problem->D;
        load_query(t, to, r);
        for (int64_t d = 0; d < t->problem->D; d++) to[d] *= t->problem->options.scale;
    }
    for (int64_t r = 0; !t->narrow && r < t->rows; r += MHA_BLOCK) {
        float here = t->engine ? load_right(t, r) : load_block(t, r);
        if (here > t->queries.largest || isnan(here)) t->queries.largest = here; /* a NaN comes, too, and stays */
    }
}

void mha_tile_keys(mha_tile *t, int64_t key, int64_t count)
{
    const mha_problem *p = t->problem;
    mha_tensor k = p->k;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + key;
    t->keys.first = key;
    t->keys.count = count;
    if (t->dots) {
        t->keys.rows.data =
            mha_tile_halves(&t->keys.rows.stride, (uint16_t *)t->room.keys, k, t->sequence.key_batch, g, row, count);
        return;
    }
    if (t->engine) {
        int64_t stride;
        const uint16_t *from = mha_tile_halves(&stride, (uint16_t *)t->staged, k, t->sequence.key_batch, g, row, count);
        t->engine->pack_left(t->room.left_keys, from, stride, true, count, p->D);
        t->keys.largest = t->plan->kernels->largest_bf16(from, stride, count, p->D);
        return;
    }
    t->keys.rows = (mha_view){mha_at(k, t->sequence.key_batch, g, row, 0), k.type, k.stride[2]};
    bool rows = t->narrow || t->plan->kernels->along; /* keys are read as rows, not as columns */
    if (k.stride[3] != 1 || (!t->narrow && (k.type != MHA_FLOAT32 || (rows && mha_rows_apart(k))))) {
        float *to = rows ? t->room.keys : t->staged;
        for (int64_t j = 0; j < count; j++)
            mha_row_load(t->plan->kernels, to + j * p->D, mha_at(k, t->sequence.key_batch, g, row + j, 0), k.type,
                         k.stride[3], p->D);
        t->keys.rows = (mha_view){to, MHA_FLOAT32, p->D};
    }
    if (!rows)
        t->keys.largest = t->plan->kernels->columns(t->room.keys, MHA_KEYS, t->keys.rows.data, t->keys.rows.stride,
                                                    count, p->D, 1.0f);
    else if (!t->narrow)
        t->keys.largest = t->plan->kernels->largest(t->keys.rows.data, t->keys.rows.stride, count, p->D);
}

void mha_tile_values(mha_tile *t)
{
    const mha_problem *p = t->problem;
    mha_tensor v = p->v;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + t->keys.first, Ep = t->plan->Ep;
    int64_t unit = t->narrow ? t->plan->kernels->lanes : 4; /* what a product reads at once along E */
    if (t->engine) {
        int64_t stride;
        const uint16_t *from =
            mha_tile_halves(&stride, (uint16_t *)t->room.values, v, t->sequence.key_batch, g, row, t->keys.count);
        t->engine->pack_left(t->room.left_values, from, stride, false, p->E, t->keys.count);
        t->keys.values = (mha_view){from, MHA_BFLOAT16, stride};
        return;
    }
    t->keys.values = (mha_view){mha_at(v, t->sequence.key_batch, g, row, 0), v.type, v.stride[2]};
    bool apart = !t->narrow && mha_rows_apart(v);
    if ((t->narrow || v.type == MHA_FLOAT32) && v.stride[3] == 1 && p->E % unit == 0 && !apart) return;
    for (int64_t j = 0; j < t->keys.count; j++) {
        float *to = t->room.values + j * Ep;
        mha_row_load(t->plan->kernels, to, mha_at(v, t->sequence.key_batch, g, row + j, 0), v.type, v.stride[3], p->E);
        memset(to + p->E, 0, (size_t)(Ep - p->E) * sizeof *to);
    }
    t->keys.values = (mha_view){t->room.values, MHA_FLOAT32, Ep};
}

int64_t mha_tile_span(mha_tile *t, int64_t key, int64_t high)
{
    for (int64_t n = 0; n < t->plan->span && key < high; n++, key += MHA_KEYS) {
        use_room(t, n);
        mha_tile_keys(t, key, high - key < MHA_KEYS ? high - key : MHA_KEYS);
        mha_tile_values(t);
        t->loaded[n] = t->keys;
    }
    return key;
}

void mha_tile_turn(mha_tile *t, int64_t n)
{
    use_room(t, n);
    t->keys = t->loaded[n];
}
