/* A block of the allocator: a header of 32 bytes with size and owner, one byte that makes the address odd, the memory,
 * sixteen bytes that nobody may touch. */
#include "support/contexts.h"
#include "core/context.h"
#include "support/naive_backend.h"
#ifdef MHA_TESTS_HAVE_CUDA
#include "cuda/mirror.h"
#endif

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The device of the contexts of this run. */
static const char *device(void)
{
    const char *wanted = getenv("MHA_BACKEND");
    return wanted ? wanted : "cpu";
}

const char *isa_next(const char *name)
{
    enum { MOST = 16 };
    const char *wanted = getenv("MHA_ISAS"), *names[MOST];
    int first = 0, count = 0;
    if (!strcmp(device(), "naive")) return name ? NULL : "naive";
    if (!strcmp(device(), "cuda")) return name ? NULL : "sm_90a";
    for (int n = 0; n < mha_isa_count() && count < MOST; n++)
        if (mha_isa_get(n).available) names[count++] = mha_isa_get(n).name;
    if (wanted && !strcmp(wanted, "best")) first = count - 1;
    if (wanted && !strcmp(wanted, "vector") && count > 1) first = 1; /* plain C is the first and always there */
    if (!name) return names[first];
    for (int n = first; n < count - 1; n++)
        if (!strcmp(names[n], name)) return names[n + 1];
    return NULL;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

enum { HEADER = 33, GUARD = 16, GUARD_BYTE = 0xA5 };

typedef struct block {
    size_t size;
    ledger *owner;
} block;

static _Thread_local bool inside_task;

static void *allocate(void *user, size_t bytes)
{
    ledger *m = user;
    if (inside_task) m->misuses++;
    if (m->calls++ == m->fail_at) return NULL;
    unsigned char *base = malloc(HEADER + bytes + GUARD);
    if (!base) return NULL;
    block header = {bytes, m};
    memcpy(base, &header, sizeof header);
    memset(base + HEADER, 0xFF, bytes);
    memset(base + HEADER + bytes, GUARD_BYTE, GUARD);
    m->live++;
    m->bytes += (int64_t)bytes;
    return base + HEADER;
}

static void release(void *user, void *address)
{
    ledger *m = user;
    unsigned char *base = (unsigned char *)address - HEADER;
    block header;
    memcpy(&header, base, sizeof header);
    if (inside_task || header.owner != m) m->misuses++;
    for (int n = 0; n < GUARD; n++)
        if (base[HEADER + header.size + (size_t)n] != GUARD_BYTE) m->misuses++;
    m->live--;
    m->bytes -= (int64_t)header.size;
    free(base);
}

ledger ledger_make(void) { return (ledger){.fail_at = -1}; }

mha_allocator ledger_allocator(ledger *m) { return (mha_allocator){allocate, release, m}; }

/* ---- Parallel loops --------------------------------------------------------------------------------------------- */

typedef struct job {
    void (*task)(void *arg, int index);
    void *arg;
    int index;
} job;

static void *run_job(void *argument)
{
    job *j = argument;
    inside_task = true;
    j->task(j->arg, j->index);
    inside_task = false;
    return NULL;
}

static void run_pthreads(void *user, int tasks, void (*task)(void *arg, int index), void *arg)
{
    (void)user;
    pthread_t *threads = malloc((size_t)tasks * sizeof *threads + 1);
    job *jobs = malloc((size_t)tasks * sizeof *jobs + 1);
    if (!threads || !jobs) abort();
    for (int n = 0; n < tasks; n++) {
        jobs[n] = (job){task, arg, n};
        if (pthread_create(&threads[n], NULL, run_job, &jobs[n])) abort();
    }
    for (int n = 0; n < tasks; n++) pthread_join(threads[n], NULL);
    free(threads);
    free(jobs);
}

static void run_reversed(void *user, int tasks, void (*task)(void *arg, int index), void *arg)
{
    (void)user;
    for (int n = tasks - 1; n >= 0; n--) run_job(&(job){task, arg, n});
}

mha_parallel parallel_pthreads(void) { return (mha_parallel){run_pthreads, NULL}; }

mha_parallel parallel_reversed(void) { return (mha_parallel){run_reversed, NULL}; }

/* ---- Contexts --------------------------------------------------------------------------------------------------- */

static mha_status make(mha_context **ctx, const char *on, const mha_context_options *options)
{
    const mha_choice naive = {&naive_backend, "naive", NULL, NULL};
    if (!strcmp(on, "cpu")) return mha_context_create(ctx, options);
    if (!strcmp(on, "naive")) return mha_context_make(ctx, options, naive);
#ifdef MHA_TESTS_HAVE_CUDA
    if (!strcmp(on, "cuda")) return mirror_context(ctx, options);
#endif
    snprintf(options->error, options->error_size, "there is no device called '%s'", on);
    return MHA_BAD_ARGUMENT;
}

mha_context *context_make_on(const char *on, const char *isa, int threads, mha_parallel parallel, ledger *m)
{
    char reason[200] = "";
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.isa = isa;
    options.threads = threads;
    options.parallel = parallel;
    if (m) options.allocator = ledger_allocator(m);
    options.error = reason;
    options.error_size = sizeof reason;
    mha_context *ctx;
    if (make(&ctx, on, &options)) {
        printf("    no context for %s with %d threads: %s\n", isa ? isa : "the best instruction set", threads, reason);
        exit(1);
    }
    return ctx;
}

mha_context *context_make(const char *isa, int threads, mha_parallel parallel, ledger *m)
{
    return context_make_on(device(), isa, threads, parallel, m);
}
