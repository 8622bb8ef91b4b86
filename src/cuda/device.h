/* A GPU as one context uses it: driver, kernels, stream and scratch. */
#ifndef MHA_CUDA_DEVICE_H
#define MHA_CUDA_DEVICE_H

#include "core/tensor.h"
#include "cuda/driver.h"
#include "cuda/general.h"
#include "cuda/kernels.h"
#include "cuda/plan.h"

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
    CUfunction forward[2][MHA_CUDA_FORWARD_WIDTHS][MHA_CUDA_KINDS]
                      [2]; /* by type, width, kind and `few`; NULL: not in this build */
    CUfunction backward[2][MHA_CUDA_BACKWARD_WIDTHS][MHA_CUDA_BACKWARD_KINDS][MHA_CUDA_STEPS];
    CUfunction brief[2][MHA_CUDA_WIDTHS][MHA_CUDA_BACKWARD_KINDS][MHA_CUDA_STEPS]; /* dQ in order; NULL: likewise */
    CUfunction shared[2][MHA_CUDA_WIDTHS][2]; /* full and window kernels whose blocks share tiles of keys */
    CUfunction general[MHA_CUDA_GENERAL_KERNELS];
    CUfunction decode[2][MHA_CUDA_DECODE_WIDTHS]; /* by type and width */
    CUfunction many[2][MHA_CUDA_MANY_WIDTHS][2];  /* likewise, for up to 64 rows and for more */
    CUfunction merge[MHA_CUDA_MERGE_WIDTHS];      /* by columns of values */
    CUfunction kernels[MHA_CUDA_KERNEL_COUNT];    /* kernels.h */
    CUdeviceptr counter;                          /* int32, MHA_CUDA_COUNTERS of them, 0 between calls */

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

/* For the tables: core/device.h, core/backend.h. */
mha_status mha_cuda_device_open(mha_context *ctx, int ordinal, void *stream);
void mha_cuda_device_close(mha_context *ctx);
size_t mha_cuda_device_scratch(const mha_context *ctx);

/* The context's message for an error of the driver, or MHA_OK; `what` says what was tried. */
mha_status mha_cuda_check(mha_context *ctx, CUresult result, const char *what);

/* Make the GPU's context current, and the caller's again. */
mha_status mha_cuda_enter(mha_context *ctx);
void mha_cuda_leave(mha_context *ctx);

/* Checks that a tensor that is given lies in memory of this GPU. */
mha_status mha_cuda_check_memory(mha_context *ctx, mha_tensor t, const char *name);

/* For the table: copies from and to the host, and waiting. */
mha_status mha_cuda_write(mha_context *ctx, void *to, const void *from, size_t bytes);
mha_status mha_cuda_read(mha_context *ctx, void *to, const void *from, size_t bytes);
mha_status mha_cuda_wait(mha_context *ctx);

/* Whether the stream is being captured. */
mha_status mha_cuda_captures(mha_context *ctx, bool *yes);
bool mha_cuda_is_recording(mha_context *ctx);

/* Scratch of so many bytes at `base`. */
mha_status mha_cuda_reserve(mha_context *ctx, size_t bytes, char **base);

/* The same for `count` things of `size` bytes, for callers that have not entered. */
mha_status mha_cuda_scratch_for(mha_context *ctx, int64_t count, size_t size, char **base);

/* Memory of a GPU for layers, tapes and caches, which may outlive their context. */
mha_allocator mha_cuda_allocator(int ordinal);

/* Loads all kernels, for a context that has been entered. */
mha_status mha_cuda_load_kernels(mha_context *ctx);

/* How a kernel is started. */
typedef struct mha_cuda_launch {
    CUfunction kernel;
    const char *name;
    int64_t blocks;
    int threads;
    size_t shared;
} mha_cuda_launch;

/* Puts a kernel into the stream; its one parameter is the struct at `parameter`. */
mha_status mha_cuda_start(mha_context *ctx, const mha_cuda_launch *launch, const void *parameter);

/* The same for a kernel that starts before the one before it has ended, for which it waits itself. */
mha_status mha_cuda_start_early(mha_context *ctx, const mha_cuda_launch *launch, const void *parameter);

/* One of the general kernels: a block for each piece of work, or, to repair results, fewer blocks that start early. */
mha_status mha_cuda_start_general(mha_context *ctx, mha_cuda_general_kernel kernel, const mha_cuda_general *parameter,
                                  int64_t pieces);

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

#endif
