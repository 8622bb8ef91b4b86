#include "cuda/device/device.h"
#include "cuda/kernels/rows.h"

/* ---- Errors and contexts ---------------------------------------------------------------------------------------- */

mha_status mha_cuda_check(mha_context *ctx, CUresult result, const char *what)
{
    if (!result) return MHA_OK;
    const mha_cuda_device *d = mha_cuda_of(ctx);
    return mha_fail(ctx, result == CUDA_ERROR_OUT_OF_MEMORY ? MHA_NO_MEMORY : MHA_DEVICE_ERROR, "cuda:%d: %s: %s",
                    d->ordinal, what, mha_cuda_error_text(&d->driver, result));
}

mha_status mha_cuda_enter(mha_context *ctx)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    return mha_cuda_check(ctx, d->driver.cuCtxPushCurrent(d->context), "cannot use its context");
}

void mha_cuda_leave(mha_context *ctx)
{
    CUcontext ignored;
    mha_cuda_of(ctx)->driver.cuCtxPopCurrent(&ignored);
}

/* Allocation is refused while the thread captures a stream, unless its mode is relaxed: what is allocated here belongs to
 * the context, not to the graph. Calling it twice restores the mode. */
static CUstreamCaptureMode exchange(const mha_cuda_driver *driver, CUstreamCaptureMode mode)
{
    driver->cuThreadExchangeStreamCaptureMode(&mode);
    return mode;
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* The counters are 0 before any stream uses them. */
static mha_status make_counters(mha_context *ctx, mha_cuda_device *d)
{
    CUstream stream;
    TRY(mha_cuda_check(ctx, d->driver.cuMemAlloc(&d->counter, 4 * (size_t)MHA_CUDA_COUNTERS),
                       "has no memory for counters"));
    TRY(mha_cuda_check(ctx, d->driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cannot make a stream"));
    CUresult result = d->driver.cuMemsetD32Async(d->counter, 0, MHA_CUDA_COUNTERS, stream);
    if (!result) result = d->driver.cuStreamSynchronize(stream);
    d->driver.cuStreamDestroy(stream);
    return mha_cuda_check(ctx, result, "cannot clear its memory");
}

static mha_status load_and_clear(mha_context *ctx, mha_cuda_device *d, mha_cuda_shared_memory *shared)
{
    TRY(mha_cuda_load_kernels(ctx, shared));
    return make_counters(ctx, d);
}

mha_status mha_cuda_device_open(mha_context *ctx, int ordinal, void *stream, mha_cuda_shared_memory *shared)
{
    mha_cuda_driver driver;
    mha_status status = mha_cuda_driver_open(&driver, ctx->error, sizeof ctx->error);
    if (!status) status = mha_cuda_describe(&driver, ordinal, ctx->error, sizeof ctx->error);
    if (status) return status == MHA_UNSUPPORTED ? MHA_NO_DEVICE : status;
    mha_succeed(ctx);
    mha_cuda_device *d = ctx->allocator.allocate(ctx->allocator.user, sizeof *d + MHA_ALIGNMENT);
    if (!d) return mha_fail(ctx, MHA_NO_MEMORY, "allocator: has no memory for a context");
    void *self = d;
    d = (mha_cuda_device *)(void *)((char *)self + (MHA_ALIGNMENT - (uintptr_t)self % MHA_ALIGNMENT) % MHA_ALIGNMENT);
    *d = (mha_cuda_device){.self = self, .driver = driver, .ordinal = ordinal, .stream = stream};
    ctx->device = d;
    ctx->memory = mha_cuda_allocator(ordinal);
    ctx->room = mha_device_memory(ctx);
    TRY(mha_cuda_check(ctx, driver.cuDeviceGet(&d->device, ordinal), "cannot be opened"));
    TRY(mha_cuda_check(ctx,
                       driver.cuDeviceGetAttribute(&d->processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, d->device),
                       "cannot be opened"));
    CUcontext context;
    TRY(mha_cuda_check(ctx, driver.cuDevicePrimaryCtxRetain(&context, d->device), "has no context"));
    d->context = context;
    TRY(mha_cuda_enter(ctx));
    CUstreamCaptureMode mode = exchange(&driver, CU_STREAM_CAPTURE_MODE_RELAXED);
    status = load_and_clear(ctx, d, shared);
    exchange(&driver, mode);
    mha_cuda_leave(ctx);
    return status;
}

void mha_cuda_op_close(mha_context *ctx)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    if (!d) return;
    const mha_cuda_driver *driver = &d->driver;
    if (d->context && !driver->cuCtxPushCurrent(d->context)) {
        CUstreamCaptureMode mode = exchange(driver, CU_STREAM_CAPTURE_MODE_RELAXED);
        driver->cuCtxSynchronize();
        for (int n = 0; n < d->block_count; n++) driver->cuMemFree(d->blocks[n]);
        if (d->counter) driver->cuMemFree(d->counter);
        for (int n = 0; n < MHA_CUDA_MODULE_COUNT; n++)
            if (d->modules[n]) driver->cuModuleUnload(d->modules[n]);
        exchange(driver, mode);
        mha_cuda_leave(ctx);
    }
    if (d->context) driver->cuDevicePrimaryCtxRelease(d->device);
    ctx->device = NULL;
    ctx->allocator.release(ctx->allocator.user, d->self);
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

size_t mha_cuda_op_scratch(const mha_context *ctx) { return ctx->device ? mha_cuda_of(ctx)->total : 0; }

mha_status mha_cuda_op_check_memory(mha_context *ctx, mha_tensor t, const char *name)
{
    const mha_cuda_device *d = mha_cuda_of(ctx);
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)t.data;
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    unsigned kind = 0, managed = 0;
    int ordinal = d->ordinal;
    void *values[] = {&kind, &managed, &ordinal};
    /* For memory that the driver does not know all are 0: the query of a single one is an error then, which tools report. */
    CUresult result = d->driver.cuPointerGetAttributes(3, names, values, address);
    if (result && result != CUDA_ERROR_INVALID_VALUE) return mha_cuda_check(ctx, result, name);
    if (result || !kind || kind == CU_MEMORYTYPE_HOST)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: data is memory of the host, must be memory of cuda:%d", name,
                        d->ordinal);
    if (!managed && ordinal != d->ordinal)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: data is memory of cuda:%d, must be memory of cuda:%d", name,
                        ordinal, d->ordinal);
    return MHA_OK;
}

