/* The cache: token by token gives what all at once gives, whatever the layer has; rows move as asked; nothing overflows,
 * nothing is allocated once a cache is in use. */
#include "support/harness.h"
#include "layer/layers.h"

enum { B = 3, T = 21, M = 24 };

typedef struct scene {
    mha_context *ctx;
    mha_layer *layer;
    ledger memory;
    float x[B][T][M], all[B][T][M], step[B][T][M];
} scene;

/* A layer with random parameters, its inputs, and what one call gives for all of them. */
static void scene_open(scene *s, mha_layer_options options, const char *isa)
{
    rng r = rng_make(3, 1);
    s->memory = ledger_make();
    s->ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, &s->memory);
    expect(!mha_layer_create(s->ctx, &s->layer, &options, NULL), "%s", mha_context_error(s->ctx));
    mha_layer_initialize(s->ctx, s->layer, 5);
    for (int i = 0; i < B * T * M; i++) (&s->x[0][0][0])[i] = (float)rng_normal(&r);
    mha_layer_inputs inputs = {.query = mha_tensor_3d(s->x, MHA_FLOAT32, B, T, M)};
    expect(!mha_layer_forward(s->ctx, s->layer, mha_tensor_3d(s->all, MHA_FLOAT32, B, T, M), NULL, &inputs, NULL, NULL),
           "%s", mha_context_error(s->ctx));
}

static void scene_close(scene *s)
{
    mha_layer_free(s->layer);
    mha_context_free(s->ctx);
    expect(!s->memory.live && !s->memory.misuses, "%lld blocks left", (long long)s->memory.live);
}

/* Rows first to first + count - 1 of every sequence, as (B,count,M). */
static mha_tensor rows_of(float (*x)[T][M], int first, int count)
{
    mha_tensor t = mha_tensor_3d(&x[0][first][0], MHA_FLOAT32, B, count, M);
    t.stride[0] = (int64_t)T * M;
    return t;
}

static double apart(float (*a)[T][M], float (*b)[T][M])
{
    double off = 0;
    for (int i = 0; i < B * T * M; i++) {
        double here = fabs((double)(&a[0][0][0])[i] - (double)(&b[0][0][0])[i]);
        if (!(here <= off)) off = here;
    }
    return off;
}

static mha_layer_options small(void)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = 4;
    o.causal = true;
    return o;
}

/* Steps of the sizes given, which end with 0. */
static void check_steps(mha_layer_options options, const char *isa, const int *sizes, double bound, const char *what)
{
    static scene s;
    mha_cache *cache;
    scene_open(&s, options, isa);
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, T, options.compute), "%s", mha_context_error(s.ctx));
    int64_t before = s.memory.calls;
    for (int at = 0, n = 0; at < T; at += sizes[n], n += sizes[n + 1] != 0) {
        int count = sizes[n] < T - at ? sizes[n] : T - at;
        mha_status status =
            mha_cache_step(s.ctx, cache, s.layer, rows_of(s.step, at, count), NULL, rows_of(s.x, at, count), NULL);
        expect(!status, "%s: %s", what, mha_context_error(s.ctx));
        if (at == 0) before = s.memory.calls;
    }
    if (sizes[0] == 1)
        expect(s.memory.calls - before <= 4, "%s: %lld allocations after the first step", what,
               (long long)(s.memory.calls - before));
    expect(apart(s.all, s.step) <= bound, "%s on %s: steps are off by %g", what, isa, apart(s.all, s.step));
    mha_cache_free(cache);
    scene_close(&s);
}

