/* What a forward call leaves for the backward one. */
#ifndef MHA_LAYER_TAPE_H
#define MHA_LAYER_TAPE_H

#include "layer/pass.h"

struct mha_tape {
    mha_memory self;  /* the memory of this struct */
    mha_memory block; /* what the pass points to */
    mha_pass pass;
    bool given[MHA_IN]; /* whether key and value were inputs of their own */
    bool filled;
};

/* Whether a forward call of this layer has filled the tape. */
static inline mha_status mha_tape_check(mha_context *ctx, const mha_layer *layer, const mha_tape *tape)
{
    if (!tape->filled) return mha_fail(ctx, MHA_BAD_ARGUMENT, "tape: no forward call has filled it");
    if (tape->pass.layer != layer)
        return mha_fail(ctx, MHA_BAD_ARGUMENT, "tape: was filled by another layer's forward call");
    return MHA_OK;
}

#endif
