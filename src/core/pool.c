/* A loop is cut into shares, one for the caller and one for each worker, who takes its own first: task n then runs on
 * the same processor in loop after loop, whose caches still hold its scratch. Who has done its own share looks for others that
 * nobody has taken. To take one is to set its number of the last loop from an older one to this one: one thread succeeds.
 * The loop's number and its shares are one word, so that a worker that comes too late, when the next loop may be under
 * way, knows both of its own loop and finds everything taken there. `task` and the rest are read only by who has taken a
 * share, and written again only when all shares are done, so they need no lock.
 *
 * A thread that waits spins for a short time and then sleeps. A worker that was woken soon after it fell asleep spins
 * longer the next time, up to 2 ms: where loops follow each other, or tasks take unequal time, it would otherwise sleep in
 * every loop, and waking a thread takes longer than a small loop does. After a long sleep it starts with the short time.
 *
 * Before a thread sleeps it announces that (`sleepers`, `waiting`) and checks once more; a thread that ends the wait of
 * another first stores what the other waits for (`loop`, `left`) and then reads the announcement. All four operations
 * are sequentially consistent, so at least one of the two threads sees the other. The mutex keeps a wake-up from falling
 * between the last check and the sleep. */
#include "core/pool.h"
#include "core/processors.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

/* A worker, and the share of each loop that is its own. */
typedef struct mha_worker {
    _Alignas(64) struct mha_pool *pool;
    pthread_t thread;
    atomic_ullong taken; /* the number of the last loop whose share somebody has taken */
} mha_worker;

/* What the caller writes, what workers write and what is for sleeping each have their own cache line. */
struct mha_pool {
    /* The loop: its number, and in the lowest 16 bits how many shares it has. Share n has the tasks n, n + shares, ...;
     * whoever has taken one may read the rest. */
    _Alignas(64) atomic_ullong loop;
    atomic_bool stop; /* workers shall return */
    mha_task *task;
    void *arg;
    int tasks;

    /* The end of the loop. */
    _Alignas(64)
        atomic_ullong left; /* shares from 1 on that nobody has taken, times 2^32, and those that are not done */
    atomic_bool waiting;    /* the caller sleeps until all are done */

    /* Sleep. */
    _Alignas(64) atomic_int sleepers; /* workers that sleep until there is a loop */
    pthread_mutex_t mutex;
    pthread_cond_t begin, end;

    /* Read and written between loops. */
    _Alignas(64) atomic_bool busy; /* a loop is running, or another thread is at this point */
    atomic_bool alone;             /* no worker has taken part in the last loop */
    bool crowded;                  /* more threads than processors: spinning would keep others from working */
    atomic_int process;            /* that the workers belong to: those of the parent do not exist in a child */
    atomic_int started;            /* workers that there are */
    int most;                      /* that there may be */
    int refused;                   /* loops to wait before asking for threads again, after the system gave none */
    mha_worker workers[];          /* (most) */
};

enum {
    WORKER_SPINS = 50000,   /* nanoseconds that a worker looks for the next loop before it sleeps, at first */
    WORKER_MOST = 2000000,  /* and at most: a sleep shorter than this makes it spin longer */
    CALLER_SPINS = 1000000, /* the same for the caller, when others are at the last tasks of its loop */
    YIELD = 20000,   /* between offers of the processor to other threads: an offer takes longer than a small task */
    SHARE_BITS = 16, /* of a loop's word; its number has the other 48 */
    RETRY = 1000     /* loops between attempts to get threads that the system refused */
};

/* In `left`. */
static const unsigned long long UNTAKEN = 1ULL << 32;

size_t mha_pool_bytes(int most) { return sizeof(mha_pool) + (size_t)most * sizeof(mha_worker); }

