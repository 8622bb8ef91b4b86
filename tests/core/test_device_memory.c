/* Memory of a device: allocated, written, read, released, and refused. On the CPU, and with MHA_BACKEND=cuda on a GPU. */
#include "support/harness.h"

#include <mha.h>

/* A context of the device; NULL, with the reason, if there is none. */
static mha_context *make(mha_allocator allocator)
{
    static char why[200];
    const char *backend = getenv("MHA_BACKEND");
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    mha_context *ctx = NULL;
    options.device = backend && !strcmp(backend, "cuda") ? "cuda" : "cpu";
    options.threads = 1;
    options.allocator = allocator;
    options.error = why;
    options.error_size = sizeof why;
    if (mha_context_create(&ctx, &options)) not_given(why);
    return ctx;
}

static bool is_remote(const mha_context *ctx) { return strcmp(mha_context_device(ctx), "cpu") != 0; }

TEST(what_is_written_is_read)
{
    static const size_t sizes[] = {0, 1, 255, 4096, 3000001};
    mha_context *ctx = make((mha_allocator){NULL, NULL, NULL});
    for (int n = 0; ctx && n < 5; n++) {
        size_t bytes = sizes[n];
        unsigned char *here = calloc(2, bytes + 1), *back = here + bytes + 1;
        void *there = NULL;
        for (size_t i = 0; i < bytes; i++) here[i] = (unsigned char)(i % 251);
        expect(!mha_device_allocate(ctx, &there, bytes) && there, "%zu bytes: %s", bytes, mha_context_error(ctx));
        expect(!mha_device_write(ctx, there, here, bytes), "%s", mha_context_error(ctx));
        expect(!mha_device_wait(ctx), "%s", mha_context_error(ctx));
        expect(!mha_device_read(ctx, back, there, bytes), "%s", mha_context_error(ctx));
        expect(!memcmp(here, back, bytes) && !back[bytes], "%zu bytes differ", bytes);
        mha_device_release(ctx, there);
        free(here);
    }
    mha_context_free(ctx);
}

/* Calls with it are in order with the copies, also in the middle of a block. */
TEST(calls_use_it)
{
    enum { N = 1000, HALF = N / 2 };
    float here[N], back[N];
    mha_context *ctx = make((mha_allocator){NULL, NULL, NULL});
    void *there = NULL;
    for (int i = 0; i < N; i++) here[i] = (float)(i % 251), back[i] = 0;
    if (!ctx) return;
    expect(!mha_device_allocate(ctx, &there, sizeof here) && !mha_device_write(ctx, there, here, sizeof here), "%s",
           mha_context_error(ctx));
    float *second = (float *)there + HALF;
    expect(!mha_tensor_copy(ctx, mha_tensor_1d(second, MHA_FLOAT32, HALF), mha_tensor_1d(there, MHA_FLOAT32, HALF)),
           "%s", mha_context_error(ctx));
    expect(!mha_device_read(ctx, back, second, HALF * sizeof *back), "%s", mha_context_error(ctx));
    expect(!memcmp(here, back, HALF * sizeof *back), "the copy differs");
    mha_device_release(ctx, there);
    mha_context_free(ctx);
}

TEST(what_is_wrong_is_refused)
{
    mha_context *ctx = make((mha_allocator){NULL, NULL, NULL});
    char here[16] = {0};
    void *there = NULL;
    if (!ctx) return;
    expect(mha_device_allocate(NULL, &there, 1) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_device_write(NULL, here, here, 1) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_device_wait(NULL) == MHA_BAD_ARGUMENT, "no context");
    mha_device_release(NULL, here);
    mha_device_release(ctx, NULL);
    expect(mha_device_allocate(ctx, NULL, 1) == MHA_BAD_ARGUMENT && strstr(mha_context_error(ctx), "memory"), "%s",
           mha_context_error(ctx));
    expect(mha_device_write(ctx, NULL, here, 1) == MHA_BAD_ARGUMENT && !strcmp(mha_context_error(ctx), "to: is NULL"),
           "%s", mha_context_error(ctx));
    expect(mha_device_read(ctx, here, NULL, 1) == MHA_BAD_ARGUMENT && !strcmp(mha_context_error(ctx), "from: is NULL"),
           "%s", mha_context_error(ctx));
    if (is_remote(ctx)) {
        expect(mha_device_write(ctx, here, here, 1) == MHA_BAD_ARGUMENT &&
                   strstr(mha_context_error(ctx), "to: data is memory of the host"),
               "%s", mha_context_error(ctx));
        expect(mha_device_read(ctx, here, here, 1) == MHA_BAD_ARGUMENT, "memory of the host was read");
    }
    expect(!mha_device_wait(ctx) && !*mha_context_error(ctx), "%s", mha_context_error(ctx));
    mha_context_free(ctx);
}

enum { TOO_MUCH = 1 << 30 };

static void *count_allocation(void *user, size_t bytes)
{
    if (bytes >= TOO_MUCH) return NULL;
    ++*(int *)user;
    return malloc(bytes);
}

static void count_release(void *user, void *memory)
{
    --*(int *)user;
    free(memory);
}

TEST(on_the_cpu_it_comes_from_the_allocator)
{
    int blocks = 0;
    mha_context *ctx = make((mha_allocator){count_allocation, count_release, &blocks});
    void *there = NULL;
    if (!ctx) return;
    int before = blocks, more = is_remote(ctx) ? 0 : 1;
    expect(!mha_device_allocate(ctx, &there, 10) && blocks == before + more, "%d blocks, then %d", before, blocks);
    mha_device_release(ctx, there);
    expect(blocks == before, "%d blocks, then %d", before, blocks);
    size_t much = is_remote(ctx) ? (size_t)PTRDIFF_MAX / 2 : TOO_MUCH;
    expect(mha_device_allocate(ctx, &there, much) == MHA_NO_MEMORY && !there, "%s", mha_context_error(ctx));
    mha_context_free(ctx);
    expect(!blocks, "%d blocks are left", blocks);
}
