/* The matrix product against float64, on every instruction set: all types, strides, options; and the same bits however
 * the work is cut. */
#include "support/contexts.h"
#include "support/harness.h"
#include "support/views.h"

#include "cpu/isa/kernels.h"

#define UNIT 0x1p-24 /* half the distance from 1 to the next float */

typedef struct product {
    int64_t M, K, N;
    mha_matmul_options options;
    store c, a, b, bias;
    double *want, *slack; /* (M,N): the true result, and how far float32 may be from it */
} product;

static double activated(mha_activation activation, double x)
{
    switch (activation) {
    case MHA_RELU:
        return x > 0 ? x : 0;
    case MHA_GELU:
        return x * erfc(-x / sqrt(2)) / 2;
    case MHA_GELU_TANH:
        /* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2u)), which does not cancel */
        return x / (1 + exp(-2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case MHA_SILU:
        return x / (1 + exp(-x));
    case MHA_TANH:
        return tanh(x);
    case MHA_QUICK_GELU:
        return x / (1 + exp(-1.702 * x));
    case MHA_RELU_SQUARED:
        return x > 0 ? x * x : 0;
    default:
        return x;
    }
}

/* The sum of a block of 256 is one chain; so is the sum of blocks; old value, bias and alpha are a few roundings more.
 * No activation is steeper than 1.13 but the square, and each is within 64 units of its own; results of c's type are rounded to it. */
static void solve(product *p)
{
    const mha_matmul_options *o = &p->options;
    double roundings = (double)((p->K < 256 ? p->K : 256) + p->K / 256 + 6);
    p->want = array(p->M * p->N + 1, sizeof *p->want);
    p->slack = array(p->M * p->N + 1, sizeof *p->slack);
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            double bias = o->bias.rank ? store_get(&p->bias, j, 0, 0, 0) : 0;
            double z = bias + (o->accumulate ? store_get(&p->c, i, j, 0, 0) : 0), size = fabs(bias) + fabs(z);
            for (int64_t k = 0; k < p->K; k++) {
                double term = (double)o->alpha * store_get(&p->a, i, k, 0, 0) * store_get(&p->b, k, j, 0, 0);
                z += term;
                size += fabs(term);
            }
            double y = activated(o->activation, z),
                   steep = o->activation == MHA_RELU_SQUARED ? 2 * fmax(z, 0) + size * UNIT : 1.13;
            double error = steep * UNIT * roundings * size;
            if (o->activation) error += 64 * UNIT * fabs(y) + 1e-36;
            p->want[i * p->N + j] = y;
            p->slack[i * p->N + j] = error + half_ulp(p->c.view.type, fabs(y) + error);
        }
}

static void fill(rng *r, store *s)
{
    int64_t rows = s->view.size[0], cols = s->view.rank == 2 ? s->view.size[1] : 1;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++) store_set(s, i, j, 0, 0, rng_normal(r));
}

/* Axis 0 and 1 exchanged in memory, or as they are. */
static store store_turned(rng *r, mha_type type, int64_t rows, int64_t cols, layout how, bool turned)
{
    store s = store_make(r, type, 2, (const int64_t[]){turned ? cols : rows, turned ? rows : cols}, how);
    if (turned) s.view = mha_tensor_swap(s.view, 0, 1);
    return s;
}