mha_pool *mha_pool_make(void *memory, int most)
{
    mha_pool *pool = memory;
    *pool = (mha_pool){.most = most};
    for (int n = 0; n < most; n++) pool->workers[n] = (mha_worker){.pool = pool};
    pool->mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    pool->begin = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    pool->end = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    return pool;
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

void mha_pool_relax(int tries)
{
    if (tries < 1000) relax();
    else sched_yield();
}

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Looks for at most so many nanoseconds; whether it has come. */
static inline bool spin(mha_pool *pool, bool (*has_come)(mha_pool *pool, unsigned long long seen),
                        unsigned long long seen, int64_t nanoseconds)
{
    if (pool->crowded) return has_come(pool, seen);
    for (int64_t start = now(), passed = 0, next = YIELD; passed < nanoseconds; passed = now() - start) {
        for (int n = 0; n < 100; n++) {
            if (has_come(pool, seen)) return true;
            relax();
        }
        if (passed < next) continue;
        sched_yield();
        next = passed + YIELD;
    }
    return has_come(pool, seen);
}

static bool has_begun(mha_pool *pool, unsigned long long seen)
{
    return atomic_load(&pool->loop) != seen || atomic_load(&pool->stop);
}

static bool has_ended(mha_pool *pool, unsigned long long seen)
{
    (void)seen;
    return (uint32_t)atomic_load(&pool->left) == 0;
}

/* ---- Workers ---------------------------------------------------------------------------------------------------- */

static void run_share(mha_pool *pool, int share, int shares)
{
    for (int index = share; index < pool->tasks; index += shares) pool->task(pool->arg, index);
}

/* Runs the shares that nobody has taken, from `own` on and around; returns how many. Share 0 is the caller's. When nothing
 * is left to take, the others' shares are not looked at: each is a cache line that another processor has just written. */
static int take_shares(mha_pool *pool, unsigned long long loop, int own)
{
    unsigned long long number = loop >> SHARE_BITS;
    int shares = (int)(loop & ((1 << SHARE_BITS) - 1)), count = 0;
    for (int n = 0; n < shares - 1 && atomic_load(&pool->left) >= UNTAKEN; n++) {
        int share = 1 + (own - 1 + n) % (shares - 1);
        atomic_ullong *taken = &pool->workers[share - 1].taken;
        unsigned long long last = atomic_load(taken);
        if (last >= number || !atomic_compare_exchange_strong(taken, &last, number)) continue;
        atomic_fetch_sub(&pool->left, UNTAKEN);
        run_share(pool, share, shares);
        atomic_fetch_sub(&pool->left, 1);
        count++;
    }
    return count;
}

/* Wakes those who wait for the condition. What they wait for has been stored. */
static void wake(mha_pool *pool, pthread_cond_t *condition)
{
    pthread_mutex_lock(&pool->mutex); /* a thread that has checked and not slept yet holds it */
    pthread_mutex_unlock(&pool->mutex);
    pthread_cond_broadcast(condition);
}

/* Returns how long to spin the next time. */
static int64_t await_loop(mha_pool *pool, unsigned long long seen, int64_t spins)
{
    if (spin(pool, has_begun, seen, spins)) return spins;
    int64_t asleep = now();
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (!has_begun(pool, seen)) pthread_cond_wait(&pool->begin, &pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
    pthread_mutex_unlock(&pool->mutex);
    if (now() - asleep > WORKER_MOST) return WORKER_SPINS;
    return spins * 4 < WORKER_MOST ? spins * 4 : WORKER_MOST;
}

static void *work(void *argument)
{
    mha_worker *worker = argument;
    mha_pool *pool = worker->pool;
    unsigned long long seen = 0;
    int own = (int)(worker - pool->workers) + 1;
    for (int64_t spins = WORKER_SPINS;;) {
        spins = await_loop(pool, seen, spins);
        if (atomic_load(&pool->stop)) return NULL;
        seen = atomic_load(&pool->loop);
        if (take_shares(pool, seen, own) && has_ended(pool, 0) && atomic_load(&pool->waiting)) wake(pool, &pool->end);
    }
}

/* Workers block the signals of the application, whose handlers then run on its own threads; not those that the code of
 * a task raises itself, nor the profiler's. */
static void start_workers(mha_pool *pool, int wanted)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF};
    sigset_t blocked, before;
    if (!pool->started) {
        pool->crowded = pool->most + 1 > mha_processors();
        pool->process = getpid();
    }
    sigfillset(&blocked);
    for (size_t n = 0; n < sizeof own / sizeof *own; n++) sigdelset(&blocked, own[n]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    for (; pool->started < wanted; pool->started++) {
        mha_worker *w = &pool->workers[pool->started];
        if (pthread_create(&w->thread, NULL, work, w)) break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pool->refused = pool->started < wanted ? RETRY : 0;
}

/* ---- The caller ------------------------------------------------------------------------------------------------- */

static void run_alone(int tasks, mha_task *task, void *arg)
{
    for (int index = 0; index < tasks; index++) task(arg, index);
}

/* pthread_cancel must not end the caller while it sleeps: workers still use what lies on its stack. */
static void await_end(mha_pool *pool)
{
    int cancelling;
    if (spin(pool, has_ended, 0, CALLER_SPINS)) return;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancelling);
    pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->waiting, true);
    while (!has_ended(pool, 0)) pthread_cond_wait(&pool->end, &pool->mutex);
    atomic_store(&pool->waiting, false);
    pthread_mutex_unlock(&pool->mutex);
    pthread_setcancelstate(cancelling, NULL);
}

