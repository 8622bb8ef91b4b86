/* Every matrix engine that this machine has, against float64: products of factors packed in every way, edges of every
 * size, and nothing written beyond them. */
#include "support/harness.h"
#include "core/half.h"
#include "cpu/engine/engine.h"

enum { M = 70, N = 64, K = 80, ROOM = 4096 * 4 };

static unsigned state = 1;

/* A number from -1 to 1, the same ones in every run. */
static float some(void)
{
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1.0f;
}

/* Factors as bfloat16 numbers, and as what those are. */
typedef struct factors {
    uint16_t a[M * K], b[K * N]; /* (M,K) and (K,N) */
    float wide_a[M * K], wide_b[K * N];
} factors;

static void draw(factors *f)
{
    for (int i = 0; i < M * K; i++) f->wide_a[i] = mha_bf16_to_f32(f->a[i] = mha_f32_to_bf16(some()));
    for (int i = 0; i < K * N; i++) f->wide_b[i] = mha_bf16_to_f32(f->b[i] = mha_f32_to_bf16(some()));
}

/* Packs a (m,k) and b (k,n) in one of four ways: as they lie, across, from float32; both alike. */
static void pack(const mha_engine *e, const factors *f, int way, int64_t m, int64_t n, int64_t k, uint16_t *a,
                 uint16_t *b)
{
    static uint16_t turned[K * (M > N ? M : N)];
    if (way == 0) e->pack_left(a, f->a, K, true, m, k);
    if (way == 0) e->pack_right(b, f->b, N, false, n, k);
    if (way == 1) {
        for (int64_t d = 0; d < K; d++)
            for (int64_t r = 0; r < M; r++) turned[d * M + r] = f->a[r * K + d];
        e->pack_left(a, turned, M, false, m, k);
        for (int64_t d = 0; d < K; d++)
            for (int64_t c = 0; c < N; c++) turned[c * K + d] = f->b[d * N + c];
        e->pack_right(b, turned, K, true, n, k);
    }
    if (way == 2) e->round_left(a, f->wide_a, K, m, k);
    if (way == 2) e->round_right(b, f->wide_b, N, n, k);
}

/* Packing must not read what lies beyond the factor: NaN there would show. */
static void spoil(factors *f, int64_t m, int64_t n, int64_t k)
{
    for (int64_t r = 0; r < M; r++)
        for (int64_t d = 0; d < K; d++)
            if (r >= m || d >= k) f->a[r * K + d] = 0x7fc0, f->wide_a[r * K + d] = NAN;
    for (int64_t d = 0; d < K; d++)
        for (int64_t c = 0; c < N; c++)
            if (d >= k || c >= n) f->b[d * N + c] = 0x7fc0, f->wide_b[d * N + c] = NAN;
}

static void check(const mha_engine *e, int way, int64_t m, int64_t n, int64_t k, bool fading)
{
    static factors f;
    static uint16_t a[ROOM], b[ROOM];
    static float c[(M + 1) * (N + 16)], before[(M + 1) * (N + 16)], fade[N];
    const int64_t ld = N + 16;
    draw(&f);
    spoil(&f, m, n, k);
    for (int64_t i = 0; i < ROOM; i++) a[i] = b[i] = 0x7fc0;
    for (int64_t i = 0; i < (M + 1) * ld; i++) c[i] = before[i] = some();
    for (int64_t i = 0; i < N; i++) fade[i] = some();
    pack(e, &f, way, m, n, k, a, b);
    expect(a[mha_engine_size(m, k)] == 0x7fc0 && b[mha_engine_size(n, k)] == 0x7fc0, "%s: packed too much", e->name);
    e->product(&(mha_product){c, ld, fading ? fade : NULL, 0.5f, a, b, m, n, k});
    for (int64_t r = 0; r <= M; r++)
        for (int64_t j = 0; j < ld; j++) {
            double want = (double)before[r * ld + j], size = 0;
            if (r < m && j < n) {
                want *= fading ? (double)fade[j] : 0;
                for (int64_t d = 0; d < k; d++) {
                    want += 0.5 * (double)f.wide_a[r * K + d] * (double)f.wide_b[d * N + j];
                    size += 0.5 * fabs((double)f.wide_a[r * K + d] * (double)f.wide_b[d * N + j]);
                }
            }
            double got = (double)c[r * ld + j], bound = r < m && j < n ? 0x1p-23 * ((4 + (double)k / 2) * size + 1) : 0;
            expect(fabs(got - want) <= bound, "%s: way %d, (%d,%d) times (%d,%d): (%d,%d) is %g, not %g", e->name, way,
                   (int)m, (int)k, (int)k, (int)n, (int)r, (int)j, got, want);
        }
}