TEST(token_by_token_is_all_at_once)
{
    static const int ones[] = {1, 0}, mixed[] = {7, 1, 3, 1, 0}, whole[] = {T, 0};
    const int *ways[] = {ones, mixed, whole};
    for_each_isa (isa)
        for (int n = 0; n < 3; n++) {
            mha_layer_options o = small();
            check_steps(o, isa, ways[n], 2e-6, "causal");
            o.window_left = 5;
            check_steps(o, isa, ways[n], 2e-6, "windowed");
            o.kv_heads = 2;
            check_steps(o, isa, ways[n], 2e-6, "grouped");
            o.rotary_base = 10000;
            check_steps(o, isa, ways[n], 2e-6, "rotary");
            o.norm_epsilon = 1e-6f;
            o.bias_kv = o.zero_kv = o.sinks = o.gates = true;
            check_steps(o, isa, ways[n], 3e-6, "everything");
            o.compute = MHA_BFLOAT16;
            check_steps(o, isa, ways[n], 5e-2, "bfloat16");
        }
}

/* Once tables, packed weights and scratch are there, a step allocates nothing. */
TEST(steps_allocate_nothing)
{
    static scene s;
    mha_cache *cache;
    mha_layer_options o = small();
    o.rotary_base = 10000;
    scene_open(&s, o, NULL);
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, T, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    int64_t calls = 0;
    for (int round = 0; round < 2; round++) {
        mha_cache_truncate(s.ctx, cache, -1, 0);
        calls = s.memory.calls;
        for (int t = 0; t < T; t++)
            expect(!mha_cache_step(s.ctx, cache, s.layer, rows_of(s.step, t, 1), NULL, rows_of(s.x, t, 1), NULL), "%s",
                   mha_context_error(s.ctx));
    }
    expect(s.memory.calls == calls, "%lld allocations", (long long)(s.memory.calls - calls));
    mha_cache_free(cache);
    scene_close(&s);
}

TEST(encoder_keys_are_kept)
{
    static scene s;
    static float memory[B][T][10], out[B][T][M], again[B][T][M];
    mha_layer_options o = small();
    mha_cache *cache;
    rng r = rng_make(4, 1);
    o.causal = false;
    o.key_width = o.value_width = 10;
    s.ctx = NULL;
    s.memory = ledger_make();
    s.ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, &s.memory);
    expect(!mha_layer_create(s.ctx, &s.layer, &o, NULL), "%s", mha_context_error(s.ctx));
    mha_layer_initialize(s.ctx, s.layer, 6);
    for (int i = 0; i < B * T * M; i++) (&s.x[0][0][0])[i] = (float)rng_normal(&r);
    for (int i = 0; i < B * T * 10; i++) (&memory[0][0][0])[i] = (float)rng_normal(&r);
    mha_tensor kept = mha_tensor_3d(memory, MHA_FLOAT32, B, T, 10), none = MHA_NO_TENSOR;
    mha_layer_inputs inputs = {.query = mha_tensor_3d(s.x, MHA_FLOAT32, B, T, M), .key = kept};
    expect(!mha_layer_forward(s.ctx, s.layer, mha_tensor_3d(out, MHA_FLOAT32, B, T, M), NULL, &inputs, NULL, NULL),
           "%s", mha_context_error(s.ctx));
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, T, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    expect(!mha_cache_append(s.ctx, cache, s.layer, kept, none), "%s", mha_context_error(s.ctx));
    for (int t = 0; t < T; t++)
        expect(!mha_cache_attend(s.ctx, cache, s.layer, rows_of(again, t, 1), NULL, rows_of(s.x, t, 1), NULL), "%s",
               mha_context_error(s.ctx));
    expect(apart(out, again) < 2e-6, "off by %g", apart(out, again));
    expect(mha_cache_length(cache, 0) == T, "attending changed the length");
    mha_cache_free(cache);
    scene_close(&s);
}

/* More questions than the cache has room for positions. */
TEST(a_small_memory_serves_many_queries)
{
    static scene s;
    mha_layer_options o = small();
    mha_cache *cache;
    o.causal = false;
    o.rotary_base = 100;
    scene_open(&s, o, NULL);
    mha_tensor none = MHA_NO_TENSOR;
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, 2, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    expect(!mha_cache_append(s.ctx, cache, s.layer, rows_of(s.x, 0, 2), none), "%s", mha_context_error(s.ctx));
    expect(!mha_cache_attend(s.ctx, cache, s.layer, rows_of(s.step, 0, T), NULL, rows_of(s.x, 0, T), NULL), "%s",
           mha_context_error(s.ctx));
    mha_cache_free(cache);
    scene_close(&s);
}

