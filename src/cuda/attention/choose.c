#include "cuda/attention/choose.h"
#include "core/arena.h"
#include "cuda/kernels/general.h"
#include "cuda/kernels/small.h"

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

/* Kernels count with 32 bits. */
mha_status mha_cuda_check_sizes(const mha_problem *p)
{
    enum { MOST = INT32_MAX / 4 };
    int64_t heads = mha_arena_times(p->B, p->H), rows = mha_arena_times(heads, p->Tq / 64 + 1),
            keys = mha_arena_times(heads, p->Tk / 64 + 1), widest = p->D > p->E ? p->D : p->E;
    rows = mha_arena_times(rows, widest / 128 + 1), keys = mha_arena_times(keys, widest / 128 + 1);
    if (p->Tq > MOST || p->Tk > MOST || heads > MOST || rows > MOST || keys > MOST || widest > MOST)
        return mha_fail(p->ctx, MHA_UNSUPPORTED, "q, k: have more rows than the kernels of cuda can count");
    return MHA_OK;
}

int64_t mha_cuda_most_of(const mha_problem *p, int axis)
{
    const mha_attention_options *o = &p->options;
    const mha_tensor all[] = {o->mask, o->bias, p->extras.scores}, weights = p->extras.weights;
    int64_t rows = axis == 2 ? p->Tq : p->Tk;
    if (!(axis == 2 ? o->query_starts : o->key_starts).rank) return rows;
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (all[n].rank && all[n].size[axis] > 1 && all[n].size[axis] < rows) rows = all[n].size[axis];
    int64_t shown = weights.rank ? weights.size[weights.rank - 4 + axis] : rows;
    return shown < rows ? shown : rows;
}

/* ---- Features --------------------------------------------------------------------------------------------------- */

#define HAS(name) MHA_CUDA_HAS(name)

bool mha_cuda_has_window(const mha_attention_options *o)
{
    return o->causal || o->window_left != MHA_UNLIMITED || o->window_right != MHA_UNLIMITED;
}

bool mha_cuda_has_spans(const mha_problem *p)
{
    return !mha_sequences_are_alike(&p->options) || p->options.align == MHA_ALIGN_OFFSET;
}

bool mha_cuda_has_bias_tiles(mha_tensor bias)
{
    enum { STEP = 16 };
    const int64_t each = (int64_t)mha_type_size(bias.type), most = INT64_C(1) << 40;
    bool good = bias.rank && mha_element_count(bias) && bias.size[2] > 1 && bias.size[3] > 1 && bias.stride[3] == 1 &&
                (uintptr_t)bias.data % STEP == 0;
    for (int axis = 0; axis < 3; axis++) {
        int64_t bytes = bias.stride[axis] * each;
        good = good && (bias.size[axis] == 1 || (bytes > 0 && bytes % STEP == 0 && bytes < most));
    }
    return good;
}

/* The copy engine takes rows of 16-bit numbers in steps of 16 bytes, forward; copies of float32 take any direction. */
bool mha_cuda_strides_fit(const mha_problem *p, mha_tensor t)
{
    const bool engine = p->q.type != MHA_FLOAT32;
    const int64_t step = engine ? 8 : 4, most = (INT64_C(1) << 40) / 2;
    if (!t.rank || !mha_element_count(t)) return true;
    bool fit = t.stride[3] == 1;
    for (int axis = 0; axis < 3; axis++) {
        const int64_t stride = t.stride[axis];
        fit = fit && (t.size[axis] < 2 || (stride % step == 0 && (!engine || (stride > 0 && stride < most))));
    }
    return fit;
}

bool mha_cuda_address_fits(mha_tensor t) { return !t.rank || !mha_element_count(t) || (uintptr_t)t.data % 16 == 0; }

static mha_cuda_features features_of_tensors(const mha_problem *p, const mha_tensor *all, size_t count, int types,
                                             int strides, int address)
{
    mha_cuda_features f = 0;
    for (size_t n = 0; n < count; n++) {
        if (all[n].rank && all[n].type != p->q.type) f |= UINT64_C(1) << types;
        if (!mha_cuda_strides_fit(p, all[n])) f |= UINT64_C(1) << strides;
        if (!mha_cuda_address_fits(all[n])) f |= UINT64_C(1) << address;
    }
    return f;
}

