/* Contexts that watch the library: an allocator that poisons, counts, fails on demand and looks for overruns, and two
 * ways to run parallel loops that the library's own threads would never choose. */
#ifndef CONTEXTS_H
#define CONTEXTS_H

#include <mha.h>

/* Runs its body for each instruction set that this machine has; `isa` is the name. With MHA_ISAS=best in the environment,
 * for the best of them alone: threads share memory in the same way whatever the instructions are. */
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

/* Exits with a message if there is none: every test needs its context. `m` may be NULL, `parallel` all zero. */
mha_context *context_make(const char *isa, int threads, mha_parallel parallel, ledger *m);

#endif