/* A copy goes into the stream, behind the calls before it; the host's memory may be pageable, so it is waited for. */
static mha_status transfer(mha_context *ctx, CUdeviceptr to, void *host, CUdeviceptr from, const void *given,
                           size_t bytes)
{
    const mha_cuda_device *d = mha_cuda_of(ctx);
    TRY(mha_cuda_enter(ctx));
    CUresult result = CUDA_SUCCESS;
    if (given) result = d->driver.cuMemcpyHtoDAsync(to, given, bytes, d->stream);
    if (host) result = d->driver.cuMemcpyDtoHAsync(host, from, bytes, d->stream);
    if (!result) result = d->driver.cuStreamSynchronize(d->stream);
    mha_cuda_leave(ctx);
    return mha_cuda_check(ctx, result, bytes ? "cannot copy" : "a call failed");
}

mha_status mha_cuda_op_write(mha_context *ctx, void *to, const void *from, size_t bytes)
{
    return transfer(ctx, (CUdeviceptr)(uintptr_t)to, NULL, 0, from, bytes);
}

mha_status mha_cuda_op_read(mha_context *ctx, void *to, const void *from, size_t bytes)
{
    return transfer(ctx, 0, to, (CUdeviceptr)(uintptr_t)from, NULL, bytes);
}

mha_status mha_cuda_captures(mha_context *ctx, bool *yes)
{
    const mha_cuda_device *d = mha_cuda_of(ctx);
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    TRY(mha_cuda_enter(ctx));
    mha_status status = mha_cuda_check(ctx, d->driver.cuStreamIsCapturing(d->stream, &capture), "stream");
    mha_cuda_leave(ctx);
    *yes = capture != CU_STREAM_CAPTURE_STATUS_NONE;
    return status;
}

/* Where the driver does not say, yes: then nothing counts as done. What follows runs into its error. */
bool mha_cuda_op_is_recording(mha_context *ctx)
{
    bool yes = true;
    if (!mha_cuda_captures(ctx, &yes)) return yes;
    mha_succeed(ctx);
    return true;
}

mha_status mha_cuda_op_wait(mha_context *ctx) { return transfer(ctx, 0, NULL, 0, NULL, 0); }

