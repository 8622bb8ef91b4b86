/* Contexts that watch the library: an allocator that poisons, counts, fails on demand and looks for overruns, and two
 * ways to run parallel loops that the library's own threads would never choose.
 *
 * With MHA_BACKEND=naive in the environment, contexts belong to the naive device (naive_backend.h) in place of the CPU.
 * They have no kernels, so that whatever goes past the device's table of operations fails at once. With MHA_BACKEND=cuda,
 * attention runs on a GPU (cuda/mirror.h). */
#ifndef CONTEXTS_H
#define CONTEXTS_H

#include <mha.h>

/* Runs its body for each instruction set that this machine has; `isa` is the name. With MHA_ISAS=best in the environment,
 * for the best of them alone: threads share memory in the same way whatever the instructions are. With MHA_ISAS=vector, for
 * all but plain C. The naive device has no instruction sets: its one name is "naive"; that of a GPU is "sm_90a". */
#define for_each_isa(isa) for (const char *isa = isa_next(NULL); isa; isa = isa_next(isa))

/* The first available instruction set after `name`, NULL at the end. */
const char *isa_next(const char *name);

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

typedef struct ledger {
    int64_t fail_at; /* the call of `allocate` that returns NULL, counted from 0; -1: none */
    int64_t calls;   /* of allocate */
    int64_t live;    /* blocks not released */
    int64_t bytes;   /* in those blocks */
    int64_t misuses; /* overruns, releases of foreign memory, calls from inside a parallel loop */
} ledger;

/* Starts a count. Blocks are full of 0xFF, which is NaN in every float type, and begin at an odd address: "any
 * alignment will do". */
ledger ledger_make(void);
mha_allocator ledger_allocator(ledger *m);

/* ---- Parallel loops --------------------------------------------------------------------------------------------- */

mha_parallel parallel_pthreads(void); /* one thread a task */
mha_parallel parallel_reversed(void); /* one after another, the last first */

/* ---- Contexts --------------------------------------------------------------------------------------------------- */

/* Exits with a message if there is none: every test needs its context. `isa` may be NULL for the best, `m` NULL,
 * `parallel` all zero. */
mha_context *context_make(const char *isa, int threads, mha_parallel parallel, ledger *m);

/* The same on the device that is named, "cpu" or "naive", whatever the environment says. */
mha_context *context_make_on(const char *device, const char *isa, int threads, mha_parallel parallel, ledger *m);

#endif
