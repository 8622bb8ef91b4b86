/* q, k, v and heads as extras: asking for them changes no other result and allocates nothing; a cache gives what it
 * holds; what cannot be given is refused. That the numbers are right, test_layer shows for any combination of options. */
#include "support/harness.h"
#include "layer/layers.h"

enum { CASES = 150, B = 2, T = 9, M = 24, H = 4, G = 2, D = 6 };

/* ---- Nothing else changes --------------------------------------------------------------------------------------- */

/* Runs a case without and with them. */
static void compare_runs(layer_case c, const char *isa, bool gradients, long long n)
{
    char why[300] = "";
    layer_problem *p[2];
    ledger memory[2] = {ledger_make(), ledger_make()};
    size_t scratch[2];
    for (int asked = 0; asked < 2; asked++) {
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, &memory[asked]);
        c.between = asked;
        p[asked] = layer_problem_make(&c);
        layer_problem_solve(p[asked], gradients);
        expect(layer_problem_run(p[asked], ctx, gradients, why, sizeof why), "case %lld, %s: %s", n, isa, why);
        scratch[asked] = mha_context_scratch(ctx);
        mha_context_free(ctx);
    }
    expect(memory[0].calls == memory[1].calls && scratch[0] == scratch[1],
           "case %lld, %s: %lld allocations and %zu bytes of scratch became %lld and %zu", n, isa,
           (long long)memory[0].calls, scratch[0], (long long)memory[1].calls, scratch[1]);
    const store *without[] = {&p[0]->out, &p[0]->lse, &p[0]->weights, &p[0]->dquery, &p[0]->dkey, &p[0]->dvalue};
    const store *with[] = {&p[1]->out, &p[1]->lse, &p[1]->weights, &p[1]->dquery, &p[1]->dkey, &p[1]->dvalue};
    for (int k = 0; k < 6; k++)
        expect(without[k]->size == with[k]->size &&
                   (!with[k]->size || !memcmp(without[k]->bytes, with[k]->bytes, with[k]->size)),
               "case %lld, %s: result %d changed", n, isa, k);
    layer_problem_free(p[0]);
    layer_problem_free(p[1]);
}

TEST(no_other_result_changes)
{
    long long cases = cases_from(CASES);
    for (long long n = 0; n < cases; n++) {
        rng r = rng_make(20261116, (uint64_t)n);
        layer_case c = layer_case_random(&r);
        for_each_isa (isa) compare_runs(c, isa, n % 2, n);
    }
}

/* ---- With a cache ----------------------------------------------------------------------------------------------- */

typedef struct between {
    float q[B][H][T][D], k[B][G][T][D], v[B][G][T][D], heads[B][H][T][D];
} between;

typedef struct scene {
    mha_context *ctx;
    mha_layer *layer;
    float x[B][T][M], out[B][T][M];
    between all, step; /* of one call for all positions, and of steps */
} scene;

static mha_layer_options small(bool rich)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    o.width = M, o.heads = H, o.kv_heads = G, o.causal = true;
    if (!rich) return o;
    o.rotary_base = 100, o.norm_epsilon = 1e-5f;
    o.bias_kv = o.zero_kv = o.sinks = o.gates = true;
    return o;
}

/* Rows first to first + count - 1 of (B,heads,T,D), as (B,heads,count,D). */
static mha_tensor rows_of(float *x, int64_t heads, int64_t first, int64_t count)
{
    mha_tensor t = mha_tensor_4d(x + first * D, MHA_FLOAT32, B, heads, count, D);
    t.stride[0] = heads * T * D, t.stride[1] = T * D;
    return t;
}

static mha_attention_extras ask(between *to, int64_t first, int64_t count, int64_t keys)
{
    mha_attention_extras x = MHA_ATTENTION_NO_EXTRAS;
    x.q = rows_of(&to->q[0][0][0][0], H, first, count);
    x.heads = rows_of(&to->heads[0][0][0][0], H, first, count);
    x.k = rows_of(&to->k[0][0][0][0], G, 0, keys);
    x.v = rows_of(&to->v[0][0][0][0], G, 0, keys);
    return x;
}