static product product_make(rng *r, int64_t M, int64_t K, int64_t N, const mha_type types[4], bool plain)
{
    static const float alphas[] = {1.0f, 1.0f, -0.37f, 0.0f};
    product p = {.M = M, .K = K, .N = N, .options = MHA_MATMUL_DEFAULTS};
    layout how[4];
    for (int n = 0; n < 4; n++) how[n] = plain || rng_chance(r, 0.6) ? LAYOUT_DENSE : LAYOUT_ANY;
    p.a = store_turned(r, types[1], M, K, plain || rng_chance(r, 0.8) ? how[1] : LAYOUT_BROADCAST, rng_bits(r) & 1);
    p.b = store_turned(r, types[2], K, N, how[2], rng_bits(r) & 1);
    p.c = store_turned(r, types[0], M, N, how[0], !plain && rng_chance(r, 0.2));
    p.bias = store_make(r, types[3], 1, &N, how[3]);
    fill(r, &p.a);
    fill(r, &p.b);
    fill(r, &p.c);
    fill(r, &p.bias);
    if (rng_bits(r) & 1) p.options.bias = p.bias.view;
    p.options.activation = (mha_activation)(rng_chance(r, 0.5) ? 0 : rng_between(r, 0, MHA_RELU_SQUARED));
    p.options.accumulate = rng_bits(r) & 1;
    p.options.alpha = alphas[rng_between(r, 0, 3)];
    store_guard(&p.c);
    store_allow_all(&p.c);
    return p;
}

static void product_free(product *p)
{
    store_free(&p->a);
    store_free(&p->b);
    store_free(&p->c);
    store_free(&p->bias);
    free(p->want);
    free(p->slack);
}

/* A packed copy of b, in memory as unaligned as it may be. */
static char *packed_make(mha_context *ctx, mha_tensor b, mha_type a)
{
    size_t bytes = 0;
    expect(!mha_matmul_pack_size(ctx, &bytes, b, a), "%s", mha_context_error(ctx));
    char *memory = array((int64_t)bytes + 9, 1);
    memset(memory, 0xA5, bytes + 9);
    expect(!mha_matmul_pack(ctx, memory + 1, bytes, b, a), "%s", mha_context_error(ctx));
    for (int n = 0; n < 9; n++)
        expect(memory[n ? bytes + (size_t)n : 0] == (char)0xA5, "pack wrote outside its memory");
    return memory;
}

/* One call, from the same c as every other call. */
static void product_run(product *p, mha_context *ctx, bool packed)
{
    char *memory = packed ? packed_make(ctx, p->b.view, p->a.view.type) : NULL;
    store_reset(&p->c);
    mha_status status = packed ? mha_matmul_packed(ctx, p->c.view, p->a.view, memory + 1, &p->options)
                               : mha_matmul(ctx, p->c.view, p->a.view, p->b.view, &p->options);
    expect(!status && !mha_context_error(ctx)[0], "%s", mha_context_error(ctx));
    expect(store_intact(&p->c), "%s: wrote outside c", mha_context_isa(ctx));
    free(memory);
}

static void product_check(const product *p, const char *isa)
{
    for (int64_t i = 0; i < p->M; i++)
        for (int64_t j = 0; j < p->N; j++) {
            double got = store_get(&p->c, i, j, 0, 0), want = p->want[i * p->N + j];
            expect(fabs(got - want) <= p->slack[i * p->N + j], "%s: (%d,%d,%d) at (%d,%d): %.9g, not %.9g", isa,
                   (int)p->M, (int)p->K, (int)p->N, (int)i, (int)j, got, want);
        }
}

/* Once with one thread against float64; then, bit by bit, with others, run in other orders, and with b packed before. */
static void every_way(product *p, const char *isa)
{
    const mha_parallel runs[] = {{NULL, NULL}, parallel_pthreads(), parallel_reversed(), {NULL, NULL}};
    const int threads[] = {1, 2, 3, 7};
    unsigned char *bits = array((int64_t)p->c.size, 1);
    for (int n = 0; n < 8; n++) {
        ledger memory = ledger_make();
        mha_context *ctx = context_make(isa, threads[n / 2], runs[n / 2], &memory);
        expect(!strcmp(mha_context_isa(ctx), isa), "asked for %s, got %s", isa, mha_context_isa(ctx));
        product_run(p, ctx, n % 2);
        if (!n) product_check(p, isa);
        if (!n) memcpy(bits, p->c.bytes, p->c.size);
        expect(!memcmp(bits, p->c.bytes, p->c.size), "%s: (%d,%d,%d) has other bits with %d threads%s", isa, (int)p->M,
               (int)p->K, (int)p->N, threads[n / 2], n % 2 ? ", b packed before" : "");
        mha_context_free(ctx);
        expect(!memory.live && !memory.misuses, "%s: memory is misused", isa);
    }
    free(bits);
}

