/* A child of fork has a copy of its parent's contexts, but not their threads. It gets the right answer, from new threads,
 * and its parent goes on. */
#include "support/loops.h"

#include <sys/wait.h>

/* Runs `work` in a child and says whether it came back with success, in time. */
static bool in_child(bool (*work)(mha_context *ctx), mha_context *ctx)
{
    pid_t child = fork();
    if (!child) {
        alarm(100);
        _exit(!work(ctx));
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool only_free(mha_context *ctx)
{
    mha_context_free(ctx);
    return true;
}

/* The first loop may find that the workers are gone; from the second on there are new ones. */
static bool work_and_free(mha_context *ctx)
{
    atomic_int ran[3] = {0};
    for (int n = 0; n < 3; n++) mha_context_run(ctx, 3, count_task, ran);
    for (int i = 0; i < 3; i++)
        if (ran[i] != 3) return false;
    bool right = answers(ctx) && all_meet(ctx, 3) && answers(ctx);
    let_workers_sleep();
    right = right && all_meet(ctx, 3) && answers(ctx);
    mha_context_free(ctx);
    return right;
}

static bool have_a_child(mha_context *ctx)
{
    return in_child(work_and_free, ctx) && answers(ctx) && in_child(work_and_free, ctx) && work_and_free(ctx);
}

/* The parent's threads awake or asleep, or not yet started. */
TEST(children_work)
{
    end_within_minutes();
    right_answer();
    for (int n = 0; n < 12; n++) {
        mha_context *ctx = pool_context(3, NULL);
        if (n % 3) expect(answers(ctx) && all_meet(ctx, 3), "%s", mha_context_error(ctx));
        if (n % 3 == 2) let_workers_sleep();
        expect(in_child(n < 6 ? work_and_free : have_a_child, ctx), "round %d: the child failed", n);
        expect(answers(ctx) && all_meet(ctx, 3), "round %d: the parent failed", n);
        expect(in_child(only_free, ctx), "round %d: the child could not free the context", n);
        mha_context_free(ctx);
    }
}

static bool loop_once(mha_context *ctx)
{
    atomic_int ran[3] = {0};
    for (int n = 0; n < 2; n++) mha_context_run(ctx, 3, count_task, ran);
    mha_context_free(ctx);
    return ran[0] == 2 && ran[1] == 2 && ran[2] == 2;
}

/* Fork just when workers fall asleep: one of them may hold the lock, which nobody in the child would open. */
TEST(children_made_while_workers_fall_asleep)
{
    end_within_minutes();
    mha_context *ctx = pool_context(3, NULL);
    atomic_int ran[3] = {0};
    for (int n = 0; n < 150; n++) {
        mha_context_run(ctx, 3, count_task, ran);
        wait_for(1e-6 * n);
        expect(in_child(loop_once, ctx), "pause of %d us: the child failed", n);
    }
    mha_context_free(ctx);
}
