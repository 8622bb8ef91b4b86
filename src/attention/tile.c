/* Loading rows, keys and values into float32 tiles, and scoring them.
 *
 * Everything irregular ends here: types, strides, ragged sequences, head groups, odd widths. Whatever a row does not
 * see becomes -inf by selection, not by addition: a NaN in a hidden key is gone here. */
#include "attention/tile.h"
#include "cpu/repeat.h"
#include <string.h>

/* Turns to the room of tile n of the span. */
static void use_room(mha_tile *t, int64_t n)
{
    const mha_problem *p = t->problem;
    t->keys = t->key_room + n * p->D * MHA_KEYS;
    t->packed = t->value_room + n * MHA_KEYS * t->plan->Ep;
    t->left_keys = t->left_key_room + n * mha_engine_size(MHA_KEYS, p->D);
    t->left_values = t->left_value_room + n * mha_engine_size(p->E, MHA_KEYS);
}

size_t mha_tile_layout(mha_tile *tile, char *memory, const mha_problem *p, const mha_plan *plan)
{
    mha_tile ignored;
    mha_tile *t = tile ? tile : &ignored;
    *t = (mha_tile){.problem = p, .plan = plan};
    int64_t rows = (plan->rows + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK, square = MHA_KEYS * MHA_BLOCK;
    int64_t packed = p->engine ? 1 : 0; /* times what an engine needs */
    bool direct = p->v.type == MHA_FLOAT32 && p->v.stride[3] == 1 && p->E % MHA_PAD == 0; /* values need no room */
    const struct {
        void *place; /* the address of a pointer */
        int64_t count;
        size_t width;
    } parts[] = {{&t->ranges, rows, sizeof(mha_range)},
                 {&t->blocks, rows / MHA_BLOCK, sizeof(mha_block)},
                 {&t->queries, rows * p->D, sizeof(float)},
                 {&t->sums, rows * plan->Ep, sizeof(float)},
                 {&t->max, rows, sizeof(float)},
                 {&t->total, rows, sizeof(float)},
                 {&t->fade, rows, sizeof(float)},
                 {&t->all_sums, rows * plan->Ep, sizeof(float)},
                 {&t->all_max, rows, sizeof(float)},
                 {&t->all_total, rows, sizeof(float)},
                 {&t->loaded, plan->span, sizeof(mha_keys)},
                 {&t->key_room, plan->span * p->D * MHA_KEYS, sizeof(float)},
                 {&t->value_room, (direct ? 0 : plan->span) * MHA_KEYS * plan->Ep, sizeof(float)},
                 {&t->clean, MHA_KEYS * plan->Ep, sizeof(float)},
                 {&t->staged, plan->staged, sizeof(float)},
                 {&t->right_queries, packed * rows / MHA_BLOCK * mha_engine_size(MHA_BLOCK, p->D), sizeof(uint16_t)},
                 {&t->left_key_room, packed * plan->span * mha_engine_size(MHA_KEYS, p->D), sizeof(uint16_t)},
                 {&t->left_value_room, packed * plan->span * mha_engine_size(p->E, MHA_KEYS), sizeof(uint16_t)},
                 {&t->left_clean, packed * mha_engine_size(p->E, MHA_KEYS), sizeof(uint16_t)},
                 {&t->right_weights, packed * mha_engine_size(MHA_BLOCK, MHA_KEYS), sizeof(uint16_t)},
                 {&t->other_weights, packed * mha_engine_size(MHA_BLOCK, MHA_KEYS), sizeof(uint16_t)},
                 {&t->other_scores, packed * square, sizeof(float)},
                 {&t->broken, square, sizeof(uint8_t)},
                 {&t->scores, square, sizeof(float)},
                 {&t->score_rows, MHA_NARROW * MHA_KEYS, sizeof(float)},
                 {&t->bias, square, sizeof(float)},
                 {&t->mean, square, sizeof(float)},
                 {&t->sound, rows, sizeof(bool)},
                 {&t->wide, p->E, sizeof(double)}};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char *here = memory ? memory + bytes : NULL;
        memcpy(parts[i].place, &here, sizeof here);
        bytes += mha_align_up((size_t)parts[i].count * parts[i].width);
    }
    if (memory) use_room(t, 0);
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

/* Row r of the queries. */
static void load_query(mha_tile *t, float *to, int64_t r)
{
    const mha_problem *p = t->problem;
    int64_t row = t->sequence.query_row + mha_tile_query(t, r);
    const void *from = mha_at(p->q, t->sequence.query_batch, mha_tile_head(t, r), row, 0);
    mha_row_load(p->kernels, to, from, p->q.type, p->q.stride[3], p->D);
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
    return p->kernels->columns(t->queries + r * p->D, MHA_BLOCK, from, ldf, height, p->D, p->options.scale);
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
    if (p->score_scale != 1.0f) by = fmaxf(by, 1.0f);
    float largest = p->kernels->largest_bf16(from, stride, height, p->D) * by;
    if (p->score_scale == 1.0f) {
        p->kernels->scale_bf16(room, from, stride, p->options.scale, height, p->D);
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
    uint16_t *to = t->right_queries + r * p->D;
    const uint16_t *from =
        mha_tile_halves(&ignored, (uint16_t *)t->staged, p->q, t->sequence.query_batch, mha_tile_head(t, r), row, 1);
    if (p->score_scale == 1.0f) p->kernels->scale_bf16(to, from, p->D, p->options.scale, 1, p->D);
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
        range = t->ranges[i] = mha_range_get(t->problem, &t->sequence, mha_tile_query(t, i));
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
    t->engine = mha_sequence_engine(t->problem, sequence);
    t->narrow = mha_sequence_is_narrow(t->problem, sequence);
    t->dots = t->narrow && t->problem->engine && t->problem->engine->dots ? t->problem->engine : NULL;
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
    t->steep = may_be_steep(t);
    t->largest = 0.0f;
    for (int64_t r = 0; t->dots && r < t->rows; r++) load_half_query(t, r);
    for (int64_t r = 0; t->narrow && !t->dots && r < t->rows; r++) {
        float *to = t->queries + r * t->problem->D;
        load_query(t, to, r);
        for (int64_t d = 0; d < t->problem->D; d++) to[d] *= t->problem->options.scale;
    }
    for (int64_t r = 0; !t->narrow && r < t->rows; r += MHA_BLOCK) {
        float here = t->engine ? load_right(t, r) : load_block(t, r);
        if (here > t->largest || isnan(here)) t->largest = here; /* a NaN comes, too, and stays */
    }
}

/* Whether a sum of products of the loaded rows and keys may overflow float32 somewhere on its way: a bound, far from
 * every ordinary number, so that nobody else pays for looking at scores one by one. */
static bool may_overflow(const mha_tile *t)
{
    return !((double)t->problem->D * (double)t->largest * (double)t->key_largest < 1e38);
}

void mha_tile_keys(mha_tile *t, int64_t key, int64_t count)
{
    const mha_problem *p = t->problem;
    mha_tensor k = p->k;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + key;
    t->key = key;
    t->count = count;
    if (t->dots) {
        t->key_rows = mha_tile_halves(&t->key_stride, (uint16_t *)t->keys, k, t->sequence.key_batch, g, row, count);
        return;
    }
    if (t->engine) {
        int64_t stride;
        const uint16_t *from = mha_tile_halves(&stride, (uint16_t *)t->staged, k, t->sequence.key_batch, g, row, count);
        t->engine->pack_left(t->left_keys, from, stride, true, count, p->D);
        t->key_largest = p->kernels->largest_bf16(from, stride, count, p->D);
        return;
    }
    t->key_rows = mha_at(k, t->sequence.key_batch, g, row, 0);
    t->key_type = k.type;
    t->key_stride = k.stride[2];
    bool rows = t->narrow || p->kernels->along; /* keys are read as rows, not as columns */
    if (k.stride[3] != 1 || (!t->narrow && k.type != MHA_FLOAT32)) {
        float *to = rows ? t->keys : t->staged;
        for (int64_t j = 0; j < count; j++)
            mha_row_load(p->kernels, to + j * p->D, mha_at(k, t->sequence.key_batch, g, row + j, 0), k.type,
                         k.stride[3], p->D);
        t->key_rows = to;
        t->key_type = MHA_FLOAT32;
        t->key_stride = p->D;
    }
    if (!rows) t->key_largest = p->kernels->columns(t->keys, MHA_KEYS, t->key_rows, t->key_stride, count, p->D, 1.0f);
    else if (!t->narrow) t->key_largest = p->kernels->largest(t->key_rows, t->key_stride, count, p->D);
}

void mha_tile_values(mha_tile *t)
{
    const mha_problem *p = t->problem;
    mha_tensor v = p->v;
    int64_t g = t->first_head / p->share, row = t->sequence.key_row + t->key, Ep = t->plan->Ep;
    int64_t unit = t->narrow ? p->kernels->lanes : 4; /* what a product reads at once along E */
    if (t->engine) {
        const uint16_t *from =
            mha_tile_halves(&t->value_stride, (uint16_t *)t->packed, v, t->sequence.key_batch, g, row, t->count);
        t->engine->pack_left(t->left_values, from, t->value_stride, false, p->E, t->count);
        t->values = from;
        t->value_type = MHA_BFLOAT16;
        return;
    }
    t->values = mha_at(v, t->sequence.key_batch, g, row, 0);
    t->value_type = v.type;
    t->value_stride = v.stride[2];
    if ((t->narrow || v.type == MHA_FLOAT32) && v.stride[3] == 1 && p->E % unit == 0) return;
    for (int64_t j = 0; j < t->count; j++) {
        float *to = t->packed + j * Ep;
        mha_row_load(p->kernels, to, mha_at(v, t->sequence.key_batch, g, row + j, 0), v.type, v.stride[3], p->E);
        memset(to + p->E, 0, (size_t)(Ep - p->E) * sizeof *to);
    }
    t->values = t->packed;
    t->value_type = MHA_FLOAT32;
    t->value_stride = Ep;
}

int64_t mha_tile_span(mha_tile *t, int64_t key, int64_t high)
{
    for (int64_t n = 0; n < t->plan->span && key < high; n++, key += MHA_KEYS) {
        use_room(t, n);
        mha_tile_keys(t, key, high - key < MHA_KEYS ? high - key : MHA_KEYS);
        mha_tile_values(t);
        t->loaded[n] = (mha_keys){t->key,      t->count,      t->key_largest, t->key_rows,    t->values,
                                  t->key_type, t->value_type, t->key_stride,  t->value_stride};
    }
    return key;
}

void mha_tile_turn(mha_tile *t, int64_t n)
{
    mha_keys it = t->loaded[n];
    use_room(t, n);
    t->key = it.key;
    t->count = it.count;
    t->key_largest = it.key_largest;
    t->key_rows = it.key_rows;
    t->values = it.values;
    t->key_type = it.key_type;
    t->value_type = it.value_type;
    t->key_stride = it.key_stride;
    t->value_stride = it.value_stride;
}

/* The bias of row r against the loaded keys. */
static void load_bias_row(mha_tile *t, float *to, int64_t r, int64_t count)
{
    mha_tensor bias = t->problem->options.bias;
    const void *from = mha_at(bias, t->sequence.b, mha_tile_head(t, r), mha_tile_query(t, r), t->key);
    mha_row_load(t->problem->kernels, to, from, bias.type, bias.stride[3], count);
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
            for (int64_t i = 0; i < lanes; i++) t->bias[j * MHA_BLOCK + i] = t->staged[j];
        p->kernels->add_bias(t->scores, MHA_BLOCK, count, lanes, t->bias, MHA_BLOCK);
        return;
    }
    const float *rows = t->staged;
    int64_t stride = MHA_KEYS;
    if (bias.type == MHA_FLOAT32 && bias.stride[3] == 1 && t->heads == 1) {
        rows = mha_at(bias, t->sequence.b, mha_tile_head(t, r), mha_tile_query(t, r), t->key);
        stride = bias.stride[2];
    } else {
        for (int64_t i = 0; i < height; i++) load_bias_row(t, t->staged + i * MHA_KEYS, r + i, count);
    }
    p->kernels->add_bias_rows(t->scores, MHA_BLOCK, count, height, rows, stride);
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
        row[i] = mha_at(mask, t->sequence.b, mha_tile_head(t, at), mha_tile_query(t, at), t->key);
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
        const uint8_t *row = mha_at(mask, t->sequence.b, mha_tile_head(t, r), 0, t->key);
        for (int64_t j = 0; j < count; j++) memset(seen + j * MHA_BLOCK, row[j * mask.stride[3]], (size_t)lanes);
    } else {
        for (int64_t i = 0; i < lanes; i += 8) load_mask(t, seen + i, r + i, count);
    }
    t->problem->kernels->hide(t->scores, MHA_BLOCK, count, lanes, seen, MHA_BLOCK);
}

