/* The table of the kernels of attention: what each takes, in the order of preference (kernels/kernels.def). Choosing one for a call, starting
 * it, the name that is reported and the reason why there is no faster one all read it. Plain C without the driver, so that it is
 * tested where there is no GPU. */
#ifndef MHA_CUDA_ATTENTION_TABLE_H
#define MHA_CUDA_ATTENTION_TABLE_H

#include "cuda/device/kernels.h"
#include "cuda/kernels/schedule.h"
#include "mha.h"

/* ---- Features of calls ------------------------------------------------------------------------------------------ */

/* F(name, why): what a call may have that not every kernel takes, and how it is called where it is the reason for another kernel. Of several
 * reasons the first is given. The layout of tensors comes last: dense copies can change it. choose.c says what each means. */
/* clang-format off */
#define MHA_CUDA_FEATURES(F)                                                                                           \
    F(TYPES, "types that are not alike") F(RESULT_TYPES, "types that are not alike")                                   \
    F(WIDTHS, "widths that are not multiples of 8 up to 256")                                                          \
    F(WIDTHS_OF_FLOAT32, "widths that are not multiples of 4 up to 128")                                               \
    F(WIDTH_OF_STATS, "a width that is neither 64 nor 128")                                                            \
    F(WEIGHTS, "weights") F(SCORES, "scores") F(SCALE, "a scale that is not above 0 and below 1e30")                   \
    F(SOFTCAP, "a softcap") F(SLOPES, "slopes") F(MASK, "a mask") F(BIAS, "a bias") F(BIAS_IN_TILES, "a bias")         \
    F(DROPOUT, "dropout") F(SINKS, "sinks") F(CAUSAL, "causal rows") F(WINDOW, "a window")                             \
    F(UNLIKE, "sequences that are not alike") F(EMPTY, "no rows or no keys")                                           \
    F(IN_PLACE, "results in place of q, with options") F(GRADIENT_OF_SLOPES, "gradients.alibi_slopes")                 \
    F(GRADIENT_OF_SINKS, "gradients.sinks") F(DLSE, "dlse") F(IMPORTANCE, "importance")                                \
    F(OTHER_KEYS, "keys that a layer adds")                                                                            \
    F(OVER_64_ROWS, "more than 64 rows of a key head") F(LARGE_GROUPS, "many query heads of a key head")               \
    F(WASTES_192_ROWS, "rows that tiles of 192 would waste") F(WASTES_256_ROWS, "rows that tiles of 256 would waste")  \
    F(STRIDES, "strides that the copy engine cannot take")                                                             \
    F(KEY_STRIDES, "strides that the copy engine cannot take")                                                         \
    F(RESULT_STRIDES, "strides that the copy engine cannot take")                                                      \
    F(STRIDES_OF_FLOAT32, "strides that are not multiples of 16 bytes")                                                \
    F(ADDRESS, "an address that is not a multiple of 16 bytes")                                                        \
    F(KEY_ADDRESS, "an address that is not a multiple of 16 bytes")                                                    \
    F(RESULT_ADDRESS, "an address that is not a multiple of 16 bytes")
/* clang-format on */

enum {
#define F(name, why) MHA_CUDA_FEATURE_##name,
    MHA_CUDA_FEATURES(F)
#undef F
        MHA_CUDA_FEATURE_COUNT
};

typedef uint64_t mha_cuda_features; /* a bit for each */

#define MHA_CUDA_HAS(name)  (UINT64_C(1) << MHA_CUDA_FEATURE_##name)
#define MHA_CUDA_EVERYTHING (~UINT64_C(0))

/* What dense copies of tensors would take away. */
#define MHA_CUDA_LAYOUTS                                                                    \
    (MHA_CUDA_HAS(STRIDES) | MHA_CUDA_HAS(KEY_STRIDES) | MHA_CUDA_HAS(RESULT_STRIDES) |     \
     MHA_CUDA_HAS(STRIDES_OF_FLOAT32) | MHA_CUDA_HAS(ADDRESS) | MHA_CUDA_HAS(KEY_ADDRESS) | \
     MHA_CUDA_HAS(RESULT_ADDRESS))

/* How the first of some features is called; NULL if there are none. */
const char *mha_cuda_feature_name(mha_cuda_features features);

/* ---- Kernels ---------------------------------------------------------------------------------------------------- */

typedef enum mha_cuda_pass {
    MHA_CUDA_FORWARD,
    MHA_CUDA_BACKWARD,
    MHA_CUDA_STATS, /* statistics of heads */
    MHA_CUDA_PAIRS  /* statistics of pairs of heads */
} mha_cuda_pass;

enum { MHA_CUDA_ANY_TYPE = -1, MHA_CUDA_ANY_WIDTH = INT32_MAX };

typedef struct mha_cuda_row {
    mha_cuda_kernel kernel;
    mha_cuda_kernel prepare, rows_kernel; /* backward: what runs before it, and what writes dQ after it */
    mha_cuda_pass pass;
    mha_cuda_method method;
    int type;                       /* mha_type, or MHA_CUDA_ANY_TYPE */
    int D, E;                       /* the most columns of queries and keys, and of values */
    int rows, keys;                 /* of a tile */
    int threads;                    /* of a block; 0: as many as a sequence needs */
    mha_cuda_features takes, wants; /* features that a call may have, and must have */
} mha_cuda_row;

extern const mha_cuda_row mha_cuda_table[];
extern const int mha_cuda_table_rows;

/* Whether a row is of this pass, method and type (its own, or any). */
bool mha_cuda_is_for(const mha_cuda_row *row, mha_cuda_pass pass, mha_cuda_method method, mha_type type);

/* Whether a kernel takes these columns and features. */
bool mha_cuda_takes(const mha_cuda_row *row, int64_t D, int64_t E, mha_cuda_features features);

/* The bytes of dynamic shared memory of a block; for small heads it depends on the call (small.c). */
size_t mha_cuda_row_shared(const mha_cuda_row *row);

/* The same by kernel: 0 of those that are not in the table, but for that of dQ in float32. */
size_t mha_cuda_attention_shared(mha_cuda_kernel kernel);

/* Whether it has more than rows, keys and a window that is the same for all: what it loses in float32 is repaired, and it is told more. */
static inline bool mha_cuda_has_options(const mha_cuda_row *row)
{
    return (row->takes & (MHA_CUDA_HAS(SINKS) | MHA_CUDA_HAS(UNLIKE))) != 0;
}

/* Whether numbers of its own come with each pair of a row and a key. */
static inline bool mha_cuda_has_maps(const mha_cuda_row *row)
{
    return (row->takes & (MHA_CUDA_HAS(MASK) | MHA_CUDA_HAS(BIAS_IN_TILES))) != 0;
}

#endif
