/* Steps in which rows get unlike numbers of tokens: a row's results and what the cache holds of it are the same bits as
 * in a cache of its own, whatever the layer, the types and the other rows are. */
#include "support/harness.h"
#include "layer/layers.h"

enum { B = 4, MOST = 37, M = 24, H = 4, ROUNDS = 6, ALL = B * MOST };

/* How many tokens each row gets in each round: prompts, then single tokens and rows that have ended. */
static const int64_t given[ROUNDS][B] = {{7, 1, 0, 21}, {1, 1, 33, 1}, {0, 1, 1, 0},
                                         {0, 0, 0, 0},  {3, 0, 0, 2},  {1, 1, 1, 1}};

typedef struct scene {
    mha_context *ctx;
    mha_layer *layer;
    ledger memory;
    float x[B][MOST][M];
    float slopes[H], sinks[H];
    mha_attention_options options;
} scene;

static void scene_open(scene *s, mha_layer_options options, const char *isa)
{
    rng r = rng_make(11, 1);
    s->memory = ledger_make();
    s->ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, &s->memory);
    expect(!mha_layer_create(s->ctx, &s->layer, &options, NULL), "%s", mha_context_error(s->ctx));
    mha_layer_initialize(s->ctx, s->layer, 5);
    for (int i = 0; i < B * MOST * M; i++) (&s->x[0][0][0])[i] = (float)rng_normal(&r);
    for (int h = 0; h < H; h++) s->slopes[h] = 0.1f * (float)(h + 1), s->sinks[h] = 0.5f - (float)h;
    s->options = mha_layer_attention(s->layer);
}

static void scene_close(scene *s)
{
    mha_layer_free(s->layer);
    mha_context_free(s->ctx);
    expect(!s->memory.live && !s->memory.misuses, "%lld blocks left", (long long)s->memory.live);
}

static mha_cache *cache_of(scene *s, int64_t rows, mha_type type)
{
    mha_cache *cache = NULL;
    expect(!mha_cache_create(s->ctx, &cache, s->layer, rows, MOST, type), "%s", mha_context_error(s->ctx));
    return cache;
}

static mha_layer_options small(void)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M;
    o.heads = H;
    o.causal = true;
    return o;
}

/* ---- A round of rows side by side, and one row alone ------------------------------------------------------------ */

/* The tokens of a round, packed behind `skip` rows that belong to nobody. Returns how many rows there are. */
static int64_t pack(const scene *s, const mha_cache *cache, const int64_t *counts, int64_t skip, float (*x)[M],
                    int64_t *starts)
{
    int64_t at = skip;
    for (int64_t n = 0; n < skip * M; n++) x[n / M][n % M] = NAN;
    for (int b = 0; b < B; b++) {
        starts[b] = at;
        memcpy(x[at], s->x[b][mha_cache_length(cache, b)], (size_t)counts[b] * sizeof *x);
        at += counts[b];
    }
    starts[B] = at;
    return at;
}

static void step_all(scene *s, mha_cache *cache, const int64_t *counts, int64_t skip, float (*out)[MOST][M])
{
    static float x[ALL + 2][M], y[ALL + 2][M];
    int64_t starts[B + 1], before[B];
    for (int b = 0; b < B; b++) before[b] = mha_cache_length(cache, b);
    int64_t rows = pack(s, cache, counts, skip, x, starts);
    mha_attention_options o = s->options;
    o.query_starts = mha_tensor_1d(starts, MHA_INT64, B + 1);
    mha_status status = mha_cache_step(s->ctx, cache, s->layer, mha_tensor_3d(y, MHA_FLOAT32, 1, rows, M), NULL,
                                       mha_tensor_3d(x, MHA_FLOAT32, 1, rows, M), &o);
    expect(!status, "%s", mha_context_error(s->ctx));
    for (int b = 0; b < B; b++) {
        expect(mha_cache_length(cache, b) == before[b] + counts[b], "row %d: %lld positions", b,
               (long long)mha_cache_length(cache, b));
        memcpy(out[b][before[b]], y[starts[b]], (size_t)counts[b] * sizeof *y);
    }
}

static void step_alone(scene *s, mha_cache *cache, int b, int64_t count, float (*out)[MOST][M])
{
    int64_t at = mha_cache_length(cache, 0);
    if (!count) return;
    mha_status status = mha_cache_step(s->ctx, cache, s->layer, mha_tensor_3d(out[b][at], MHA_FLOAT32, 1, count, M),
                                       NULL, mha_tensor_3d(s->x[b][at], MHA_FLOAT32, 1, count, M), &s->options);
    expect(!status, "%s", mha_context_error(s->ctx));
}

