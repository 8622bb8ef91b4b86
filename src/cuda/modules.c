/* Loading the kernels of a device. */
#include "cuda/cubins.h"
#include "cuda/device.h"

static mha_status load_modules(mha_context *ctx, mha_cuda_device *d)
{
    const unsigned char *const images[MHA_CUDA_MODULE_COUNT] = {
#define ROW(name) mha_cubin_##name,
        MHA_CUDA_MODULES(ROW)
#undef ROW
    };
    for (int n = 0; n < MHA_CUDA_MODULE_COUNT; n++)
        TRY(mha_cuda_check(ctx, d->driver.cuModuleLoadData(&d->modules[n], images[n]), "cannot load the kernels"));
    return MHA_OK;
}

/* A kernel of a module, with its shared memory; NULL if this build does not have it. */
static mha_status find(mha_context *ctx, CUfunction *function, mha_cuda_module module, const char *name, size_t shared)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    CUresult result = d->driver.cuModuleGetFunction(function, d->modules[module], name);
    if (result == CUDA_ERROR_NOT_FOUND) {
        *function = NULL;
        return MHA_OK;
    }
    if (!result && shared)
        result = d->driver.cuFuncSetAttribute(*function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (int)shared);
    return mha_cuda_check(ctx, result, name);
}

/* Those of kernels.h. */
static mha_status find_others(mha_context *ctx, mha_cuda_device *d)
{
    for (int n = 0; n < MHA_CUDA_KERNEL_COUNT; n++) {
        mha_cuda_kernel k = (mha_cuda_kernel)n;
        TRY(find(ctx, &d->kernels[n], mha_cuda_kernel_module(k), mha_cuda_kernel_name(k),
                 mha_cuda_kernel_tile(k).shared));
    }
    return MHA_OK;
}

static mha_status find_forward(mha_context *ctx, mha_cuda_device *d)
{
    enum { OF_TYPE = MHA_CUDA_FORWARD_WIDTHS * MHA_CUDA_KINDS };
    for (int n = 0; n < 2 * 2 * OF_TYPE; n++) {
        int few = n % 2, type = n / 2 / OF_TYPE, width = n / 2 / MHA_CUDA_KINDS % MHA_CUDA_FORWARD_WIDTHS;
        mha_cuda_kind kind = (mha_cuda_kind)(n / 2 % MHA_CUDA_KINDS);
        mha_cuda_module module = width == 3 || width == 4 ? MHA_CUDA_M_forward_wide : MHA_CUDA_M_forward;
        const char *name = mha_cuda_forward_name(type, width, kind, few);
        if (!name) continue;
        TRY(find(ctx, &d->forward[type][width][kind][few], module, name, mha_cuda_forward_shared(width, kind, few)));
    }
    return MHA_OK;
}

static mha_cuda_module module_of_backward(int width, mha_cuda_kind kind)
{
    return width > 1               ? MHA_CUDA_M_backward_wide
           : kind == MHA_CUDA_MAPS ? MHA_CUDA_M_backward_maps
           : kind > MHA_CUDA_MAPS  ? MHA_CUDA_M_backward_sequences
                                   : MHA_CUDA_M_backward;
}

static mha_status find_backward(mha_context *ctx, mha_cuda_device *d)
{
    enum { OF_TYPE = MHA_CUDA_BACKWARD_WIDTHS * MHA_CUDA_BACKWARD_KINDS };
    for (int n = 0; n < 2 * OF_TYPE; n++) {
        int type = n / OF_TYPE, width = n / MHA_CUDA_BACKWARD_KINDS % MHA_CUDA_BACKWARD_WIDTHS;
        mha_cuda_kind kind = (mha_cuda_kind)(n % MHA_CUDA_BACKWARD_KINDS);
        for (int step = 0; step < MHA_CUDA_STEPS; step++)
            TRY(find(ctx, &d->backward[type][width][kind][step], module_of_backward(width, kind),
                     mha_cuda_backward_name(type, width, kind, (mha_cuda_step)step),
                     step == MHA_CUDA_MAIN ? mha_cuda_backward_shared(width, kind) : 0));
    }
    return MHA_OK;
}

