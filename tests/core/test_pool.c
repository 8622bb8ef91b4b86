/* Parallel loops of the library's own threads: every task once, all threads at work, none left behind. */
#include "support/loops.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

/* ---- Every task once -------------------------------------------------------------------------------------------- */

static const int counts[] = {1, 2, 3, 8, 64};
enum { COUNTS = sizeof counts / sizeof *counts };

TEST(same_bits_for_any_number_of_threads)
{
    end_within_minutes();
    for (int n = 0; n < COUNTS; n++) {
        mha_context *ctx = pool_context(counts[n], NULL);
        expect(mha_context_threads(ctx) == counts[n], "%d threads, not %d", mha_context_threads(ctx), counts[n]);
        for (int again = 0; again < 3; again++)
            expect(answers(ctx), "%d threads: not the bits of one: %s", counts[n], mha_context_error(ctx));
        mha_context_free(ctx);
    }
}

TEST(each_task_runs_once)
{
    static const int tasks[] = {1, 2, 3, 7, 8, 9, 64, 1000};
    end_within_minutes();
    for (int n = 0; n < COUNTS; n++) {
        mha_context *ctx = pool_context(counts[n], NULL);
        for (size_t t = 0; t < sizeof tasks / sizeof *tasks; t++) {
            atomic_int ran[1001] = {0};
            mha_context_run(ctx, tasks[t], count_task, ran);
            for (int i = 0; i <= 1000; i++)
                expect(ran[i] == (i < tasks[t]), "%d threads: task %d of %d ran %d times", counts[n], i, tasks[t],
                       ran[i]);
        }
        mha_context_free(ctx);
    }
}

/* Loops one behind the other, where workers do not sleep; and with pauses of up to three times as long as they spin, so
 * that some loops begin just when a worker falls asleep. */
static void run_many(mha_context *ctx, int loops, bool pauses)
{
    atomic_int ran[5] = {0};
    unsigned random = 1;
    for (int n = 0; n < loops; n++) {
        mha_context_run(ctx, 2 + n % 4, count_task, ran);
        random = random * 1664525u + 1013904223u;
        if (pauses) wait_for((random >> 16) % 150 * 1e-6);
    }
    for (int i = 0; i < 5; i++) {
        int want = i < 2 ? loops : loops / 4 * (5 - i); /* loops is a multiple of 4 */
        expect(ran[i] == want, "task %d ran %d times in %d loops, not %d", i, ran[i], loops, want);
    }
}

TEST(thousands_of_small_loops)
{
    end_within_minutes();
    for (int threads = 2; threads <= 5; threads++) {
        mha_context *ctx = pool_context(threads, NULL);
        run_many(ctx, 8000, false);
        run_many(ctx, 2000, true);
        mha_context_free(ctx);
    }
}

/* ---- All threads at work ---------------------------------------------------------------------------------------- */

/* Awake from the loop before, and asleep. The caller can do without workers, so only tasks that wait for each other show
 * that they were woken. */
TEST(workers_take_part)
{
    end_within_minutes();
    for (int threads = 2; threads <= 8; threads += 3) {
        mha_context *ctx = pool_context(threads, NULL);
        for (int n = 0; n < 30; n++) {
            expect(all_meet(ctx, threads), "loop %d: %d tasks never ran at the same time", n, threads);
            expect(all_meet(ctx, 2), "loop %d: 2 tasks of %d threads never ran at the same time", n, threads);
            if (n % 2) let_workers_sleep();
        }
        mha_context_free(ctx);
    }
}

/* Loops that begin just when a worker falls asleep must not miss it. */
TEST(workers_that_fall_asleep_take_part)
{
    end_within_minutes();
    mha_context *ctx = pool_context(2, NULL);
    int late = 0;
    for (int n = 0; n < 1000 && !late; n++) {
        late += !all_meet(ctx, 2);
        wait_for(1e-7 * (n % 1000)); /* workers spin for 50 us */
    }
    expect(!late, "2 tasks never ran at the same time");
    mha_context_free(ctx);
}

/* A pool that began with few workers gets more when a loop has more tasks. */
TEST(workers_come_when_they_are_needed)
{
    end_within_minutes();
    mha_context *ctx = pool_context(6, NULL);
    for (int tasks = 1; tasks <= 6; tasks++) expect(all_meet(ctx, tasks), "%d tasks never met", tasks);
    mha_context_free(ctx);
}