static void expect_same_row(const mha_cache *all, int b, const mha_cache *alone, const char *what)
{
    mha_cache_parts a = mha_cache_view(all, b), c = mha_cache_view(alone, 0);
    size_t bytes = (size_t)(a.k.size[2] * a.k.size[3]) * mha_type_size(a.k.type);
    expect(a.k.size[2] == c.k.size[2], "%s: row %d has another length than alone", what, b);
    for (int64_t g = 0; g < a.k.size[1]; g++) {
        int64_t offset = g * a.k.stride[1] * (int64_t)mha_type_size(a.k.type);
        expect(!memcmp((char *)a.k.data + offset, (char *)c.k.data + offset, bytes), "%s: keys of row %d", what, b);
        expect(!memcmp((char *)a.v.data + offset, (char *)c.v.data + offset, bytes), "%s: values of row %d", what, b);
    }
}

static void check_rows(scene *s, mha_type type, const char *isa, const char *what)
{
    static float together[B][MOST][M], apart[B][MOST][M];
    mha_cache *all = cache_of(s, B, type), *alone[B];
    memset(together, 0, sizeof together);
    memset(apart, 0, sizeof apart);
    for (int b = 0; b < B; b++) alone[b] = cache_of(s, 1, type);
    for (int round = 0; round < ROUNDS; round++) {
        step_all(s, all, given[round], round % 3, together);
        for (int b = 0; b < B; b++) step_alone(s, alone[b], b, given[round][b], apart);
    }
    for (int b = 0; b < B; b++) {
        expect(!memcmp(together[b], apart[b], sizeof apart[b]), "%s, %s on %s: row %d is not what it is alone", what,
               mha_type_name(type), isa, b);
        expect_same_row(all, b, alone[b], what);
        mha_cache_free(alone[b]);
    }
    mha_cache_free(all);
}

static void check_types(mha_layer_options options, const char *isa, const char *what)
{
    static scene s;
    const mha_type types[] = {MHA_FLOAT32, MHA_BFLOAT16, MHA_FLOAT16};
    scene_open(&s, options, isa);
    for (int n = 0; n < 3; n++) check_rows(&s, types[n], isa, what);
    s.options.alibi_slopes = mha_tensor_1d(s.slopes, MHA_FLOAT32, H);
    if (!options.sinks) s.options.sinks = mha_tensor_1d(s.sinks, MHA_FLOAT32, H);
    s.options.softcap = 3;
    for (int n = 0; n < 3; n++) check_rows(&s, types[n], isa, what);
    scene_close(&s);
}

TEST(a_row_does_not_depend_on_its_batch)
{
    for_each_isa (isa) {
        mha_layer_options o = small();
        check_types(o, isa, "causal");
        o.window_left = 5;
        check_types(o, isa, "windowed");
        o.rotary_base = 10000;
        o.kv_heads = 2;
        check_types(o, isa, "rotary");
        o.norm_epsilon = 1e-6f;
        o.bias_kv = o.zero_kv = o.sinks = o.gates = true;
        check_types(o, isa, "everything");
        o.compute = MHA_BFLOAT16;
        check_types(o, isa, "bfloat16");
    }
}

/* The same number for every row, packed: what (B,T,M) gives. */
TEST(equal_numbers_are_a_plain_step)
{
    static scene s;
    static float packed[B][MOST][M], plain[B][3][M];
    const int64_t three[B] = {3, 3, 3, 3};
    mha_layer_options o = small();
    o.rotary_base = 100;
    scene_open(&s, o, NULL);
    mha_cache *a = cache_of(&s, B, MHA_FLOAT32), *b = cache_of(&s, B, MHA_FLOAT32);
    step_all(&s, a, three, 0, packed);
    mha_tensor x = mha_tensor_3d(s.x, MHA_FLOAT32, B, 3, M);
    x.stride[0] = (int64_t)MOST * M;
    expect(!mha_cache_step(s.ctx, b, s.layer, mha_tensor_3d(plain, MHA_FLOAT32, B, 3, M), NULL, x, NULL), "%s",
           mha_context_error(s.ctx));
    for (int n = 0; n < B; n++) expect(!memcmp(packed[n], plain[n], sizeof plain[n]), "row %d", n);
    mha_cache_free(a);
    mha_cache_free(b);
    scene_close(&s);
}

