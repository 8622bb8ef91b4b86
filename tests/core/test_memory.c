/* Scratch: as much as the plan says, none in a loop, and none at all when there is no memory, without a trace. */
#include "support/harness.h"
#include "support/problem.h"

#include <stdlib.h>

static attention_case busy_case(uint64_t seed)
{
    attention_case c = case_plain(2, 4, 2, 37, 90, 16, 16);
    c.causal = seed & 1;
    c.weights = (int)(seed % 3);
    c.scores = seed & 2 ? MHA_STAGE_SOFTMAX : -1;
    c.dropout = seed & 4 ? 0.1f : 0;
    c.ragged_q = seed & 8;
    c.bias = seed & 1 ? (broadcast){4, 15} : (broadcast){-1, 0};
    case_set_type(&c, (mha_type)(seed % 3));
    c.data_seed = seed;
    return c;
}

static mha_attention_plan plan_of(problem *p, mha_context *ctx)
{
    mha_attention_plan plan = {0};
    mha_status status =
        mha_attention_explain(ctx, &plan, p->out.view, &p->extras, p->q.view, p->k.view, p->v.view, &p->options);
    expect(!status, "explain: %s", mha_context_error(ctx));
    return plan;
}

/* ---- Out of memory at every allocation -------------------------------------------------------------------------- */

/* Nothing of the outputs may differ from what it was before the call. */
static void expect_untouched(const problem *p, int64_t n)
{
    const store *outputs[] = {&p->out, &p->lse, &p->weights, &p->scores};
    for (int s = 0; s < 4; s++)
        expect(!outputs[s]->bytes || !memcmp(outputs[s]->bytes, outputs[s]->original, outputs[s]->size),
               "allocation %d failed, and output %d was written", (int)n, s);
}

TEST(no_memory_for_a_context)
{
    for (int64_t n = 0;; n++) {
        char reason[100] = "";
        ledger memory = ledger_make();
        memory.fail_at = n;
        mha_context_options options = MHA_CONTEXT_DEFAULTS;
        options.allocator = ledger_allocator(&memory);
        options.error = reason;
        options.error_size = sizeof reason;
        mha_context *ctx = (mha_context *)&memory;
        mha_status status = mha_context_create(&ctx, &options);
        if (!status) {
            expect(n > 0, "a context came from nowhere");
            mha_context_free(ctx);
            expect(!memory.live && !memory.misuses, "%d blocks left", (int)memory.live);
            return;
        }
        expect(status == MHA_NO_MEMORY && !ctx, "allocation %d: %s", (int)n, mha_status_name(status));
        expect(reason[0] && !strchr(reason, '\n'), "the reason is '%s'", reason);
        expect(!memory.live && !memory.misuses, "allocation %d failed: %d blocks left", (int)n, (int)memory.live);
    }
}

/* Fails the n-th allocation of the call; returns whether there was one. Then the same context must do it. */
static bool fail_at(problem *p, const char *isa, int64_t n)
{
    ledger memory = ledger_make();
    mha_context *ctx = context_make(isa, 3, (mha_parallel){NULL, NULL}, &memory);
    memory.fail_at = memory.calls + n;
    mha_status status = problem_run(p, ctx);
    bool failed = memory.calls > memory.fail_at;
    char why[300] = "";
    if (failed) {
        expect(status == MHA_NO_MEMORY, "%s, allocation %d: %s", isa, (int)n, mha_status_name(status));
        expect(mha_context_error(ctx)[0] != 0, "no message");
        expect_untouched(p, n);
        memory.fail_at = -1;
        status = problem_run(p, ctx);
    }
    expect(!status && problem_check(p, why, sizeof why), "%s, after failure %d: %s", isa, (int)n, why);
    mha_context_free(ctx);
    expect(!memory.live && !memory.misuses, "%d blocks left, %d misuses", (int)memory.live, (int)memory.misuses);
    return failed;
}

TEST(no_memory_for_a_call)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        attention_case c = busy_case(seed);
        problem *p = problem_make(&c);
        problem_solve(p);
        for_each_isa (isa)
            for (int64_t n = 0; fail_at(p, isa, n); n++)
                ;
        problem_free(p);
    }
}

/* The scratch of a smaller call must survive a failed attempt to grow, or go without being lost. */
TEST(no_memory_to_grow)
{
    attention_case small = case_plain(1, 1, 1, 2, 3, 4, 4), large = case_plain(2, 4, 2, 300, 500, 64, 64);
    problem *p = problem_make(&small), *q = problem_make(&large);
    ledger memory = ledger_make();
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, &memory);
    problem_solve(p);
    char why[300] = "";
    expect(!problem_run(p, ctx), "%s", mha_context_error(ctx));
    memory.fail_at = memory.calls;
    expect(problem_run(q, ctx) == MHA_NO_MEMORY, "the large call needed no memory");
    expect_untouched(q, 0);
    expect(mha_context_scratch(ctx) <= (size_t)memory.bytes, "the context claims scratch that it does not have");
    memory.fail_at = -1;
    expect(!problem_run(p, ctx) && problem_check(p, why, sizeof why), "the small call after it: %s", why);
    mha_context_free(ctx);
    expect(!memory.live && !memory.misuses, "%d blocks left", (int)memory.live);
    problem_free(p);
    problem_free(q);
}

