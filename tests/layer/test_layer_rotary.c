/* Where the angles of a layer's rotary embedding come from: a base, frequencies or tables. The same numbers give the same
 * bits, and what the caller changes later is seen or not, as the header says. */
#include "support/harness.h"
#include "layer/layers.h"

enum { B = 1, T = 6, M = 16, H = 2, D = 8, P = 40 };

typedef struct scene {
    mha_context *ctx;
    float x[T * M], frequencies[D / 2], cosines[P * D / 2], sines[P * D / 2];
    int64_t positions[T];
} scene;

/* Angles of base 256: frequencies 1, 1/4, 1/16 and 1/64, which float32 holds. */
static void scene_open(scene *s)
{
    rng r = rng_make(4, 1);
    s->ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    for (int n = 0; n < T * M; n++) s->x[n] = (float)rng_normal(&r);
    for (int n = 0; n < T; n++) s->positions[n] = (n * 7) % P;
    for (int n = 0; n < D / 2; n++) s->frequencies[n] = ldexpf(1, -2 * n);
    expect(!mha_rotary_tables(s->ctx, mha_tensor_2d(s->cosines, MHA_FLOAT32, P, D / 2),
                              mha_tensor_2d(s->sines, MHA_FLOAT32, P, D / 2), 256),
           "%s", mha_context_error(s->ctx));
}

static mha_layer_options turned(scene *s, turning from)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M, o.heads = H;
    if (from == FROM_BASE) o.rotary_base = 256;
    if (from == FROM_FREQUENCIES) o.rotary_frequencies = mha_tensor_1d(s->frequencies, MHA_FLOAT32, D / 2);
    if (from == FROM_TABLES) {
        o.rotary_cos = mha_tensor_2d(s->cosines, MHA_FLOAT32, P, D / 2);
        o.rotary_sin = mha_tensor_2d(s->sines, MHA_FLOAT32, P, D / 2);
    }
    return o;
}

static mha_layer *make(scene *s, mha_layer_options o)
{
    mha_layer *layer = NULL;
    expect(!mha_layer_create(s->ctx, &layer, &o, NULL) && !mha_layer_initialize(s->ctx, layer, 9), "%s",
           mha_context_error(s->ctx));
    return layer;
}

static mha_status run(scene *s, mha_layer *layer, float *out)
{
    mha_layer_inputs in = {.query = mha_tensor_3d(s->x, MHA_FLOAT32, B, T, M),
                           .query_positions = mha_tensor_1d(s->positions, MHA_INT64, T)};
    return mha_layer_forward(s->ctx, layer, mha_tensor_3d(out, MHA_FLOAT32, B, T, M), NULL, &in, NULL, NULL);
}

TEST(the_same_angles_from_anywhere)
{
    static scene s;
    float out[TURNINGS][T * M];
    scene_open(&s);
    for (int from = 0; from < TURNINGS; from++) {
        mha_layer *layer = make(&s, turned(&s, (turning)from));
        expect(!run(&s, layer, out[from]), "%s", mha_context_error(s.ctx));
        expect(!memcmp(out[0], out[from], sizeof out[0]), "source %d gives other bits", from);
        mha_layer_free(layer);
    }
    mha_context_free(s.ctx);
}

/* Frequencies serve every position up to 2^40, with the bits of a table, which would be too long. */
TEST(far_positions_with_frequencies)
{
    static scene s;
    float out[2][T * M];
    scene_open(&s);
    for (int n = 0; n < T; n++) s.positions[n] = (INT64_C(1) << 39) + n * n;
    for (int from = 0; from < 2; from++) {
        mha_layer *layer = make(&s, turned(&s, (turning)from));
        expect(!run(&s, layer, out[from]), "%s", mha_context_error(s.ctx));
        mha_layer_free(layer);
    }
    expect(!memcmp(out[0], out[1], sizeof out[0]), "frequencies give other bits than their base");
    mha_context_free(s.ctx);
}

/* Cosines and sines of queries and of keys times m are scores times m^2. */
TEST(a_multiplier_scales_the_scores)
{
    static scene s;
    float out[2][T * M];
    scene_open(&s);
    for (int n = 0; n < 2; n++) {
        mha_layer_options o = turned(&s, FROM_FREQUENCIES);
        if (n) o.rotary_multiplier = 2;
        else o.scale = 4 / sqrtf(D);
        mha_layer *layer = make(&s, o);
        expect(!run(&s, layer, out[n]), "%s", mha_context_error(s.ctx));
        mha_layer_free(layer);
    }
    for (int n = 0; n < T * M; n++)
        expect(fabsf(out[0][n] - out[1][n]) < 1e-6f, "%d: %g, not %g", n, (double)out[1][n], (double)out[0][n]);
    mha_context_free(s.ctx);
}

