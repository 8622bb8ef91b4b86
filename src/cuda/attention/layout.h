/* Layouts that the copy engine cannot take: dense copies of tensors, in scratch, where that is all that stands in the way of the
 * kernels of Hopper. */
#ifndef MHA_CUDA_ATTENTION_LAYOUT_H
#define MHA_CUDA_ATTENTION_LAYOUT_H

#include "core/arena.h"
#include "cuda/attention/choose.h"

/* The call, with such copies in place of tensors; or as it is, if it needs none or they would not help. And the choice for it. */
mha_problem mha_cuda_laid_out(const mha_problem *p, mha_arena *arena, mha_cuda_choice *choice);
mha_gradient_call mha_cuda_laid_out_backward(const mha_gradient_call *call, mha_arena *arena, mha_cuda_choice *choice);

/* Before the call `own` that was made of another one: the copies get what the call reads. */
mha_status mha_cuda_copy_in(const mha_problem *p, const mha_problem *own);
mha_status mha_cuda_copy_in_backward(const mha_gradient_call *call, const mha_gradient_call *own);

/* After it: results go where the caller wants them. */
mha_status mha_cuda_copy_out(const mha_problem *p, const mha_problem *own);
mha_status mha_cuda_copy_out_backward(const mha_gradient_call *call, const mha_gradient_call *own);

#endif
