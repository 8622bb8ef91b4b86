/* Status names, version, instruction sets and the life of a context. */
#include "support/contexts.h"
#include "support/harness.h"

#include <stdlib.h>

TEST(status_names)
{
    const char *names[] = {"MHA_OK",        "MHA_BAD_ARGUMENT", "MHA_BAD_SHAPE",   "MHA_BAD_TYPE", "MHA_OVERLAP",
                           "MHA_TOO_LARGE", "MHA_NO_MEMORY",    "MHA_NO_ISA",      "MHA_FULL",     "MHA_NO_DEVICE",
                           "MHA_BAD_FILE",  "MHA_UNSUPPORTED",  "MHA_DEVICE_ERROR"};
    for (int n = 0; n < 13; n++)
        expect(!strcmp(mha_status_name((mha_status)n), names[n]), "%d is %s", n, mha_status_name((mha_status)n));
    const int others[] = {-1, 13, 1000, INT32_MIN, INT32_MAX};
    for (int n = 0; n < 5; n++)
        expect(!strcmp(mha_status_name((mha_status)others[n]), "unknown status"), "%d has a name", others[n]);
    expect(MHA_OK == 0 && MHA_OVERLAP == 4 && MHA_NO_ISA == 7 && MHA_FULL == 8 && MHA_NO_DEVICE == 9 &&
               MHA_BAD_FILE == 10 && MHA_UNSUPPORTED == 11 && MHA_DEVICE_ERROR == 12,
           "the values are pinned");
}

TEST(version_of_header_and_library)
{
    char version[40];
    snprintf(version, sizeof version, "%d.%d.%d", MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH);
    expect(!strcmp(mha_version(), version), "the library is %s, the header %s", mha_version(), version);
}

/* ---- Instruction sets ------------------------------------------------------------------------------------------- */

TEST(instruction_sets)
{
    int count = mha_isa_count();
    const char *best = NULL;
    expect(count >= 4, "%d instruction sets", count);
    expect(!strcmp(mha_isa_get(0).name, "scalar") && mha_isa_get(0).available, "scalar is first, and everywhere");
    for (int n = 0; n < count; n++) {
        mha_isa isa = mha_isa_get(n);
        expect(isa.name && isa.needs, "instruction set %d has no text", n);
        expect(isa.built || !isa.available, "%s is available but not built", isa.name);
        for (int other = 0; other < n; other++)
            expect(strcmp(isa.name, mha_isa_get(other).name) != 0, "%s is there twice", isa.name);
        if (isa.available) best = isa.name;
    }
    expect(!mha_isa_get(-1).name && !mha_isa_get(count).name && !mha_isa_get(INT32_MAX).name, "out of range");
    unsetenv("MHA_ISA");
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    expect(!strcmp(mha_context_isa(ctx), best), "uses %s, the best is %s", mha_context_isa(ctx), best);
    mha_context_free(ctx);
}

/* Compiled for a machine of the other kind, these must be known and not available. */
TEST(instruction_sets_of_other_machines)
{
#if defined(__aarch64__)
    const char *here[] = {"neon"}, *elsewhere[] = {"avx2", "avx512", "wasm"};
#elif defined(__x86_64__)
    const char *here[] = {"avx2", "avx512"}, *elsewhere[] = {"neon", "wasm"};
#elif defined(__wasm__)
    const char *here[] = {"wasm"}, *elsewhere[] = {"neon", "avx2", "avx512"};
#else
    const char *here[] = {"scalar"}, *elsewhere[] = {"neon"};
#endif
    for (int n = 0; n < mha_isa_count(); n++) {
        mha_isa isa = mha_isa_get(n);
        for (size_t i = 0; i < sizeof here / sizeof *here; i++)
            if (!strcmp(isa.name, here[i])) expect(isa.built, "%s is not in this build", isa.name);
        for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++)
            if (!strcmp(isa.name, elsewhere[i])) expect(!isa.available, "%s cannot be here", isa.name);
    }
}