/* Frequencies are copied when the layer is made; tables are read in every call. */
TEST(what_the_caller_changes_later)
{
    static scene s;
    float before[T * M], after[T * M];
    scene_open(&s);
    mha_layer *layer = make(&s, turned(&s, FROM_FREQUENCIES));
    expect(mha_layer_shape(layer)->rotary_frequencies.data != s.frequencies, "not a copy");
    expect(!run(&s, layer, before), "%s", mha_context_error(s.ctx));
    s.frequencies[1] = 3;
    s.positions[2] = 1000; /* beyond the tables of the layer */
    expect(!run(&s, layer, after), "%s", mha_context_error(s.ctx));
    s.positions[2] = 14;
    expect(!run(&s, layer, after) && !memcmp(before, after, sizeof after), "a change of the frequencies was seen");
    mha_layer_free(layer);
    layer = make(&s, turned(&s, FROM_TABLES));
    expect(!run(&s, layer, before), "%s", mha_context_error(s.ctx));
    s.cosines[7 * D / 2] += 0.5f;
    expect(!run(&s, layer, after) && memcmp(before, after, sizeof after) != 0, "a change of the tables was not seen");
    mha_layer_free(layer);
    mha_context_free(s.ctx);
}

TEST(positions_beyond_the_tables)
{
    static scene s;
    float out[T * M] = {0};
    scene_open(&s);
    mha_layer *layer = make(&s, turned(&s, FROM_TABLES));
    s.positions[3] = P;
    expect(run(&s, layer, out) == MHA_BAD_ARGUMENT, "a position without a row");
    expect(!strcmp(mha_context_error(s.ctx), "positions: (0,3) is at 40, but the tables have 40 rows"), "%s",
           mha_context_error(s.ctx));
    for (int n = 0; n < T * M; n++) expect(out[n] == 0, "results were written");
    mha_cache *cache = NULL;
    expect(!mha_cache_create(s.ctx, &cache, layer, 1, P + T, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    mha_tensor x = mha_tensor_3d(s.x, MHA_FLOAT32, B, T, M), y = mha_tensor_3d(out, MHA_FLOAT32, B, T, M);
    for (int n = 0; n < P / T; n++)
        expect(!mha_cache_step(s.ctx, cache, layer, y, NULL, x, NULL), "%s", mha_context_error(s.ctx));
    expect(mha_cache_step(s.ctx, cache, layer, y, NULL, x, NULL) == MHA_BAD_ARGUMENT, "a step past the tables");
    expect(mha_cache_length(cache, 0) == P / T * T, "the cache holds %lld", (long long)mha_cache_length(cache, 0));
    mha_tensor over = mha_tensor_3d(s.cosines, MHA_FLOAT32, B, T, M);
    mha_layer_inputs in = {.query = x};
    expect(mha_layer_forward(s.ctx, layer, over, NULL, &in, NULL, NULL) == MHA_OVERLAP, "results over tables");
    mha_cache_free(cache);
    mha_layer_free(layer);
    mha_context_free(s.ctx);
}

TEST(options_that_do_not_fit)
{
    static scene s;
    const struct {
        const char *line;
        mha_status status;
    } want[] = {
        {"rotary_base, rotary_frequencies, rotary_cos: only one of them can be given", MHA_BAD_ARGUMENT},
        {"rotary_cos, rotary_sin: only one is given", MHA_BAD_ARGUMENT},
        {"rotary_frequencies: are 3, must be 4, half of the rotated width", MHA_BAD_SHAPE},
        {"rotary_cos: has rows of 4, must be 3, half of the rotated width", MHA_BAD_SHAPE},
        {"rotary_sin: has 39 rows, rotary_cos has 40", MHA_BAD_SHAPE},
        {"rotary_multiplier: must be 1 with tables of your own", MHA_BAD_ARGUMENT},
        {"rotary_multiplier: must be a positive number", MHA_BAD_ARGUMENT},
        {"rotary_frequencies: is int64, must be float32, bfloat16 or float16", MHA_BAD_TYPE},
        {"rotary_frequencies: has rank 2, must have 1 (w/2)", MHA_BAD_SHAPE},
    };
    scene_open(&s);
    for (int n = 0; n < (int)(sizeof want / sizeof *want); n++) {
        mha_layer_options f = turned(&s, FROM_FREQUENCIES), t = turned(&s, FROM_TABLES),
                          o = n == 1 || (n > 2 && n < 6) ? t : f;
        mha_layer *layer = NULL;
        if (n == 0) o.rotary_base = 10;
        if (n == 1) o.rotary_sin = (mha_tensor)MHA_NO_TENSOR;
        if (n == 2) o.rotary_frequencies.size[0] = 3;
        if (n == 3) o.rotary_width = 6;
        if (n == 4) o.rotary_sin.size[0] = 39;
        if (n == 5) o.rotary_multiplier = 2;
        if (n == 6) o.rotary_multiplier = NAN;
        if (n == 7) o.rotary_frequencies.type = MHA_INT64;
        if (n == 8) o.rotary_frequencies = mha_tensor_2d(s.frequencies, MHA_FLOAT32, 2, 2);
        mha_status status = mha_layer_create(s.ctx, &layer, &o, NULL);
        expect(status == want[n].status && !layer && !strcmp(mha_context_error(s.ctx), want[n].line), "%d: %s: %s", n,
               mha_status_name(status), mha_context_error(s.ctx));
        mha_layer_free(layer);
    }
    mha_context_free(s.ctx);
}