TEST(any_product_in_every_way)
{
    static const int64_t sizes[3][14] = {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 47, 119, 131}, /* M */
                                         {0, 1, 2, 3, 5, 8, 16, 17, 31, 64, 97, 255, 256, 259},
                                         {0, 1, 3, 4, 7, 8, 9, 15, 16, 17, 31, 33, 64, 131}};
    for (uint64_t seed = 0; seed < 240; seed++) {
        if (!sampled()) continue;
        rng r = rng_make(seed, 71);
        mha_type types[4];
        for (int n = 0; n < 4; n++) types[n] = seed % 2 ? MHA_FLOAT32 : (mha_type)rng_between(&r, 0, 2);
        int64_t M = sizes[0][rng_between(&r, 0, 13)], K = sizes[1][rng_between(&r, 0, 13)];
        product p = product_make(&r, M, K, sizes[2][rng_between(&r, 0, 13)], types, seed % 4 == 3);
        solve(&p);
        for_each_isa (isa) every_way(&p, isa);
        product_free(&p);
    }
}

/* Few rows are packed once a task and meet several pieces of columns, in several blocks of K. */
TEST(few_rows_and_many_columns)
{
    for (int n = 0; n < 4; n++) {
        int64_t M = n % 2 ? 20 : 1;
        mha_type type = n < 2 ? MHA_FLOAT32 : MHA_BFLOAT16;
        rng r = rng_make((uint64_t)M, 75);
        product p = product_make(&r, M, 517, M == 1 ? 1600 : 300, (const mha_type[4]){0, type, type, 0}, true);
        solve(&p);
        for_each_isa (isa) every_way(&p, isa);
        product_free(&p);
    }
}

/* Several pieces and blocks in every direction. Only some elements are worth the wait in float64. */
static void check_large(mha_type type, int64_t K)
{
    rng r = rng_make(1, 72);
    enum { M = 491, N = 781 };
    product p = product_make(&r, M, K, N, (const mha_type[4]){0, type, type, 0}, true);
    mha_context *one = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_context *many = context_make(NULL, 5, parallel_reversed(), NULL);
    p.options = (mha_matmul_options)MHA_MATMUL_DEFAULTS;
    product_run(&p, one, false);
    float *bits = array(M * N, sizeof *bits);
    memcpy(bits, p.c.bytes, p.c.size);
    for (int64_t n = 0; n < M * N; n += 97) {
        double want = 0, size = 0;
        for (int64_t k = 0; k < K; k++) {
            double term = store_get(&p.a, n / N, k, 0, 0) * store_get(&p.b, k, n % N, 0, 0);
            want += term;
            size += fabs(term);
        }
        expect(fabs((double)bits[n] - want) <= UNIT * (double)(K + 8) * size, "(%d,%d) is %g, not %g", (int)(n / N),
               (int)(n % N), (double)bits[n], want);
    }
    for (int n = 0; n < 3; n++) {
        product_run(&p, n ? many : one, n != 1);
        expect(!memcmp(bits, p.c.bytes, p.c.size), "other bits in way %d", n);
    }
    free(bits);
    mha_context_free(one);
    mha_context_free(many);
    product_free(&p);
}

TEST(large_product)
{
    check_large(MHA_FLOAT32, 259);
    check_large(MHA_BFLOAT16, 259);
    check_large(MHA_BFLOAT16, 1100); /* more than an engine takes at a time */
}