static mha_cuda_features features_of_layouts(const mha_problem *p, const mha_gradient_call *call)
{
    const mha_tensor keys[] = {p->k, p->v}, rows[] = {p->q, call ? call->dout : p->out};
    const bool engine = p->q.type != MHA_FLOAT32;
    const int strides = engine ? MHA_CUDA_FEATURE_STRIDES : MHA_CUDA_FEATURE_STRIDES_OF_FLOAT32,
              key_strides = engine ? MHA_CUDA_FEATURE_KEY_STRIDES : MHA_CUDA_FEATURE_STRIDES_OF_FLOAT32;
    mha_cuda_features f =
        features_of_tensors(p, keys, 2, MHA_CUDA_FEATURE_TYPES, key_strides, MHA_CUDA_FEATURE_KEY_ADDRESS) |
        features_of_tensors(p, rows, 2, MHA_CUDA_FEATURE_TYPES, strides, MHA_CUDA_FEATURE_ADDRESS);
    if (!call) return f;
    const mha_attention_gradients *g = &call->gradients;
    const mha_tensor results[] = {p->out, g->q, g->k, g->v};
    return f | features_of_tensors(p, results, 4, MHA_CUDA_FEATURE_RESULT_TYPES, MHA_CUDA_FEATURE_RESULT_STRIDES,
                                   MHA_CUDA_FEATURE_RESULT_ADDRESS);
}

/* The copy engine fills rows with zeros up to the width of a kernel. */
static bool width_fits(int64_t width, int64_t step, int64_t most)
{
    return width > 0 && width <= most && width % step == 0;
}

static mha_cuda_features features_of_widths(const mha_problem *p)
{
    const bool wide = !width_fits(p->D, 8, 256) || !width_fits(p->E, 8, 256),
               wide_float32 = !width_fits(p->D, 4, 128) || !width_fits(p->E, 4, 128);
    return (p->q.type != MHA_FLOAT32 && wide ? HAS(WIDTHS) : 0) |
           (p->q.type == MHA_FLOAT32 && wide_float32 ? HAS(WIDTHS_OF_FLOAT32) : 0);
}

static mha_cuda_features features_of_options(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    const bool in_tiles = o->bias.rank && o->bias.type == p->q.type && mha_cuda_has_bias_tiles(o->bias);
    return (p->extras.weights.rank ? HAS(WEIGHTS) : 0) | (p->extras.scores.rank ? HAS(SCORES) : 0) |
           (!(o->scale > 0 && o->scale < 1e30f) ? HAS(SCALE) : 0) | (o->softcap > 0 ? HAS(SOFTCAP) : 0) |
           (o->alibi_slopes.rank ? HAS(SLOPES) : 0) | (o->mask.rank ? HAS(MASK) : 0) |
           (in_tiles ? HAS(BIAS_IN_TILES) : 0) | (o->bias.rank && !in_tiles ? HAS(BIAS) : 0) |
           (o->dropout > 0 ? HAS(DROPOUT) : 0) | (o->sinks.rank ? HAS(SINKS) : 0) | (o->causal ? HAS(CAUSAL) : 0) |
           (o->window_left != MHA_UNLIMITED || o->window_right != MHA_UNLIMITED ? HAS(WINDOW) : 0) |
           (mha_cuda_has_spans(p) ? HAS(UNLIKE) : 0);
}

static mha_cuda_features features_of_gradients(const mha_gradient_call *call, mha_cuda_features options)
{
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    const mha_cuda_features any = HAS(SOFTCAP) | HAS(SLOPES) | HAS(SINKS) | HAS(UNLIKE) | HAS(MASK) | HAS(BIAS) |
                                  HAS(BIAS_IN_TILES) | HAS(DROPOUT);
    return (options & any && p->q.data && mha_same_view(p->out, p->q) ? HAS(IN_PLACE) : 0) |
           (g->alibi_slopes.rank ? HAS(GRADIENT_OF_SLOPES) : 0) | (g->sinks.rank ? HAS(GRADIENT_OF_SINKS) : 0) |
           (call->dlse.rank ? HAS(DLSE) : 0) | (g->importance.rank ? HAS(IMPORTANCE) : 0) |
           (call->others ? HAS(OTHER_KEYS) : 0);
}

mha_cuda_edges mha_cuda_edges_of(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    const int32_t rows = (int32_t)p->Tq, keys = (int32_t)p->Tk;
    const int64_t offset = p->B && !mha_cuda_has_spans(p) ? mha_sequence_get(p, 0).offset : 0;
    return (mha_cuda_edges){.offset = (int32_t)mha_cuda_limit(offset, -rows, keys),
                            .left = mha_cuda_left_edge(offset, o->window_left, rows, keys),
                            .right = mha_cuda_right_edge(offset, o->causal ? 0 : o->window_right, rows, keys)};
}

