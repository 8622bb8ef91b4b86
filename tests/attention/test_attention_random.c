/* Any combination of shapes, layouts, types and options against the oracle, for every instruction set.
 *
 *     MHA_SEED=n       draw the cases of another seed (the one in use is printed)
 *     MHA_CASE=n       run only case n of it
 *     MHA_CASES=n      run n cases instead of 2,000 */
#include "support/harness.h"
#include "support/problem.h"

enum { CASES = 2000 };

/* What explain says must be what happens. */
static bool plan_holds(problem *p, mha_context *ctx, const char *isa, char *why, size_t size)
{
    mha_attention_plan plan;
    mha_status status =
        mha_attention_explain(ctx, &plan, p->out.view, &p->extras, p->q.view, p->k.view, p->v.view, &p->options);
    if (status) {
        snprintf(why, size, "explain: %s: %s", mha_status_name(status), mha_context_error(ctx));
        return false;
    }
    bool sane = !strcmp(plan.isa, isa) && !strcmp(mha_context_isa(ctx), isa) && plan.threads >= 1 &&
                plan.threads <= p->c.threads && plan.why[0] && !strchr(plan.why, '\n') && plan.kernel &&
                mha_context_scratch(ctx) <= plan.scratch_bytes;
    snprintf(why, size, "plan: isa %s, kernel %s, %s, threads %d, scratch %zu of %zu", plan.isa, plan.kernel, plan.why,
             plan.threads, mha_context_scratch(ctx), plan.scratch_bytes);
    return sane;
}

static bool run_on(problem *p, const char *isa, char *why, size_t size)
{
    ledger memory = ledger_make();
    mha_parallel parallel = {NULL, NULL};
    if (p->c.data_seed % 4 == 0) parallel = parallel_reversed();
    mha_context *ctx = context_make(isa, p->c.threads, parallel, &memory);
    mha_status status = problem_run(p, ctx);
    bool good = !status;
    if (status) snprintf(why, size, "%s: %s", mha_status_name(status), mha_context_error(ctx));
    good = good && plan_holds(p, ctx, isa, why, size) && problem_check(p, why, size);
    mha_context_free(ctx);
    if (good && (memory.misuses || memory.live)) {
        snprintf(why, size, "scratch: %lld misuses, %lld blocks left", (long long)memory.misuses,
                 (long long)memory.live);
        good = false;
    }
    return good;
}

/* Cases that `draw` makes, with the seed and case that name one. */
static void run_cases(attention_case (*draw)(rng *r))
{
    uint64_t seed = (uint64_t)number_from("MHA_SEED", 20240607);
    long long only = number_from("MHA_CASE", -1), cases = cases_from(CASES);
    printf("    seed %llu:", (unsigned long long)seed);
    for_each_isa (isa) printf(" %s", isa);
    printf(", %lld cases each\n", only < 0 ? cases : 1);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        rng r = rng_make(seed, (uint64_t)n);
        attention_case c = draw(&r);
        problem *p = problem_make(&c);
        problem_solve(p);
        for_each_isa (isa) {
            char why[300] = "", text[900];
            if (run_on(p, isa, why, sizeof why)) continue;
            case_describe(&c, text, sizeof text);
            expect(false, "%s: %s\n      %s\n      again: MHA_SEED=%llu MHA_CASE=%lld %s", isa, why, text,
                   (unsigned long long)seed, n, "test_attention_random");
        }
        problem_free(p);
    }
}

TEST(any_combination_of_options) { run_cases(case_random); }

TEST(any_sight_of_float32) { run_cases(case_random_float32); }
