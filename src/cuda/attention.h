/* Attention of checked calls on a GPU: the rows of core/backend.h. */
#ifndef MHA_CUDA_ATTENTION_H
#define MHA_CUDA_ATTENTION_H

#include "attention/gradient.h"

mha_status mha_cuda_forward_call(const mha_problem *p);
mha_status mha_cuda_backward_call(const mha_gradient_call *call);
mha_status mha_cuda_explain(const mha_problem *p, mha_attention_plan *plan);
mha_status mha_cuda_explain_backward(const mha_gradient_call *call, mha_attention_plan *plan);

#endif
