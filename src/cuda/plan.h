/* Which kernel a call runs, in which tiles, with how much shared memory and scratch: those written for Hopper (forward.cuh,
 * backward.cuh) where they can, general ones (general.c) otherwise.
 * Plain C without the driver, so that it is tested where there is no GPU. */
#ifndef MHA_CUDA_PLAN_H
#define MHA_CUDA_PLAN_H

#include "attention/gradient.h"
#include "core/arena.h"
#include "cuda/attention/obstacles.h"
#include "cuda/schedule.h"
#include "cuda/spans.h"

/* Kernels of a backward call, in the order in which they run. */
typedef enum mha_cuda_step { MHA_CUDA_PREPARE, MHA_CUDA_MAIN, MHA_CUDA_CONVERT, MHA_CUDA_STEPS } mha_cuda_step;

/* What the rows of a Hopper kernel see: all keys, those of a window that moves with them, of which a causal one is half, what slopes, a
 * softcap, sinks and, forward, unlike sequences say, or all that with bias, mask and dropout. Then come kinds of single directions:
 * backward, unlike sequences, plain or with options; forward, a mask or dropout without a bias, as bits that warps find ahead, and a bias of the type
 * of q, in tiles, without mask, dropout, softcap and slopes. */
typedef enum mha_cuda_kind {
    MHA_CUDA_FULL,
    MHA_CUDA_WINDOW,
    MHA_CUDA_OPTIONS,
    MHA_CUDA_MAPS,
    MHA_CUDA_SEQUENCES,
    MHA_CUDA_SEQUENCES_OPTIONS,
    MHA_CUDA_BACKWARD_KINDS,
    MHA_CUDA_BITS = MHA_CUDA_SEQUENCES,
    MHA_CUDA_BIASED,
    MHA_CUDA_KINDS
} mha_cuda_kind;

/* Widths of heads that there are kernels for: those of all, one more backward and for decoding, three more forward; and forward 64
 * once more, with blocks of fewer keys, for sequences of 193 to 256 rows. */
enum { MHA_CUDA_WIDTHS = 2, MHA_CUDA_BACKWARD_WIDTHS = 3, MHA_CUDA_DECODE_WIDTHS = 3 };
enum { MHA_CUDA_MANY_WIDTHS = 5, MHA_CUDA_MERGE_WIDTHS = 4 };
enum { MHA_CUDA_SHORT = 5, MHA_CUDA_FORWARD_WIDTHS };

typedef struct mha_cuda_plan {
    int type; /* 0: bfloat16, 1: float16 */
    int width; /* 0: 64, 1: 128, backward 2: 256, forward 2: 96, 3: 192, 4: 256; the next larger one that there is; MHA_CUDA_SHORT */
    mha_cuda_kind kind;
    bool spans; /* forward: sequences are not alike, and a kernel finds their tiles; backward: blocks find them */
    mha_cuda_ways ways; /* of sequences (schedule.h), */
    unsigned among;     /* and a bit for each that one of them may go */
    bool few;           /* forward: tiles of fewer rows, of which fewer are wasted, or more multiprocessors have one */
    bool brief;         /* backward: few keys, dQ of all sequences summed in the order of their tiles */
    int32_t sharers;    /* backward: blocks that share a tile of keys, at most (schedule.h) */
    int32_t parts;      /* of sums in order: blocks that share a key head, 1 to ordered_tiles (schedule.h) */
    int32_t ordered_tiles;                     /* likewise: key tiles of a head */
    const char *kernel;                        /* the one that does most of the work */
    int32_t offset;                            /* row i stands at i + offset; within [-Tq, Tk] */
    int32_t left, right;                       /* row i sees keys from i + left to i + right; likewise */
    int32_t rows, keys;                        /* of a tile */
    int32_t row_tiles;                         /* of a query head */
    int32_t key_tiles;                         /* of a key head */
    int32_t bound_tiles;                       /* of a key head: backward */
    int32_t row_slots, key_slots, bound_slots; /* backward with spans: the same of all sequences (schedule.h) */
    int32_t section;                           /* heads that are worked on together */
    int32_t tiles;                             /* pieces of work: of queries forward, of keys backward */
    int threads;                               /* of a block */
    size_t shared;                             /* bytes of shared memory of a block */
} mha_cuda_plan;

enum { MHA_CUDA_BOUND_KEYS = 512 }; /* keys of a partial bound, in a backward call */

/* The general kernels. Those of two versions, for up to 64 and up to 128 columns of results, are followed by the second. */
typedef enum mha_cuda_general_kernel {
    MHA_CUDA_FORWARD,
    MHA_CUDA_FORWARD_WIDE,
    MHA_CUDA_REPAIR,
    MHA_CUDA_REPAIR_WIDE,
    MHA_CUDA_MAP,
    MHA_CUDA_GENERAL_PREPARE,
    MHA_CUDA_ROWS,
    MHA_CUDA_ROWS_WIDE,
    MHA_CUDA_KEYS,
    MHA_CUDA_KEYS_WIDE,
    MHA_CUDA_BIAS,
    MHA_CUDA_HEADS,
    MHA_CUDA_GENERAL_KERNELS
} mha_cuda_general_kernel;