void mha_tile_distances(const mha_tile *t, int64_t r, float distance[MHA_BLOCK])
{
    memset(distance, 0, MHA_BLOCK * sizeof *distance);
    for (int64_t i = 0; i < mha_tile_height(t, r); i++)
        distance[i] = (float)(mha_tile_query(t, r + i) + t->sequence.offset - t->key);
}

static void add_slopes(mha_tile *t, int64_t r, int64_t count)
{
    float slope[MHA_BLOCK] = {0}, distance[MHA_BLOCK];
    for (int64_t i = 0; i < mha_tile_height(t, r); i++) {
        int64_t h = mha_tile_head(t, r + i);
        slope[i] = *(const float *)mha_at(t->problem->options.alibi_slopes, t->sequence.b, h, 0, 0);
    }
    mha_tile_distances(t, r, distance);
    t->problem->kernels->add_slopes(t->scores, MHA_BLOCK, count, mha_tile_lanes(t, r), slope, distance);
}

static float clamp(int64_t x, int64_t low, int64_t high) { return (float)(x < low ? low : x > high ? high : x); }

/* Hides what lies outside the rows' ranges, if any row's range ends inside the tile. */
static void limit(mha_tile *t, int64_t r, int64_t count)
{
    mha_range all = t->blocks[r / MHA_BLOCK].all;
    if (all.low <= t->key && all.high >= t->key + count) return;
    float low[MHA_BLOCK] = {0}, high[MHA_BLOCK] = {0};
    for (int64_t i = 0; i < mha_tile_height(t, r); i++) {
        mha_range range = t->ranges[r + i];
        low[i] = clamp(range.low - t->key, 0, count);
        high[i] = clamp(range.high - t->key, 0, count);
    }
    t->problem->kernels->limit(t->scores, MHA_BLOCK, count, mha_tile_lanes(t, r), low, high);
}

