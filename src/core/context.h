/* The context: what a caller hands to every call. It belongs to a device, owns one block of scratch memory and the text of
 * the last error, and knows how to run a loop in parallel. */
#ifndef MHA_CORE_CONTEXT_H
#define MHA_CORE_CONTEXT_H

#include "core/backend.h"
#include "core/pool.h"
#include "mha.h"
#include <stdatomic.h>

/* Tables of src/cpu; the ground floor only carries them. */
struct mha_kernels;
struct mha_engine;

/* A device, and an instruction set of it, as chosen. */
typedef struct mha_choice {
    const mha_backend *backend;
    const char *isa;
    const struct mha_kernels *kernels;
    const struct mha_engine *engine; /* takes over the products of bfloat16 calls; or NULL */
} mha_choice;

/* Memory that grows to the largest size asked for and stays; it goes back to where it came from. */
typedef struct mha_memory {
    mha_allocator allocator;
    void *memory;    /* what the allocator returned; or NULL */
    char *start;     /* the same, aligned to MHA_ALIGNMENT */
    size_t capacity; /* bytes at `memory` */
    bool keeps;      /* what it outgrows stays until it is released: captured graphs contain addresses */
    struct mha_outgrown *outgrown;
} mha_memory;

struct mha_context {
    mha_allocator allocator;
    mha_allocator memory; /* of the device; on the CPU the same */
    mha_parallel parallel;
    int threads;
    const mha_backend *backend; /* the device */
    const char *isa;
    const struct mha_kernels *kernels;
    const struct mha_engine *engine;
    void *device;     /* what the device keeps for this context; the CPU keeps nothing: NULL */
    void *self;       /* what the allocator returned for this struct, which lies aligned inside */
    mha_memory block; /* scratch of one operation: a product, an attention */
    char *scratch;    /* where it starts */
    mha_memory room;  /* what lies between the operations of a call that is made of several */
    bool rehearsing;  /* operations check their arguments and reserve their scratch, and do nothing */
    bool trusting;    /* the memory of tensors has been checked: a call is made of several */
    char error[512];
    mha_pool *pool; /* runs loops where `parallel` has no `run` */
};

enum { MHA_MOST_THREADS = 1024 }; /* of a context: scratch grows with their number */
enum { MHA_ALIGNMENT = 64 };      /* a cache line, and the widest vector */

/* Makes a context with these options and kernels; `options` is complete and checked by the caller. */
mha_status mha_context_make(mha_context **ctx, const mha_context_options *options, mha_choice choice);

/* Leaves a message in the context and returns the status, so that a check reads  return mha_fail(ctx, ...). */
__attribute__((format(printf, 3, 4))) mha_status mha_fail(mha_context *ctx, mha_status status, const char *format, ...);

/* Refuses what works only where the host can read the memory of tensors; `what` opens the message. */
mha_status mha_need_host(mha_context *ctx, const char *what);

/* Memory of the context's device, none yet. */
static inline mha_memory mha_device_memory(const mha_context *ctx)
{
    return (mha_memory){.allocator = ctx->memory, .keeps = ctx->backend->remote};
}

/* Checks that a tensor that is given lies in memory of the context's device. */
mha_status mha_check_memory(mha_context *ctx, mha_tensor t, const char *name);

/* Whether calls go into a graph, to run later. */
static inline bool mha_is_recording(mha_context *ctx)
{
    return ctx->backend->is_recording && ctx->backend->is_recording(ctx);
}

/* The end of a call that used operations without a status. */
static inline mha_status mha_call_end(mha_context *ctx)
{
    return ctx->backend->finish ? ctx->backend->finish(ctx) : MHA_OK;
}

/* Goes on if a call succeeded, and otherwise returns what it returned. */
#define TRY(call)                  \
    do {                           \
        mha_status tried = (call); \
        if (tried) return tried;   \
    } while (0)

/* Clears the message of the call before. */
void mha_succeed(mha_context *ctx);

/* Makes sure that a block has so many bytes, of which aligning takes up to MHA_ALIGNMENT. Contents are undefined. */
mha_status mha_memory_reserve(mha_context *ctx, mha_memory *block, size_t bytes);
void mha_memory_release(mha_memory *block);

/* The same for the scratch of an operation. */
mha_status mha_scratch_reserve(mha_context *ctx, size_t bytes);

/* `bytes` rounded up to whole cache lines, so that parts of the scratch never share one. */
static inline size_t mha_align_up(size_t bytes) { return (bytes + MHA_ALIGNMENT - 1) & ~(size_t)(MHA_ALIGNMENT - 1); }

/* Runs task(arg, 0) to task(arg, tasks - 1), as mha_parallel says. */
void mha_parallel_run(mha_context *ctx, int tasks, void (*task)(void *arg, int index), void *arg);

/* Calls task(arg, 0) to task(arg, count - 1) in parallel; not while the context rehearses. */
void mha_parallel_each(mha_context *ctx, int64_t count, void (*task)(void *arg, int64_t n), void *arg);

/* Pieces of work that tasks take one after another. A task that starts late or alone still leaves nothing undone, which
 * is why any way of running the tasks is right. */
typedef struct mha_queue {
    atomic_llong next;
    int64_t count;
} mha_queue;

/* The next piece, or -1 when all are taken. */
static inline int64_t mha_queue_take(mha_queue *queue)
{
    int64_t piece = atomic_fetch_add_explicit(&queue->next, 1, memory_order_relaxed);
    return piece < queue->count ? piece : -1;
}

/* Pieces of which a later round of the same loop reads the results. A loop for each round would wait for every thread after each
 * of them; here only those that work on a piece are waited for. */
typedef struct mha_round {
    mha_queue queue;
    atomic_llong finished;
} mha_round;

/* After each piece that was taken. */
static inline void mha_round_finish(mha_round *round)
{
    atomic_fetch_add_explicit(&round->finished, 1, memory_order_release);
}

/* Returns when all pieces are finished, called when none is left to take: what is not finished is running on another thread. */
void mha_round_wait(mha_round *round);

#endif
