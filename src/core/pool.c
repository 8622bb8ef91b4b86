/* A loop is a counter. To start one, the caller stores the number of tasks in `left`; workers and caller decrement it
 * until nothing is left, and each decrement of a positive number is a task taken. `task` and `arg` are read only by who
 * has taken a task, and written again only when all tasks have returned, so they need no lock. A worker that comes too
 * late finds nothing to take, and nobody waits for it.
 *
 * Threads that wait spin for a short time, which is enough where loops follow each other, and then sleep. Whoever is
 * about to sleep says so and looks again; whoever has something to tell stores it and looks for sleepers. All four are
 * sequentially consistent, so one of the two sees the other. The mutex closes the gap between the second look and the
 * sleep. */
#include "core/pool.h"
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

enum {
    WORKER_SPINS = 50000,   /* nanoseconds that a worker looks for the next loop before it sleeps */
    CALLER_SPINS = 1000000, /* the same for the caller, when others are at the last tasks of its loop */
    RETRY = 1000            /* loops between attempts to get threads that the system refused */
};

void mha_pool_make(mha_pool *pool, pthread_t *threads, int most)
{
    *pool = (mha_pool){.threads = threads, .most = most};
    pool->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool->begin = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool->end = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
}

/* ---- Waiting ---------------------------------------------------------------------------------------------------- */

/* Leaves the execution units to the other thread of the core for a moment. On Arm `yield` does nothing; `isb` does. */
static inline void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Looks for at most so many nanoseconds; whether it has come. */
static inline bool spin(mha_pool *pool, bool (*has_come)(mha_pool *pool), int64_t nanoseconds)
{
    for (int64_t start = now(); !pool->crowded && now() - start < nanoseconds; sched_yield())
        for (int n = 0; n < 100; n++) {
            if (has_come(pool)) return true;
            relax();
        }
    return has_come(pool);
}

static bool has_begun(mha_pool *pool) { return atomic_load(&pool->left) > 0 || atomic_load(&pool->stop); }

static bool has_ended(mha_pool *pool) { return atomic_load(&pool->unfinished) == 0; }

/* ---- Workers ---------------------------------------------------------------------------------------------------- */

/* Runs tasks until all are taken; returns how many. */
static int take_tasks(mha_pool *pool)
{
    int count = 0;
    for (int index; atomic_load(&pool->left) > 0 && (index = atomic_fetch_sub(&pool->left, 1)) > 0; count++)
        pool->task(pool->arg, index);
    return count;
}

/* Wakes those who wait for the condition. What they wait for has been stored. */
static void wake(mha_pool *pool, pthread_cond_t *condition)
{
    pthread_mutex_lock(&pool->mutex); /* they look and fall asleep in one step */
    pthread_mutex_unlock(&pool->mutex);
    pthread_cond_broadcast(condition);
}

static void await_loop(mha_pool *pool)
{
    if (spin(pool, has_begun, WORKER_SPINS)) return;
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!has_begun(pool)) pthread_cond_wait(&pool->begin, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
}

static void *work(void *argument)
{
    mha_pool *pool = argument;
    for (;;) {
        await_loop(pool);
        if (atomic_load(&pool->stop)) return NULL;
        int count = take_tasks(pool);
        if (count && atomic_fetch_sub(&pool->unfinished, count) == count && atomic_load(&pool->waiting))
            wake(pool, &pool->end);
    }
}

/* Signals of the application go to the threads of the application. What the work itself raises, and the profiler's
 * clock, stay where they belong. */
static void start_workers(mha_pool *pool, int wanted)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigset_t blocked, before;
    if (!pool->workers) {
        pool->crowded = pool->most + 1 > mha_processors();
        pool->process = getpid();
    }
    sigfillset(&blocked);
    for (size_t n = 0; n < sizeof own / sizeof *own; n++) sigdelset(&blocked, own[n]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    while (pool->workers < wanted && !pthread_create(&pool->threads[pool->workers], NULL, work, pool)) pool->workers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pool->refused = pool->workers < wanted ? RETRY : 0;
}

/* ---- The caller ------------------------------------------------------------------------------------------------- */

static void run_alone(int tasks, mha_task *task, void *arg)
{
    for (int index = 0; index < tasks; index++) task(arg, index);
}

/* Sleeping must not be where pthread_cancel ends the thread: workers still read from its stack. */
static void await_end(mha_pool *pool)
{
    int cancelling;
    if (spin(pool, has_ended, CALLER_SPINS)) return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->waiting, true);
    while (!has_ended(pool)) pthread_cond_wait(&pool->end, &pool->mutex);
    atomic_store(&pool->waiting, false);
    pthread_mutex_unlock(&pool->mutex);
    pthread_setcancelstate(cancelling, NULL);
}

static void run_together(mha_pool *pool, int tasks, mha_task *task, void *arg)
{
    pool->task = task;
    pool->arg = arg;
    atomic_store(&pool->unfinished, tasks - 1);
    atomic_store(&pool->left, tasks - 1);
    if (atomic_load(&pool->sleepers)) wake(pool, &pool->begin);
    task(arg, 0);
    int count = take_tasks(pool);
    if (atomic_fetch_sub(&pool->unfinished, count) != count) await_end(pool);
}

void mha_pool_run(mha_pool *pool, int tasks, mha_task *task, void *arg)
{
    int wanted = tasks - 1 < pool->most ? tasks - 1 : pool->most;
    if (pool->workers && pool->process != getpid()) mha_pool_make(pool, pool->threads, pool->most);
    if (wanted < 1 || atomic_exchange(&pool->busy, true)) {
        run_alone(tasks, task, arg);
        return;
    }
    if (pool->workers < wanted && (!pool->refused || !--pool->refused)) start_workers(pool, wanted);
    if (pool->workers) run_together(pool, tasks, task, arg);
    else run_alone(tasks, task, arg);
    atomic_store(&pool->busy, false);
}

void mha_pool_end(mha_pool *pool)
{
    if (!pool->workers || pool->process != getpid()) return;
    atomic_store(&pool->stop, true);
    wake(pool, &pool->begin);
    for (int n = 0; n < pool->workers; n++) pthread_join(pool->threads[n], NULL);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->begin);
    pthread_cond_destroy(&pool->end);
}
