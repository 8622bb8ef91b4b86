/* What a call has that decides its kernels, and what of it each kind of them cannot do. Plain C without the driver, as plan.h. */
#ifndef MHA_CUDA_OBSTACLES_H
#define MHA_CUDA_OBSTACLES_H

#include "attention/gradient.h"

/* ---- What a call has -------------------------------------------------------------------------------------------- */

/* Slopes, a softcap or sinks; a mask, a bias or dropout, with which pairs have numbers of their own; neither. */
bool mha_cuda_has_options(const mha_problem *p);
bool mha_cuda_has_maps(const mha_problem *p);
bool mha_cuda_is_plain(const mha_problem *p);

/* Whether rows see keys by their position. */
bool mha_cuda_has_window(const mha_attention_options *o);

/* Whether what a sequence sees has to be read from device memory, which the host does not do. */
bool mha_cuda_has_spans(const mha_problem *p);

/* Whether the copy engine takes a bias: tiles of 64 rows and 128 bytes of keys. */
bool mha_cuda_has_bias_tiles(mha_tensor bias);

/* Whether scores have nothing of their own but a bias of the type of q, in tiles. */
bool mha_cuda_has_bias_alone(const mha_problem *p);

/* Whether types, widths and options are those of the kernels of Hopper, which take copies of other strides and addresses. */
bool mha_cuda_is_for_tiles(const mha_problem *p);

/* ---- What kernels cannot do: one reason, or NULL ---------------------------------------------------------------- */

/* Those of Hopper; of a tensor, its type, strides and address. */
const char *mha_cuda_obstacle(const mha_problem *p);
const char *mha_cuda_obstacle_backward(const mha_gradient_call *call);
const char *mha_cuda_view_obstacle(const mha_problem *p, mha_tensor t);

/* Those for float32; of a tensor likewise. */
const char *mha_cuda_float32_obstacle(const mha_problem *p);
const char *mha_cuda_float32_obstacle_backward(const mha_gradient_call *call);
const char *mha_cuda_piece_obstacle(const mha_problem *p, mha_tensor t);

/* The decode kernels, however many rows there are; statistics on tensor cores. */
const char *mha_cuda_decode_obstacle(const mha_problem *p);
const char *mha_cuda_stats_obstacle(const mha_problem *p);

#endif