/* A row alone, or in any company, has the bits that it has among all; so has a column. */
static void check_neighbours(mha_type type)
{
    enum { M = 67, K = 300, N = 75 };
    rng r = rng_make(2, 73);
    for_each_isa (isa) {
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        product p = product_make(&r, M, K, N, (const mha_type[4]){0, type, type, 0}, true);
        static float part[M * N];
        p.options.activation = MHA_GELU;
        p.options.accumulate = false;
        product_run(&p, ctx, false);
        for (int64_t m = 1; m <= 23; m += m < 9 ? 1 : 7)
            for (int64_t first = 0; first + m <= M; first += 19) {
                mha_tensor a = p.a.view, b = p.b.view, c = mha_tensor_2d(part, MHA_FLOAT32, m, m);
                mha_matmul_options options = p.options;
                a.size[0] = b.size[1] = m;
                a.data = store_at(&p.a, first, 0, 0, 0);
                b.data = store_at(&p.b, 0, first, 0, 0);
                options.bias.size[0] = m;
                if (options.bias.rank) options.bias.data = store_at(&p.bias, first, 0, 0, 0);
                expect(!mha_matmul(ctx, c, a, b, &options), "%s", mha_context_error(ctx));
                for (int64_t n = 0; n < m * m; n++)
                    expect(part[n] == *(float *)store_at(&p.c, first + n / m, first + n % m, 0, 0),
                           "%s: %d rows from %d on have other bits", isa, (int)m, (int)first);
            }
        product_free(&p);
        mha_context_free(ctx);
    }
}

TEST(rows_and_columns_do_not_see_their_neighbours)
{
    check_neighbours(MHA_FLOAT32);
    check_neighbours(MHA_BFLOAT16);
}

/* Without any K the result is the activation of the bias, in relative terms down to 1e-30: 8 units of rounding, and for
 * exp(-E) another 3 E, because the exponent itself is rounded. */
TEST(activations)
{
    enum { N = 8001 };
    static float x[N + 8], y[N + 8];
    for_each_isa (isa)
        for (int activation = MHA_LINEAR; activation <= MHA_RELU_SQUARED; activation++) {
            mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
            mha_matmul_options options = MHA_MATMUL_DEFAULTS;
            for (int n = 0; n < N; n++) x[n] = (float)(n - N / 2) / 200;
            memcpy(x + N, (float[8]){INFINITY, -INFINITY, NAN, -0.0f, 1e30f, -1e30f, 1e-30f, -200.0f}, 32);
            options.bias = mha_tensor_1d(x, MHA_FLOAT32, N + 8);
            options.activation = (mha_activation)activation;
            mha_tensor c = mha_tensor_2d(y, MHA_FLOAT32, 1, N + 8), none = mha_tensor_2d(NULL, MHA_FLOAT32, 1, 0);
            mha_tensor nothing = mha_tensor_2d(NULL, MHA_FLOAT32, 0, N + 8);
            expect(!mha_matmul(ctx, c, none, nothing, &options), "%s", mha_context_error(ctx));
            double worst = 0, at = 0;
            for (int n = 0; n < N; n++) {
                double want = activated(options.activation, (double)x[n]), error = fabs((double)y[n] - want);
                if (fabs(want) < 1e-30) error = error > 1e-30 ? error : 0;
                double units = fabs(want) > 0 ? error / (fabs(want) * UNIT * (8 + 3 * fabs(log(fabs(want))))) : 0;
                if (units > worst) worst = units, at = (double)x[n];
            }
            expect(worst <= 1, "%s: activation %d is off by %.1f of its bound at %g", isa, activation, worst, at);
            bool linear = activation == MHA_LINEAR;
            if (activation == MHA_TANH) {
                expect(y[N] == 1 && y[N + 1] == -1 && isnan(y[N + 2]) && y[N + 4] == 1, "%s: tanh at its ends", isa);
                mha_context_free(ctx);
                continue;
            }
            expect(y[N] == INFINITY && isnan(y[N + 2]), "%s: activation %d of inf, NaN", isa, activation);
            expect(y[N + 1] == (linear ? -INFINITY : 0), "%s: activation %d of -inf: %g", isa, activation,
                   (double)y[N + 1]);
            expect(y[N + 3] == 0 && y[N + 4] == (activation == MHA_RELU_SQUARED ? INFINITY : 1e30f) &&
                       fabs((double)y[N + 6]) <= 1.1e-30,
                   "%s: activation %d", isa, activation);
            expect(linear || (y[N + 5] == 0 && y[N + 7] == 0), "%s: activation %d of -1e30: %g", isa, activation,
                   (double)y[N + 5]);
            mha_context_free(ctx);
        }
}

