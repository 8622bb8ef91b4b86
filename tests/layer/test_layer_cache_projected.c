/* Keys and values that go into a cache, or come out of it, projected: what one cache holds serves another one, of any
 * type, for self-attention and for an encoder's memory. */
#include "support/harness.h"
#include "layer/layers.h"

enum { B = 2, T = 9, M = 24, H = 4, G = 2, D = 6, E = 5 };

typedef struct scene {
    mha_context *ctx;
    mha_layer *layer;
    float x[B][T][M], y[2][B][T][M];
} scene;

static void scene_open(scene *s)
{
    rng r = rng_make(6, 1);
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    s->ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    o.width = M, o.heads = H, o.kv_heads = G, o.value_head_width = E, o.causal = true;
    o.rotary_base = 100, o.norm_epsilon = 1e-5f;
    expect(!mha_layer_create(s->ctx, &s->layer, &o, NULL) && !mha_layer_initialize(s->ctx, s->layer, 2), "%s",
           mha_context_error(s->ctx));
    for (int n = 0; n < B * T * M; n++) (&s->x[0][0][0])[n] = (float)rng_normal(&r);
}

static void scene_close(scene *s)
{
    mha_layer_free(s->layer);
    mha_context_free(s->ctx);
}

static mha_cache *make(scene *s, int64_t capacity, mha_type type)
{
    mha_cache *cache = NULL;
    expect(!mha_cache_create(s->ctx, &cache, s->layer, B, capacity, type), "%s", mha_context_error(s->ctx));
    return cache;
}

static mha_tensor rows_of(float (*x)[T][M], int first, int count)
{
    mha_tensor t = mha_tensor_3d(&x[0][first][0], MHA_FLOAT32, B, count, M);
    t.stride[0] = (int64_t)T * M;
    return t;
}

static void step(scene *s, mha_cache *cache, int to, int first, int count)
{
    expect(!mha_cache_step(s->ctx, cache, s->layer, rows_of(s->y[to], first, count), NULL, rows_of(s->x, first, count),
                           NULL),
           "%s", mha_context_error(s->ctx));
}

/* Whole pasts, and one position after another: the second cache goes on with the bits of the first. */
TEST(a_past_moves_to_another_cache)
{
    static scene s;
    scene_open(&s);
    for (int one_by_one = 0; one_by_one < 2; one_by_one++) {
        mha_cache *first = make(&s, T, MHA_FLOAT32), *second = make(&s, T + 3, MHA_FLOAT32);
        step(&s, first, 0, 0, T - 1);
        mha_cache_parts past = mha_cache_view(first, -1);
        expect(past.k.rank == 4 && past.k.size[0] == B && past.k.size[1] == G && past.k.size[2] == T - 1 &&
                   past.k.size[3] == D && past.v.size[3] == E && past.k.type == MHA_FLOAT32,
               "the shape of a past");
        for (int t = 0; t < T - 1; t += one_by_one ? 1 : T - 1) {
            mha_tensor k = past.k, v = past.v;
            k.data = (float *)k.data + t * k.stride[2];
            v.data = (float *)v.data + t * v.stride[2];
            k.size[2] = v.size[2] = one_by_one ? 1 : T - 1;
            expect(!mha_cache_append_projected(s.ctx, second, k, v), "%s", mha_context_error(s.ctx));
        }
        expect(mha_cache_length(second, 0) == T - 1 && mha_cache_length(second, B - 1) == T - 1, "lengths");
        step(&s, first, 0, T - 1, 1);
        step(&s, second, 1, T - 1, 1);
        for (int b = 0; b < B; b++)
            expect(!memcmp(s.y[0][b][T - 1], s.y[1][b][T - 1], sizeof s.y[0][b][T - 1]), "row %d differs", b);
        mha_cache_free(first);
        mha_cache_free(second);
    }
    scene_close(&s);
}

/* Rows of unlike lengths, each by itself; a bfloat16 cache rounds. */
TEST(rows_one_by_one)
{
    static scene s;
    static float k[B][G][T][D];
    scene_open(&s);
    mha_cache *cache = make(&s, T, MHA_FLOAT32), *half = make(&s, T, MHA_BFLOAT16);
    step(&s, cache, 0, 0, T);
    expect(!mha_cache_truncate(s.ctx, cache, 1, 4), "%s", mha_context_error(s.ctx));
    for (int b = 0; b < B; b++) {
        mha_cache_parts row = mha_cache_view(cache, b);
        expect(row.k.size[0] == 1 && row.k.size[2] == (b ? 4 : T) && row.v.size[2] == row.k.size[2], "row %d", b);
        mha_tensor to = mha_tensor_4d(k[b], MHA_FLOAT32, 1, G, T, D);
        to.size[2] = row.k.size[2];
        expect(!mha_tensor_copy(s.ctx, to, row.k), "%s", mha_context_error(s.ctx));
    }
    mha_cache_parts all = mha_cache_view(cache, -1);
    expect(all.k.size[2] == T &&
               !memcmp(k[1][1][3], (float *)all.k.data + all.k.stride[0] + all.k.stride[1] + 3 * D, sizeof k[1][1][3]),
           "the views differ");
    expect(!mha_cache_append_projected(s.ctx, half, all.k, all.v) && !mha_cache_truncate(s.ctx, half, 1, 4), "%s",
           mha_context_error(s.ctx));
    mha_cache_parts rounded = mha_cache_view(half, 1);
    expect(rounded.k.type == MHA_BFLOAT16 && rounded.k.size[2] == 4, "a cache of bfloat16");
    for (int d = 0; d < D; d++)
        expect(((uint16_t *)rounded.k.data)[d] == bfloat16_from((double)k[1][0][0][d]), "element %d", d);
    mha_cache_parts none = mha_cache_view(cache, B), nothing = mha_cache_view(NULL, 0),
                    wrong = mha_cache_view(cache, -2);
    expect(!none.k.rank && !nothing.v.rank && !wrong.k.rank, "views of what is not there");
    mha_cache_free(cache);
    mha_cache_free(half);
    scene_close(&s);
}