/* Adds to the notes which scores are not finite. */
static void note_broken(mha_tile *t, int64_t count)
{
    for (int64_t i = 0; i < count * MHA_BLOCK; i++)
        if (!isfinite(t->scores[i])) t->broken[i] = 1;
}

static bool are_finite(const mha_tile *t, int64_t count)
{
    return isfinite(t->problem->kernels->largest(t->score_rows, MHA_KEYS, t->rows, count));
}

mha_product mha_tile_product(const mha_tile *t, int64_t r, int64_t count, float *scores, bool raw)
{
    const mha_problem *p = t->problem;
    return (mha_product){.c = scores,
                         .ldc = MHA_BLOCK,
                         .scale = raw ? 1.0f : p->score_scale,
                         .a = t->left_keys,
                         .b = mha_tile_right(t, r),
                         .m = count,
                         .n = mha_tile_lanes(t, r),
                         .k = p->D};
}

/* scale * q.k of a narrow tile by the engine's dots, which do not have the scale unless the queries do. */
static void multiply_halves(mha_tile *t, int64_t count)
{
    int64_t D = t->problem->D;
    float scale = t->problem->score_scale;
    t->dots->dots(t->score_rows, MHA_KEYS, t->right_queries, D, t->rows, t->key_rows, t->key_stride, count, D);
    for (int64_t r = 0; scale != 1.0f && r < t->rows; r++)
        for (int64_t j = 0; j < count; j++) t->score_rows[r * MHA_KEYS + j] *= scale;
}