TEST(a_full_cache_is_a_status)
{
    static scene s;
    mha_cache *cache;
    scene_open(&s, small(), NULL);
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, 5, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    memset(s.step, 0, sizeof s.step);
    expect(!mha_cache_step(s.ctx, cache, s.layer, rows_of(s.step, 0, 3), NULL, rows_of(s.x, 0, 3), NULL), "3 fit");
    expect(mha_cache_truncate(s.ctx, cache, 1, 2) == MHA_OK, "truncate");
    expect(mha_cache_step(s.ctx, cache, s.layer, rows_of(s.step, 3, 3), NULL, rows_of(s.x, 3, 3), NULL) == MHA_FULL,
           "3 more do not fit into rows 0 and 2");
    expect(!strcmp(mha_context_error(s.ctx), "cache: row 0 holds 3 of 5 positions; 3 more do not fit"), "%s",
           mha_context_error(s.ctx));
    expect(mha_cache_length(cache, 0) == 3 && mha_cache_length(cache, 1) == 2, "a full cache has changed");
    expect(s.step[0][3][0] == 0 && s.step[1][4][1] == 0, "results were written");
    expect(mha_cache_length(cache, 3) == -1 && mha_cache_length(cache, -1) == -1, "there is no such row");
    expect(mha_cache_rows(cache) == B && mha_cache_capacity(cache) == 5, "sizes");
    mha_cache_free(cache);
    scene_close(&s);
}

/* A cache whose row b holds b + 2 tokens of its own, and what it says of one more. */
static mha_cache *uneven(scene *s, mha_context *ctx)
{
    mha_cache *cache;
    expect(!mha_cache_create(ctx, &cache, s->layer, B, T, MHA_FLOAT32), "%s", mha_context_error(ctx));
    expect(!mha_cache_step(ctx, cache, s->layer, rows_of(s->step, 0, B + 1), NULL, rows_of(s->x, 0, B + 1), NULL), "%s",
           mha_context_error(ctx));
    for (int b = 0; b < B; b++) mha_cache_truncate(ctx, cache, b, b + 2);
    return cache;
}

static void ask(scene *s, mha_cache *cache, float (*out)[M])
{
    float x[B][M]; /* the same question for every row */
    for (int b = 0; b < B; b++) memcpy(x[b], s->x[0][T - 1], sizeof x[b]);
    expect(!mha_cache_attend(s->ctx, cache, s->layer, mha_tensor_3d(out, MHA_FLOAT32, B, 1, M), NULL,
                             mha_tensor_3d(x, MHA_FLOAT32, B, 1, M), NULL),
           "%s", mha_context_error(s->ctx));
}

TEST(rows_move_all_at_once)
{
    static scene s;
    static float before[B][M], after[B][M];
    scene_open(&s, small(), NULL);
    for (int64_t code = 0; code < B * B * B; code++) { /* every way to choose three of three, with repetition */
        int64_t from[B] = {code % B, code / B % B, code / B / B};
        mha_cache *cache = uneven(&s, s.ctx);
        ask(&s, cache, before);
        expect(!mha_cache_reorder(s.ctx, cache, from), "%s", mha_context_error(s.ctx));
        ask(&s, cache, after);
        for (int b = 0; b < B; b++) {
            expect(mha_cache_length(cache, b) == from[b] + 2, "row %d of %lld has length %lld", b, (long long)code,
                   (long long)mha_cache_length(cache, b));
            expect(!memcmp(after[b], before[from[b]], sizeof after[b]), "row %d is not what row %lld was", b,
                   (long long)from[b]);
        }
        mha_cache_free(cache);
    }
    scene_close(&s);
}