/* ---- Memory and mistakes ---------------------------------------------------------------------------------------- */

TEST(no_memory)
{
    rng r = rng_make(3, 74);
    product p = product_make(&r, 40, 300, 70, (const mha_type[4]){1, 2, 1, 0}, false);
    solve(&p);
    for_each_isa (isa) {
        ledger memory = ledger_make();
        mha_context *ctx = context_make(isa, 3, (mha_parallel){NULL, NULL}, &memory);
        static char packed[400000];
        for (int64_t n = 0; n < 2; n++) { /* pack, then multiply: one allocation each */
            memory.fail_at = memory.calls;
            memset(packed, 0x55, sizeof packed);
            store_reset(&p.c);
            mha_status status = n ? mha_matmul(ctx, p.c.view, p.a.view, p.b.view, &p.options)
                                  : mha_matmul_pack(ctx, packed, sizeof packed, p.b.view, p.a.view.type);
            expect(status == MHA_NO_MEMORY && mha_context_error(ctx)[0], "%s: %s", isa, mha_status_name(status));
            expect(!memcmp(p.c.bytes, p.c.original, p.c.size), "%s: c was written", isa);
            for (size_t k = 0; k < sizeof packed; k++)
                if (!expect(packed[k] == 0x55, "%s: packed was written", isa)) break;
        }
        memory.fail_at = -1;
        product_run(&p, ctx, false);
        product_check(&p, isa);
        int64_t calls = memory.calls;
        for (int n = 0; n < 4; n++) product_run(&p, ctx, n % 2);
        expect(memory.calls == calls, "%s: %d allocations in a loop", isa, (int)(memory.calls - calls));
        mha_context_free(ctx);
        expect(!memory.live && !memory.misuses, "%s: memory is misused", isa);
    }
    product_free(&p);
}

static void refuses(mha_context *ctx, mha_status status, mha_status want, const char *word)
{
    const char *message = mha_context_error(ctx);
    expect(status == want && !strncmp(message, word, strlen(word)), "%s: '%s', not %s: '%s'", mha_status_name(status),
           message, mha_status_name(want), word);
}

/* Weights of 16 bits stay so for a float32 a: packed, they take half of what float32 takes. */
TEST(packed_weights_of_16_bits)
{
    const mha_type types[] = {MHA_BFLOAT16, MHA_FLOAT16};
    for_each_isa (isa)
        for (int n = 0; n < 2; n++) {
            mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
            size_t wide = 0, narrow = 0;
            expect(!mha_matmul_pack_size(ctx, &wide, mha_tensor_2d(NULL, MHA_FLOAT32, 512, 768), MHA_FLOAT32) &&
                       !mha_matmul_pack_size(ctx, &narrow, mha_tensor_2d(NULL, types[n], 512, 768), MHA_FLOAT32),
                   "%s", mha_context_error(ctx));
            expect(narrow < wide / 2 + 256, "%s: %zu bytes for %s, %zu for float32", isa, narrow,
                   mha_type_name(types[n]), wide);
            mha_context_free(ctx);
        }
}

/* What was packed on one instruction set serves no other, even if the two share their kernels. */
TEST(packed_elsewhere)
{
    rng r = rng_make(4, 76);
    product p = product_make(&r, 9, 40, 20, (const mha_type[4]){0, MHA_BFLOAT16, MHA_BFLOAT16, 0}, true);
    for_each_isa (here)
        for_each_isa (there) {
            mha_context *one = context_make(here, 1, (mha_parallel){NULL, NULL}, NULL);
            mha_context *other = context_make(there, 1, (mha_parallel){NULL, NULL}, NULL);
            char *memory = packed_make(one, p.b.view, MHA_BFLOAT16);
            mha_status status = mha_matmul_packed(other, p.c.view, p.a.view, memory + 1, NULL);
            expect(status == (strcmp(here, there) ? MHA_BAD_ARGUMENT : MHA_OK), "packed on %s, used on %s: %s", here,
                   there, mha_status_name(status));
            free(memory);
            mha_context_free(one);
            mha_context_free(other);
        }
    product_free(&p);
}