mha_status mha_cuda_reserve(mha_context *ctx, size_t bytes, char **base)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    *base = NULL;
    if (!bytes) return MHA_OK;
    if (bytes > d->capacity) {
        if (d->block_count == MHA_CUDA_BLOCKS)
            return mha_fail(ctx, MHA_NO_MEMORY, "cuda:%d: scratch has grown too often; make a new context", d->ordinal);
        CUdeviceptr block;
        size_t roomy = d->capacity + d->capacity / 2;
        if (roomy < bytes) roomy = bytes;
        CUstreamCaptureMode mode = exchange(&d->driver, CU_STREAM_CAPTURE_MODE_RELAXED);
        CUresult result = d->driver.cuMemAlloc(&block, roomy);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && roomy > bytes)
            roomy = bytes, result = d->driver.cuMemAlloc(&block, roomy);
        exchange(&d->driver, mode);
        if (result == CUDA_ERROR_OUT_OF_MEMORY)
            return mha_fail(ctx, MHA_NO_MEMORY, "cuda:%d: has no %zu bytes of scratch", d->ordinal, bytes);
        TRY(mha_cuda_check(ctx, result, "scratch"));
        d->blocks[d->block_count++] = block;
        d->capacity = roomy;
        d->total += roomy;
    }
    CUdeviceptr last = d->blocks[d->block_count - 1];
    *base = (char *)(uintptr_t)last; // NOLINT(performance-no-int-to-ptr)
    return MHA_OK;
}

mha_status mha_cuda_scratch_for(mha_context *ctx, int64_t count, size_t size, char **base)
{
    int64_t bytes = mha_arena_times(count, (int64_t)size);
    if (bytes > PTRDIFF_MAX / 2) return mha_fail(ctx, MHA_TOO_LARGE, "scratch: is larger than memory");
    TRY(mha_cuda_enter(ctx));
    mha_status status = mha_cuda_reserve(ctx, (size_t)bytes, base);
    mha_cuda_leave(ctx);
    return status;
}

/* Memory that outlives the context: the driver and the GPU are found again, and the GPU's context is retained for every
 * block. */
static CUcontext enter_device(mha_cuda_driver *driver, CUdevice *device, const void *user)
{
    char why[256];
    CUcontext context;
    if (mha_cuda_driver_open(driver, why, sizeof why) || driver->cuDeviceGet(device, (int)(uintptr_t)user)) return NULL;
    if (driver->cuDevicePrimaryCtxRetain(&context, *device)) return NULL;
    if (!driver->cuCtxPushCurrent(context)) return context;
    driver->cuDevicePrimaryCtxRelease(*device);
    return NULL;
}

static void *allocate(void *user, size_t bytes)
{
    mha_cuda_driver driver;
    CUdevice device;
    CUcontext ignored;
    CUdeviceptr block = 0;
    if (!enter_device(&driver, &device, user)) return NULL;
    CUstreamCaptureMode mode = exchange(&driver, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (driver.cuMemAlloc(&block, bytes)) block = 0;
    exchange(&driver, mode);
    driver.cuCtxPopCurrent(&ignored);
    if (!block) driver.cuDevicePrimaryCtxRelease(device);
    return (void *)(uintptr_t)block; // NOLINT(performance-no-int-to-ptr)
}

static void release(void *user, void *memory)
{
    mha_cuda_driver driver;
    CUdevice device;
    CUcontext ignored;
    if (!enter_device(&driver, &device, user)) return;
    CUstreamCaptureMode mode = exchange(&driver, CU_STREAM_CAPTURE_MODE_RELAXED);
    driver.cuMemFree((CUdeviceptr)(uintptr_t)memory);
    exchange(&driver, mode);
    driver.cuCtxPopCurrent(&ignored);
    driver.cuDevicePrimaryCtxRelease(device);
    driver.cuDevicePrimaryCtxRelease(device); /* what the block retained */
}

mha_allocator mha_cuda_allocator(int ordinal)
{
    return (mha_allocator){allocate, release, (void *)(uintptr_t)ordinal}; // NOLINT(performance-no-int-to-ptr)
}

/* ---- Kernels ---------------------------------------------------------------------------------------------------- */

static mha_status start(mha_context *ctx, const mha_cuda_launch *l, const void *parameter, bool is_early)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    union {
        const void *in;
        void *out;
    } argument = {parameter}; /* the driver only reads it */
    void *arguments[] = {argument.out};
    const char *name = mha_cuda_kernel_name(l->kernel);
    CUfunction kernel = d->kernels[l->kernel];
    if (!kernel) return mha_fail(ctx, MHA_UNSUPPORTED, "libmha-cuda.so: was built without the kernel %s", name);
    if (ctx->rehearsing || !l->blocks) return MHA_OK;
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {.gridDimX = (unsigned)l->blocks,
                             .gridDimY = 1,
                             .gridDimZ = 1,
                             .blockDimX = (unsigned)l->threads,
                             .blockDimY = 1,
                             .blockDimZ = 1,
                             .sharedMemBytes = (unsigned)l->shared,
                             .hStream = d->stream,
                             .attrs = &early,
                             .numAttrs = is_early};
    return mha_cuda_check(ctx, d->driver.cuLaunchKernelEx(&config, kernel, arguments, NULL), name);
}

