#include "cuda/attention/table.h"
#include "cuda/kernels/general.h"
#include "cuda/kernels/spans.h"
#include "cuda/kernels/stats_tiles.h"

#define F(name)          MHA_CUDA_HAS(name)
#define ANY_SHAPE        (F(EMPTY) | F(OVER_64_ROWS) | F(LARGE_GROUPS) | F(WASTES_192_ROWS) | F(WASTES_256_ROWS))
#define WINDOWS          (ANY_SHAPE | F(CAUSAL) | F(WINDOW))
#define OPTIONS          (F(SINKS) | F(SOFTCAP) | F(SLOPES))
#define BIASES           (F(BIAS) | F(BIAS_IN_TILES))
#define BIAS_ALONE       (WINDOWS | F(SINKS) | F(UNLIKE) | F(BIAS_IN_TILES))
#define MAPS             (WINDOWS | OPTIONS | F(UNLIKE) | F(MASK) | BIASES | F(DROPOUT))
#define DECODABLE        ((MAPS & ~(F(DROPOUT) | F(EMPTY))) | F(STRIDES) | F(ADDRESS))
#define RESULTS          (F(RESULT_TYPES) | F(RESULT_STRIDES) | F(RESULT_ADDRESS))
#define OTHER_GRADIENTS  (F(GRADIENT_OF_SLOPES) | F(GRADIENT_OF_SINKS) | F(DLSE) | F(IMPORTANCE) | F(OTHER_KEYS))
#define IN_FLOAT32       (WINDOWS | F(SINKS) | F(UNLIKE) | F(IN_PLACE) | RESULTS | OTHER_GRADIENTS)
#define IN_STATS         ((WINDOWS & ~F(EMPTY)) | F(SINKS) | F(UNLIKE) | F(DROPOUT) | F(WEIGHTS) | F(SCORES) | F(WIDTHS))
#define EVERYTHING       MHA_CUDA_EVERYTHING
#define BY_TILES         MHA_CUDA_BY_TILES
#define BY_ONE_TILE      MHA_CUDA_BY_ONE_TILE
#define BY_ORDER         MHA_CUDA_BY_ORDER
#define BY_DECODING      MHA_CUDA_BY_DECODING
#define BY_DECODING_MANY MHA_CUDA_BY_DECODING_MANY
#define BY_SMALL_HEADS   MHA_CUDA_BY_SMALL_HEADS
#define ANY_WIDTH        MHA_CUDA_ANY_WIDTH
#define MHA_ANY_TYPE     MHA_CUDA_ANY_TYPE