static mha_tensor positions(float (*x)[T][M], int64_t first, int64_t count)
{
    mha_tensor t = mha_tensor_3d(&x[0][first][0], MHA_FLOAT32, B, count, M);
    t.stride[0] = (int64_t)T * M;
    return t;
}

static void scene_open(scene *s, mha_layer_options options, const char *isa)
{
    rng r = rng_make(3, 1);
    memset(s, 0, sizeof *s);
    s->ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
    expect(!mha_layer_create(s->ctx, &s->layer, &options, NULL), "%s", mha_context_error(s->ctx));
    mha_layer_initialize(s->ctx, s->layer, 5);
    for (int n = 0; n < B * T * M; n++) (&s->x[0][0][0])[n] = (float)rng_normal(&r);
    for (int h = 0; options.gates && h < H; h++)
        ((float *)mha_layer_view(s->layer, NULL).gates.data)[h] = (float)h - 1.5f;
    mha_attention_extras x = ask(&s->all, 0, T, T);
    mha_layer_inputs in = {.query = positions(s->x, 0, T)};
    expect(!mha_layer_forward(s->ctx, s->layer, positions(s->out, 0, T), &x, &in, NULL, NULL), "%s",
           mha_context_error(s->ctx));
}

static void scene_close(scene *s)
{
    mha_layer_free(s->layer);
    mha_context_free(s->ctx);
}

static double apart(const void *x, const void *y, size_t bytes)
{
    double most = 0;
    for (size_t n = 0; n < bytes / sizeof(float); n++) {
        double off = fabs((double)((const float *)x)[n] - (double)((const float *)y)[n]);
        if (!(off <= most)) most = isnan(off) ? INFINITY : off;
    }
    return most;
}

/* Steps of a few positions give the rows that one call gives, and k and v are what the cache holds. */
TEST(a_cache_gives_what_it_holds)
{
    static scene s;
    for_each_isa (isa)
        for (int kind = 0; kind < 4; kind++) {
            mha_cache *cache;
            mha_type type = kind & 2 ? MHA_BFLOAT16 : MHA_FLOAT32;
            double bound = kind & 2 ? 3e-2 : 4e-6;
            scene_open(&s, small(kind & 1), isa);
            expect(!mha_cache_create(s.ctx, &cache, s.layer, B, T, type), "%s", mha_context_error(s.ctx));
            for (int at = 0; at < T; at += 3) {
                mha_attention_extras x = ask(&s.step, at, 3, at + 3);
                memset(s.step.k, 0, sizeof s.step.k);
                memset(s.step.v, 0, sizeof s.step.v);
                expect(!mha_cache_step(s.ctx, cache, s.layer, positions(s.out, at, 3), &x, positions(s.x, at, 3), NULL),
                       "%s", mha_context_error(s.ctx));
                mha_cache_parts held = mha_cache_view(cache, -1);
                for (int64_t n = 0; n < (int64_t)B * G * (at + 3) * D; n++) {
                    int64_t d = n % D, t = n / D % (at + 3), g = n / D / (at + 3) % G, b = n / D / (at + 3) / G;
                    int64_t place = b * held.k.stride[0] + g * held.k.stride[1] + t * held.k.stride[2] + d;
                    double k = element_get((char *)held.k.data + place * (type == MHA_FLOAT32 ? 4 : 2), type);
                    expect((double)s.step.k[b][g][t][d] == k, "%s: key (%lld,%lld,%lld,%lld)", isa, (long long)b,
                           (long long)g, (long long)t, (long long)d);
                }
            }
            expect(apart(&s.all.q, &s.step.q, sizeof s.all.q) <= 4e-6, "%s, kind %d: q is off by %g", isa, kind,
                   apart(&s.all.q, &s.step.q, sizeof s.all.q));
            expect(apart(&s.all.k, &s.step.k, sizeof s.all.k) <= bound, "%s, kind %d: k", isa, kind);
            expect(apart(&s.all.v, &s.step.v, sizeof s.all.v) <= bound, "%s, kind %d: v", isa, kind);
            expect(apart(&s.all.heads, &s.step.heads, sizeof s.all.heads) <= bound, "%s, kind %d: heads off by %g", isa,
                   kind, apart(&s.all.heads, &s.step.heads, sizeof s.all.heads));
            mha_cache_free(cache);
            scene_close(&s);
        }
}