/* Asks for an instruction set by option and by variable; NULL: not given. */
static mha_status ask(const char *option, const char *variable, char *reason, size_t size, char *used)
{
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = (mha_context *)reason; /* must become NULL on error */
    options.isa = option;
    options.threads = 1;
    options.error = reason;
    options.error_size = size;
    if (variable) setenv("MHA_ISA", variable, 1);
    mha_status status = mha_context_create(&ctx, &options);
    unsetenv("MHA_ISA");
    used[0] = 0;
    if (status) {
        expect(!ctx, "failed, but gave a context");
        return status;
    }
    snprintf(used, 40, "%s", mha_context_isa(ctx));
    mha_context_free(ctx);
    return status;
}

TEST(forcing_an_instruction_set)
{
    char reason[200] = "", used[40];
    for (int n = 0; n < mha_isa_count(); n++) {
        mha_isa isa = mha_isa_get(n);
        for (int by_variable = 0; by_variable < 2; by_variable++) {
            const char *option = by_variable ? NULL : isa.name, *variable = by_variable ? isa.name : NULL;
            mha_status status = ask(option, variable, reason, sizeof reason, used);
            if (isa.available)
                expect(!status && !strcmp(used, isa.name), "asked for %s, got %s (%s)", isa.name, used, reason);
            else
                expect(status == MHA_NO_ISA && strstr(reason, isa.name), "%s: %s: %s", isa.name,
                       mha_status_name(status), reason);
        }
    }
    expect(!ask("scalar", "no-such-set", reason, sizeof reason, used) && !strcmp(used, "scalar"),
           "the option goes before the variable: %s", reason);
}

TEST(unknown_instruction_sets)
{
    const char *names[] = {"sse9", "Scalar", "neon2", " scalar", "avx"};
    char reason[200], used[40];
    for (int n = 0; n < 5; n++) {
        reason[0] = 0;
        expect(ask(names[n], NULL, reason, sizeof reason, used) == MHA_NO_ISA, "%s was accepted", names[n]);
        expect(strstr(reason, names[n]) && !strchr(reason, '\n'), "'%s' does not name %s", reason, names[n]);
        reason[0] = 0;
        expect(ask(NULL, names[n], reason, sizeof reason, used) == MHA_NO_ISA, "MHA_ISA=%s was accepted", names[n]);
        expect(strstr(reason, names[n]) != NULL, "'%s' does not name %s", reason, names[n]);
    }
}

/* The reason is cut to what fits, and ends. */
TEST(short_buffers_for_the_reason)
{
    char used[40];
    for (size_t size = 0; size < 20; size++) {
        char reason[32];
        memset(reason, '#', sizeof reason);
        expect(ask("no-such-instruction-set", NULL, reason, size, used) == MHA_NO_ISA, "accepted");
        expect(size == 0 || memchr(reason, 0, size), "size %zu: no end", size);
        for (size_t n = size; n < sizeof reason; n++) expect(reason[n] == '#', "size %zu: wrote byte %zu", size, n);
    }
    expect(ask("no-such-instruction-set", NULL, NULL, 100, used) == MHA_NO_ISA, "no buffer, but a size");
}

/* ---- Options ---------------------------------------------------------------------------------------------------- */

static mha_status create(mha_context_options options, char *reason, size_t size)
{
    mha_context *ctx = (mha_context *)reason;
    reason[0] = 0;
    options.error = reason;
    options.error_size = size;
    mha_status status = mha_context_create(&ctx, &options);
    if (status) expect(!ctx, "failed, but gave a context");
    if (!status) mha_context_free(ctx);
    return status;
}

