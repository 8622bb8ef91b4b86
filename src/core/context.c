/* Contexts: memory, error text, parallel loops. The public mha_context_create lives in cpu/choose.c, one floor up,
 * because a context carries a table of kernels. */
#include "core/context.h"
#include "core/processors.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *default_allocate(void *user, size_t bytes)
{
    (void)user;
    return malloc(bytes);
}

static void default_release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* The first aligned place at or after `memory`. */
static void *align(void *memory)
{
    return (char *)memory + (MHA_ALIGNMENT - (uintptr_t)memory % MHA_ALIGNMENT) % MHA_ALIGNMENT;
}

static int count_threads(const mha_context_options *options)
{
    int threads = options->threads ? options->threads : options->parallel.run ? 1 : mha_processors();
    return threads < MHA_MOST_THREADS ? threads : MHA_MOST_THREADS;
}

/* The pool lies behind the context, so that starting its threads takes no memory of the allocator. */
mha_status mha_context_make(mha_context **ctx, const mha_context_options *options, mha_choice choice)
{
    mha_allocator allocator = options->allocator;
    if (!allocator.allocate) allocator = (mha_allocator){default_allocate, default_release, NULL};
    int threads = count_threads(options), workers = options->parallel.run ? 0 : threads - 1;
    size_t own = mha_align_up(sizeof(mha_context)), bytes = own + mha_pool_bytes(workers);
    void *memory = allocator.allocate(allocator.user, bytes + MHA_ALIGNMENT);
    if (!memory) return MHA_NO_MEMORY;
    mha_context *made = align(memory);
    *made = (mha_context){.self = memory,
                          .allocator = allocator,
                          .memory = allocator,
                          .block = {.allocator = allocator},
                          .room = {.allocator = allocator},
                          .parallel = options->parallel,
                          .threads = threads,
                          .backend = choice.backend,
                          .isa = choice.isa,
                          .kernels = choice.kernels,
                          .engine = choice.engine};
    made->pool = mha_pool_make((char *)made + own, workers);
    *ctx = made;
    return MHA_OK;
}

void mha_context_free(mha_context *ctx)
{
    if (!ctx) return;
    mha_allocator allocator = ctx->allocator;
    if (ctx->backend->close) ctx->backend->close(ctx);
    mha_pool_end(ctx->pool);
    mha_memory_release(&ctx->block);
    mha_memory_release(&ctx->room);
    allocator.release(allocator.user, ctx->self);
}

const char *mha_context_error(const mha_context *ctx) { return ctx ? ctx->error : "ctx: is NULL"; }

int mha_context_threads(const mha_context *ctx) { return ctx ? ctx->threads : 0; }

size_t mha_context_scratch(const mha_context *ctx)
{
    if (!ctx) return 0;
    return ctx->block.capacity + ctx->room.capacity + (ctx->backend->scratch ? ctx->backend->scratch(ctx) : 0);
}

void mha_context_trim(mha_context *ctx)
{
    if (!ctx || ctx->room.keeps) return;
    mha_memory_release(&ctx->block);
    mha_memory_release(&ctx->room);
    ctx->scratch = NULL;
}

/* What a block has outgrown; the struct itself is memory of the host. */
struct mha_outgrown {
    struct mha_outgrown *next;
    mha_allocator allocator; /* of the struct */
    void *memory;
};

static mha_status outgrow(mha_context *ctx, mha_memory *block, size_t *bytes)
{
    if (!block->keeps || !block->memory) {
        mha_memory_release(block);
        return MHA_OK;
    }
    struct mha_outgrown *old = ctx->allocator.allocate(ctx->allocator.user, sizeof *old);
    if (!old) return mha_fail(ctx, MHA_NO_MEMORY, "the allocator has no %zu bytes", sizeof *old);
    *old = (struct mha_outgrown){block->outgrown, ctx->allocator, block->memory};
    if (*bytes < block->capacity + block->capacity / 2) *bytes = block->capacity + block->capacity / 2;
    block->outgrown = old;
    block->memory = block->start = NULL;
    block->capacity = 0;
    return MHA_OK;
}

mha_status mha_memory_reserve(mha_context *ctx, mha_memory *block, size_t bytes)
{
    size_t roomy = bytes;
    if (bytes <= block->capacity) return MHA_OK;
    TRY(outgrow(ctx, block, &roomy));
    block->memory = block->allocator.allocate(block->allocator.user, roomy);
    if (!block->memory && roomy > bytes)
        roomy = bytes, block->memory = block->allocator.allocate(block->allocator.user, roomy);
    if (!block->memory)
        return mha_fail(ctx, MHA_NO_MEMORY, "%s has no %zu bytes",
                        block->keeps ? ctx->backend->device : "the allocator", bytes);
    block->start = align(block->memory);
    block->capacity = roomy;
    return MHA_OK;
}

void mha_memory_release(mha_memory *block)
{
    if (block->memory) block->allocator.release(block->allocator.user, block->memory);
    for (struct mha_outgrown *old = block->outgrown, *next; old; old = next) {
        mha_allocator host = old->allocator;
        next = old->next;
        block->allocator.release(block->allocator.user, old->memory);
        host.release(host.user, old);
    }
    *block = (mha_memory){.allocator = block->allocator, .keeps = block->keeps};
}

mha_status mha_scratch_reserve(mha_context *ctx, size_t bytes)
{
    mha_status status = mha_memory_reserve(ctx, &ctx->block, bytes);
    ctx->scratch = ctx->block.start;
    return status;
}

void mha_context_run(mha_context *ctx, int tasks, void (*task)(void *arg, int index), void *arg)
{
    if (ctx && tasks > 0) mha_parallel_run(ctx, tasks, task, arg);
}

mha_status mha_context_fail(mha_context *ctx, mha_status status, const char *text)
{
    char line[sizeof ctx->error]; /* a copy: the text may be the context's own line */
    if (!ctx) return status;
    snprintf(line, sizeof line, "%s", text ? text : "");
    return mha_fail(ctx, status, "%s", line);
}

void mha_round_wait(mha_round *round)
{
    for (int tries = 0; atomic_load_explicit(&round->finished, memory_order_acquire) < round->queue.count; tries++)
        mha_pool_relax(tries);
}

void mha_parallel_run(mha_context *ctx, int tasks, void (*task)(void *arg, int index), void *arg)
{
    if (tasks == 1) task(arg, 0);
    else if (ctx->parallel.run) ctx->parallel.run(ctx->parallel.user, tasks, task, arg);
    else mha_pool_run(ctx->pool, tasks, task, arg);
}

typedef struct each {
    void (*task)(void *arg, int64_t n);
    void *arg;
    mha_queue queue;
} each;

static void each_task(void *arg, int index)
{
    each *e = arg;
    (void)index;
    for (int64_t n; (n = mha_queue_take(&e->queue)) >= 0;) e->task(e->arg, n);
}

void mha_parallel_each(mha_context *ctx, int64_t count, void (*task)(void *arg, int64_t n), void *arg)
{
    each e = {.task = task, .arg = arg, .queue.count = count};
    if (ctx->rehearsing || !count) return;
    mha_parallel_run(ctx, count < ctx->threads ? (int)count : ctx->threads, each_task, &e);
}

void mha_context_each(mha_context *ctx, int64_t count, void (*task)(void *arg, int64_t n), void *arg)
{
    if (ctx && count > 0) mha_parallel_each(ctx, count, task, arg);
}
