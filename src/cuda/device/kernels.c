#include "cuda/device/kernels.h"
#include "cuda/device/cubins.h"
#include "cuda/device/device.h"

const char *mha_cuda_kernel_name(mha_cuda_kernel kernel)
{
    static const char *const names[] = {
#define KERNEL(module, name)         #name,
#define ATTENTION(module, name, ...) #name,
#include "cuda/kernels/kernels.def"
    };
    return names[kernel];
}

mha_cuda_module mha_cuda_kernel_module(mha_cuda_kernel kernel)
{
    static const mha_cuda_module modules[] = {
#define KERNEL(module, name)         MHA_CUDA_M_##module,
#define ATTENTION(module, name, ...) MHA_CUDA_M_##module,
#include "cuda/kernels/kernels.def"
    };
    return modules[kernel];
}

/* ---- Loading ---------------------------------------------------------------------------------------------------- */

static mha_status load_modules(mha_context *ctx, mha_cuda_device *d)
{
    const unsigned char *const images[MHA_CUDA_MODULE_COUNT] = {
#define MODULE(folder, name) mha_cubin_##name,
#include "cuda/kernels/kernels.def"
    };
    for (int n = 0; n < MHA_CUDA_MODULE_COUNT; n++)
        TRY(mha_cuda_check(ctx, d->driver.cuModuleLoadData(&d->modules[n], images[n]), "cannot load the kernels"));
    return MHA_OK;
}

/* A kernel that this build does not have is NULL. */
static mha_status find_kernel(mha_context *ctx, mha_cuda_kernel kernel, size_t shared)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    const char *name = mha_cuda_kernel_name(kernel);
    CUfunction *function = &d->kernels[kernel];
    CUresult result = d->driver.cuModuleGetFunction(function, d->modules[mha_cuda_kernel_module(kernel)], name);
    if (result == CUDA_ERROR_NOT_FOUND) {
        *function = NULL;
        return MHA_OK;
    }
    if (!result && shared)
        result = d->driver.cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
    return mha_cuda_check(ctx, result, name);
}

mha_status mha_cuda_load_kernels(mha_context *ctx, mha_cuda_shared_memory *shared)
{
    TRY(load_modules(ctx, mha_cuda_of(ctx)));
    for (int n = 0; n < MHA_CUDA_KERNEL_COUNT; n++)
        TRY(find_kernel(ctx, (mha_cuda_kernel)n, shared((mha_cuda_kernel)n)));
    return MHA_OK;
}