TEST(bad_arguments)
{
    static float x[64], y[64], z[64], sevens[64];
    static char packed[20000];
    for (int n = 0; n < 64; n++) x[n] = y[n] = 1, z[n] = sevens[n] = 7;
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_context *scalar = context_make("scalar", 1, (mha_parallel){NULL, NULL}, NULL);
    mha_tensor a = mha_tensor_2d(x, MHA_FLOAT32, 4, 5), b = mha_tensor_2d(y, MHA_FLOAT32, 5, 6), t;
    mha_tensor c = mha_tensor_2d(z, MHA_FLOAT32, 4, 6);
    mha_matmul_options o = MHA_MATMUL_DEFAULTS;
    const mha_matmul_options defaults = MHA_MATMUL_DEFAULTS;
    size_t bytes = 0;
    expect(mha_matmul(NULL, c, a, b, NULL) == MHA_BAD_ARGUMENT, "a call without a context");

    refuses(ctx, mha_matmul(ctx, mha_tensor_1d(z, MHA_FLOAT32, 24), a, b, NULL), MHA_BAD_SHAPE, "c: has rank 1");
    refuses(ctx, mha_matmul(ctx, c, mha_tensor_2d(x, MHA_FLOAT32, 4, 6), b, NULL), MHA_BAD_SHAPE, "a: axis 1 is 6");
    refuses(ctx, mha_matmul(ctx, mha_tensor_2d(z, MHA_FLOAT32, 5, 6), a, b, NULL), MHA_BAD_SHAPE, "c: axis 0 is 5");
    refuses(ctx, mha_matmul(ctx, mha_tensor_2d(z, MHA_FLOAT32, 4, 7), a, b, NULL), MHA_BAD_SHAPE, "c: axis 1 is 7");
    refuses(ctx, mha_matmul(ctx, c, a, mha_tensor_2d(y, MHA_INT64, 5, 6), NULL), MHA_BAD_TYPE, "b: is int64");
    refuses(ctx, mha_matmul(ctx, mha_tensor_2d(z, MHA_BOOL, 4, 6), a, b, NULL), MHA_BAD_TYPE, "c: is bool");
    refuses(ctx, mha_matmul(ctx, c, mha_tensor_2d(NULL, MHA_FLOAT32, 4, 5), b, NULL), MHA_BAD_ARGUMENT, "a: data");
    refuses(ctx, mha_matmul(ctx, c, mha_tensor_2d(z + 23, MHA_FLOAT32, 4, 5), b, NULL), MHA_OVERLAP, "c: shares");
    refuses(ctx, mha_matmul(ctx, c, a, mha_tensor_2d(z + 5, MHA_FLOAT32, 5, 6), NULL), MHA_OVERLAP, "c: shares");
    t = c;
    t.stride[0] = 1;
    refuses(ctx, mha_matmul(ctx, t, a, b, NULL), MHA_OVERLAP, "c: its strides");
    t = a;
    t.stride[0] = INT64_MAX / 2;
    refuses(ctx, mha_matmul(ctx, c, t, b, NULL), MHA_TOO_LARGE, "a:");

    o.bias = mha_tensor_1d(x, MHA_FLOAT32, 5);
    refuses(ctx, mha_matmul(ctx, c, a, b, &o), MHA_BAD_SHAPE, "bias: axis 0 is 5");
    o.bias = mha_tensor_1d(z + 20, MHA_FLOAT32, 6);
    refuses(ctx, mha_matmul(ctx, c, a, b, &o), MHA_OVERLAP, "c: shares memory with bias");
    o = defaults;
    o.alpha = NAN;
    refuses(ctx, mha_matmul(ctx, c, a, b, &o), MHA_BAD_ARGUMENT, "alpha:");
    o = defaults;
    o.activation = (mha_activation)8;
    refuses(ctx, mha_matmul(ctx, c, a, b, &o), MHA_BAD_ARGUMENT, "activation: 8");

    refuses(ctx, mha_matmul_pack_size(ctx, NULL, b, MHA_FLOAT32), MHA_BAD_ARGUMENT, "bytes:");
    refuses(ctx, mha_matmul_pack_size(ctx, &bytes, mha_tensor_2d(NULL, MHA_FLOAT32, -1, 6), MHA_FLOAT32), MHA_BAD_SHAPE,
            "b: size -1");
    t = mha_tensor_2d(NULL, MHA_FLOAT32, INT64_C(1) << 40, INT64_C(1) << 22);
    t.stride[0] = t.stride[1] = 0;
    refuses(ctx, mha_matmul_pack_size(ctx, &bytes, t, MHA_FLOAT32), MHA_TOO_LARGE, "b: a matrix");
    refuses(ctx, mha_matmul_pack_size(ctx, &bytes, b, MHA_BOOL), MHA_BAD_TYPE, "a: is to be bool");
    refuses(ctx, mha_matmul_pack_size(ctx, &bytes, mha_tensor_2d(NULL, MHA_FLOAT32, 5, 6), MHA_FLOAT32), MHA_OK, "");
    refuses(ctx, mha_matmul_pack(ctx, NULL, bytes, b, MHA_FLOAT32), MHA_BAD_ARGUMENT, "packed: is NULL");
    refuses(ctx, mha_matmul_pack(ctx, packed, bytes - 1, b, MHA_FLOAT32), MHA_BAD_ARGUMENT, "packed: has");
    refuses(ctx, mha_matmul_pack(ctx, z, bytes, mha_tensor_2d(z, MHA_FLOAT32, 5, 6), MHA_FLOAT32), MHA_OVERLAP,
            "packed: shares");
    refuses(ctx, mha_matmul_packed(ctx, c, a, NULL, NULL), MHA_BAD_ARGUMENT, "packed: is NULL");
    refuses(ctx, mha_matmul_packed(ctx, c, a, packed, NULL), MHA_BAD_ARGUMENT, "packed: was not packed");
    refuses(scalar, mha_matmul_pack(scalar, packed, sizeof packed, b, MHA_FLOAT32), MHA_OK, "");
    if (strcmp(mha_context_isa(ctx), "scalar") != 0)
        refuses(ctx, mha_matmul_packed(ctx, c, a, packed, NULL), MHA_BAD_ARGUMENT, "packed: was not packed");
    refuses(ctx, mha_matmul_pack(ctx, packed, sizeof packed, b, MHA_FLOAT32), MHA_OK, "");
    refuses(ctx, mha_matmul_packed(ctx, c, mha_tensor_2d(x, MHA_FLOAT32, 4, 4), packed, NULL), MHA_BAD_SHAPE, "a:");
    refuses(ctx, mha_matmul_packed(ctx, c, mha_tensor_2d(x, MHA_FLOAT16, 4, 5), packed, NULL), MHA_BAD_TYPE, "a: is");
    refuses(ctx, mha_matmul_pack(ctx, packed, sizeof packed, b, MHA_INT64), MHA_BAD_TYPE, "a: is to be");
    t = mha_tensor_2d(packed + 128, MHA_FLOAT32, 4, 6);
    refuses(ctx, mha_matmul_packed(ctx, t, a, packed, NULL), MHA_OVERLAP, "c: shares memory with b");

    expect(!memcmp(z, sevens, sizeof z), "a refused call wrote to c");
    refuses(ctx, mha_matmul_packed(ctx, c, a, packed, NULL), MHA_OK, "");
    expect(z[0] == 5 && z[23] == 5 && z[24] == 7, "ones by ones are %g", (double)z[0]);
    mha_context_free(ctx);
    mha_context_free(scalar);
}
