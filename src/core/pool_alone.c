/* The pool of a platform without threads: the caller runs all tasks, one after another. */
#include "core/pool.h"

struct mha_pool {
    char nothing;
};

size_t mha_pool_bytes(int most)
{
    (void)most;
    return sizeof(mha_pool);
}

mha_pool *mha_pool_make(void *memory, int most)
{
    (void)most;
    return memory;
}

void mha_pool_run(mha_pool *pool, int tasks, mha_task *task, void *arg)
{
    (void)pool;
    for (int index = 0; index < tasks; index++) task(arg, index);
}

void mha_pool_end(mha_pool *pool) { (void)pool; }

void mha_pool_relax(int tries) { (void)tries; } /* there is one thread */
