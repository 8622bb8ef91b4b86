/* Calls that only ask which kernels there are for them, without a GPU: included by test programs. */
#ifndef CUDA_QUESTIONS_H
#define CUDA_QUESTIONS_H

#include "core/device.h"
#include <mha.h>
#include <stdlib.h>

/* A context whose memory the host cannot read, as that of a GPU. It has no device behind it. */
static inline mha_context *remote_context(void)
{
    static mha_backend backend;
    backend = (mha_backend){.device = "cuda", .remote = true};
    mha_context *ctx = NULL;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = 1;
    if (mha_context_make(&ctx, &options, (mha_choice){.backend = &backend, .isa = "sm_90a"})) exit(1);
    return ctx;
}

/* A forward or backward call that only asks. */
typedef struct question {
    mha_tensor q, k, v, out, dout, dlse;
    mha_attention_extras extras;
    mha_attention_options options;
    mha_attention_gradients gradients;
} question;

static inline question ask(mha_type type, int64_t B, int64_t H, int64_t G, int64_t Tq, int64_t Tk, int64_t D)
{
    question a = {
        .extras = MHA_ATTENTION_NO_EXTRAS, .options = MHA_ATTENTION_DEFAULTS, .gradients = MHA_ATTENTION_NO_GRADIENTS};
    a.q = a.out = a.dout = a.gradients.q = mha_tensor_4d(NULL, type, B, H, Tq, D);
    a.k = a.v = a.gradients.k = a.gradients.v = mha_tensor_4d(NULL, type, B, G, Tk, D);
    return a;
}

#endif
