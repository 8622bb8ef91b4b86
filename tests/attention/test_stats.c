/* Statistics of heads against the oracle on the whole matrix, for any combination of options and every instruction set;
 * and what must hold whatever the numbers are.
 *
 *     MHA_SEED=n       draw the cases of another seed (the one in use is printed)
 *     MHA_CASE=n       run only case n of it
 *     MHA_CASES=n      run n cases instead of 1,000 */
#include "support/harness.h"
#include "support/statistics.h"

enum { CASES = 1000 };

static bool run_on(statistics *s, const char *isa, char *why, size_t size)
{
    ledger memory = ledger_make();
    mha_parallel parallel = {NULL, NULL};
    if (s->p->c.data_seed % 4 == 0) parallel = parallel_reversed();
    mha_context *ctx = context_make(isa, s->p->c.threads, parallel, &memory);
    mha_status status = statistics_run(s, ctx, -1);
    if (status) snprintf(why, size, "%s: %s", mha_status_name(status), mha_context_error(ctx));
    bool good = !status && statistics_check(s, why, size);
    mha_context_free(ctx);
    if (good && (memory.misuses || memory.live)) {
        snprintf(why, size, "scratch: %lld misuses, %lld blocks left", (long long)memory.misuses,
                 (long long)memory.live);
        good = false;
    }
    return good;
}

static void run_case(const attention_case *c, const char *again)
{
    statistics *s = statistics_make(c);
    statistics_solve(s);
    for_each_isa (isa) {
        char why[300] = "", text[900];
        if (run_on(s, isa, why, sizeof why)) continue;
        case_describe(c, text, sizeof text);
        expect(false, "%s: %s\n      %s\n      %s", isa, why, text, again);
    }
    statistics_free(s);
}

TEST(any_combination_of_options)
{
    uint64_t seed = (uint64_t)number_from("MHA_SEED", 20261115);
    long long only = number_from("MHA_CASE", -1), cases = cases_from(CASES);
    printf("    seed %llu, %lld cases\n", (unsigned long long)seed, only < 0 ? cases : 1);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        char again[80];
        rng r = rng_make(seed, (uint64_t)n);
        attention_case c = case_random(&r);
        snprintf(again, sizeof again, "again: MHA_SEED=%llu MHA_CASE=%lld test_stats", (unsigned long long)seed, n);
        run_case(&c, again);
    }
}

/* Several stripes, steps and tiles, and heatmaps whose rows lie across them. */
TEST(sizes_around_tiles_and_stripes)
{
    const int64_t sizes[][2] = {{1, 1},  {1, 64},   {31, 63},  {32, 64},   {33, 65},   {63, 127},
                                {64, 1}, {65, 130}, {129, 31}, {1030, 70}, {1100, 200}};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        attention_case c = case_plain(1, 3, 1, sizes[n][0], sizes[n][1], 8, 8);
        char again[60];
        c.data_seed = 100 + n;
        c.threads = 3;
        c.causal = n % 2;
        c.align = MHA_ALIGN_BOTTOM_RIGHT;
        snprintf(again, sizeof again, "size %zu", n);
        run_case(&c, again);
    }
}

/* Scores far beyond what an lse of float32 can tell apart, and beyond float32 itself. */
TEST(huge_scores)
{
    const double factors[] = {300, 1e4, 1e10, 3e18, 1e19, 3e19};
    for (size_t n = 0; n < sizeof factors / sizeof *factors; n++) {
        attention_case c = case_plain(1, 2, 2, 9, 70, 8, 8);
        c.data_seed = n;
        statistics *s = statistics_make(&c);
        problem *p = s->p;
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < 9; i++)
                for (int64_t d = 0; d < 8; d++) store_set(&p->q, 0, h, i, d, store_get(&p->q, 0, h, i, d) * factors[n]);
        for (int64_t h = 0; h < 2; h++)
            for (int64_t j = 0; j < 70; j++)
                for (int64_t d = 0; d < 8; d++) store_set(&p->k, 0, h, j, d, store_get(&p->k, 0, h, j, d) * factors[n]);
        problem_refresh(p);
        statistics_solve(s);
        for_each_isa (isa) {
            char why[300] = "";
            expect(run_on(s, isa, why, sizeof why), "%s, times %g: %s", isa, factors[n], why);
        }
        statistics_free(s);
    }
}