/* ---- An encoder's memory of unlike lengths ---------------------------------------------------------------------- */

TEST(memories_of_unlike_lengths)
{
    static scene s;
    static float memory[ALL][M], together[ALL][M], alone[MOST][M];
    const int32_t starts[B + 1] = {0, 9, 10, 10, 31}, asks[B + 1] = {0, 2, 2, 3, 7};
    mha_layer_options o = small();
    mha_tensor none = MHA_NO_TENSOR;
    o.causal = false;
    scene_open(&s, o, NULL);
    for (int b = 0; b < B; b++) memcpy(memory[starts[b]], s.x[b], (size_t)(starts[b + 1] - starts[b]) * sizeof *memory);
    mha_cache *all = cache_of(&s, B, MHA_FLOAT32);
    expect(!mha_cache_append_ragged(s.ctx, all, s.layer, mha_tensor_3d(memory, MHA_FLOAT32, 1, starts[B], M), none,
                                    mha_tensor_1d(starts, MHA_INT32, B + 1)),
           "%s", mha_context_error(s.ctx));
    s.options.query_starts = mha_tensor_1d(asks, MHA_INT32, B + 1);
    expect(!mha_cache_attend(s.ctx, all, s.layer, mha_tensor_3d(together, MHA_FLOAT32, 1, asks[B], M), NULL,
                             mha_tensor_3d(s.x, MHA_FLOAT32, 1, asks[B], M), &s.options),
           "%s", mha_context_error(s.ctx));
    for (int b = 0; b < B; b++) {
        int64_t length = starts[b + 1] - starts[b], count = asks[b + 1] - asks[b];
        expect(mha_cache_length(all, b) == length, "row %d", b);
        mha_cache *one = cache_of(&s, 1, MHA_FLOAT32);
        mha_tensor mine = mha_tensor_3d(memory[starts[b]], MHA_FLOAT32, 1, length, M);
        if (length) expect(!mha_cache_append(s.ctx, one, s.layer, mine, none), "%s", mha_context_error(s.ctx));
        expect(!mha_cache_attend(s.ctx, one, s.layer, mha_tensor_3d(alone, MHA_FLOAT32, 1, count, M), NULL,
                                 mha_tensor_3d(s.x[0][asks[b]], MHA_FLOAT32, 1, count, M), NULL),
               "%s", mha_context_error(s.ctx));
        expect(!memcmp(alone, together[asks[b]], (size_t)count * sizeof *alone), "row %d is not what it is alone", b);
        mha_cache_free(one);
    }
    mha_cache_free(all);
    scene_close(&s);
}

/* ---- Extras, memory, errors ------------------------------------------------------------------------------------- */

TEST(extras_of_a_ragged_step)
{
    enum { LONG = 5, D = M / H };
    static scene s;
    static float x[ALL][M], y[ALL][M], weights[B][H][LONG][LONG], k[B][H][LONG][D];
    const int64_t counts[B] = {2, 0, LONG, 1};
    int64_t starts[B + 1];
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    scene_open(&s, small(), NULL);
    mha_cache *cache = cache_of(&s, B, MHA_FLOAT32);
    int64_t rows = pack(&s, cache, counts, 0, x, starts);
    extras.weights = mha_tensor_4d(weights, MHA_FLOAT32, B, H, LONG, LONG);
    extras.k = mha_tensor_4d(k, MHA_FLOAT32, B, H, LONG, D);
    s.options.query_starts = mha_tensor_1d(starts, MHA_INT64, B + 1);
    expect(!mha_cache_step(s.ctx, cache, s.layer, mha_tensor_3d(y, MHA_FLOAT32, 1, rows, M), &extras,
                           mha_tensor_3d(x, MHA_FLOAT32, 1, rows, M), &s.options),
           "%s", mha_context_error(s.ctx));
    for (int b = 0; b < B; b++)
        for (int h = 0; h < H; h++)
            for (int i = 0; i < LONG; i++) {
                double sum = 0;
                for (int j = 0; j < LONG; j++) sum += (double)weights[b][h][i][j];
                expect(fabs(sum - (i < counts[b])) < 1e-6, "row %d, head %d, query %d: weights sum to %g", b, h, i,
                       sum);
                mha_tensor held = mha_cache_view(cache, b).k;
                const float *row = (const float *)held.data + h * held.stride[1] + i * held.stride[2];
                for (int d = 0; d < D; d++)
                    expect(k[b][h][i][d] == (i < counts[b] ? row[d] : 0), "row %d: extras.k", b);
            }
    mha_cache_free(cache);
    scene_close(&s);
}

