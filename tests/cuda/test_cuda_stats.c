/* Statistics on tensor cores beside the oracle, on rows and keys of several tiles; and their bits. Inputs are new in every
 * run; MHA_SEED repeats one, and MHA_CASE one case of it. */
#include "support/harness.h"
#include "support/statistics.h"

#include <time.h>

enum { CASES = 100 };

static bool there(void)
{
    char why[300] = "";
    if (!mha_device_describe("cuda", why, sizeof why)) return true;
    not_given(why);
    return false;
}

static mha_context *make(void) { return context_make_on("cuda", NULL, 1, (mha_parallel){NULL, NULL}, NULL); }

static int64_t any_length(rng *r) { return rng_chance(r, 0.3) ? rng_between(r, 1, 40) : rng_between(r, 41, 420); }

static attention_case draw(rng *r)
{
    int64_t D = rng_chance(r, 0.5) ? 64 : 128, G = rng_between(r, 1, 4);
    attention_case c =
        case_plain(rng_between(r, 1, 2), G * rng_between(r, 1, 3), G, any_length(r), any_length(r), D, D);
    case_set_type(&c, rng_chance(r, 0.5) ? MHA_BFLOAT16 : MHA_FLOAT16);
    c.layout_q = c.layout_k = c.layout_v = c.layout_out = rng_chance(r, 0.5) ? LAYOUT_DENSE : LAYOUT_SWAPPED;
    c.causal = rng_chance(r, 0.5);
    c.align = rng_chance(r, 0.5) ? MHA_ALIGN_TOP_LEFT : MHA_ALIGN_BOTTOM_RIGHT;
    if (rng_chance(r, 0.2)) c.window_left = rng_between(r, 0, 200);
    if (rng_chance(r, 0.2)) c.window_right = rng_between(r, 0, 200);
    c.sinks = rng_chance(r, 0.2);
    c.lengths = rng_chance(r, 0.2);
    c.padding = rng_chance(r, 0.2);
    if (rng_chance(r, 0.2)) c.ragged_q = c.ragged_k = true;
    c.poison = rng_chance(r, 0.3);
    c.data_seed = (uint64_t)rng_between(r, 1, 1 << 30);
    return c;
}

/* Whether rows run on tensor cores. */
static bool is_fast(const statistics *s, mha_context *ctx)
{
    mha_attention_plan plan = {.kernel = ""};
    mha_stats want = statistics_asked(s);
    const problem *p = s->p;
    return !mha_attention_explain_stats(ctx, &plan, &want, p->q.view, p->k.view, p->softmax.view, &p->options,
                                        &s->options) &&
           strstr(plan.kernel, "f16_");
}

static void check(const attention_case *c, long long n)
{
    statistics *s = statistics_make(c);
    mha_context *ctx = make();
    char why[300] = "", text[900];
    case_describe(c, text, sizeof text);
    statistics_solve(s);
    mha_status status = statistics_run(s, ctx, -1);
    expect(!status && statistics_check(s, why, sizeof why), "case %lld: %s%s\n      %s", n, why,
           status ? mha_context_error(ctx) : "", text);
    expect(!s->p->query_rows || !s->p->key_rows || is_fast(s, ctx), "case %lld: another kernel\n      %s", n, text);
    mha_context_free(ctx);
    statistics_free(s);
}

TEST(any_combination_of_options)
{
    if (!there()) return;
    uint64_t seed = (uint64_t)number_from("MHA_SEED", (long long)time(NULL));
    long long only = number_from("MHA_CASE", -1), cases = cases_from(CASES);
    printf("    MHA_SEED=%llu\n", (unsigned long long)seed);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        rng r = rng_make(seed, (uint64_t)n);
        attention_case c = draw(&r);
        check(&c, n);
    }
}

TEST(any_number_of_heads)
{
    if (!there()) return;
    for (int64_t H = 1; H <= 17; H++) {
        if (!sampled()) continue;
        attention_case c = case_plain(1, H, H, 70, 100, H % 2 ? 64 : 128, 64);
        c.E = c.D;
        c.causal = H % 3 == 0;
        case_set_type(&c, MHA_BFLOAT16);
        c.data_seed = (uint64_t)H;
        check(&c, H);
    }
}

