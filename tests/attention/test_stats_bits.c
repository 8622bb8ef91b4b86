/* The same bits of every statistic for any number of threads, any way to run a parallel loop, on every run, and whatever
 * else is asked for. */
#include "support/harness.h"
#include "support/statistics.h"

static void expect_same(const statistics *s, int n, const unsigned char *want, const char *what, const char *isa)
{
    expect(!memcmp(s->result[n].bytes, want, s->result[n].size), "%s, %s: %s has other bits", isa, what,
           statistics_name(n));
}

static void run_everywhere(statistics *s, const char *isa)
{
    const int counts[] = {2, 3, 7};
    unsigned char *want[STATISTICS];
    mha_context *alone = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
    expect(!statistics_run(s, alone, -1), "%s", mha_context_error(alone));
    for (int n = 0; n < STATISTICS; n++) {
        want[n] = array((int64_t)s->result[n].size, 1);
        memcpy(want[n], s->result[n].bytes, s->result[n].size);
    }
    for (int n = 0; n < STATISTICS; n++) {
        expect(!statistics_run(s, alone, n), "%s", mha_context_error(alone));
        expect_same(s, n, want[n], "asked for alone", isa);
    }
    mha_context_free(alone);
    for (int loop = 0; loop < 2; loop++)
        for (int count = 0; count < 3; count++) {
            mha_context *ctx = context_make(isa, counts[count], loop ? parallel_reversed() : parallel_pthreads(), NULL);
            expect(!statistics_run(s, ctx, -1), "%s", mha_context_error(ctx));
            for (int n = 0; n < STATISTICS; n++) expect_same(s, n, want[n], loop ? "reversed" : "pthreads", isa);
            mha_context_free(ctx);
        }
    for (int n = 0; n < STATISTICS; n++) free(want[n]);
}

static void run_case(const attention_case *c)
{
    if (!sampled()) return;
    statistics *s = statistics_make(c);
    for_each_isa (isa) run_everywhere(s, isa);
    statistics_free(s);
}

TEST(random_options_give_the_same_bits)
{
    for (uint64_t n = 0; n < 40; n++) {
        rng r = rng_make(103, n);
        attention_case c = case_random(&r);
        run_case(&c);
    }
}

TEST(shapes_that_split_give_the_same_bits)
{
    const int64_t shapes[][6] = {{2, 6, 3, 140, 140, 16}, {1, 1, 1, 1300, 70, 16}, {1, 4, 1, 700, 300, 16},
                                 {3, 2, 2, 1, 777, 8},    {1, 16, 4, 600, 65, 24}, {1, 40, 4, 700, 130, 4}};
    for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
        const int64_t *z = shapes[n];
        attention_case c = case_plain(z[0], z[1], z[2], z[3], z[4], z[5], 8);
        c.causal = n % 2;
        c.align = MHA_ALIGN_BOTTOM_RIGHT;
        c.lengths = n % 3 == 0;
        c.data_seed = n;
        if (n == 2) case_set_type(&c, MHA_BFLOAT16);
        run_case(&c);
    }
}