const mha_cuda_row mha_cuda_table[] = {
#define ATTENTION(module, name, prepare, rows_kernel, pass, method, type, ...)                   \
    {MHA_CUDA_K_##name, MHA_CUDA_K_##prepare, MHA_CUDA_K_##rows_kernel, MHA_CUDA_##pass, method, \
     MHA_##type,        __VA_ARGS__},
#include "cuda/kernels/kernels.def"
};

const int mha_cuda_table_rows = (int)(sizeof mha_cuda_table / sizeof *mha_cuda_table);

const char *mha_cuda_feature_name(mha_cuda_features features)
{
    static const char *const names[] = {
#define NAME(name, why) why,
        MHA_CUDA_FEATURES(NAME)
#undef NAME
    };
    return features ? names[__builtin_ctzll(features)] : NULL;
}

bool mha_cuda_is_for(const mha_cuda_row *row, mha_cuda_pass pass, mha_cuda_method method, mha_type type)
{
    return row->pass == pass && row->method == method && (row->type == (int)type || row->type == MHA_CUDA_ANY_TYPE);
}

bool mha_cuda_takes(const mha_cuda_row *row, int64_t D, int64_t E, mha_cuda_features features)
{
    return D <= row->D && E <= row->E && !(features & ~row->takes) && !(row->wants & ~features);
}

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

enum { BARRIERS = 1024 }; /* at least the bytes of barriers and single numbers behind the tiles */

/* Q and two or four stages of K and V; tiles of bias, or masks and bits; where there is room, results, and Q once more where it does not
 * stay in registers. */
static size_t forward_shared(const mha_cuda_row *row)
{
    const bool biases = row->takes & F(BIAS_IN_TILES), masks = row->takes & F(MASK), alone = biases && !masks;
    const size_t columns = ((size_t)row->D + 63) / 64 * 64, keys = (size_t)row->keys, rows = (size_t)row->rows;
    const size_t q = 2 * rows * columns, stages = columns > 64 || alone ? 2 : 4,
                 tiles = q + stages * 4 * keys * columns + BARRIERS, room = columns <= 64 ? q : 0;
    if (alone) return tiles + room + rows * keys * sizeof(float);
    if (biases) return tiles + rows * keys * sizeof(float);
    if (masks) return tiles + room + (rows / 64 * MHA_CUDA_BIT_BYTES(keys) + 1023) / 1024 * 1024;
    return tiles + (columns > 128 ? 0 : rows > 128 ? 2 * q : q);
}

/* K and V, three stages of Q, dO and the numbers of rows, two of dS; two stages with maps or wide heads, which have no tiles of bias. */
static size_t backward_shared(const mha_cuda_row *row)
{
    const bool maps = mha_cuda_has_maps(row);
    const size_t d = (size_t)row->D, r = (size_t)row->rows, k = (size_t)row->keys, stages = maps || d > 128 ? 2 : 3;
    return 2 * (2 * k * d + stages * 2 * r * d + 2 * r * k) + stages * 3 * r * sizeof(float) + BARRIERS / 2 +
           (maps ? (d > 128 ? 0 : MHA_CUDA_MAP_BYTES) + MHA_CUDA_BIT_BYTES(k) : 0);
}

/* Stages of K and V, the rows, and what warps tell each other. */
static size_t decode_shared(const mha_cuda_row *row)
{
    const int d = row->D, keys = MHA_CUDA_DECODE_STAGES(d) * row->keys;
    return 2 * (size_t)(2 * keys * d + row->rows * (d + 8)) + BARRIERS;
}

static size_t decode_many_shared(const mha_cuda_row *row)
{
    const int d = row->D, e = row->E, rows = row->rows;
    return 2 * (size_t)(rows * d + MHA_CUDA_MANY_STAGES(d, e, rows) * row->keys * (d + e)) + BARRIERS;
}

/* Q, stages of K, sums of rows and of columns: shared_memory of stats_hopper.cu. */
static size_t stats_shared(const mha_cuda_row *row)
{
    enum { COMPUTE = 128 * MHA_CUDA_STATS_GROUPS, SUMS = 16 };
    size_t tiles = (size_t)(row->rows + MHA_CUDA_STATS_STAGES * row->keys) * (size_t)row->D * 2;
    size_t rows = (size_t)SUMS * COMPUTE * 8,
           columns = (size_t)MHA_CUDA_STATS_SLOTS * (COMPUTE / 32) * (size_t)row->keys * 4;
    return tiles + rows + columns + 1024;
}

/* Q and K of eight heads, lse of their rows, and sums of pairs: shared_memory of stats_pairs.cu. */
static size_t pairs_shared(const mha_cuda_row *row)
{
    enum { HEADS = MHA_CUDA_STATS_HEADS, PAIRS = HEADS * (HEADS - 1) / 2 };
    size_t tiles = (size_t)HEADS * (size_t)((row->rows + 2 * row->keys) * row->D) * 2;
    return tiles + (size_t)HEADS * (size_t)row->rows * 4 + (size_t)(4 * (row->rows / 64) * 2 * PAIRS) * 8 + 1024;
}

size_t mha_cuda_row_shared(const mha_cuda_row *row)
{
    if (row->type == MHA_CUDA_ANY_TYPE || row->method == BY_SMALL_HEADS) return 0;
    if (row->pass == MHA_CUDA_STATS) return stats_shared(row);
    if (row->pass == MHA_CUDA_PAIRS) return pairs_shared(row);
    if (row->method == BY_DECODING) return decode_shared(row);
    if (row->method == BY_DECODING_MANY) return decode_many_shared(row);
    if (row->type == MHA_FLOAT32)
        return row->pass == MHA_CUDA_FORWARD ? (size_t)MHA_CUDA_F32_SHARED(row->D)
                                             : (size_t)MHA_CUDA_F32_SHARED_BACK(row->D);
    return row->pass == MHA_CUDA_FORWARD ? forward_shared(row) : backward_shared(row);
}

size_t mha_cuda_attention_shared(mha_cuda_kernel kernel)
{
    for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++)
        if (row->kernel == kernel || (row->rows_kernel == kernel && row->type == MHA_FLOAT32))
            return mha_cuda_row_shared(row);
    return 0;
}
