/* Attention on a GPU, of checked calls: core/backend.h. */
#ifndef MHA_CUDA_ATTENTION_H
#define MHA_CUDA_ATTENTION_H

#include "attention/stats.h"
#include "cuda/general.h"
#include "cuda/kernels.h"
#include "cuda/plan.h"

mha_status mha_cuda_forward_call(const mha_problem *p);
mha_status mha_cuda_backward_call(const mha_gradient_call *call);
mha_status mha_cuda_stats_call(const mha_stats_call *call);
mha_status mha_cuda_explain(const mha_problem *p, mha_attention_plan *plan);
mha_status mha_cuda_explain_backward(const mha_gradient_call *call, mha_attention_plan *plan);
mha_status mha_cuda_explain_stats(const mha_stats_call *call, mha_attention_plan *plan);

/* The kinds of kernels: take their scratch from the arena and then, if `run`, put their launches into the stream. */
typedef mha_status mha_cuda_forward_path(const mha_problem *p, mha_arena *arena, bool run);
typedef mha_status mha_cuda_backward_path(const mha_gradient_call *call, mha_arena *arena, bool run);

mha_cuda_forward_path mha_cuda_hopper_forward, mha_cuda_decode_forward, mha_cuda_small_forward,
    mha_cuda_float32_forward, mha_cuda_general_forward;
mha_cuda_backward_path mha_cuda_hopper_backward, mha_cuda_small_backward, mha_cuda_general_backward;

/* The same for those sequences of a call that go this way, and no others; `counts` says how many there are (spans.h). */
mha_status mha_cuda_decode_some(const mha_problem *p, mha_arena *arena, bool run, const int32_t *counts);
mha_status mha_cuda_decode_many_some(const mha_problem *p, mha_arena *arena, bool run, const int32_t *counts);
mha_status mha_cuda_small_some(const mha_problem *p, bool run, const int32_t *counts);

/* Blocks of all key heads, of the decode kernels for few rows and of those for many. */
int64_t mha_cuda_decode_all_blocks(const mha_problem *p);
int64_t mha_cuda_many_all_blocks(const mha_problem *p);

/* The kernels for a float32 call: forward, and of gradients of rows and keys, which are told what the general ones are. */
mha_cuda_kernel mha_cuda_float32_kernel(const mha_problem *p);
mha_cuda_kernel mha_cuda_float32_keys_kernel(const mha_problem *p);
mha_status mha_cuda_float32_rows(const mha_problem *p, const mha_cuda_general *c);
mha_status mha_cuda_float32_keys(const mha_problem *p, const mha_cuda_general *c);

/* What the general kernels are told of a call, without scratch, gradients and maps. */
mha_cuda_general mha_cuda_describe_general(const mha_problem *p);

/* The softmax of all rows to `rows`, without results. */
mha_status mha_cuda_general_softmax(const mha_problem *p, double *rows);

/* Computes tiles of 64 rows again, (B,H,tiles): those whose number is not 0; none if `any`, which may be NULL, points to a 0. */
mha_status mha_cuda_general_repair(const mha_problem *p, const int32_t *only, int32_t tiles, const int32_t *any);

/* The same for gradients: what the scratch of a backward call with options says. */
mha_status mha_cuda_general_repair_backward(const mha_gradient_call *call, const mha_cuda_plan *plan,
                                            const mha_cuda_scratch *s);

#endif