TEST(ragged_steps_allocate_nothing)
{
    static scene s;
    static float out[B][MOST][M];
    mha_layer_options o = small();
    o.rotary_base = 10000;
    scene_open(&s, o, NULL);
    mha_cache *cache = cache_of(&s, B, MHA_FLOAT32);
    int64_t calls = 0;
    for (int round = 0; round < 2; round++) {
        mha_cache_truncate(s.ctx, cache, -1, 0);
        calls = s.memory.calls;
        for (int n = 0; n < ROUNDS; n++) step_all(&s, cache, given[n], 0, out);
    }
    expect(s.memory.calls == calls, "%lld allocations", (long long)(s.memory.calls - calls));
    mha_cache_free(cache);
    scene_close(&s);
}

static void refused(scene *s, mha_cache *cache, mha_tensor starts, mha_tensor x, mha_status status, const char *line)
{
    static float y[B][MOST][M];
    mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, x.size[0], x.size[1], M);
    mha_attention_options o = s->options;
    o.query_starts = starts;
    mha_status got = mha_cache_step(s->ctx, cache, s->layer, out, NULL, x, &o);
    expect(got == status && !strcmp(mha_context_error(s->ctx), line), "%s: \"%s\"", mha_status_name(got),
           mha_context_error(s->ctx));
    for (int b = 0; b < B; b++) expect(mha_cache_length(cache, b) == 30, "row %d has changed: %s", b, line);
    expect(y[0][0][0] == 0, "results were written: %s", line);
}

TEST(ragged_steps_that_are_refused)
{
    static scene s;
    static float out[B][MOST][M];
    const int64_t thirty[B] = {30, 30, 30, 30}, full[B + 1] = {0, 7, 7, 15, 16}, falls[B + 1] = {0, 3, 2, 4, 5},
                  beyond[B + 1] = {0, 1, 2, 3, 17};
    scene_open(&s, small(), NULL);
    mha_cache *cache = cache_of(&s, B, MHA_FLOAT32);
    step_all(&s, cache, thirty, 0, out);
    mha_tensor x = mha_tensor_3d(s.x, MHA_FLOAT32, 1, 16, M), two = mha_tensor_3d(s.x, MHA_FLOAT32, 2, 8, M);
    refused(&s, cache, mha_tensor_1d(full, MHA_INT64, B + 1), x, MHA_FULL,
            "cache: row 2 holds 30 of 37 positions; 8 more do not fit");
    refused(&s, cache, mha_tensor_1d(falls, MHA_INT64, B + 1), x, MHA_BAD_ARGUMENT,
            "query_starts: [2] is 2, must not fall and be from 0 to 16");
    refused(&s, cache, mha_tensor_1d(beyond, MHA_INT64, B + 1), x, MHA_BAD_ARGUMENT,
            "query_starts: [4] is 17, must not fall and be from 0 to 16");
    refused(&s, cache, mha_tensor_1d(full, MHA_INT64, B), x, MHA_BAD_SHAPE,
            "query_starts: has 4 numbers, must have 5 of (B+1)");
    refused(&s, cache, mha_tensor_1d(full, MHA_FLOAT32, B + 1), x, MHA_BAD_TYPE,
            "query_starts: is float32, must be int32 or int64");
    refused(&s, cache, mha_tensor_1d(full, MHA_INT64, B + 1), two, MHA_BAD_SHAPE,
            "query: is packed by query_starts, so its batch must be 1, not 2");
    mha_tensor none = MHA_NO_TENSOR;
    expect(mha_cache_append_ragged(s.ctx, cache, s.layer, x, none, none) == MHA_BAD_ARGUMENT, "no starts");
    expect(mha_cache_append_ragged(s.ctx, cache, s.layer, x, none, mha_tensor_1d(full, MHA_INT64, B + 1)) == MHA_FULL,
           "%s", mha_context_error(s.ctx));
    s.options.key_starts = mha_tensor_1d(full, MHA_INT64, B + 1);
    refused(&s, cache, none, x, MHA_BAD_ARGUMENT, "key_starts: keys are the rows of the cache; query_starts packs x");
    mha_cache_free(cache);
    scene_close(&s);
}