/* Blocks of a general kernel that repairs results and mostly has nothing to do: as many as fit, for `pieces` of work. */
int64_t mha_cuda_repair_blocks(mha_cuda_general_kernel kernel, int64_t pieces, int processors);

/* Names of kernels; NULL where there is none. Of short sequences, there are full ones, and, among others, those with options. */
extern const char *const mha_cuda_general_names[MHA_CUDA_GENERAL_KERNELS];
const char *mha_cuda_forward_name(int type, int width, mha_cuda_kind kind, bool few);
const char *mha_cuda_decode_name(int type, int width);
const char *mha_cuda_many_name(int type, int width, bool wide);
const char *mha_cuda_merge_name(int columns);
const char *mha_cuda_backward_name(int type, int width, mha_cuda_kind kind, mha_cuda_step step);
const char *mha_cuda_shared_name(int type, int width, mha_cuda_kind kind);
const char *mha_cuda_brief_name(int type, int width, mha_cuda_kind kind, mha_cuda_step step);

/* Columns of the decode kernels; which of them a call without obstacles runs: the smallest that holds D and E. */
extern const int mha_cuda_decode_widths[MHA_CUDA_DECODE_WIDTHS];
int mha_cuda_decode_width(const mha_problem *p);

/* The same for those of many rows: columns of keys and of values; and whether there are more than 64 rows of a key head. */
typedef struct mha_cuda_many_columns {
    int keys, values;
} mha_cuda_many_columns;

extern const mha_cuda_many_columns mha_cuda_many_widths[MHA_CUDA_MANY_WIDTHS];
int mha_cuda_many_width(const mha_problem *p);
bool mha_cuda_many_is_wide(const mha_problem *p);

/* Whether the kernels can count the rows of a call; otherwise MHA_UNSUPPORTED. */
mha_status mha_cuda_check_sizes(const mha_problem *p);

/* How many rows (axis 2) or keys (axis 3) a sequence has at most. In a ragged batch not more than the maps that it is looked
 * up in: the host cannot read its length. */
int64_t mha_cuda_most_of(const mha_problem *p, int axis);

/* Fill the plan of a call without obstacles; of another forward pass, which has tiles for all sequences; and of the tiles of one way. */
void mha_cuda_plan_forward(mha_cuda_plan *plan, const mha_problem *p);
void mha_cuda_plan_anew(mha_cuda_plan *plan, const mha_problem *p);
void mha_cuda_plan_way(mha_cuda_plan *plan, const mha_problem *p, mha_cuda_way way);
void mha_cuda_plan_backward(mha_cuda_plan *plan, const mha_problem *p);

/* In how many launches the kernels with maps compute the gradient of a bias as well: in one, or in one for each sequence if
 * sequences share it, so that no two scores of a launch have a number of it in common. 0: general kernels compute it, because heads,
 * rows or keys share it, or too many sequences. */
int32_t mha_cuda_bias_launches(const mha_gradient_call *call);

/* Warpgroups of a forward kernel that compute, 64 rows each; one more copies, and with bits up to 128 columns one finds them. `few`: of
 * the kernel with two where another one has three or four. */
int mha_cuda_forward_groups(int width, mha_cuda_kind kind, bool few);

/* Keys of a block of a forward kernel. */
int mha_cuda_forward_keys(int width, mha_cuda_kind kind);

/* Whether the main kernel of a backward call is one of its own if blocks share tiles of keys: a full or a window kernel of up to 128 columns. */
bool mha_cuda_has_shared(const mha_cuda_plan *plan);

/* Bytes of shared memory. */
size_t mha_cuda_forward_shared(int width, mha_cuda_kind kind, bool few);
size_t mha_cuda_backward_shared(int width, mha_cuda_kind kind); /* width: 0 to 2, as above */
size_t mha_cuda_decode_shared(int width);                       /* likewise */
size_t mha_cuda_many_shared(int width, bool wide);

/* Scratch of a call: what is not needed is NULL. */
typedef struct mha_cuda_scratch {
    float *lse;         /* backward: (B,H,Tq), dense */
    void *out;          /* (B,H,Tq,E): the forward pass of a backward call without a softmax */
    void *dq, *dk, *dv; /* gradients that are computed and not asked for */
    float *bounds;      /* (B,G,bound_tiles,2), or with spans (G,bound_slots,2); none if brief */
    float *rows_about;  /* (B,H,row_tiles,3,rows), or with spans (H,row_slots,3,rows) */
    int32_t *sums;      /* likewise (...,rows*width); if brief, for each of the parts, or none for a single key tile */
    int32_t
        *lost_rows; /* with options: (B,H,row_tiles*rows/64) forward; with options or brief: (B,H,row_tiles) backward */
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
    float *powers;       /* likewise; none if brief */
} mha_cuda_scratch;

/* Layouts (core/arena.h). */
void mha_cuda_lay_forward(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan, const mha_problem *p);
void mha_cuda_lay_backward(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan,
                           const mha_gradient_call *call);

#endif