static void last_task_is_slow(void *arg, int index)
{
    if (index) nanosleep(&(struct timespec){0, 10000000}, NULL);
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* A caller that waits for longer than it spins sleeps, and is woken by the last task to return. */
TEST(the_caller_waits_for_the_slowest)
{
    end_within_minutes();
    for (int threads = 2; threads <= 3; threads++) {
        mha_context *ctx = pool_context(threads, NULL);
        for (int n = 0; n < 20; n++) {
            atomic_int ran = 0;
            mha_context_run(ctx, threads, last_task_is_slow, &ran);
            expect(ran == threads, "returned with %d of %d tasks done", ran, threads);
        }
        mha_context_free(ctx);
    }
}

/* ---- Loops in loops --------------------------------------------------------------------------------------------- */

typedef struct nest {
    mha_context *ctx, *other;
    int depth;
    atomic_int ran;
} nest;

static void nested(void *arg, int index)
{
    nest *n = arg;
    nest inner = {n->other, n->ctx, n->depth - 1, 0};
    (void)index;
    if (n->depth) mha_context_run(inner.ctx, 4, nested, &inner);
    atomic_fetch_add(&n->ran, 1 + inner.ran);
}

/* Tasks that run loops of the same context, or of another one that is at work on another thread. */
TEST(tasks_that_run_loops)
{
    end_within_minutes();
    mha_context *a = pool_context(4, NULL), *b = pool_context(3, NULL);
    for (int again = 0; again < 20; again++) {
        nest same = {a, a, 3, 0}, two = {a, b, 3, 0};
        mha_context_run(a, 4, nested, &same);
        expect(same.ran == 4 + 16 + 64 + 256, "the same context: %d tasks", same.ran);
        mha_context_run(a, 4, nested, &two);
        expect(two.ran == 4 + 16 + 64 + 256, "two contexts: %d tasks", two.ran);
        expect(all_meet(a, 4), "the workers are gone");
    }
    mha_context_free(a);
    mha_context_free(b);
}

static void *call_alone(void *arg)
{
    atomic_int *wrong = arg;
    mha_context *ctx = pool_context(3, NULL);
    for (int n = 0; n < 30; n++) {
        if (!answers(ctx)) atomic_fetch_add(wrong, 1);
        atomic_int ran[3] = {0};
        mha_context_run(ctx, 3, count_task, ran);
        for (int i = 0; i < 3; i++)
            if (ran[i] != 1) atomic_fetch_add(wrong, 1);
    }
    mha_context_free(ctx);
    return NULL;
}

TEST(contexts_on_threads_of_the_caller)
{
    enum { THREADS = 3 };
    pthread_t threads[THREADS];
    atomic_int wrong = 0;
    end_within_minutes();
    right_answer();
    for (int n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, call_alone, &wrong);
    for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
    expect(!wrong, "%d wrong results", wrong);
}

/* ---- Guests in another's process -------------------------------------------------------------------------------- */

typedef struct masks {
    pthread_t caller;
    meeting all;
    atomic_int wrong;
} masks;

static void look_at_mask(void *arg, int index)
{
    masks *m = arg;
    sigset_t set;
    meet(&m->all, index);
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    bool own = !pthread_equal(pthread_self(), m->caller);
    if (sigismember(&set, SIGUSR1) != own || sigismember(&set, SIGINT) != own || sigismember(&set, SIGTERM) != own)
        atomic_fetch_add(&m->wrong, 1);
    if (sigismember(&set, SIGSEGV) || sigismember(&set, SIGFPE)) atomic_fetch_add(&m->wrong, 1);
}

TEST(signals_go_to_the_threads_of_the_caller)
{
    end_within_minutes();
    mha_context *ctx = pool_context(3, NULL);
    masks m = {.caller = pthread_self(), .all = {.tasks = 3, .patience = 30}};
    mha_context_run(ctx, 3, look_at_mask, &m);
    expect(!m.wrong && !m.all.late, "%d threads with the wrong mask, %d late", m.wrong, m.all.late);
    mha_context_free(ctx);
}

typedef struct victim {
    mha_context *ctx;
    meeting both;
    atomic_int ran, returned;
} victim;

/* Nothing in a task itself may be a point of cancellation, as sleeping is. */
static void be_slow(void *arg, int index)
{
    victim *v = arg;
    meet(&v->both, index);
    if (index) wait_for(0.01);
    atomic_fetch_add(&v->ran, 1);
}

/* What a cancelled thread leaves in its frames, the address sanitizer takes for the frames of what runs after it. */
__attribute__((no_sanitize("address"))) static void *be_cancelled(void *arg)
{
    victim *v = arg;
    mha_context_run(v->ctx, 2, be_slow, v);
    atomic_store(&v->returned, 1);
    for (int64_t n = 0; n < INT64_C(1) << 34; n++) pthread_testcancel();
    return NULL;
}

/* pthread_cancel must not end a thread that others still work for. */
TEST(a_call_is_not_cancelled)
{
    end_within_minutes();
    mha_context *ctx = pool_context(2, NULL);
    for (int n = 0; n < 20; n++) {
        victim v = {.ctx = ctx, .both = {.tasks = 2, .patience = 30}};
        pthread_t thread;
        pthread_create(&thread, NULL, be_cancelled, &v);
        while (atomic_load(&v.both.here) < 2) sched_yield();
        wait_for(0.004); /* the caller waits for the slow task, asleep */
        pthread_cancel(thread);
        pthread_join(thread, NULL);
        expect(v.returned && v.ran == 2, "cancelled with %d tasks done", v.ran);
    }
    mha_context_free(ctx);
}

TEST(contexts_that_run_nothing)
{
    end_within_minutes();
    for (int n = 0; n < 100; n++) {
        mha_context *ctx = pool_context(8, NULL);
        if (n % 2) mha_context_run(ctx, n % 3, count_task, (atomic_int[3]){0});
        mha_context_free(ctx);
    }
}

/* "A call in a loop allocates nothing", and its threads take nothing from the allocator. */
TEST(threads_take_no_memory_of_the_allocator)
{
    end_within_minutes();
    ledger memory = ledger_make();
    mha_context *ctx = pool_context(8, &memory);
    int64_t calls = memory.calls;
    for (int tasks = 2; tasks <= 8; tasks++) expect(all_meet(ctx, tasks), "%d tasks never met", tasks);
    expect(memory.calls == calls, "%d allocations", (int)(memory.calls - calls));
    mha_context_free(ctx);
    expect(!memory.live && !memory.misuses, "%d blocks left, %d misuses", (int)memory.live, (int)memory.misuses);
}
