/* The multi-head layer against the oracle: any combination of options, forward and backward, for every instruction set.
 *
 *     MHA_SEED=n       draw the cases of another seed (the one in use is printed)
 *     MHA_CASE=n       run only case n of it
 *     MHA_CASES=n      run n cases instead of 500 */
#include "support/harness.h"
#include "layer/layers.h"

enum { CASES = 500 };

static bool run_on(const layer_case *c, const char *isa, bool gradients, char *why, size_t size)
{
    ledger memory = ledger_make();
    mha_parallel parallel = {NULL, NULL};
    if (c->seed % 4 == 0) parallel = parallel_reversed();
    mha_context *ctx = context_make(isa, c->threads, parallel, &memory);
    layer_problem *p = layer_problem_make(c);
    layer_problem_solve(p, gradients);
    bool good = layer_problem_run(p, ctx, gradients, why, size);
    layer_problem_free(p);
    mha_context_free(ctx);
    if (good && (memory.misuses || memory.live)) {
        snprintf(why, size, "memory: %lld misuses, %lld blocks left", (long long)memory.misuses,
                 (long long)memory.live);
        good = false;
    }
    return good;
}

TEST(any_combination_of_options)
{
    uint64_t seed = (uint64_t)number_from("MHA_SEED", 20261115);
    long long only = number_from("MHA_CASE", -1), cases = cases_from(CASES);
    printf("    seed %llu, %lld cases\n", (unsigned long long)seed, only < 0 ? cases : 1);
    for (long long n = only < 0 ? 0 : only; n < (only < 0 ? cases : only + 1); n++) {
        rng r = rng_make(seed, (uint64_t)n);
        layer_case c = layer_case_random(&r);
        char why[300] = "", text[600];
        layer_case_print(&c, text, sizeof text);
        for_each_isa (isa)
            for (int gradients = 0; gradients < 2; gradients++)
                expect(run_on(&c, isa, gradients, why, sizeof why), "case %lld, %s, %s: %s\n        %s", n, isa,
                       gradients ? "backward" : "forward", why, text);
    }
}
