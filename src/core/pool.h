/* The threads of a context, which run its parallel loops together with the calling thread. The caller never waits for a
 * worker to start: it runs every task that no worker has taken. So a loop is right with any number of workers, and with
 * none.
 *
 * pool.c is a pool of POSIX threads; pool_alone.c is for platforms without threads, where the caller runs all tasks. */
#ifndef MHA_CORE_POOL_H
#define MHA_CORE_POOL_H

#include <stddef.h>

typedef void mha_task(void *arg, int index);
typedef struct mha_pool mha_pool;

/* The bytes of a pool with up to `most` workers. */
size_t mha_pool_bytes(int most);

/* A pool whose workers are yet to be started, in memory of so many bytes, aligned to a cache line, that stays the
 * caller's. */
mha_pool *mha_pool_make(void *memory, int most);

/* Runs task(arg, 0) to task(arg, tasks - 1) and returns when all have returned. The first loop with more than one task
 * starts the workers it can use; where the system has no more threads, fewer have to do. A call from inside a task of
 * the same pool runs its tasks one after another, on the thread that makes it. */
void mha_pool_run(mha_pool *pool, int tasks, mha_task *task, void *arg);

/* Passes a moment in which another thread is waited for: the first thousand `tries` stay on the processor, later ones offer it to
 * others. */
void mha_pool_relax(int tries);

/* Ends the workers and returns when all have ended. */
void mha_pool_end(mha_pool *pool);

#endif