/* scale * q.k, but for blocks of an engine. */
static void multiply(mha_tile *t, int64_t r, int64_t count)
{
    const mha_problem *p = t->problem;
    if (t->dots) multiply_halves(t, count);
    else if (t->narrow)
        p->kernels->dots(t->score_rows, MHA_KEYS, t->queries, p->D, t->rows, t->key_rows, t->key_type, t->key_stride,
                         count, p->D);
    else if (p->kernels->along)
        p->kernels->product_along(t->scores, MHA_BLOCK, NULL, t->key_rows, t->key_stride, t->queries + r * p->D,
                                  MHA_BLOCK, count, mha_tile_lanes(t, r), p->D);
    else
        p->kernels->product(t->scores, MHA_BLOCK, NULL, t->keys, MHA_KEYS, t->queries + r * p->D, MHA_BLOCK,
                            (count + 3) & ~INT64_C(3), mha_tile_lanes(t, r), p->D);
}

/* Whether a score may have left float32. A sum that overflowed anywhere on its way ends as infinity or NaN, so looking
 * at the end is enough; where rows are many, the bound of may_overflow spares even that. */
static bool may_be_broken(const mha_tile *t, int64_t count)
{
    return t->steep || (t->narrow ? !are_finite(t, count) : may_overflow(t));
}