TEST(a_fork_goes_its_own_way)
{
    static scene s;
    static float before[B][M], after[B][M];
    mha_cache *copy;
    scene_open(&s, small(), NULL);
    mha_cache *cache = uneven(&s, s.ctx);
    ask(&s, cache, before);
    expect(!mha_cache_fork(s.ctx, &copy, cache), "%s", mha_context_error(s.ctx));
    ask(&s, copy, after);
    expect(!memcmp(before, after, sizeof after), "a fork differs");
    expect(!mha_cache_step(s.ctx, copy, s.layer, rows_of(s.step, 9, 1), NULL, rows_of(s.x, 9, 1), NULL), "step");
    ask(&s, cache, after);
    expect(!memcmp(before, after, sizeof after), "a fork's step reached the other one");
    mha_cache_free(copy);
    mha_cache_free(cache);
    scene_close(&s);
}

TEST(weights_of_a_step)
{
    static scene s;
    static float weights[B][4][1][T];
    mha_cache *cache;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    scene_open(&s, small(), NULL);
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, T, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    expect(!mha_cache_step(s.ctx, cache, s.layer, rows_of(s.step, 0, T - 1), NULL, rows_of(s.x, 0, T - 1), NULL), "%s",
           mha_context_error(s.ctx));
    extras.weights = mha_tensor_4d(weights, MHA_FLOAT32, B, 4, 1, T);
    expect(!mha_cache_step(s.ctx, cache, s.layer, rows_of(s.step, T - 1, 1), &extras, rows_of(s.x, T - 1, 1), NULL),
           "%s", mha_context_error(s.ctx));
    for (int b = 0; b < B; b++)
        for (int h = 0; h < 4; h++) {
            double sum = 0;
            for (int j = 0; j < T; j++) sum += (double)weights[b][h][0][j];
            expect(fabs(sum - 1) < 1e-6, "row %d of head %d sums to %g", b, h, sum);
        }
    mha_cache_free(cache);
    scene_close(&s);
}

TEST(wrong_use_of_a_cache)
{
    static scene s;
    mha_cache *cache = NULL, *other;
    mha_tensor none = MHA_NO_TENSOR;
    scene_open(&s, small(), NULL);
    expect(mha_cache_create(s.ctx, &cache, s.layer, 0, 5, MHA_FLOAT32) == MHA_BAD_SHAPE && !cache, "no rows");
    expect(mha_cache_create(s.ctx, &cache, s.layer, 1, 0, MHA_FLOAT32) == MHA_BAD_SHAPE, "no capacity");
    expect(mha_cache_create(s.ctx, &cache, s.layer, 1, 5, MHA_INT64) == MHA_BAD_TYPE, "int64");
    expect(mha_cache_create(s.ctx, &cache, s.layer, INT64_C(1) << 30, INT64_C(1) << 30, MHA_FLOAT32) == MHA_TOO_LARGE,
           "huge");
    expect(mha_cache_create(s.ctx, &cache, NULL, 1, 1, MHA_FLOAT32) == MHA_BAD_ARGUMENT, "no layer");
    mha_layer_options many = small();
    many.heads = 1 << 20;
    many.head_width = 1;
    many.width = 1;
    mha_layer *heads;
    expect(!mha_layer_create(s.ctx, &heads, &many, NULL), "%s", mha_context_error(s.ctx));
    expect(mha_cache_create(s.ctx, &cache, heads, 1 << 13, INT32_MAX, MHA_FLOAT32) == MHA_TOO_LARGE, "huge");
    mha_layer_free(heads);
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, T, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    mha_tensor x = rows_of(s.x, 0, 2), y = rows_of(s.step, 0, 2), two = x;
    two.size[0] = 2;
    expect(mha_cache_step(s.ctx, cache, s.layer, y, NULL, two, NULL) == MHA_BAD_SHAPE, "a batch of two");
    expect(mha_cache_step(s.ctx, cache, s.layer, y, NULL, none, NULL) == MHA_BAD_SHAPE, "no input");
    expect(mha_cache_step(s.ctx, cache, s.layer, x, NULL, x, NULL) == MHA_OVERLAP, "out is x");
    int64_t lengths[B] = {0}, from[B] = {0, 1, 3};
    mha_attention_options o = mha_layer_attention(s.layer);
    o.key_lengths = mha_tensor_1d(lengths, MHA_INT64, 2);
    expect(mha_cache_attend(s.ctx, cache, s.layer, y, NULL, x, &o) == MHA_BAD_ARGUMENT, "key_lengths");
    o.key_lengths = none;
    o.query_lengths = mha_tensor_1d(lengths, MHA_INT64, B);
    expect(mha_cache_attend(s.ctx, cache, s.layer, y, NULL, x, &o) == MHA_BAD_ARGUMENT &&
               strstr(mha_context_error(s.ctx), "query_lengths"),
           "query_lengths: %s", mha_context_error(s.ctx));
    expect(mha_cache_reorder(s.ctx, cache, from) == MHA_BAD_ARGUMENT, "there is no row 3");
    expect(mha_cache_truncate(s.ctx, cache, 3, 1) == MHA_BAD_ARGUMENT, "there is no row 3");
    expect(mha_cache_truncate(s.ctx, cache, 0, -1) == MHA_BAD_ARGUMENT, "a negative length");
    expect(mha_cache_length(cache, 0) == 0, "a refused call appended");
    mha_layer_options wide = small();
    wide.head_width = 8;
    mha_layer *unlike;
    expect(!mha_layer_create(s.ctx, &unlike, &wide, NULL), "%s", mha_context_error(s.ctx));
    expect(mha_cache_step(s.ctx, cache, unlike, y, NULL, x, NULL) == MHA_BAD_SHAPE, "a cache of another shape");
    mha_layer_free(unlike);
    s.memory.fail_at = s.memory.calls;
    expect(mha_cache_fork(s.ctx, &other, cache) == MHA_NO_MEMORY && !other, "a fork without memory");
    s.memory.fail_at = -1;
    mha_cache_free(cache);
    mha_cache_free(NULL);
    scene_close(&s);
}