mha_status mha_cuda_start(mha_context *ctx, const mha_cuda_launch *l, const void *parameter)
{
    return start(ctx, l, parameter, false);
}

mha_status mha_cuda_start_early(mha_context *ctx, const mha_cuda_launch *l, const void *parameter)
{
    return start(ctx, l, parameter, true);
}

int64_t mha_cuda_blocks_for(int64_t count)
{
    enum { THREADS = 256, MOST = 1 << 16 };
    int64_t blocks = (count + THREADS - 1) / THREADS;
    return blocks < MOST ? blocks : MOST;
}

mha_cuda_view mha_cuda_view_of(mha_tensor t)
{
    mha_cuda_view v = {t.rank ? t.data : NULL, {1, 1, 1, 1}, {0, 0, 0, 0}, (int32_t)t.type};
    for (int axis = 0; axis < t.rank; axis++) v.size[axis] = t.size[axis], v.stride[axis] = t.stride[axis];
    return v;
}

/* Axes that continue each other become one, the last of them first: a dense tensor is one axis. */
static void squeeze(mha_cuda_copy *c)
{
    mha_cuda_view to = c->to, from = c->from;
    int last = 3;
    for (int axis = 0; axis < 4; axis++)
        c->to.size[axis] = c->from.size[axis] = 1, c->to.stride[axis] = c->from.stride[axis] = 0;
    for (int axis = 3; axis >= 0; axis--) {
        if (to.size[axis] == 1) continue;
        int64_t size = c->to.size[last];
        bool joins = size > 1 && to.stride[axis] == size * c->to.stride[last] &&
                     (!from.data || from.stride[axis] == size * c->from.stride[last]);
        if (joins) {
            c->to.size[last] *= to.size[axis];
            c->from.size[last] = c->to.size[last];
            continue;
        }
        if (size > 1) last--;
        c->to.size[last] = c->from.size[last] = to.size[axis];
        c->to.stride[last] = to.stride[axis];
        c->from.stride[last] = from.stride[axis];
    }
}

/* Whether fours of numbers lie side by side, aligned. */
static bool in_quads(const mha_cuda_view *v)
{
    int64_t bytes = 4 * (int64_t)mha_type_size((mha_type)v->type);
    if (v->stride[3] != 1 || (uintptr_t)v->data % (uintptr_t)bytes) return false;
    for (int axis = 0; axis < 3; axis++)
        if (v->stride[axis] % 4) return false;
    return true;
}

mha_status mha_cuda_copy_tensor(mha_context *ctx, mha_tensor to, mha_tensor from, bool add)
{
    if (!to.rank || !mha_element_count(to)) return MHA_OK;
    mha_cuda_copy c = {mha_cuda_view_of(to), mha_cuda_view_of(from), add, 0};
    squeeze(&c);
    c.quads = in_quads(&c.to) && (!from.rank || in_quads(&c.from)) && c.to.size[3] % 4 == 0;
    mha_cuda_launch l = {MHA_CUDA_K_copy, mha_cuda_blocks_for(mha_element_count(to) / (c.quads ? 4 : 1)), 256, 0};
    return mha_cuda_start(ctx, &l, &c);
}

mha_status mha_cuda_clear(mha_context *ctx, mha_tensor t)
{
    return mha_cuda_copy_tensor(ctx, t, (mha_tensor)MHA_NO_TENSOR, false);
}

mha_status mha_cuda_map(mha_context *ctx, CUtensorMap *map, mha_tensor t, int rows)
{
    enum { BYTES = 128 };
    cuuint64_t size[4], stride[3];
    const cuuint32_t each = (cuuint32_t)mha_type_size(t.type), box[4] = {BYTES / each, (cuuint32_t)rows, 1, 1};
    const cuuint32_t step[4] = {1, 1, 1, 1};
    size[0] = (cuuint64_t)t.size[3];
    for (int n = 0; n < 3; n++) {
        int axis = 2 - n;
        size[n + 1] = (cuuint64_t)t.size[axis];
        stride[n] = (cuuint64_t)(t.size[axis] > 1 ? t.stride[axis] : (t.size[3] + 7) / 8 * 8) * each;
    }
    CUtensorMapDataType type = t.type == MHA_FLOAT32   ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                               : t.type == MHA_FLOAT16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                                       : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    return mha_cuda_check(ctx,
                          mha_cuda_of(ctx)->driver.cuTensorMapEncodeTiled(
                              map, type, 4, t.data, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
                              CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
                          "cannot describe a tensor to the copy engine");
}
