/* What a forward call leaves for the backward one. */
#ifndef MHA_LAYER_TAPE_H
#define MHA_LAYER_TAPE_H

#include "layer/pass.h"

struct mha_tape {
    mha_memory self;            /* the memory of this struct */
    mha_memory block;           /* what the pass points to */
    const mha_backend *backend; /* the device that it lies on */
    mha_pass pass;
    bool given[MHA_IN]; /* whether key and value were inputs of their own */
    bool filled;
};

/* Whether the tape lies on the device of the context. */
static inline mha_status mha_tape_check_device(mha_context *ctx, const mha_tape *tape)
{
    if (tape->backend != ctx->backend)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "tape: was made on the device %s, the context is on %s",
                        tape->backend->device, ctx->backend->device);
    return MHA_OK;
}

/* The same, and whether a forward call of this layer has filled it. */
static inline mha_status mha_tape_check(mha_context *ctx, const mha_layer *layer, const mha_tape *tape)
{
    TRY(mha_tape_check_device(ctx, tape));
    if (!tape->filled) return mha_fail(ctx, MHA_BAD_ARGUMENT, "tape: no forward call has filled it");
    if (tape->pass.layer != layer)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "tape: was filled by another layer's forward call");
    return MHA_OK;
}

#endif
