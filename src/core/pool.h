/* The threads of a context. They run its parallel loops together with the thread that calls, which never depends on
 * them: a task that no worker has taken by then is run by the caller itself. So a loop is right with any number of
 * workers, and with none. */
#ifndef MHA_CORE_POOL_H
#define MHA_CORE_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef void mha_task(void *arg, int index);

/* What the caller writes, what workers write and what both do when they sleep lie on cache lines of their own. */
typedef struct mha_pool {
    /* The loop. Whoever decrements a positive `left` has taken the task of that index, and may read `task` and `arg`. */
    _Alignas(64) atomic_int left;
    atomic_bool stop; /* workers shall return */
    mha_task *task;
    void *arg;

    /* The end of the loop. */
    _Alignas(64) atomic_int unfinished; /* tasks from 1 on that have not returned */
    atomic_bool waiting;                /* the caller sleeps until there are none */

    /* Sleep. */
    _Alignas(64) atomic_int sleepers; /* workers that sleep until there is a loop */
    pthread_mutex_t mutex;
    pthread_cond_t begin, end;

    /* Read and written between loops. */
    _Alignas(64) atomic_bool busy; /* a loop is running, or another thread is at this point */
    bool crowded;                  /* more threads than processors: spinning would keep others from working */
    pid_t process;                 /* that the workers belong to: those of the parent do not exist in a child */
    int workers, most;             /* workers that there are; that there may be */
    int refused;                   /* loops to wait before asking for threads again, after the system gave none */
    pthread_t *threads;            /* (most) */
} mha_pool;

/* A pool without workers. `threads` has room for `most` of them and stays the caller's. */
void mha_pool_make(mha_pool *pool, pthread_t *threads, int most);

/* Runs task(arg, 0) to task(arg, tasks - 1) and returns when all have returned. The first loop with more than one task
 * starts the workers it can use; where the system has no more threads, fewer have to do. A call from inside a task of
 * the same pool runs its tasks one after another, on the thread that makes it. */
void mha_pool_run(mha_pool *pool, int tasks, mha_task *task, void *arg);

/* Ends the workers and returns when all have ended. */
void mha_pool_end(mha_pool *pool);

/* The processors that the process may use: those that its affinity allows, or fewer where its control group has a
 * limit of processor time; at least 1. */
int mha_processors(void);

/* What the limits of the control groups leave, rounded up to whole processors; INT_MAX without a limit. `root` is put
 * before /proc/self/cgroup and the other paths that are read: "" but in tests. */
int mha_cgroup_processors(const char *root);

#endif