/* The engine of each instruction set that has one; `sides` counts them. */
static int each_engine(void (*run)(const mha_engine *engine, int64_t lanes))
{
    int seen = 0;
    for (int i = 0; i < mha_isa_count(); i++) {
        mha_isa isa = mha_isa_get(i);
        mha_context_options options = MHA_CONTEXT_DEFAULTS;
        mha_context *ctx = NULL;
        options.isa = isa.name;
        if (!isa.available || !expect(!mha_context_create(&ctx, &options), "no context for %s", isa.name)) continue;
        if (ctx->engine) {
            ctx->engine->open();
            run(ctx->engine, ctx->kernels->lanes);
            ctx->engine->close();
            seen++;
        }
        mha_context_free(ctx);
    }
    return seen;
}

static void check_all(const mha_engine *engine, int64_t lanes)
{
    const int64_t heights[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 70},
                  depths[] = {1, 2, 3, 4, 5, 16, 31, 32, 33, 64, 80};
    for (size_t i = 0; i < sizeof heights / sizeof *heights; i++)
        for (size_t j = 0; j < sizeof depths / sizeof *depths; j++)
            for (int64_t n = lanes; n <= N; n += lanes)
                for (int way = 0; way < 3; way++) check(engine, way, heights[i], n, depths[j], (i + j) % 2 == 0);
}

TEST(products_of_every_size)
{
    if (!each_engine(check_all)) printf("    no matrix engine on this machine\n");
}

/* What a lane holds does not depend on the lanes beside it. */
static void check_lanes(const mha_engine *e, int64_t lanes)
{
    static factors f;
    static uint16_t a[ROOM], b[ROOM];
    static float whole[M * N], part[M * N];
    draw(&f);
    e->pack_left(a, f.a, K, true, M, K);
    e->pack_right(b, f.b, N, false, N, K);
    e->product(&(mha_product){whole, N, NULL, 1.0f, a, b, M, N, K});
    for (int64_t at = 0; at + lanes <= N; at += lanes) {
        e->pack_right(b, f.b + at, N, false, lanes, K);
        e->product(&(mha_product){part, N, NULL, 1.0f, a, b, M, lanes, K});
        for (int64_t r = 0; r < M; r++)
            expect(!memcmp(part + r * N, whole + r * N + at, (size_t)lanes * sizeof *part), "%s: row %d, lanes at %d",
                   e->name, (int)r, (int)at);
    }
}

TEST(lanes_are_independent) { each_engine(check_lanes); }

/* Two tiles of scores through `weigh`: exponentials, sums and fades against float64, and the factor against what
 * `round_right` makes of them. The second tile rises by `rise`, and a lane sees nothing. The products that are done
 * meanwhile must have the bits that they have alone. */
static void check_weighing(const mha_engine *e, int64_t n, int64_t count, int64_t k, float rise, float scale)
{
    static factors f;
    static float s[K * N], raw[K * N], sums[2][M * N], alone[2][M * N];
    static uint16_t factor[ROOM], want[ROOM], a[ROOM], b[ROOM];
    float max[N], sum[N], fade[N], fades[N];
    double total[N] = {0}, before[N];
    draw(&f);
    for (int64_t i = 0; i < N; i++) max[i] = -INFINITY, sum[i] = 0.0f, fades[i] = some();
    for (int tile = 0; tile < 2; tile++) {
        for (int64_t i = 0; i < K * N; i++) s[i] = raw[i] = i % N == 3 ? -INFINITY : 5 * some() + rise * (float)tile;
        for (int64_t i = 0; i < n; i++) before[i] = (double)max[i];
        for (int64_t i = 0; i < M * N; i++) sums[0][i] = sums[1][i] = alone[0][i] = alone[1][i] = some();
        e->pack_left(a, f.a, K, true, count, 64);
        e->pack_right(b, f.b, N, false, n, 64);
        mha_product products[] = {{sums[0], N, NULL, 1.0f, a, b, count, n, 64},
                                  {sums[1], N, fades, tile ? 1.0f : 0.5f, a, b, count, n, 64}};
        e->weigh(&(mha_weighing){factor, k, s, N, count, n, scale, true, max, sum, fade}, products, 2);
        products[0].c = alone[0], products[1].c = alone[1];
        for (int i = 0; i < 2; i++) {
            e->product(&products[i]);
            expect(!memcmp(sums[i], alone[i], sizeof alone[i]), "%s: a product of (%d,%d) meanwhile is another one",
                   e->name, (int)count, (int)n);
        }
        for (int64_t i = 0; i < n; i++) {
            double top = -INFINITY, base = max[i] == -INFINITY ? 0 : (double)max[i], faded = exp(before[i] - base);
            total[i] *= faded;
            for (int64_t j = 0; j < count; j++) {
                double x = (double)raw[j * N + i] * (double)scale, p = exp(x - base), got = (double)s[j * N + i];
                double bound = p > 0 ? 1.2e-7 * (3 + fabs(x) + fabs(x - base)) * p : 0;
                top = fmax(top, x);
                total[i] += p;
                expect(fabs(got - p) <= bound, "%s: exp(%g - %g) is %g", e->name, x, base, got);
            }
            expect((double)max[i] >= top - 8.001 && (double)max[i] <= fmax(top, before[i]) + 1e-5, "%s: max %g of %g",
                   e->name, (double)max[i], top);
            expect(before[i] == base ? fade[i] == 1.0f : fabs((double)fade[i] - faded) <= 1e-6, "%s: fade %g", e->name,
                   (double)fade[i]);
            expect(fabs((double)sum[i] - total[i]) <= 4e-6 * total[i], "%s: sum %g, not %g", e->name, (double)sum[i],
                   total[i]);
        }
        memset(s + count * N, 0, (size_t)((K - count) * N) * sizeof *s);
        e->round_right(want, s, N, n, k);
        expect(!memcmp(want, factor, (size_t)mha_engine_size(n, k) * sizeof *want), "%s: factor of %d keys of %d",
               e->name, (int)count, (int)k);
    }
}