/* Two heads with the same queries and keys have the same map, and the third, which looks elsewhere, has another. */
TEST(twins_are_twins)
{
    for_each_isa (isa) {
        enum { T = 100, D = 8 };
        static float q[3 * T * D], k[3 * T * D], softmax[3 * T * 2], out[3 * T * D], divergence[9], cosine[9];
        rng r = rng_make(5, 1);
        for (int n = 0; n < 3 * T * D; n++) q[n] = (float)(3 * rng_normal(&r)), k[n] = (float)rng_normal(&r);
        memcpy(q + T * D, q, T * D * sizeof *q);
        memcpy(k + T * D, k, T * D * sizeof *k);
        mha_context *ctx = context_make(isa, 2, (mha_parallel){NULL, NULL}, NULL);
        mha_tensor tq = mha_tensor_4d(q, MHA_FLOAT32, 1, 3, T, D), tk = mha_tensor_4d(k, MHA_FLOAT32, 1, 3, T, D);
        mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
        mha_stats stats = MHA_NO_STATS;
        extras.softmax = mha_tensor_4d(softmax, MHA_FLOAT32, 1, 3, T, 2);
        stats.divergence = mha_tensor_3d(divergence, MHA_FLOAT32, 1, 3, 3);
        stats.cosine = mha_tensor_3d(cosine, MHA_FLOAT32, 1, 3, 3);
        expect(!mha_attention_forward(ctx, mha_tensor_4d(out, MHA_FLOAT32, 1, 3, T, D), &extras, tq, tk, tk, NULL),
               "%s", mha_context_error(ctx));
        expect(!mha_attention_stats(ctx, &stats, tq, tk, extras.softmax, NULL, NULL), "%s", mha_context_error(ctx));
        expect(divergence[1] < 2e-6f && cosine[1] > 0.999999f, "%s: twins differ by %g, cosine %g", isa,
               (double)divergence[1], (double)cosine[1]);
        expect(divergence[2] > 0.3f && cosine[2] < 0.3f, "%s: strangers differ by %g, cosine %g", isa,
               (double)divergence[2], (double)cosine[2]);
        mha_context_free(ctx);
    }
}

typedef struct paper {
    float entropy[2], effective[2], mass[2][4], top_weights[2][3];
    int64_t top_keys[2][3];
} paper;

/* Two queries and four keys of width 2, whose scores are q . k. */
static paper on_paper(const char *isa, const float q[4], const float k[8])
{
    float softmax[4], out[4];
    paper p;
    mha_context *ctx = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    mha_stats stats = MHA_NO_STATS;
    mha_tensor tq = mha_tensor_4d(q, MHA_FLOAT32, 1, 1, 2, 2), tk = mha_tensor_4d(k, MHA_FLOAT32, 1, 1, 4, 2);
    options.scale = 1;
    extras.softmax = mha_tensor_4d(softmax, MHA_FLOAT32, 1, 1, 2, 2);
    stats.entropy = mha_tensor_3d(p.entropy, MHA_FLOAT32, 1, 1, 2);
    stats.effective = mha_tensor_3d(p.effective, MHA_FLOAT32, 1, 1, 2);
    stats.mass = mha_tensor_4d(p.mass, MHA_FLOAT32, 1, 1, 2, 4);
    stats.top_weights = mha_tensor_4d(p.top_weights, MHA_FLOAT32, 1, 1, 2, 3);
    stats.top_keys = mha_tensor_4d(p.top_keys, MHA_INT64, 1, 1, 2, 3);
    expect(!mha_attention_forward(ctx, mha_tensor_4d(out, MHA_FLOAT32, 1, 1, 2, 2), &extras, tq, tk, tk, &options) &&
               !mha_attention_stats(ctx, &stats, tq, tk, extras.softmax, &options, NULL),
           "%s", mha_context_error(ctx));
    mha_context_free(ctx);
    return p;
}

/* Row 0 sees four equal scores of 0. Row 1 gives two keys half each, with scores of which an lse of float32 knows no
 * more than seven digits, or whose products leave float32 on their way to 0. */
TEST(numbers_on_paper)
{
    const struct {
        float q[4], k[8];
    } cases[] = {{{0, 0, 1, 1}, {30, 30, -90, -90, 30, 30, -90, -90}},
                 {{0, 0, 512, 512}, {300, 300, -9, -9, 300, 300, -9, -9}},
                 {{0, 0, 2e25f, 2e25f}, {1e-20f, 1e-20f, -9, -9, 1e-20f, 1e-20f, -9, -9}},
                 {{0, 0, 1e20f, 1e20f}, {1e20f, -1e20f, -1e-15f, 0, 1e20f, -1e20f, -1e-15f, 0}}};
    for_each_isa (isa)
        for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
            paper p = on_paper(isa, cases[n].q, cases[n].k);
            const double want[2] = {log(4), log(2)}, effective[2] = {4, 2}, share[2] = {0.25, 0.5};
            for (int i = 0; i < 2; i++) {
                expect(fabs((double)p.entropy[i] - want[i]) < 2e-6, "%s, case %zu, row %d: entropy %.8g", isa, n, i,
                       (double)p.entropy[i]);
                expect(fabs((double)p.effective[i] - effective[i]) < 2e-5, "%s, case %zu, row %d: %.8g keys", isa, n, i,
                       (double)p.effective[i]);
                expect(fabs((double)p.top_weights[i][0] - share[i]) < 1e-6, "%s, case %zu, row %d: top weight %.8g",
                       isa, n, i, (double)p.top_weights[i][0]);
                expect(fabs((double)p.mass[i][3] - share[i]) < 1e-6, "%s, case %zu, row %d: first key %.8g", isa, n, i,
                       (double)p.mass[i][3]);
            }
            expect(p.top_keys[0][0] == 0 && p.top_keys[0][1] == 1 && p.top_keys[0][2] == 2, "%s: of equals %d, %d, %d",
                   isa, (int)p.top_keys[0][0], (int)p.top_keys[0][1], (int)p.top_keys[0][2]);
            expect(p.top_keys[1][0] == 0 && p.top_keys[1][1] == 2 && p.top_keys[1][2] == -1, "%s, case %zu: %d, %d, %d",
                   isa, n, (int)p.top_keys[1][0], (int)p.top_keys[1][1], (int)p.top_keys[1][2]);
        }
}