/* ---- Far positions ---------------------------------------------------------------------------------------------- */

/* Only differences of positions count, at any distance, and no call takes memory for the positions before its own. */
TEST(far_positions_need_no_tables)
{
    enum { FEW = 5, WIDE = 128 };
    const int64_t shifts[] = {0, 100, 16382, INT64_C(1) << 28, (INT64_C(1) << 40) - FEW + 1};
    float x[FEW * WIDE], out[2][FEW * WIDE];
    int64_t places[FEW];
    ledger memory = ledger_make();
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, &memory);
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    mha_layer *layer;
    options.width = WIDE, options.heads = 1, options.rotary_base = 10000;
    expect(!mha_layer_create(ctx, &layer, &options, NULL), "%s", mha_context_error(ctx));
    mha_layer_initialize(ctx, layer, 8);
    for (int n = 0; n < FEW * WIDE; n++) x[n] = (float)((n * 37) % 251) / 40 - 3;
    mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, 1, FEW, WIDE),
                           .query_positions = mha_tensor_1d(places, MHA_INT64, FEW)};
    for (int k = 0; k < 5; k++) {
        float *to = out[k > 0];
        for (int t = 0; t < FEW; t++) places[t] = shifts[k] + t;
        mha_status status =
            mha_layer_forward(ctx, layer, mha_tensor_3d(to, MHA_FLOAT32, 1, FEW, WIDE), NULL, &in, NULL, NULL);
        expect(!status, "shift %lld: %s", (long long)shifts[k], mha_context_error(ctx));
        for (int n = 0; n < FEW * WIDE; n++)
            expect(fabsf(out[0][n] - to[n]) < 3e-5f, "shift %lld: out[%d] is %g, not %g", (long long)shifts[k], n,
                   (double)to[n], (double)out[0][n]);
        expect(memory.bytes < 10 << 20, "shift %lld: %lld bytes", (long long)shifts[k], (long long)memory.bytes);
    }
    mha_layer_free(layer);
    mha_context_free(ctx);
    expect(!memory.live && !memory.misuses, "%d blocks left", (int)memory.live);
}