/* About how long rows take in tiles of `tile` rows of heads of 64 columns: rounds of tiles, times the keys that a tile sees. More
 * warpgroups hide each other's waiting: 192 rows take a fifth longer than 128, 256 rows 1.7 times as long. What a row computes is the
 * same in tiles of any size, so that the number of multiprocessors, which is that of an H200, changes no bits. */
static int64_t time_of_tiles(const mha_problem *p, mha_cuda_edges edges, int64_t tile)
{
    enum { PROCESSORS = 132 };
    const int64_t tiles = (mha_cuda_most_of(p, 2) + tile - 1) / tile,
                  rounds = (p->B * p->H * tiles + PROCESSORS - 1) / PROCESSORS;
    int64_t seen = p->options.causal && rounds > 1 ? (p->Tk + tile) / 2 : p->Tk;
    const int64_t most = (int64_t)edges.right - edges.left + tile;
    if (seen > most) seen = most;
    return rounds * seen * (tile > 192 ? 17 : tile > 128 ? 12 : 10);
}

static mha_cuda_features features_of_shape(const mha_problem *p)
{
    const mha_cuda_edges edges = mha_cuda_edges_of(p);
    const int64_t of_128 = time_of_tiles(p, edges, 128);
    const bool groups = mha_cuda_sharers((int32_t)p->share, (int32_t)mha_cuda_most_of(p, 2)) > 1;
    return (!mha_element_count(p->q) || !mha_element_count(p->k) ? HAS(EMPTY) : 0) |
           (p->share * mha_cuda_most_of(p, 2) > 64 ? HAS(OVER_64_ROWS) : 0) | (groups ? HAS(LARGE_GROUPS) : 0) |
           (of_128 <= time_of_tiles(p, edges, 192) ? HAS(WASTES_192_ROWS) : 0) |
           (of_128 <= time_of_tiles(p, edges, 256) ? HAS(WASTES_256_ROWS) : 0);
}

mha_cuda_features mha_cuda_features_of(mha_cuda_pass pass, const mha_problem *p, const mha_gradient_call *call)
{
    const mha_cuda_features options = features_of_options(p);
    const bool of_stats = pass == MHA_CUDA_STATS || pass == MHA_CUDA_PAIRS;
    return features_of_layouts(p, call) | features_of_widths(p) | options | features_of_shape(p) |
           (of_stats && p->D != 64 && p->D != 128 ? HAS(WIDTH_OF_STATS) : 0) |
           (call ? features_of_gradients(call, options) : 0);
}

/* ---- Methods ---------------------------------------------------------------------------------------------------- */

/* The most rows of a sequence that a method is for, and keys where they count (schedule.h). */
static int64_t limit_of(mha_cuda_method method, const mha_problem *p)
{
    enum {
        ROWS_OF_A_TILE = 16, /* decoding: more rows of a query head fill the tiles of the other kernels */
        ORDERED = 512        /* rows and keys: beyond, one block for a head is slower than many that add integers */
    };
    const int64_t few = MHA_CUDA_DECODE_MOST / p->share, many = MHA_CUDA_MANY_ROWS / p->share;
    switch (method) {
    case MHA_CUDA_BY_SMALL_HEADS:
        return MHA_CUDA_SMALL_LENGTH;
    case MHA_CUDA_BY_DECODING:
        return few;
    case MHA_CUDA_BY_DECODING_MANY:
        return many < ROWS_OF_A_TILE ? many : ROWS_OF_A_TILE;
    case MHA_CUDA_BY_ONE_TILE:
        return MHA_CUDA_ONE_TILE_ROWS;
    case MHA_CUDA_BY_ORDER:
        return ORDERED;
    default:
        return 0;
    }
}

static const mha_cuda_row *first_row(mha_cuda_pass pass, const mha_problem *p, mha_cuda_method method,
                                     mha_cuda_features features)
{
    for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++)
        if (mha_cuda_is_for(row, pass, method, p->q.type) && mha_cuda_takes(row, p->D, p->E, features)) return row;
    return NULL;
}

const mha_cuda_row *mha_cuda_row_for(const mha_cuda_choice *choice, const mha_problem *p, mha_cuda_method method)
{
    return first_row(choice->pass, p, method, choice->features);
}

/* The limit of a method that has a kernel for the call, whatever the layout of its tensors. */
static int32_t limit_if_taken(const mha_cuda_choice *choice, const mha_problem *p, mha_cuda_method method)
{
    const int64_t most = limit_of(method, p);
    return most && first_row(choice->pass, p, method, choice->features & ~MHA_CUDA_LAYOUTS) ? (int32_t)most
                                                                                            : MHA_CUDA_NONE;
}