/* From products to `stage`, in lanes. */
static void modify(mha_tile *t, int64_t r, int64_t count, mha_stage stage)
{
    const mha_kernels *kernels = t->problem->kernels;
    float cap = t->problem->options.softcap;
    if (t->narrow) kernels->transpose(t->scores, MHA_BLOCK, t->score_rows, MHA_KEYS, t->rows, count, NULL);
    if (t->suspect) {
        memset(t->broken, 0, (size_t)(count * MHA_BLOCK));
        note_broken(t, count);
    }
    if (stage >= MHA_STAGE_CAPPED && cap > 0) kernels->softcap(t->scores, MHA_BLOCK, count, mha_tile_lanes(t, r), cap);
    if (stage >= MHA_STAGE_MASKED) mha_tile_mask(t, r, count);
}

void mha_tile_scored(mha_tile *t, int64_t r, int64_t count, mha_stage stage)
{
    t->suspect = may_be_broken(t, count);
    modify(t, r, count, stage);
}

void mha_tile_scores(mha_tile *t, int64_t r, int64_t count, mha_stage stage)
{
    if (t->engine) {
        mha_product product = mha_tile_product(t, r, count, t->scores, false);
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
    t->suspect = may_be_broken(t, count);
    if (t->suspect || o->softcap > 0 || o->alibi_slopes.rank || o->bias.rank || o->mask.rank) {
        modify(t, 0, count, MHA_STAGE_MASKED);
        t->problem->kernels->transpose(t->score_rows, MHA_KEYS, t->scores, MHA_BLOCK, count, t->rows, NULL);
        return;
    }
    mha_range all = t->blocks->all;
    if (all.low <= t->key && all.high >= t->key + count) return;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t j = 0; j < count; j++)
            if (t->key + j < t->ranges[r].low || t->key + j >= t->ranges[r].high)
                t->score_rows[r * MHA_KEYS + j] = -INFINITY;
}

/* Bias and mask come after the slopes, so that their -inf has the last word. */
void mha_tile_mask(mha_tile *t, int64_t r, int64_t count)
{
    const mha_attention_options *o = &t->problem->options;
    if (o->alibi_slopes.rank) add_slopes(t, r, count);
    if (t->steep) note_broken(t, count);
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
    p->kernels->drop(weights, MHA_BLOCK, count, mha_tile_lanes(t, r), t->key, &drop);
}
