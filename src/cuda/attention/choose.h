/* Which kernels of the table a call has, and why no faster ones. Plain C without the driver, as table.h. */
#ifndef MHA_CUDA_ATTENTION_CHOOSE_H
#define MHA_CUDA_ATTENTION_CHOOSE_H

#include "attention/gradient.h"
#include "cuda/attention/table.h"

/* Whether the kernels can count the rows of a call; otherwise MHA_UNSUPPORTED. */
mha_status mha_cuda_check_sizes(const mha_problem *p);

/* How many rows (axis 2) or keys (axis 3) a sequence has at most. In a ragged batch not more than the maps that it is looked
 * up in: the host cannot read its length. */
int64_t mha_cuda_most_of(const mha_problem *p, int axis);

/* ---- Features --------------------------------------------------------------------------------------------------- */

/* Whether rows see keys by their position. */
bool mha_cuda_has_window(const mha_attention_options *o);

/* Whether what a sequence sees has to be read from device memory, which the host does not do. */
bool mha_cuda_has_spans(const mha_problem *p);

/* Whether the copy engine takes a bias: tiles of 64 rows and 128 bytes of keys. */
bool mha_cuda_has_bias_tiles(mha_tensor bias);

/* Whether rows of a tensor have strides that copies to shared memory take: of the copy engine, or of 16 bytes of float32; and whether they
 * begin where they must. A tensor that is not given, or has no elements, is fine. */
bool mha_cuda_strides_fit(const mha_problem *p, mha_tensor t);
bool mha_cuda_address_fits(mha_tensor t);

/* What a call has. `call` is NULL but for MHA_CUDA_BACKWARD, whose problem `p` is. */
mha_cuda_features mha_cuda_features_of(mha_cuda_pass pass, const mha_problem *p, const mha_gradient_call *call);

/* The edges of the window of a call whose sequences are alike, and what stands between its rows and keys (kernels/window.h). */
typedef struct mha_cuda_edges {
    int32_t offset, left, right;
} mha_cuda_edges;

mha_cuda_edges mha_cuda_edges_of(const mha_problem *p);

/* ---- The choice ------------------------------------------------------------------------------------------------- */

#define MHA_CUDA_BIT(method) (1u << (method))

typedef struct mha_cuda_choice {
    mha_cuda_pass pass;
    mha_cuda_features features;
    mha_cuda_limits limits;  /* which method a sequence has (schedule.h) */
    unsigned methods;        /* a bit for each that a sequence of the call may have */
    const mha_cuda_row *row; /* the kernel of most sequences: general, by tiles, or of the only method */
    const char *why_not;     /* of a general kernel: what faster ones do not take; otherwise NULL */
} mha_cuda_choice;

mha_cuda_choice mha_cuda_choose(mha_cuda_pass pass, const mha_problem *p, const mha_gradient_call *call);

/* That of another forward pass, for a backward call: all its sequences are computed in tiles. */
mha_cuda_choice mha_cuda_choose_tiles(const mha_problem *p);

/* The kernel for the sequences of one method of a call; NULL: the table has none. */
const mha_cuda_row *mha_cuda_row_for(const mha_cuda_choice *choice, const mha_problem *p, mha_cuda_method method);

/* Whether a choice is one of the kernels that take everything. */
static inline bool mha_cuda_is_general(const mha_cuda_choice *choice) { return choice->row->type == MHA_CUDA_ANY_TYPE; }

/* Whether all its sequences have one of these methods. */
static inline bool mha_cuda_has_only(const mha_cuda_choice *choice, unsigned methods)
{
    return !(choice->methods & ~methods) && !mha_cuda_is_general(choice);
}

#endif
