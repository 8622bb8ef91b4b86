/* A GPU as one context uses it: driver, kernels, stream and scratch. */
#ifndef MHA_CUDA_DEVICE_H
#define MHA_CUDA_DEVICE_H

#include "core/arena.h"
#include "cuda/device/driver.h"
#include "cuda/device/kernels.h"
#include "cuda/kernels/view.h"

/* Blocks of scratch, and counters. */
enum { MHA_CUDA_BLOCKS = 64, MHA_CUDA_COUNTERS = 8192 };

typedef struct mha_cuda_device {
    void *self; /* what the allocator returned for this struct */
    mha_cuda_driver driver;
    int ordinal, processors; /* streaming multiprocessors */
    CUdevice device;
    CUcontext context; /* the primary one, which is retained */
    CUstream stream;
    CUmodule modules[MHA_CUDA_MODULE_COUNT];
    CUfunction kernels[MHA_CUDA_KERNEL_COUNT]; /* kernels.h */
    CUdeviceptr counter;                       /* int32, MHA_CUDA_COUNTERS of them, 0 between calls */

    /* Scratch. A call uses the last block; the others remain, because captured graphs may use them. */
    CUdeviceptr blocks[MHA_CUDA_BLOCKS];
    int block_count;
    size_t capacity, total; /* bytes of the last block, and of all */

    /* What an operation without a status ran into, and its message. */
    mha_status failed;
    char failure[256];
} mha_cuda_device;

/* The device of a context. */
static inline mha_cuda_device *mha_cuda_of(const mha_context *ctx) { return ctx->device; }

/* Opens a context's GPU: core/device.h. */
mha_status mha_cuda_device_open(mha_context *ctx, int ordinal, void *stream, mha_cuda_shared_memory *shared);

/* The context's message for an error of the driver, or MHA_OK; `what` says what was tried. */
mha_status mha_cuda_check(mha_context *ctx, CUresult result, const char *what);

/* Make the GPU's context current, and the caller's again. */
mha_status mha_cuda_enter(mha_context *ctx);
void mha_cuda_leave(mha_context *ctx);

/* Whether the stream is being captured. */
mha_status mha_cuda_captures(mha_context *ctx, bool *yes);

/* Scratch of so many bytes at `base`. */
mha_status mha_cuda_reserve(mha_context *ctx, size_t bytes, char **base);

/* The same for `count` things of `size` bytes, for callers that have not entered. */
mha_status mha_cuda_scratch_for(mha_context *ctx, int64_t count, size_t size, char **base);

/* Memory of a GPU for layers, tapes and caches, which may outlive their context. */
mha_allocator mha_cuda_allocator(int ordinal);

/* Loads all kernels, for a context that has been entered. */
mha_status mha_cuda_load_kernels(mha_context *ctx, mha_cuda_shared_memory *shared);

/* How a kernel is started. */
typedef struct mha_cuda_launch {
    mha_cuda_kernel kernel;
    int64_t blocks;
    int threads;
    size_t shared; /* bytes of dynamic shared memory of a block */
} mha_cuda_launch;

/* Puts a kernel into the stream; its one parameter is the struct at `parameter`. */
mha_status mha_cuda_start(mha_context *ctx, const mha_cuda_launch *launch, const void *parameter);

/* The same for a kernel that starts before the one before it has ended, for which it waits itself. */
mha_status mha_cuda_start_early(mha_context *ctx, const mha_cuda_launch *launch, const void *parameter);

/* Blocks of a kernel that takes one thread for each of `count` things. */
int64_t mha_cuda_blocks_for(int64_t count);

/* A tensor (B,H,T,D) for the copy engine, in boxes of 64 columns and `rows` rows. Axes with one element may have any stride:
 * the engine wants a positive one. */
mha_status mha_cuda_map(mha_context *ctx, CUtensorMap *map, mha_tensor t, int rows);

/* A tensor, or none, for kernels. */
mha_cuda_view mha_cuda_view_of(mha_tensor t);

/* to = from, or to += from; and zeros. Tensors of floats with the same sizes, or none. */
mha_status mha_cuda_copy_tensor(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);
mha_status mha_cuda_clear(mha_context *ctx, mha_tensor t);

/* The operations of the device's table (core/backend.h), of device.c and of the files of attention/ and ops/. */
#define OP(name) mha_op_##name mha_cuda_op_##name;
MHA_COMMON_OPS(OP) MHA_REMOTE_OPS(OP)
#undef OP

#endif