/* Those for calls whose blocks share tiles of keys. */
static mha_status find_shared(mha_context *ctx, mha_cuda_device *d)
{
    for (int n = 0; n < 2 * MHA_CUDA_WIDTHS * 2; n++) {
        int type = n % 2, width = n / 2 % MHA_CUDA_WIDTHS;
        mha_cuda_kind kind = (mha_cuda_kind)(n / 2 / MHA_CUDA_WIDTHS);
        TRY(find(ctx, &d->shared[type][width][kind], MHA_CUDA_M_backward, mha_cuda_shared_name(type, width, kind),
                 mha_cuda_backward_shared(width, kind)));
    }
    return MHA_OK;
}

static mha_status find_brief(mha_context *ctx, mha_cuda_device *d)
{
    enum { OF_WIDTH = MHA_CUDA_BACKWARD_KINDS * MHA_CUDA_STEPS };
    for (int n = 0; n < 2 * MHA_CUDA_WIDTHS * OF_WIDTH; n++) {
        int type = n / OF_WIDTH / MHA_CUDA_WIDTHS, width = n / OF_WIDTH % MHA_CUDA_WIDTHS;
        mha_cuda_kind kind = (mha_cuda_kind)(n / MHA_CUDA_STEPS % MHA_CUDA_BACKWARD_KINDS);
        mha_cuda_step step = (mha_cuda_step)(n % MHA_CUDA_STEPS);
        const char *name = mha_cuda_brief_name(type, width, kind, step);
        if (!name) continue;
        TRY(find(ctx, &d->brief[type][width][kind][step],
                 kind == MHA_CUDA_SEQUENCES ? MHA_CUDA_M_backward_sequences : MHA_CUDA_M_backward_brief, name,
                 step == MHA_CUDA_MAIN ? mha_cuda_backward_shared(width, kind) : 0));
    }
    return MHA_OK;
}

static mha_status find_many(mha_context *ctx, mha_cuda_device *d)
{
    for (int n = 0; n < 2 * 2 * MHA_CUDA_MANY_WIDTHS; n++) {
        int wide = n % 2, type = n / 2 / MHA_CUDA_MANY_WIDTHS, width = n / 2 % MHA_CUDA_MANY_WIDTHS;
        TRY(find(ctx, &d->many[type][width][wide], type ? MHA_CUDA_M_decode_many_half : MHA_CUDA_M_decode_many,
                 mha_cuda_many_name(type, width, wide), mha_cuda_many_shared(width, wide)));
    }
    for (int n = 0; n < MHA_CUDA_MERGE_WIDTHS; n++)
        TRY(find(ctx, &d->merge[n], MHA_CUDA_M_decode_many, mha_cuda_merge_name(64 * (n + 1)), 0));
    return MHA_OK;
}

mha_status mha_cuda_load_kernels(mha_context *ctx)
{
    mha_cuda_device *d = mha_cuda_of(ctx);
    TRY(load_modules(ctx, d));
    TRY(find_forward(ctx, d));
    TRY(find_backward(ctx, d));
    TRY(find_brief(ctx, d));
    TRY(find_shared(ctx, d));
    for (int n = 0; n < MHA_CUDA_GENERAL_KERNELS; n++)
        TRY(find(ctx, &d->general[n],
                 n < MHA_CUDA_GENERAL_PREPARE ? MHA_CUDA_M_general_forward : MHA_CUDA_M_general_backward,
                 mha_cuda_general_names[n], 0));
    for (int n = 0; n < 2 * MHA_CUDA_DECODE_WIDTHS; n++) {
        int type = n / MHA_CUDA_DECODE_WIDTHS, width = n % MHA_CUDA_DECODE_WIDTHS;
        TRY(find(ctx, &d->decode[type][width], MHA_CUDA_M_decode, mha_cuda_decode_name(type, width),
                 mha_cuda_decode_shared(width)));
    }
    TRY(find_many(ctx, d));
    return find_others(ctx, d);
}
