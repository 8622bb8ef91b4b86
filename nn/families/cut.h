/* How a part lies in its tensor: rows or columns of it, every other one, or one of several in front of it. */
#ifndef NN_FAMILIES_CUT_H
#define NN_FAMILIES_CUT_H

#include "families/family.h"
#include "io/safetensors.h"

typedef struct nn_shape {
    int rank;
    int64_t size[3], stride[3], first; /* of the part in the tensor, in numbers */
    int whole_rank;
    int64_t whole[3]; /* sizes of the tensor */
} nn_shape;

/* Sizes of the block that a part belongs to, and its expert; those that a cut does not need may be 0. */
typedef struct nn_cut_sizes {
    int64_t heads, kv_heads, head_width, experts, expert;
} nn_cut_sizes;

/* A part of so many rows and columns (0: a vector). NN_EACH is the part of one head. */
nn_shape nn_cut_shape(nn_cut cut, int64_t rows, int64_t columns, const nn_cut_sizes *s);

/* Whether a tensor has the sizes that the part's must have, apart from sizes of one; the last may be the product of several. */
bool nn_shape_fits(const nn_shape *s, const nn_safetensors_tensor *t);

/* The part in the numbers of a tensor. */
mha_tensor nn_shape_view(const nn_shape *s, const void *numbers, mha_type type);

#endif
