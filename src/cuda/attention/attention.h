/* Attention on a GPU, of checked calls: core/backend.h. */
#ifndef MHA_CUDA_ATTENTION_H
#define MHA_CUDA_ATTENTION_H

#include "attention/stats.h"
#include "cuda/attention/plan.h"
#include "cuda/device/device.h"
#include "cuda/kernels/general.h"

/* The families of kernels: they take their scratch from the arena and then, if `run`, put their launches into the stream. */
typedef mha_status mha_cuda_forward_family(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena,
                                           bool run);
typedef mha_status mha_cuda_backward_family(const mha_gradient_call *call, const mha_cuda_choice *choice,
                                            mha_arena *arena, bool run);

mha_cuda_forward_family mha_cuda_tiles_forward, mha_cuda_decode_forward, mha_cuda_small_forward,
    mha_cuda_float32_forward, mha_cuda_general_forward;
mha_cuda_backward_family mha_cuda_tiles_backward, mha_cuda_small_backward, mha_cuda_general_backward;

/* The family of a choice. */
mha_cuda_forward_family *mha_cuda_forward_family_of(const mha_cuda_choice *choice);
mha_cuda_backward_family *mha_cuda_backward_family_of(const mha_cuda_choice *choice);

/* Dense gradients in scratch in place of those of a call that are to be added to what is there. */
mha_gradient_call mha_cuda_with_own_gradients(const mha_gradient_call *call, const mha_cuda_choice *choice,
                                              mha_arena *arena);

/* The same as a family for those sequences of a call that have this method, and no others; `counts` says how many there are (spans.h). */
mha_status mha_cuda_decode_some(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run,
                                const int32_t *counts);
mha_status mha_cuda_decode_many_some(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run,
                                     const int32_t *counts);
mha_status mha_cuda_small_some(const mha_problem *p, const mha_cuda_choice *choice, bool run, const int32_t *counts);

/* Blocks of a decode kernel for all key heads. */
int64_t mha_cuda_decode_all_blocks(const mha_problem *p, const mha_cuda_row *row);

/* How the kernels of small heads are started. */
typedef struct mha_cuda_small_launch {
    int64_t blocks; /* one for each query head, or, backward, for each key head */
    int threads;    /* of a block */
    size_t shared;  /* bytes of shared memory of a block */
} mha_cuda_small_launch;

mha_cuda_small_launch mha_cuda_small_launch_of(const mha_problem *p, const mha_cuda_row *row);

/* A kernel for float32: a block for each tile of the `lines` rows or keys of `heads` heads of a sequence. */
mha_status mha_cuda_float32_start(const mha_problem *p, const mha_cuda_row *row, mha_cuda_kernel kernel,
                                  const mha_cuda_general *c, int64_t lines, int64_t heads);

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