/* A row that is shorter than the longest one ends with zeros, whatever lies behind it in the cache. */
TEST(short_rows_of_a_cache_end_with_zeros)
{
    static scene s;
    mha_cache *cache;
    scene_open(&s, small(false), NULL);
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, T, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    expect(!mha_cache_append(s.ctx, cache, s.layer, positions(s.x, 0, T), (mha_tensor)MHA_NO_TENSOR), "%s",
           mha_context_error(s.ctx));
    expect(!mha_cache_truncate(s.ctx, cache, 1, 4), "%s", mha_context_error(s.ctx));
    mha_attention_extras x = ask(&s.step, 0, 2, T);
    expect(!mha_cache_attend(s.ctx, cache, s.layer, positions(s.out, 0, 2), &x, positions(s.x, 0, 2), NULL), "%s",
           mha_context_error(s.ctx));
    expect(!memcmp(s.step.v[0], s.all.v[0], sizeof s.all.v[0]), "the longest row");
    for (int g = 0; g < G; g++)
        for (int n = 0; n < T * D; n++) {
            float want = n / D < 4 ? s.all.v[1][g][n / D][n % D] : 0;
            expect(s.step.v[1][g][n / D][n % D] == want, "value %d of head %d", n, g);
            expect(n / D < 4 || s.step.k[1][g][n / D][n % D] == 0, "key %d of head %d", n, g);
        }
    mha_cache_free(cache);
    scene_close(&s);
}

/* ---- What is refused -------------------------------------------------------------------------------------------- */

static void refuse(scene *s, mha_attention_extras x, mha_status want, const char *line)
{
    static between untouched;
    mha_layer_inputs in = {.query = positions(s->x, 0, T)};
    mha_attention_plan plan;
    memcpy(&untouched, &s->step, sizeof untouched);
    for (int explains = 0; explains < 2; explains++) {
        mha_tensor out = positions(s->out, 0, T);
        mha_status status = explains ? mha_layer_explain(s->ctx, &plan, s->layer, out, &x, &in, NULL)
                                     : mha_layer_forward(s->ctx, s->layer, out, &x, &in, NULL, NULL);
        expect(status == want && !strcmp(mha_context_error(s->ctx), line), "%s, '%s' instead of '%s'",
               mha_status_name(status), mha_context_error(s->ctx), line);
    }
    expect(!memcmp(&untouched, &s->step, sizeof untouched), "a refused call wrote: %s", line);
}

