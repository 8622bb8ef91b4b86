/* Two devices side by side: a layer serves both, packed matrices do not. */
#include "core/context.h"
#include "support/harness.h"
#include "layer/layers.h"
#include "support/naive_backend.h"

enum { B = 2, T = 7, M = 24, H = 4 };

static const mha_parallel own_threads = {NULL, NULL};

static mha_context *open_on(const char *device) { return context_make_on(device, NULL, 2, own_threads, NULL); }

TEST(contexts_are_on_the_device_that_was_asked_for)
{
    const char *wanted = getenv("MHA_BACKEND");
    mha_context *cpu = open_on("cpu"), *naive = open_on("naive"), *any = context_make(NULL, 1, own_threads, NULL);
    expect(cpu->backend == &mha_backend_cpu && cpu->kernels, "cpu is %s", cpu->backend->device);
    expect(naive->backend == &naive_backend && !naive->kernels, "naive is %s", naive->backend->device);
    expect(!strcmp(any->backend->device, wanted ? wanted : "cpu"), "the environment's is %s", any->backend->device);
    mha_context_free(cpu);
    mha_context_free(naive);
    mha_context_free(any);
}

/* ---- Packed matrices -------------------------------------------------------------------------------------------- */

/* Memory at an aligned address. */
static char *allocate(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, MHA_ALIGNMENT, bytes)) abort();
    return memory;
}

/* Packs b (K,N) of ones `offset` bytes past an aligned address, in memory that ends with it unless it was there before. */
static char *pack_at(mha_context *ctx, char **memory, int offset, const float *ones, int64_t K, int64_t N)
{
    size_t bytes = 0;
    mha_tensor b = mha_tensor_2d(ones, MHA_FLOAT32, K, N);
    expect(!mha_matmul_pack_size(ctx, &bytes, b, MHA_FLOAT32), "%s", mha_context_error(ctx));
    if (!*memory) *memory = allocate(bytes + (size_t)offset);
    expect(!mha_matmul_pack(ctx, *memory + offset, bytes, b, MHA_FLOAT32), "%s", mha_context_error(ctx));
    return *memory + offset;
}

/* 3 rows of ones times b: K everywhere, or a refusal that leaves c as it was. */
static void check_product(mha_context *ctx, const char *packed, const float *ones, int64_t K, int64_t N, bool own)
{
    float c[3 * 40];
    for (int n = 0; n < 3 * 40; n++) c[n] = -7;
    mha_status status = mha_matmul_packed(ctx, mha_tensor_2d(c, MHA_FLOAT32, 3, N),
                                          mha_tensor_2d(ones, MHA_FLOAT32, 3, K), packed, NULL);
    expect(status == (own ? MHA_OK : MHA_BAD_ARGUMENT), "%s: %s", ctx->backend->device, mha_status_name(status));
    expect(own || strstr(mha_context_error(ctx), "packed: was not packed"), "'%s'", mha_context_error(ctx));
    for (int64_t n = 0; n < 3 * N; n++)
        expect(c[n] == (own ? (float)K : -7), "%s: c[%lld] is %g", ctx->backend->device, (long long)n, (double)c[n]);
}

TEST(packed_matrices_stay_on_their_device)
{
    float ones[40 * 40];
    const char *devices[] = {"cpu", "naive"};
    for (int n = 0; n < 40 * 40; n++) ones[n] = 1;
    for (int first = 0; first < 2; first++)
        for (int offset = 0; offset < MHA_ALIGNMENT; offset++)
            for (int64_t size = 0; size <= 40; size += 20) {
                mha_context *one = open_on(devices[first]), *other = open_on(devices[1 - first]);
                char *memory = NULL, *packed = pack_at(one, &memory, offset, ones, size, size);
                check_product(one, packed, ones, size, size, true);
                check_product(other, packed, ones, size, size, false);
                free(memory);
                mha_context_free(one);
                mha_context_free(other);
            }
}

/* Memory that both have packed into belongs to the one that came last. */
TEST(a_matrix_packed_over_another_one)
{
    float ones[3 * 20];
    for (int n = 0; n < 3 * 20; n++) ones[n] = 1;
    for (int offset = 0; offset < MHA_ALIGNMENT; offset += 7) {
        mha_context *cpu = open_on("cpu"), *naive = open_on("naive");
        char *memory = allocate(1 << 14), *packed = pack_at(cpu, &memory, offset, ones, 20, 3);
        pack_at(naive, &memory, offset, ones, 20, 3);
        check_product(naive, packed, ones, 20, 3, true);
        check_product(cpu, packed, ones, 20, 3, false);
        pack_at(cpu, &memory, offset, ones, 20, 3);
        check_product(naive, packed, ones, 20, 3, false);
        check_product(cpu, packed, ones, 20, 3, true);
        free(memory);
        mha_context_free(cpu);
        mha_context_free(naive);
    }
}

/* ---- Layers ----------------------------------------------------------------------------------------------------- */