/* Whether the workers are those of the parent process, which do not exist here. */
static bool is_child(const mha_pool *pool) { return pool->started && pool->process != getpid(); }

static void run_together(mha_pool *pool, int tasks, mha_task *task, void *arg)
{
    int shares = tasks < pool->most + 1 ? tasks : pool->most + 1;
    unsigned long long loop = ((atomic_load(&pool->loop) >> SHARE_BITS) + 1) << SHARE_BITS | (unsigned)shares;
    pool->task = task;
    pool->arg = arg;
    pool->tasks = tasks;
    atomic_store(&pool->left, (UNTAKEN + 1) * (unsigned long long)(shares - 1));
    atomic_store(&pool->loop, loop);
    if (atomic_load(&pool->sleepers)) wake(pool, &pool->begin);
    run_share(pool, 0, shares);
    pool->alone = take_shares(pool, loop, 1) == shares - 1;
    if (!has_ended(pool, 0)) await_end(pool);
}

/* Asking for the process takes as long as a small loop, so it is asked only where its workers may be missing: they seem
 * to sleep, nobody has helped with the last loop, or a loop seems to be under way. In a child everything but the first
 * of these goes on without help until the answer is known. */
static bool may_be_child(const mha_pool *pool)
{
    return pool->alone || atomic_load(&pool->sleepers) || atomic_load(&pool->busy);
}

void mha_pool_run(mha_pool *pool, int tasks, mha_task *task, void *arg)
{
    int wanted = tasks - 1 < pool->most ? tasks - 1 : pool->most;
    if (wanted >= 1 && may_be_child(pool) && is_child(pool)) mha_pool_make(pool, pool->most);
    if (wanted < 1 || atomic_exchange(&pool->busy, true)) {
        run_alone(tasks, task, arg);
        return;
    }
    if (pool->started < wanted && (!pool->refused || !--pool->refused)) start_workers(pool, wanted);
    if (pool->started) run_together(pool, tasks, task, arg);
    else run_alone(tasks, task, arg);
    atomic_store(&pool->busy, false);
}

void mha_pool_end(mha_pool *pool)
{
    if (!pool->started || pool->process != getpid()) return;
    atomic_store(&pool->stop, true);
    wake(pool, &pool->begin);
    for (int n = 0; n < pool->started; n++) pthread_join(pool->workers[n].thread, NULL);
    pthread_mutex_destroy(&pool->mutex);
    pthread_cond_destroy(&pool->begin);
    pthread_cond_destroy(&pool->end);
}