TEST(tensors_that_do_not_fit)
{
    static scene s;
    scene_open(&s, small(true), NULL);
    mha_attention_extras good = ask(&s.step, 0, T, T), x = good;
    x.q.size[3] = D + 1, x.q.stride[2] = D + 1, x.q.size[2] = T - 2;
    refuse(&s, x, MHA_BAD_SHAPE, "extras.q: axis 2 is 7, must be 9 of (B,H,Tq,D)");
    x = good;
    x.k.size[1] = 1;
    refuse(&s, x, MHA_BAD_SHAPE, "extras.k: axis 1 is 1, must be 2 of (B,G,Tk,D)");
    x = good;
    x.v = mha_tensor_3d(s.step.v, MHA_FLOAT32, B, G, T);
    refuse(&s, x, MHA_BAD_SHAPE, "extras.v: has rank 3, must have 4 (B,G,Tk,E)");
    x = good;
    x.heads.type = MHA_INT64;
    refuse(&s, x, MHA_BAD_TYPE, "extras.heads: is int64, must be float32, bfloat16 or float16");
    x = good;
    x.k.data = x.v.data;
    refuse(&s, x, MHA_OVERLAP, "extras.k: shares memory with extras.v");
    x = good;
    x.heads.data = s.out;
    refuse(&s, x, MHA_OVERLAP, "out: shares memory with extras.heads");
    x = good;
    x.q.data = s.x;
    refuse(&s, x, MHA_OVERLAP, "extras.q: shares memory with query");
    x = good;
    x.q.data = mha_layer_view(s.layer, NULL).q_weight.data;
    refuse(&s, x, MHA_OVERLAP, "extras.q: shares memory with the parameters");
    x = good;
    x.q.stride[1] = 0;
    refuse(&s, x, MHA_OVERLAP, "extras.q: its strides put two elements of an output in one place");
    scene_close(&s);
}

/* Results in the memory that mha_cache_view shows would overwrite keys that attention still reads. */
TEST(results_inside_a_cache)
{
    static scene s;
    mha_cache *cache;
    scene_open(&s, small(false), NULL);
    expect(!mha_cache_create(s.ctx, &cache, s.layer, B, T, MHA_FLOAT32), "%s", mha_context_error(s.ctx));
    mha_tensor none = MHA_NO_TENSOR, x = positions(s.x, 0, T);
    expect(!mha_cache_append(s.ctx, cache, s.layer, x, none), "%s", mha_context_error(s.ctx));
    mha_cache_parts held = mha_cache_view(cache, -1);
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.k = held.k;
    mha_status status = mha_cache_attend(s.ctx, cache, s.layer, positions(s.out, 0, T), &extras, x, NULL);
    expect(status == MHA_OVERLAP && strstr(mha_context_error(s.ctx), "extras.k: shares memory with the cache"), "%s",
           mha_context_error(s.ctx));
    status = mha_cache_attend(s.ctx, cache, s.layer, mha_tensor_3d(held.k.data, MHA_FLOAT32, B, 1, M), NULL,
                              positions(s.x, 0, 1), NULL);
    expect(status == MHA_OVERLAP && strstr(mha_context_error(s.ctx), "out: shares memory with the cache"), "%s",
           mha_context_error(s.ctx));
    mha_cache_free(cache);
    scene_close(&s);
}

/* Attention alone has nothing between products. */
TEST(attention_alone_refuses_them)
{
    static scene s;
    static float out[B * H * T * D];
    scene_open(&s, small(false), NULL);
    mha_tensor q = rows_of(&s.all.q[0][0][0][0], H, 0, T), k = rows_of(&s.all.k[0][0][0][0], G, 0, T);
    const mha_attention_extras all = ask(&s.step, 0, T, T);
    const char *names[] = {"q", "k", "v", "heads"};
    for (int n = 0; n < BETWEEN; n++) {
        mha_attention_extras x = MHA_ATTENTION_NO_EXTRAS;
        const mha_tensor from[] = {all.q, all.k, all.v, all.heads};
        mha_tensor *to[] = {&x.q, &x.k, &x.v, &x.heads};
        char line[100];
        *to[n] = from[n];
        snprintf(line, sizeof line, "extras.%s: only a layer's call can give it", names[n]);
        mha_status status =
            mha_attention_forward(s.ctx, mha_tensor_4d(out, MHA_FLOAT32, B, H, T, D), &x, q, k, k, NULL);
        expect(status == MHA_BAD_ARGUMENT && !strcmp(mha_context_error(s.ctx), line), "%s", mha_context_error(s.ctx));
    }
    scene_close(&s);
}