static mha_layer *make(mha_context *ctx, bool extra_keys)
{
    mha_layer_options o = MHA_LAYER_DEFAULTS;
    mha_layer *layer = NULL;
    o.width = M, o.heads = H, o.kv_heads = 2, o.causal = true;
    o.rotary_base = 100, o.norm_epsilon = 1e-5f;
    o.bias_kv = o.zero_kv = o.sinks = extra_keys;
    expect(!mha_layer_create(ctx, &layer, &o, NULL), "%s", mha_context_error(ctx));
    mha_layer_initialize(ctx, layer, 3);
    return layer;
}

static void fill(float *x)
{
    rng r = rng_make(7, 1);
    for (int n = 0; n < B * T * M; n++) x[n] = (float)rng_normal(&r);
}

static double apart(const float *x, const float *y, int64_t count)
{
    double most = 0;
    for (int64_t n = 0; n < count; n++) {
        double off = fabs((double)x[n] - (double)y[n]);
        if (!(off <= most)) most = isnan(off) ? INFINITY : off;
    }
    return most;
}

/* Weights that one device has packed are packed again for the other, even where the two name their instruction sets
 * alike. */
TEST(one_layer_on_two_devices)
{
    static float x[B * T * M], y[4][B * T * M];
    mha_context *contexts[] = {open_on("cpu"), open_on("naive")};
    mha_layer *layer = make(contexts[0], false);
    contexts[1]->isa = contexts[0]->isa;
    fill(x);
    for (int n = 0; n < 4; n++) {
        mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
        mha_tensor out = mha_tensor_3d(y[n], MHA_FLOAT32, B, T, M);
        expect(!mha_layer_forward(contexts[n % 2], layer, out, NULL, &in, NULL, NULL), "call %d: %s", n,
               mha_context_error(contexts[n % 2]));
        expect(apart(y[0], y[n], B * T * M) < 3e-6, "call %d is off by %g", n, apart(y[0], y[n], B * T * M));
    }
    expect(!memcmp(y[0], y[2], sizeof y[0]) && !memcmp(y[1], y[3], sizeof y[0]), "the second round differs");
    mha_layer_free(layer);
    mha_context_free(contexts[0]);
    mha_context_free(contexts[1]);
}

/* A layer of its own on a device: zeros, but for gains of one. */
TEST(first_parameters_on_every_device)
{
    const char *devices[] = {"cpu", "naive"};
    for (int n = 0; n < 2; n++) {
        mha_context *ctx = open_on(devices[n]);
        mha_layer_options o = MHA_LAYER_DEFAULTS;
        mha_layer *layer = NULL;
        o.width = M, o.heads = H, o.norm_epsilon = 1e-5f, o.gates = true;
        expect(!mha_layer_create(ctx, &layer, &o, NULL), "%s", mha_context_error(ctx));
        mha_layer_parts p = mha_layer_view(layer, NULL);
        const float *all = p.q_weight.data;
        int64_t count = 0, ones = 0;
        expect(!mha_layer_parameter_count(ctx, &count, &o), "%s", mha_context_error(ctx));
        for (int64_t i = 0; i < count; i++) {
            expect(all[i] == 0 || all[i] == 1, "%s: %lld is %g", devices[n], (long long)i, (double)all[i]);
            ones += all[i] == 1;
        }
        expect(ones == 2 * M / H + H && *(float *)p.gates.data == 1, "%s: %lld ones", devices[n], (long long)ones);
        mha_layer_free(layer);
        mha_context_free(ctx);
    }
}

TEST(statistics_of_a_layer_on_two_devices)
{
    static float x[B * T * M], y[B * T * M], entropy[2][B * H * T], received[2][B * H * T];
    const char *devices[] = {"cpu", "naive"};
    fill(x);
    for (int n = 0; n < 2; n++) {
        mha_context *ctx = open_on(devices[n]);
        mha_layer *layer = make(ctx, false);
        mha_tape *tape = NULL;
        mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
        mha_stats stats = MHA_NO_STATS;
        stats.entropy = mha_tensor_3d(entropy[n], MHA_FLOAT32, B, H, T);
        stats.received = mha_tensor_3d(received[n], MHA_FLOAT32, B, H, T);
        expect(!mha_tape_create(ctx, &tape) &&
                   !mha_layer_forward(ctx, layer, mha_tensor_3d(y, MHA_FLOAT32, B, T, M), NULL, &in, NULL, tape) &&
                   !mha_layer_stats(ctx, layer, &stats, tape, NULL),
               "%s: %s", devices[n], mha_context_error(ctx));
        mha_tape_free(tape);
        mha_layer_free(layer);
        mha_context_free(ctx);
    }
    expect(entropy[0][T - 1] > 0.1f, "a head with an entropy of %g", (double)entropy[0][T - 1]);
    expect(apart(entropy[0], entropy[1], B * H * T) < 3e-6, "entropy");
    expect(apart(received[0], received[1], B * H * T) < 3e-6, "received");
}