TEST(bad_options_of_a_context)
{
    char reason[200];
    ledger memory = ledger_make();
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    expect(mha_context_create(NULL, NULL) == MHA_BAD_ARGUMENT, "nowhere to put it");
    options.threads = -1;
    expect(create(options, reason, sizeof reason) == MHA_BAD_ARGUMENT, "minus one thread");
    expect(strstr(reason, "threads") != NULL, "'%s' does not name threads", reason);
    options = (mha_context_options)MHA_CONTEXT_DEFAULTS;
    options.allocator = ledger_allocator(&memory);
    options.allocator.release = NULL;
    expect(create(options, reason, sizeof reason) == MHA_BAD_ARGUMENT, "memory that cannot be given back");
    expect(strstr(reason, "release") || strstr(reason, "allocator"), "'%s' names nothing", reason);
    options.allocator.release = ledger_allocator(&memory).release;
    options.allocator.allocate = NULL;
    expect(create(options, reason, sizeof reason) == MHA_BAD_ARGUMENT, "memory that cannot be had");
    expect(!memory.calls, "it was used nevertheless");
}

TEST(threads_of_a_context)
{
    mha_context *ctx = context_make(NULL, 0, (mha_parallel){NULL, NULL}, NULL);
    expect(mha_context_threads(ctx) >= 1, "%d threads", mha_context_threads(ctx));
    mha_context_free(ctx);
    ctx = context_make(NULL, 0, parallel_pthreads(), NULL);
    expect(mha_context_threads(ctx) == 1, "%d threads with a loop of one's own", mha_context_threads(ctx));
    mha_context_free(ctx);
    ctx = context_make(NULL, 5, parallel_pthreads(), NULL);
    expect(mha_context_threads(ctx) == 5, "%d threads, not 5", mha_context_threads(ctx));
    mha_context_free(ctx);
}

TEST(defaults_are_what_no_options_mean)
{
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *a = NULL, *b = NULL;
    expect(!mha_context_create(&a, NULL) && !mha_context_create(&b, &options), "no context");
    expect(!strcmp(mha_context_isa(a), mha_context_isa(b)), "unlike instruction sets");
    expect(mha_context_threads(a) == mha_context_threads(b), "unlike threads");
    expect(!mha_context_error(a)[0], "a new context complains: %s", mha_context_error(a));
    mha_context_free(a);
    mha_context_free(b);
    mha_context_free(NULL);
    mha_attention_options attention = MHA_ATTENTION_DEFAULTS;
    expect(isnan(attention.scale) && attention.window_left == -1 && attention.window_right == -1, "attention");
    mha_rotary_options rotary = MHA_ROTARY_DEFAULTS;
    expect(!rotary.width && !rotary.interleaved && !rotary.positions.data, "rotary");
}

TEST(the_error_is_that_of_the_last_call)
{
    float x[4] = {1, 2, 3, 4}, y[4];
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    mha_tensor in = mha_tensor_4d(x, MHA_FLOAT32, 1, 1, 2, 2), out = mha_tensor_4d(y, MHA_FLOAT32, 1, 1, 2, 2);
    mha_tensor wrong = mha_tensor_4d(x, MHA_BOOL, 1, 1, 2, 2);
    expect(mha_attention_forward(ctx, out, NULL, wrong, in, in, NULL) == MHA_BAD_TYPE, "accepted");
    expect(mha_context_error(ctx)[0] != 0, "no message");
    expect(!mha_attention_forward(ctx, out, NULL, in, in, in, NULL), "%s", mha_context_error(ctx));
    expect(!mha_context_error(ctx)[0], "still '%s'", mha_context_error(ctx));
    mha_context_trim(ctx);
    mha_context_trim(ctx);
    expect(mha_context_scratch(ctx) == 0, "%zu bytes after trim", mha_context_scratch(ctx));
    mha_context_free(ctx);
}

