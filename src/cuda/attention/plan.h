/* How the kernels for tensor cores of Hopper (forward.cuh, backward.cuh) work on a call: tiles, blocks, sections of heads, scratch.
 * Plain C without the driver, so that it is tested where there is no GPU. */
#ifndef MHA_CUDA_ATTENTION_PLAN_H
#define MHA_CUDA_ATTENTION_PLAN_H

#include "core/arena.h"
#include "cuda/attention/choose.h"
#include "cuda/kernels/spans.h"

typedef struct mha_cuda_plan {
    const mha_cuda_row *row; /* the kernel */
    mha_cuda_choice choice;  /* what the plan is made from */
    bool spans;      /* forward: sequences are not alike, and a kernel finds their tiles; backward: blocks find them */
    bool ordered;    /* backward: dQ of all sequences is summed in the order of their tiles */
    int32_t sharers; /* backward: blocks that share a tile of keys, at most (schedule.h) */
    int32_t parts;   /* of sums in order: blocks that share a key head, 1 to ordered_tiles (schedule.h) */
    int32_t ordered_tiles; /* likewise: key tiles of a head */
    mha_cuda_edges edges;  /* row i stands at i + offset, and sees keys from i + left to i + right */
    int32_t row_tiles;     /* of a query head */
    int32_t key_tiles;     /* of a key head */
    int32_t bound_tiles;   /* of a key head: backward */
    int32_t row_slots, key_slots, bound_slots; /* backward with spans: the same of all sequences (schedule.h) */
    int32_t section;                           /* heads that are worked on together */
    int32_t tiles;                             /* pieces of work: of queries forward, of keys backward */
} mha_cuda_plan;

enum { MHA_CUDA_BOUND_KEYS = 512 }; /* keys of a partial bound, in a backward call */

/* Whether some sequences of a planned call have one of these methods. */
static inline bool mha_cuda_has_method(const mha_cuda_plan *plan, mha_cuda_method method)
{
    return (plan->choice.methods & MHA_CUDA_BIT(method)) != 0;
}

/* Fill the plan of a call whose choice is not a general kernel; that of the tiles of one method; and of another forward pass, for a backward
 * call, which has tiles for all sequences. */
void mha_cuda_plan_forward(mha_cuda_plan *plan, const mha_problem *p, const mha_cuda_choice *choice);
void mha_cuda_plan_method(mha_cuda_plan *plan, const mha_problem *p, const mha_cuda_choice *choice,
                          mha_cuda_method method);
void mha_cuda_plan_anew(mha_cuda_plan *plan, const mha_problem *p);
void mha_cuda_plan_backward(mha_cuda_plan *plan, const mha_problem *p, const mha_cuda_choice *choice);

/* In how many launches the kernels with maps compute the gradient of a bias as well: in one, or in one for each sequence if
 * sequences share it, so that no two scores of a launch have a number of it in common. 0: general kernels compute it, because heads,
 * rows or keys share it, or too many sequences. */
int32_t mha_cuda_bias_launches(const mha_gradient_call *call);

/* Blocks of a general kernel that repairs results and mostly has nothing to do: as many as fit, for `pieces` of work. */
int64_t mha_cuda_repair_blocks(mha_cuda_kernel kernel, int64_t pieces, int processors);

/* Scratch of a call: what is not needed is NULL. */
typedef struct mha_cuda_scratch {
    float *lse;         /* backward: (B,H,Tq), dense */
    void *out;          /* (B,H,Tq,E): the forward pass of a backward call without a softmax */
    void *dq, *dk, *dv; /* gradients that are computed and not asked for */
    float *bounds;      /* (B,G,bound_tiles,2), or with spans (G,bound_slots,2); none if ordered */
    float *rows_about;  /* (B,H,row_tiles,3,rows), or with spans (H,row_slots,3,rows) */
    int32_t *sums; /* likewise (...,rows*width); if ordered, for each of the parts, or none for a single key tile */
    int32_t *
        lost_rows; /* with options: (B,H,row_tiles*rows/64) forward; with options or ordered: (B,H,row_tiles) backward */
    mha_cuda_span
        *spans[MHA_CUDA_SPAN_LISTS]; /* forward, or another forward pass, sequences that are not alike (spans.h) */
    int32_t *span_counts;            /* likewise */
    void *q;                         /* forward, with options, results in place of q: a dense copy of it */
    int32_t *lost_anew;              /* of that forward pass, with options */
    int32_t *any;                    /* one: whether anything is lost, with options */
    double *numbers;                 /* (B,H,Tq,MHA_CUDA_ROW_NUMBERS), to repair what is lost */
    int32_t *lost_keys;              /* (B,G,key_tiles) */
    int32_t *tickets;                /* if blocks share tiles of keys: (B,G,key_tiles,4) */
    float *shares;       /* likewise: (B,G,key_tiles,2,keys*width), or with spans (G,key_slots,2,keys*width) */
    int32_t *lost_heads; /* (B,G) */
    float *powers;       /* likewise; none if ordered */
} mha_cuda_scratch;

/* Layouts (core/arena.h). */
void mha_cuda_lay_forward(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan, const mha_problem *p);
void mha_cuda_lay_backward(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan,
                           const mha_gradient_call *call);

#endif
