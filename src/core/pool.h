/* The threads of a context, which run its parallel loops together with the calling thread. The caller never waits for a
 * worker to start: it runs every task that no worker has taken. So a loop is right with any number of workers, and with
 * none. */
#ifndef MHA_CORE_POOL_H
#define MHA_CORE_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef void mha_task(void *arg, int index);

struct mha_pool;

/* A worker, and the share of each loop that is its own. */
typedef struct mha_worker {
    _Alignas(64) struct mha_pool *pool;
    pthread_t thread;
    atomic_ullong taken; /* the number of the last loop whose share somebody has taken */
} mha_worker;

/* What the caller writes, what workers write and what is for sleeping each have their own cache line. */
typedef struct mha_pool {
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
    mha_worker *workers;           /* (most) */
} mha_pool;

/* A pool whose workers are yet to be started. `workers` has room for `most` of them and stays the caller's. */
void mha_pool_make(mha_pool *pool, mha_worker *workers, int most);

/* Runs task(arg, 0) to task(arg, tasks - 1) and returns when all have returned. The first loop with more than one task
 * starts the workers it can use; where the system has no more threads, fewer have to do. A call from inside a task of
 * the same pool runs its tasks one after another, on the thread that makes it. */
void mha_pool_run(mha_pool *pool, int tasks, mha_task *task, void *arg);

/* Ends the workers and returns when all have ended. */
void mha_pool_end(mha_pool *pool);

#endif