/* Without the softmax of a forward call. */
TEST(the_softmax_is_computed_anew)
{
    if (!there()) return;
    for (int way = 0; way < 4; way++) {
        attention_case c = case_plain(2, 3, 1, 200, 260, way % 2 ? 128 : 64, way % 2 ? 128 : 64);
        case_set_type(&c, way < 2 ? MHA_BFLOAT16 : MHA_FLOAT32);
        c.causal = true;
        c.align = MHA_ALIGN_BOTTOM_RIGHT;
        c.data_seed = (uint64_t)way;
        statistics *s = statistics_make(&c);
        mha_context *ctx = make();
        char why[300] = "";
        mha_stats want = statistics_asked(s);
        statistics_solve(s);
        for (int n = 0; n < STATISTICS; n++) store_reset(&s->result[n]);
        mha_status status = mha_attention_stats(ctx, &want, s->p->q.view, s->p->k.view, (mha_tensor)MHA_NO_TENSOR,
                                                &s->p->options, &s->options);
        expect(!status && statistics_check(s, why, sizeof why), "way %d: %s%s", way, why,
               status ? mha_context_error(ctx) : "");
        mha_context_free(ctx);
        statistics_free(s);
    }
}

/* What overflows in a tile is computed again. */
TEST(numbers_of_any_size)
{
    if (!there()) return;
    for (int way = 0; way < 4; way++) {
        attention_case c = case_plain(1, 3, 1, 150, 300, 64, 64);
        case_set_type(&c, MHA_BFLOAT16);
        c.causal = way % 2;
        c.align = MHA_ALIGN_BOTTOM_RIGHT;
        statistics *s = statistics_make(&c);
        problem *p = s->p;
        mha_context *ctx = make();
        double size = way < 2 ? 1e30 : 30;
        for (int64_t d = 0; d < 64; d++) {
            store_set(&p->q, 0, 0, 70, d, d % 2 ? size : -2 * size);
            store_set(&p->k, 0, 0, 200, d, d % 3 ? size : -3 * size);
        }
        problem_refresh(p);
        statistics_solve(s);
        char why[300] = "";
        expect(!statistics_run(s, ctx, -1) && statistics_check(s, why, sizeof why), "way %d: %s %s", way, why,
               mha_context_error(ctx));
        mha_context_free(ctx);
        statistics_free(s);
    }
}

/* On every run, and whatever else is asked for. */
TEST(the_same_bits)
{
    if (!there()) return;
    for (uint64_t n = 0; n < 12; n++) {
        if (!sampled()) continue;
        rng r = rng_make(77, n);
        attention_case c = draw(&r);
        statistics *s = statistics_make(&c);
        mha_context *ctx = make();
        unsigned char *want[STATISTICS];
        expect(!statistics_run(s, ctx, -1), "%s", mha_context_error(ctx));
        for (int k = 0; k < STATISTICS; k++) {
            want[k] = array((int64_t)s->result[k].size, 1);
            memcpy(want[k], s->result[k].bytes, s->result[k].size);
        }
        for (int again = 0; again < 5; again++) {
            expect(!statistics_run(s, ctx, -1), "%s", mha_context_error(ctx));
            for (int k = 0; k < STATISTICS; k++)
                expect(!memcmp(s->result[k].bytes, want[k], s->result[k].size), "case %d: %s has other bits", (int)n,
                       statistics_name(k));
        }
        for (int k = 0; k < STATISTICS; k++) {
            expect(!statistics_run(s, ctx, k), "%s", mha_context_error(ctx));
            expect(!memcmp(s->result[k].bytes, want[k], s->result[k].size), "case %d: %s alone has other bits", (int)n,
                   statistics_name(k));
            free(want[k]);
        }
        mha_context_free(ctx);
        statistics_free(s);
    }
}