TEST(messages_of_libraries_above)
{
    char text[700], want[512];
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    snprintf(want, sizeof want, "%.511s", text);
    expect(mha_context_fail(ctx, MHA_BAD_SHAPE, "a model has %d layers") == MHA_BAD_SHAPE, "another status");
    expect(strcmp(mha_context_error(ctx), "a model has %d layers") == 0, "'%s'", mha_context_error(ctx));
    mha_context_fail(ctx, MHA_FULL, mha_context_error(ctx)); /* the same line with another status */
    expect(strcmp(mha_context_error(ctx), "a model has %d layers") == 0, "its own line: '%s'", mha_context_error(ctx));
    mha_context_fail(ctx, MHA_BAD_SHAPE, text);
    expect(strcmp(mha_context_error(ctx), want) == 0, "cut to %zu bytes", strlen(mha_context_error(ctx)));
    mha_context_fail(ctx, MHA_BAD_SHAPE, NULL);
    expect(!*mha_context_error(ctx), "'%s'", mha_context_error(ctx));
    expect(mha_context_fail(NULL, MHA_FULL, "x") == MHA_FULL, "no context");
    mha_context_free(ctx);
}

static void count(void *arg, int index) { ((int *)arg)[index]++; }
static void count_each(void *arg, int64_t n) { ((int *)arg)[n]++; }

TEST(loops_of_the_caller)
{
    for (int threads = 1; threads <= 4; threads++) {
        mha_context *ctx =
            context_make(NULL, threads, threads == 4 ? parallel_reversed() : (mha_parallel){NULL, NULL}, NULL);
        int counts[100] = {0};
        mha_context_run(ctx, 100, count, counts);
        mha_context_run(ctx, 0, count, counts);
        mha_context_run(ctx, -1, count, counts);
        mha_context_run(NULL, 100, count, counts);
        for (int n = 0; n < 100; n++) expect(counts[n] == 1, "task %d ran %d times", n, counts[n]);
        mha_context_each(ctx, 100, count_each, counts);
        mha_context_each(ctx, 0, count_each, counts);
        mha_context_each(ctx, -1, count_each, counts);
        mha_context_each(NULL, 100, count_each, counts);
        for (int n = 0; n < 100; n++) expect(counts[n] == 2, "number %d came %d times", n, counts[n] - 1);
        mha_context_free(ctx);
    }
}

/* The last task first and alone: rounds must not wait for a task that has not begun. */
static void run_and_count(void *user, int tasks, void (*task)(void *arg, int index), void *arg)
{
    ++*(int *)user;
    for (int n = tasks - 1; n >= 0; n--) task(arg, n);
}

TEST(an_attention_call_is_one_loop) /* each loop waits for every thread, which may not have a processor */
{
    enum { KEYS = 4096, D = 16 };
    int loops = 0;
    mha_context *ctx = context_make(NULL, 4, (mha_parallel){run_and_count, &loops}, NULL);
    float *memory = calloc((size_t)5 * KEYS * D, sizeof *memory);
    mha_tensor k = mha_tensor_4d(memory, MHA_FLOAT32, 1, 1, KEYS, D);
    mha_tensor out = mha_tensor_4d(memory + KEYS * D, MHA_FLOAT32, 1, 1, KEYS, D);
    for (int64_t rows = 1; rows <= KEYS; rows += KEYS - 1) { /* one row is cut along its keys, and then merged */
        mha_tensor q = k, to = out;
        q.size[2] = to.size[2] = rows;
        loops = 0;
        mha_status status = mha_attention_forward(ctx, to, NULL, q, k, k, NULL);
        expect(!status && loops == 1, "forward, %lld rows: %d loops", (long long)rows, loops);
        mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
        gradients.q = gradients.k = gradients.v = k;
        gradients.q.data = memory + 2 * KEYS * D, gradients.k.data = memory + 3 * KEYS * D;
        gradients.v.data = memory + 4 * KEYS * D, gradients.q.size[2] = rows;
        mha_attention_saved saved = {q, k, k, to, MHA_NO_TENSOR};
        loops = 0;
        status = mha_attention_backward(ctx, &gradients, &saved, to, (mha_tensor)MHA_NO_TENSOR, NULL);
        expect(!status && loops == 1, "backward, %lld rows: %d loops", (long long)rows, loops);
    }
    free(memory);
    mha_context_free(ctx);
}
