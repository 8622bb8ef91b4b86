/* The same call for every number of threads and with every kind of parallel loop: its outputs have the same bits. */
#ifndef EVERYWHERE_H
#define EVERYWHERE_H

#include "support/contexts.h"
#include "support/harness.h"

/* A call that can be repeated. */
typedef struct repeated {
    void *call;
    mha_status (*run)(void *call, mha_context *ctx);
    unsigned char *(*bytes)(const void *call, size_t *size); /* of all outputs; to be freed */
    void (*describe)(const void *call, char *text, size_t size);
} repeated;

static inline void expect_same_bytes(const repeated *r, mha_context *ctx, const unsigned char *want, size_t want_size,
                                     const char *what)
{
    size_t size;
    char text[1400];
    r->describe(r->call, text, sizeof text);
    if (!expect(!r->run(r->call, ctx), "%s: %s\n      %s", what, mha_context_error(ctx), text)) return;
    unsigned char *got = r->bytes(r->call, &size);
    expect(size == want_size && !memcmp(got, want, size), "%s, %s: not the bits of one thread\n      %s",
           mha_context_isa(ctx), what, text);
    free(got);
}

/* One thread first; then every count with every kind of loop; with 3 threads twice, in memory that the first run used. */
static inline void expect_same_everywhere(const repeated *r, const char *isa)
{
    const int counts[] = {1, 2, 3, 7};
    const char *loops[] = {"pthreads", "reversed", "own pool"};
    size_t size;
    mha_context *alone = context_make(isa, 1, (mha_parallel){NULL, NULL}, NULL);
    expect(!r->run(r->call, alone), "%s", mha_context_error(alone));
    unsigned char *want = r->bytes(r->call, &size);
    expect_same_bytes(r, alone, want, size, "one thread, again");
    mha_context_free(alone);
    for (int loop = 0; loop < 3; loop++)
        for (int n = 0; n < 4; n++) {
            char what[60];
            ledger memory = ledger_make();
            mha_parallel parallel = {NULL, NULL};
            if (loop == 0) parallel = parallel_pthreads();
            if (loop == 1) parallel = parallel_reversed();
            mha_context *ctx = context_make(isa, counts[n], parallel, &memory);
            snprintf(what, sizeof what, "%s x %d", loops[loop], counts[n]);
            expect(mha_context_threads(ctx) == counts[n], "%s: %d threads", what, mha_context_threads(ctx));
            for (int run = 0; run < (counts[n] == 3 ? 2 : 1); run++) expect_same_bytes(r, ctx, want, size, what);
            mha_context_free(ctx);
            expect(!memory.misuses && !memory.live, "%s: memory misused", what);
        }
    free(want);
}

#endif