/* ---- How much --------------------------------------------------------------------------------------------------- */

/* What the allocator hands out for a call is what the plan said, to the byte or less. */
TEST(scratch_is_what_the_plan_says)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        rng r = rng_make(seed, 31);
        attention_case c = case_random(&r);
        problem *p = problem_make(&c);
        ledger memory = ledger_make();
        mha_context *ctx = context_make(NULL, c.threads, (mha_parallel){NULL, NULL}, &memory);
        int64_t before = memory.bytes, calls = memory.calls;
        expect(mha_context_scratch(ctx) == 0, "a new context holds %zu", mha_context_scratch(ctx));
        mha_attention_plan plan = plan_of(p, ctx);
        expect(memory.calls == calls, "explain allocates");
        expect(!problem_run(p, ctx), "%s", mha_context_error(ctx));
        int64_t held = memory.bytes - before;
        expect(held <= (int64_t)plan.scratch_bytes, "holds %d, the plan says %zu", (int)held, plan.scratch_bytes);
        expect(mha_context_scratch(ctx) <= plan.scratch_bytes && (int64_t)mha_context_scratch(ctx) >= held,
               "scratch %zu, held %d, plan %zu", mha_context_scratch(ctx), (int)held, plan.scratch_bytes);
        mha_context_trim(ctx);
        expect(memory.bytes == before && mha_context_scratch(ctx) == 0, "%d bytes left by trim",
               (int)(memory.bytes - before));
        expect(!problem_run(p, ctx), "after trim: %s", mha_context_error(ctx));
        mha_context_free(ctx);
        problem_free(p);
    }
}

TEST(a_loop_allocates_nothing)
{
    for (uint64_t seed = 0; seed < 12; seed++) {
        attention_case c = busy_case(seed), less = c;
        less.Tk = 41;
        problem *p = problem_make(&c), *q = problem_make(&less);
        ledger memory = ledger_make();
        mha_context *ctx = context_make(NULL, 3, (mha_parallel){NULL, NULL}, &memory);
        expect(!problem_run(p, ctx), "%s", mha_context_error(ctx));
        int64_t calls = memory.calls;
        for (int n = 0; n < 5; n++) expect(!problem_run(p, ctx) && !problem_run(q, ctx), "%s", mha_context_error(ctx));
        expect(memory.calls == calls, "%d allocations in a loop", (int)(memory.calls - calls));
        mha_context_free(ctx);
        problem_free(p);
        problem_free(q);
    }
}

/* B1 H8 T65536 D64 causal: under 8 MB a thread, whatever else is asked for that is not of size Tq x Tk. */
TEST(long_sequences_need_little)
{
    const int threads[] = {1, 2, 7, 64};
    for_each_isa (isa)
        for (int n = 0; n < 4; n++)
            for (int type = 0; type < 3; type++) {
                mha_context *ctx = context_make(isa, threads[n], (mha_parallel){NULL, NULL}, NULL);
                mha_tensor x = mha_tensor_4d(NULL, (mha_type)type, 1, 8, 65536, 64);
                mha_attention_options options = MHA_ATTENTION_DEFAULTS;
                mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
                mha_attention_plan plan;
                options.causal = true;
                extras.lse = mha_tensor_3d(NULL, MHA_FLOAT32, 1, 8, 65536);
                mha_status status = mha_attention_explain(ctx, &plan, x, &extras, x, x, x, &options);
                expect(!status, "%s", mha_context_error(ctx));
                expect(plan.scratch_bytes < (size_t)plan.threads * 8000000, "%s: %zu bytes for %d threads", isa,
                       plan.scratch_bytes, plan.threads);
                mha_tensor one = mha_tensor_4d(NULL, (mha_type)type, 1, 8, 1, 64);
                status = mha_attention_explain(ctx, &plan, one, NULL, one, x, x, &options);
                expect(!status && plan.scratch_bytes < (size_t)plan.threads * 8000000, "%s: %zu bytes for one query",
                       isa, plan.scratch_bytes);
                mha_context_free(ctx);
            }
}

/* Asking for weights must not make the context hold something of size Tq x Tk of its own. */
TEST(weights_need_no_second_buffer)
{
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_tensor x = mha_tensor_4d(NULL, MHA_FLOAT32, 1, 8, 16384, 64);
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    mha_attention_plan plan;
    extras.weights = mha_tensor_3d(NULL, MHA_BFLOAT16, 1, 16384, 16384);
    extras.scores = mha_tensor_4d(NULL, MHA_FLOAT16, 1, 8, 16384, 16384);
    mha_status status = mha_attention_explain(ctx, &plan, x, &extras, x, x, x, NULL);
    expect(!status && plan.scratch_bytes < 16000000, "%zu bytes: %s", plan.scratch_bytes, mha_context_error(ctx));
    mha_context_free(ctx);
}
