/* A checked backward call of attention. */
#ifndef MHA_ATTENTION_GRADIENT_H
#define MHA_ATTENTION_GRADIENT_H

#include "attention/problem.h"

typedef struct mha_gradient_call {
    mha_problem problem;               /* extras.softmax is that of the forward call, if it was given */
    mha_attention_gradients gradients; /* written over: accumulating is done by the edge, but by a
                                          remote device itself */
    mha_tensor dout, dlse;
    mha_tensor dbias; /* gradients.bias with four axes, stride 0 where it broadcasts; rank 0 if not wanted */
    bool others;      /* keys that this call does not know of have a part in `out` and in the softmax */
} mha_gradient_call;

/* mha_attention_backward, also for a caller who has mixed other keys into `out` and the softmax. */
mha_status mha_gradient_run(mha_context *ctx, const mha_attention_gradients *gradients,
                            const mha_attention_saved *saved, mha_tensor dout, mha_tensor dlse,
                            const mha_attention_options *options, bool others);

#endif