/* The method of a sequence is the same between numbers of rows, or keys, where a limit is: these, and one more, stand for all. */
static unsigned methods_among(const mha_problem *p, mha_cuda_limits most)
{
    const mha_attention_options *o = &p->options;
    const int32_t most_rows = (int32_t)mha_cuda_most_of(p, 2), most_keys = (int32_t)mha_cuda_most_of(p, 3);
    const int32_t least_rows = o->query_lengths.rank || o->query_starts.rank ? 0 : most_rows;
    const int32_t least_keys = o->key_lengths.rank || o->key_starts.rank ? 0 : most_keys;
    const int32_t ends[] = {most.small,       most.decoded, most.ordered, most.one_tile, MHA_CUDA_ONE_TILE_ABOVE,
                            most.decoded_many};
    enum { ENDS = sizeof ends / sizeof *ends, ALL = 2 * ENDS + 2 };
    int32_t rows[ALL] = {least_rows, most_rows}, keys[ALL] = {least_keys, most_keys};
    unsigned among = 0;
    for (int n = 0; n < 2 * ENDS; n++) rows[n + 2] = keys[n + 2] = ends[n / 2] + n % 2;
    for (int i = 0; i < ALL; i++)
        for (int j = 0; j < ALL; j++)
            if (rows[i] >= least_rows && rows[i] <= most_rows && keys[j] >= least_keys && keys[j] <= most_keys)
                among |= MHA_CUDA_BIT(mha_cuda_method_of(most, rows[i], keys[j]));
    return among;
}

/* ---- The choice ------------------------------------------------------------------------------------------------- */

/* What none of the kernels for a type takes: they are those of tiles, which all sequences may have. */
static const char *why_general(const mha_cuda_choice *choice, const mha_problem *p)
{
    mha_cuda_features missing = choice->features;
    bool any = false;
    for (const mha_cuda_row *row = mha_cuda_table; row < mha_cuda_table + mha_cuda_table_rows; row++)
        if (mha_cuda_is_for(row, choice->pass, MHA_CUDA_BY_TILES, p->q.type) && row->type != MHA_CUDA_ANY_TYPE)
            missing &= ~row->takes, any = true;
    return any ? mha_cuda_feature_name(missing) : mha_type_name(p->q.type);
}

mha_cuda_choice mha_cuda_choose(mha_cuda_pass pass, const mha_problem *p, const mha_gradient_call *call)
{
    mha_cuda_choice c = {.pass = pass, .features = mha_cuda_features_of(pass, p, call)};
    c.limits = (mha_cuda_limits){.one_tile = limit_if_taken(&c, p, MHA_CUDA_BY_ONE_TILE),
                                 .ordered = limit_if_taken(&c, p, MHA_CUDA_BY_ORDER),
                                 .decoded = limit_if_taken(&c, p, MHA_CUDA_BY_DECODING),
                                 .small = limit_if_taken(&c, p, MHA_CUDA_BY_SMALL_HEADS),
                                 .decoded_many = limit_if_taken(&c, p, MHA_CUDA_BY_DECODING_MANY)};
    c.methods = methods_among(p, c.limits);
    bool all = true; /* methods have a kernel for the call as it is */
    for (int n = MHA_CUDA_METHODS - 1; n >= 0; n--) {
        if (!(c.methods & MHA_CUDA_BIT(n))) continue;
        c.row = mha_cuda_row_for(&c, p, (mha_cuda_method)n);
        all = all && c.row;
    }
    /* Otherwise all sequences have a general one, which takes what nothing else does. */
    if (!all) c.row = first_row(pass, p, MHA_CUDA_BY_TILES, MHA_CUDA_EVERYTHING);
    if (mha_cuda_is_general(&c)) c.why_not = why_general(&c, p);
    return c;
}

mha_cuda_choice mha_cuda_choose_tiles(const mha_problem *p)
{
    mha_cuda_choice c = mha_cuda_choose(MHA_CUDA_FORWARD, p, NULL);
    c.limits.small = c.limits.decoded = c.limits.decoded_many = MHA_CUDA_NONE;
    c.methods = methods_among(p, c.limits);
    c.row =
        mha_cuda_row_for(&c, p, c.methods & MHA_CUDA_BIT(MHA_CUDA_BY_TILES) ? MHA_CUDA_BY_TILES : MHA_CUDA_BY_ONE_TILE);
    return c;
}