/* lse and softmax, with and without keys that the layer adds: alike on both devices, and lse = m + log(sum). */
TEST(softmax_of_a_layer_on_two_devices)
{
    static float x[B * T * M], y[B * T * M], lse[2][B * H * T], softmax[B * H * T][2];
    const char *devices[] = {"cpu", "naive"};
    fill(x);
    for (int extra = 0; extra < 2; extra++) {
        for (int n = 0; n < 2; n++) {
            mha_context *ctx = open_on(devices[n]);
            mha_layer *layer = make(ctx, extra);
            mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
            mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
            extras.lse = mha_tensor_3d(lse[n], MHA_FLOAT32, B, H, T);
            extras.softmax = mha_tensor_4d(softmax, MHA_FLOAT32, B, H, T, 2);
            mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M);
            expect(!mha_layer_forward(ctx, layer, out, &extras, &in, NULL, NULL), "%s: %s", devices[n],
                   mha_context_error(ctx));
            for (int i = 0; i < B * H * T; i++) {
                double want = (double)softmax[i][0] + log((double)softmax[i][1]);
                expect(fabs((double)lse[n][i] - want) < 2e-6, "%s: lse %g, not %g", devices[n], (double)lse[n][i],
                       want);
            }
            mha_layer_free(layer);
            mha_context_free(ctx);
        }
        expect(apart(lse[0], lse[1], B * H * T) < 3e-6, "lse is off by %g", apart(lse[0], lse[1], B * H * T));
    }
}

/* ---- Tapes and caches ------------------------------------------------------------------------------------------- */

/* Their memory lies on one device: the other one refuses them in every call. */
TEST(tapes_and_caches_stay_on_their_device)
{
    static float x[B * T * M], y[B * T * M], k[B * 2 * T * M / H];
    const char *devices[] = {"cpu", "naive"};
    fill(x);
    for (int n = 0; n < 2; n++) {
        mha_context *ctx = open_on(devices[n]), *other = open_on(devices[1 - n]);
        mha_layer *layer = make(ctx, false);
        mha_tape *tape = NULL;
        mha_cache *cache = NULL, *copy = NULL;
        mha_layer_inputs in = {.query = mha_tensor_3d(x, MHA_FLOAT32, B, T, M)};
        mha_tensor out = mha_tensor_3d(y, MHA_FLOAT32, B, T, M), none = MHA_NO_TENSOR;
        mha_tensor kv = mha_tensor_4d(k, MHA_FLOAT32, B, 2, T, M / H);
        mha_layer_gradients gradients = {.accumulate = false};
        mha_stats stats = MHA_NO_STATS;
        int64_t from[B] = {0, 1};
        expect(!mha_tape_create(ctx, &tape) && !mha_cache_create(ctx, &cache, layer, B, T, MHA_FLOAT32), "%s",
               mha_context_error(ctx));
        char want[2][100];
        snprintf(want[0], sizeof want[0], "tape: was made on the device %s, the context is on %s", devices[n],
                 devices[1 - n]);
        snprintf(want[1], sizeof want[1], "cache: was made on the device %s, the context is on %s", devices[n],
                 devices[1 - n]);
#define REFUSED(call, about)                                                                                      \
    do {                                                                                                          \
        mha_status status = (call);                                                                               \
        expect(status == MHA_BAD_ARGUMENT && !strcmp(mha_context_error(other), want[about]), "%s: %s: %s", #call, \
               mha_status_name(status), mha_context_error(other));                                                \
    } while (0)
        REFUSED(mha_layer_forward(other, layer, out, NULL, &in, NULL, tape), 0);
        expect(!mha_layer_forward(ctx, layer, out, NULL, &in, NULL, tape), "%s", mha_context_error(ctx));
        REFUSED(mha_layer_backward(other, layer, &gradients, out, tape), 0);
        REFUSED(mha_layer_stats(other, layer, &stats, tape, NULL), 0);
        REFUSED(mha_cache_append(other, cache, layer, in.query, none), 1);
        REFUSED(mha_cache_append_projected(other, cache, kv, kv), 1);
        REFUSED(mha_cache_attend(other, cache, layer, out, NULL, in.query, NULL), 1);
        REFUSED(mha_cache_step(other, cache, layer, out, NULL, in.query, NULL), 1);
        REFUSED(mha_cache_truncate(other, cache, -1, 0), 1);
        REFUSED(mha_cache_reorder(other, cache, from), 1);
        REFUSED(mha_cache_fork(other, &copy, cache), 1);
#undef REFUSED
        expect(!mha_layer_backward(ctx, layer, &gradients, out, tape) &&
                   !mha_cache_step(ctx, cache, layer, out, NULL, in.query, NULL),
               "%s", mha_context_error(ctx));
        mha_cache_free(cache);
        mha_tape_free(tape);
        mha_layer_free(layer);
        mha_context_free(ctx);
        mha_context_free(other);
    }
}