/* What attention reads is what the cache says: attention over the exported keys gives the heads of the layer. */
TEST(what_is_exported_is_what_attention_reads)
{
    static scene s;
    static float q[B][H][T][D], heads[B][H][T][E], got[B][T][H * E];
    scene_open(&s);
    mha_layer_options o = *mha_layer_shape(s.layer), whole = o;
    mha_layer *bare = NULL, *queries = NULL;
    o.out_projection = o.out_bias = false, o.out_width = 0;
    expect(!mha_layer_create(s.ctx, &bare, &o, NULL) &&
               !mha_tensor_copy(s.ctx, mha_layer_view(bare, NULL).in_weight, mha_layer_view(s.layer, NULL).in_weight),
           "%s", mha_context_error(s.ctx));
    mha_cache *cache = make(&s, T, MHA_FLOAT32), *as_keys = NULL;
    mha_tensor x = mha_tensor_3d(s.x, MHA_FLOAT32, B, T, M);
    expect(!mha_cache_step(s.ctx, cache, bare, mha_tensor_3d(got, MHA_FLOAT32, B, T, H * E), NULL, x, NULL), "%s",
           mha_context_error(s.ctx));
    /* a layer whose keys are this one's queries leaves them in its cache */
    whole.kv_heads = H, whole.value_head_width = D;
    expect(!mha_layer_create(s.ctx, &queries, &whole, NULL), "%s", mha_context_error(s.ctx));
    mha_layer_parts from = mha_layer_view(s.layer, NULL), to = mha_layer_view(queries, NULL);
    expect(!mha_tensor_copy(s.ctx, to.k_weight, from.q_weight) && !mha_tensor_copy(s.ctx, to.k_norm, from.q_norm) &&
               !mha_cache_create(s.ctx, &as_keys, queries, B, T, MHA_FLOAT32) &&
               !mha_cache_append(s.ctx, as_keys, queries, x, (mha_tensor)MHA_NO_TENSOR) &&
               !mha_tensor_copy(s.ctx, mha_tensor_4d(q, MHA_FLOAT32, B, H, T, D), mha_cache_view(as_keys, -1).k),
           "%s", mha_context_error(s.ctx));
    mha_cache_parts past = mha_cache_view(cache, -1);
    mha_attention_options causal = MHA_ATTENTION_DEFAULTS;
    causal.causal = true;
    expect(!mha_attention_forward(s.ctx, mha_tensor_4d(heads, MHA_FLOAT32, B, H, T, E), NULL,
                                  mha_tensor_4d(q, MHA_FLOAT32, B, H, T, D), past.k, past.v, &causal),
           "%s", mha_context_error(s.ctx));
    for (int n = 0; n < B * T * H * E; n++) {
        int e = n % E, h = n / E % H, t = n / E / H % T, b = n / E / H / T;
        expect(fabsf(heads[b][h][t][e] - got[b][t][h * E + e]) < 2e-6f, "(%d,%d,%d,%d) differs", b, h, t, e);
    }
    mha_cache_free(as_keys);
    mha_cache_free(cache);
    mha_layer_free(queries);
    mha_layer_free(bare);
    scene_close(&s);
}

TEST(what_is_refused)
{
    static scene s;
    static float numbers[B * G * T * D];
    scene_open(&s);
    mha_cache *cache = make(&s, 5, MHA_FLOAT32);
    mha_tensor k = mha_tensor_4d(numbers, MHA_FLOAT32, B, G, 3, D), v = mha_tensor_4d(numbers, MHA_FLOAT32, B, G, 3, E);
    mha_tensor wrong = v, none = MHA_NO_TENSOR;
    expect(mha_cache_append_projected(NULL, cache, k, v) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_cache_append_projected(s.ctx, NULL, k, v) == MHA_BAD_ARGUMENT, "no cache");
    expect(mha_cache_append_projected(s.ctx, cache, k, none) == MHA_BAD_SHAPE, "no values");
    wrong.size[2] = 2;
    expect(mha_cache_append_projected(s.ctx, cache, k, wrong) == MHA_BAD_SHAPE, "fewer values");
    expect(!strcmp(mha_context_error(s.ctx), "v: is (2,2,2,5), must be (2,2,3,5)"), "%s", mha_context_error(s.ctx));
    expect(mha_cache_append_projected(s.ctx, cache, v, v) == MHA_BAD_SHAPE, "keys of another width");
    wrong = k;
    wrong.type = MHA_INT64;
    expect(mha_cache_append_projected(s.ctx, cache, wrong, v) == MHA_BAD_TYPE, "int64");
    expect(!mha_cache_append_projected(s.ctx, cache, k, v), "%s", mha_context_error(s.ctx));
    expect(mha_cache_append_projected(s.ctx, cache, k, v) == MHA_FULL, "more than fits");
    mha_cache_parts own = mha_cache_view(cache, -1);
    expect(mha_cache_append_projected(s.ctx, cache, own.k, v) == MHA_OVERLAP, "its own memory");
    expect(mha_cache_length(cache, 0) == 3 && mha_cache_length(cache, 1) == 3, "a refused call appended");
    mha_cache_free(cache);
    scene_close(&s);
}