static void check_weigh(const mha_engine *e, int64_t lanes)
{
    const int64_t counts[] = {1, 7, 8, 31, 32, 33, 63, 64};
    for (size_t c = 0; e->weigh && c < sizeof counts / sizeof *counts; c++)
        for (int64_t n = lanes; n <= N; n += lanes) {
            check_weighing(e, n, counts[c], counts[c], 0, 1.0f);
            check_weighing(e, n, counts[c], 64, 3, 0.7f);
            check_weighing(e, n, counts[c], 64, 30, 1.0f);
        }
}

TEST(weighing_leaves_a_factor_and_products) { each_engine(check_weigh); }

/* Few rows against keys that lie apart: any number of both, any width, and nothing read or written beyond. */
static void check_dots(const mha_engine *e, int64_t lanes)
{
    static factors f;
    static float s[(MHA_NARROW + 1) * N];
    const int64_t counts[] = {1, 3, 4, 7, 8, 9, 16, 33, 64}, depths[] = {1, 5, 8, 9, 16, 40, 64, 80};
    (void)lanes;
    for (size_t c = 0; e->dots && c < sizeof counts / sizeof *counts; c++)
        for (size_t i = 0; i < sizeof depths / sizeof *depths; i++)
            for (int64_t rows = 1; rows <= MHA_NARROW; rows++) {
                int64_t count = counts[c], D = depths[i];
                draw(&f);
                spoil(&f, count, N, D);
                const uint16_t *q = f.a + (M - MHA_NARROW) * K; /* rows that were not spoiled are few: draw them anew */
                for (int64_t n = 0; n < rows * K; n++) {
                    int64_t at = (M - MHA_NARROW) * K + n;
                    f.a[at] = n % K < D ? mha_f32_to_bf16(some()) : 0x7fc0;
                    f.wide_a[at] = mha_bf16_to_f32(f.a[at]);
                }
                for (int64_t n = 0; n < (MHA_NARROW + 1) * N; n++) s[n] = -9.0f;
                int64_t keys = count < M - MHA_NARROW ? count : M - MHA_NARROW;
                e->dots(s, N, q, K, rows, f.a, K, keys, D);
                for (int64_t n = 0; n < (MHA_NARROW + 1) * N; n++) {
                    int64_t r = n / N, j = n % N;
                    double want = 0, size = 0;
                    for (int64_t d = 0; r < rows && j < keys && d < D; d++) {
                        double term = (double)f.wide_a[(M - MHA_NARROW + r) * K + d] * (double)f.wide_a[j * K + d];
                        want += term;
                        size += fabs(term);
                    }
                    if (r >= rows || j >= keys) want = -9;
                    expect(fabs((double)s[n] - want) <= 0x1p-23 * (double)(D + 4) * size,
                           "%s: %d rows, %d keys of %d: (%d,%d) is %g, not %g", e->name, (int)rows, (int)keys, (int)D,
                           (int)r, (int)j, (double)s[n], want);
                }
            }
}

TEST(dots_of_few_rows) { each_engine(check_dots); }
