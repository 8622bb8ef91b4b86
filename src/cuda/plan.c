#include "cuda/plan.h"
#include "cuda/attention/ways.h"
#include "cuda/general.h"
#include "cuda/schedule.h"
#include "cuda/spans.h"

/* ---- Kernels ---------------------------------------------------------------------------------------------------- */

const int mha_cuda_decode_widths[MHA_CUDA_DECODE_WIDTHS] = {64, 128, 256};
const mha_cuda_many_columns mha_cuda_many_widths[MHA_CUDA_MANY_WIDTHS] = {
    {64, 64}, {128, 128}, {192, 128}, {192, 192}, {256, 256}};

/* The columns of the backward kernels, and the rows and keys of their tiles. */
static const struct {
    int columns, rows, keys;
} backward_widths[MHA_CUDA_BACKWARD_WIDTHS] = {{64, 128, 128}, {128, 64, 128}, {256, 64, 64}};

int mha_cuda_forward_groups(int width, mha_cuda_kind kind, bool few)
{
    if (few || (kind >= MHA_CUDA_OPTIONS && kind != MHA_CUDA_BIASED)) return 2;
    return width == MHA_CUDA_SHORT ? 4 : width ? 2 : 3;
}

/* The columns of the forward kernels, and for each kind the keys of a block: as many as registers and shared memory take. */
static const struct {
    int columns, keys[MHA_CUDA_KINDS];
} forward_widths[MHA_CUDA_FORWARD_WIDTHS] = {
    {64, {128, 128, 128, 128, 128, 128}}, {128, {128, 128, 128, 128, 128, 128}}, {96, {128, 128, 128, 128, 128, 128}},
    {192, {112, 112, 112, 64, 96}},       {256, {80, 80, 80, 64, 64}},           [MHA_CUDA_SHORT] = {64, {64, 0, 64}}};

int mha_cuda_forward_keys(int width, mha_cuda_kind kind) { return forward_widths[width].keys[kind]; }

/* The next larger one. */
static int forward_width_of(int64_t columns)
{
    int best = MHA_CUDA_SHORT - 1;
    for (int n = 0; n < MHA_CUDA_SHORT; n++)
        if (forward_widths[n].columns >= columns && forward_widths[n].columns < forward_widths[best].columns) best = n;
    return best;
}

enum { BARRIERS = 1024 }; /* at least the bytes of barriers and single numbers behind the tiles */

/* Q and two or four stages of K and V; tiles of bias, or masks and bits; where there is room, results, and Q once more where it does not
 * stay in registers. */
size_t mha_cuda_forward_shared(int width, mha_cuda_kind kind, bool few)
{
    size_t columns = ((size_t)forward_widths[width].columns + 63) / 64 * 64,
           keys = (size_t)mha_cuda_forward_keys(width, kind),
           groups = (size_t)mha_cuda_forward_groups(width, kind, few), q = 2 * 64 * groups * columns,
           stages = columns > 64 || kind == MHA_CUDA_BIASED ? 2 : 4, tiles = q + stages * 4 * keys * columns + BARRIERS;
    if (kind == MHA_CUDA_MAPS) return tiles + groups * 64 * keys * sizeof(float);
    if (kind == MHA_CUDA_BIASED) return tiles + (columns <= 64 ? q : 0) + groups * 64 * keys * sizeof(float);
    if (kind == MHA_CUDA_BITS)
        return tiles + (columns <= 64 ? q : 0) + (groups * MHA_CUDA_BIT_BYTES(keys) + 1023) / 1024 * 1024;
    return tiles + (columns > 128 ? 0 : kind < MHA_CUDA_OPTIONS && groups > 2 ? 2 * q : q);
}

/* K and V, three stages of Q, dO and the numbers of rows, two of dS; two stages with maps or wide heads, which have no tiles of bias. */
size_t mha_cuda_backward_shared(int width, mha_cuda_kind kind)
{
    bool maps = kind == MHA_CUDA_MAPS;
    size_t d = (size_t)backward_widths[width].columns, r = (size_t)backward_widths[width].rows,
           k = (size_t)backward_widths[width].keys, stages = maps || d > 128 ? 2 : 3;
    return 2 * (2 * k * d + stages * 2 * r * d + 2 * r * k) + stages * 3 * r * sizeof(float) + BARRIERS / 2 +
           (maps ? (d > 128 ? 0 : MHA_CUDA_MAP_BYTES) + MHA_CUDA_BIT_BYTES(k) : 0);
}

/* Stages of K and V, the rows, and what warps tell each other. */
size_t mha_cuda_decode_shared(int width)
{
    int d = mha_cuda_decode_widths[width], keys = MHA_CUDA_DECODE_STAGES(d) * MHA_CUDA_DECODE_TILE(d);
    return 2 * (size_t)(2 * keys * d + MHA_CUDA_DECODE_ROWS * (d + 8)) + BARRIERS;
}

int mha_cuda_decode_width(const mha_problem *p)
{
    int width = 0;
    while (mha_cuda_decode_widths[width] < p->D || mha_cuda_decode_widths[width] < p->E) width++;
    return width;
}

int mha_cuda_many_width(const mha_problem *p)
{
    int width = 0;
    while (mha_cuda_many_widths[width].keys < p->D || mha_cuda_many_widths[width].values < p->E) width++;
    return width;
}

bool mha_cuda_many_is_wide(const mha_problem *p) { return p->share * mha_cuda_most_of(p, 2) > 64; }

size_t mha_cuda_many_shared(int width, bool wide)
{
    int d = mha_cuda_many_widths[width].keys, e = mha_cuda_many_widths[width].values, rows = wide ? 128 : 64;
    return 2 * (size_t)(rows * d + MHA_CUDA_MANY_STAGES(d, e, rows) * MHA_CUDA_MANY_TILE * (d + e)) + BARRIERS;
}

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

/* ---- Plans ------------------------------------------------------------------------------------------------------ */

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

static int32_t tiles_of(int64_t count, int64_t size) { return (int32_t)((count + size - 1) / size); }

static int32_t clamp(int64_t x, int64_t low, int64_t high) { return (int32_t)(x < low ? low : x > high ? high : x); }

/* As many heads as have `bytes` each in half of the cache of the GPU. */
static int32_t section_of(int64_t heads, int64_t bytes)
{
    enum { CACHE = 32 << 20 };
    return clamp(bytes > 0 ? CACHE / bytes : heads, 1, heads > 1 ? heads : 1);
}

static void start(mha_cuda_plan *plan, const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    int64_t offset = p->B && !mha_cuda_has_spans(p) ? mha_sequence_get(p, 0).offset : 0;
    int64_t right = o->causal ? 0 : o->window_right;
    *plan = (mha_cuda_plan){
        .type = p->q.type == MHA_FLOAT16,
        .kind = mha_cuda_has_options(p)  ? MHA_CUDA_OPTIONS
                : mha_cuda_has_window(o) ? MHA_CUDA_WINDOW
                                         : MHA_CUDA_FULL,
        .offset = clamp(offset, -p->Tq, p->Tk),
        .left = clamp(o->window_left == MHA_UNLIMITED ? -p->Tq : offset - o->window_left, -p->Tq, p->Tk),
        .right = clamp(right == MHA_UNLIMITED ? p->Tk : offset + right, -p->Tq, p->Tk),
    };
}

enum { PROCESSORS = 132 }; /* of an H200: what is chosen by them changes no bits */

/* About how long rows take in tiles of `tile` rows of heads of 64 columns: rounds of tiles, times the keys that a tile sees. More
 * warpgroups hide each other's waiting: 192 rows take a fifth longer than 128, 256 rows 1.7 times as long. */
static int64_t forward_time(const mha_cuda_plan *plan, const mha_problem *p, int64_t rows, int64_t tile)
{
    int64_t rounds = tiles_of(p->B * p->H * tiles_of(rows, tile), PROCESSORS);
    int64_t seen = p->options.causal && rounds > 1 ? (p->Tk + tile) / 2 : p->Tk;
    int64_t most = plan->right - plan->left + tile;
    if (seen > most) seen = most;
    return rounds * seen * (tile > 192 ? 17 : tile > 128 ? 12 : 10);
}

void mha_cuda_plan_way(mha_cuda_plan *plan, const mha_problem *p, mha_cuda_way way)
{
    int64_t widest = p->D > p->E ? p->D : p->E, Tq = mha_cuda_most_of(p, 2);
    start(plan, p);
    plan->width = forward_width_of(widest);
    plan->spans = mha_cuda_has_spans(p);
    /* Dropout alone is faster where all warps that compute decide for themselves. */
    if (mha_cuda_has_maps(p))
        plan->kind = p->options.bias.rank || !p->options.mask.rank ? MHA_CUDA_MAPS : MHA_CUDA_BITS;
    else if (plan->spans) plan->kind = MHA_CUDA_OPTIONS;
    if (mha_cuda_has_bias_alone(p) && widest <= 128) plan->kind = MHA_CUDA_BIASED;
    /* One tile of 256 rows, with blocks of 64 keys to have registers for it: the bits are not those of other blocks. */
    if (way == MHA_CUDA_BY_SHORT_TILES) plan->width = MHA_CUDA_SHORT;
    /* What a row computes is the same in tiles of fewer rows. */
    plan->few = forward_time(plan, p, Tq, 128) <= forward_time(plan, p, Tq, plan->width == MHA_CUDA_SHORT ? 256 : 192);
    plan->keys = mha_cuda_forward_keys(plan->width, plan->kind);
    int groups = mha_cuda_forward_groups(plan->width, plan->kind, plan->few);
    plan->kernel = mha_cuda_forward_name(plan->type, plan->width, plan->kind, plan->few);
    plan->rows = 64 * groups;
    plan->threads = 128 * (groups + 1 + (plan->kind == MHA_CUDA_BITS && widest <= 128));
    plan->row_tiles = tiles_of(Tq, plan->rows);
    plan->key_tiles = tiles_of(p->Tk, plan->keys);
    plan->tiles = (int32_t)(plan->row_tiles * p->H * p->B);
    /* With spans, the keys of all sequences of a head count. */
    plan->section = plan->spans ? section_of(p->H, p->k.size[0] * p->k.size[2] * (p->D + p->E) * 2)
                                : section_of(p->B * p->H, p->Tk * (p->D + p->E) * 2);
    plan->shared = mha_cuda_forward_shared(plan->width, plan->kind, plan->few);
}

static void plan_forward(mha_cuda_plan *plan, const mha_problem *p, mha_cuda_ways ways)
{
    const unsigned both = MHA_CUDA_BIT(MHA_CUDA_BY_TILES) | MHA_CUDA_BIT(MHA_CUDA_BY_SHORT_TILES),
                   among = mha_cuda_ways_among(p, ways);
    bool is_short = (among & both) == MHA_CUDA_BIT(MHA_CUDA_BY_SHORT_TILES);
    mha_cuda_plan_way(plan, p, is_short ? MHA_CUDA_BY_SHORT_TILES : MHA_CUDA_BY_TILES);
    plan->ways = ways, plan->among = among;
}

void mha_cuda_plan_forward(mha_cuda_plan *plan, const mha_problem *p)
{
    plan_forward(plan, p, mha_cuda_ways_forward(p));
}

void mha_cuda_plan_anew(mha_cuda_plan *plan, const mha_problem *p)
{
    mha_cuda_ways ways = mha_cuda_ways_forward(p);
    ways.small = ways.decoded = ways.decoded_many = MHA_CUDA_NONE;
    plan_forward(plan, p, ways);
}

/* Tiles of rows that key tile `tile` of a brief call adds to. */
static int64_t steps_of(const mha_cuda_plan *plan, int32_t tile)
{
    bool window = plan->kind != MHA_CUDA_FULL && tile; /* the first one writes all rows */
    return plan->row_tiles - mha_cuda_first_rows(tile * plan->keys, plan->rows, plan->row_tiles, plan->right, window);
}

/* How many blocks share a head of a brief call: what takes the fewest steps of the multiprocessors. The first blocks of all heads, with
 * `own` tiles each, come first, and the others, with up to `next` steps each, fill what these leave. Adding a tile of a part afterwards
 * costs a third of a step, and beginning with that another one. Sums are the same, so that the number of heads decides nothing else. */
static int32_t parts_of(const mha_cuda_plan *plan, int64_t heads)
{
    int64_t all = 0, first = 0, least = INT64_MAX;
    int32_t parts = 1;
    for (int32_t tile = 0; tile < plan->key_tiles; tile++) all += steps_of(plan, tile);
    for (int32_t own = 1; own <= plan->key_tiles; own++) {
        int64_t next = own < plan->key_tiles ? steps_of(plan, own) : 0;
        first += steps_of(plan, own - 1);
        int64_t longest = tiles_of(heads, PROCESSORS) * first;
        int64_t even = next ? tiles_of(heads * all, PROCESSORS * next) * next : 0;
        int64_t added = next ? heads * (next + all - first) + PROCESSORS : 0;
        int64_t time = 3 * PROCESSORS * (even > longest ? even : longest) + added;
        if (time <= least) least = time, parts = plan->key_tiles - own + 1;
    }
    return parts;
}

/* Tiles of all sequences, and heads whose rows are worked on together. */
static void plan_slots(mha_cuda_plan *plan, const mha_problem *p)
{
    int packed_rows = p->options.query_starts.rank > 0, packed_keys = p->options.key_starts.rank > 0;
    int32_t B = (int32_t)p->B;
    int64_t rows = p->q.size[2], keys = p->k.size[2];
    plan->row_slots = mha_cuda_slots(B, rows, plan->rows, plan->row_tiles, packed_rows);
    plan->key_slots = mha_cuda_slots(B, keys, plan->keys, plan->key_tiles, packed_keys);
    plan->bound_slots = mha_cuda_slots(B, keys, MHA_CUDA_BOUND_KEYS, plan->bound_tiles, packed_keys);
    plan->tiles = (int32_t)(plan->key_slots * p->G);
    plan->section = section_of(p->G, p->q.size[0] * rows * backward_widths[plan->width].columns * 8 * p->share);
}

/* Key heads that are worked on together, with `bytes` of rows each, in sections of about the same size: as many as the GPU's cache
 * may hold rows of, and more if their tiles were too few for all multiprocessors, which would wait for the longest of the last section. */
static int32_t backward_section(const mha_cuda_plan *plan, int64_t heads, int64_t bytes)
{
    int64_t cached = 2 * (int64_t)section_of(heads, bytes), enough = plan->key_tiles ? PROCESSORS / plan->key_tiles : 1;
    int32_t sections = tiles_of(heads, cached > enough ? cached : enough);
    return sections ? tiles_of(heads, sections) : 1;
}

/* Where dQ of sequences is summed in order: of all, or, where other sums are integers, by one block for each head. */
static void plan_order(mha_cuda_plan *plan, const mha_problem *p)
{
    const int32_t most = tiles_of(plan->ways.ordered, plan->keys);
    plan->ordered_tiles = plan->key_tiles < most ? plan->key_tiles : most;
    plan->brief = !(plan->among & MHA_CUDA_BIT(MHA_CUDA_BY_TILES));
    plan->parts = plan->brief ? parts_of(plan, p->B * p->G) : 1;
    if (!plan->brief) return;
    plan->kernel = mha_cuda_brief_name(plan->type, plan->width, plan->kind, MHA_CUDA_MAIN);
    plan->bound_tiles = plan->bound_slots = 0;
    plan->tiles = (int32_t)(plan->parts * p->G * p->B);
}

void mha_cuda_plan_backward(mha_cuda_plan *plan, const mha_problem *p)
{
    int64_t Tq = mha_cuda_most_of(p, 2), Tk = mha_cuda_most_of(p, 3), widest = p->D > p->E ? p->D : p->E;
    start(plan, p);
    plan->ways = mha_cuda_ways_backward(p);
    plan->among = mha_cuda_ways_among(p, plan->ways);
    while (backward_widths[plan->width].columns < widest) plan->width++;
    if (mha_cuda_has_maps(p)) plan->kind = MHA_CUDA_MAPS;
    else if (mha_cuda_has_spans(p)) plan->kind = mha_cuda_is_plain(p) ? MHA_CUDA_SEQUENCES : MHA_CUDA_SEQUENCES_OPTIONS;
    plan->spans = plan->kind >= MHA_CUDA_MAPS;
    plan->kernel = mha_cuda_backward_name(plan->type, plan->width, plan->kind, MHA_CUDA_MAIN);
    plan->rows = backward_widths[plan->width].rows, plan->keys = backward_widths[plan->width].keys;
    plan->threads = 384;
    plan->row_tiles = tiles_of(Tq, plan->rows);
    plan->key_tiles = tiles_of(Tk, plan->keys);
    plan->bound_tiles = tiles_of(Tk, MHA_CUDA_BOUND_KEYS);
    plan->tiles = (int32_t)(plan->key_tiles * p->G * p->B);
    plan->sharers =
        plan->width < MHA_CUDA_WIDTHS ? mha_cuda_sharers((int32_t)p->share, plan->spans ? 0 : (int32_t)Tq) : 1;
    plan->section = backward_section(plan, p->B * p->G, p->Tq * backward_widths[plan->width].columns * 8 * p->share);
    plan->shared = mha_cuda_backward_shared(plan->width, plan->kind);
    if (plan->spans) plan_slots(plan, p);
    if (plan->among & MHA_CUDA_BIT(MHA_CUDA_BY_ORDER)) plan_order(plan, p);
    if (mha_cuda_has_shared(plan)) plan->kernel = mha_cuda_shared_name(plan->type, plan->width, plan->kind);
}

bool mha_cuda_has_shared(const mha_cuda_plan *plan)
{
    return plan->sharers > 1 && !plan->brief && plan->width < MHA_CUDA_WIDTHS && plan->kind <= MHA_CUDA_WINDOW;
}

int32_t mha_cuda_bias_launches(const mha_gradient_call *call)
{
    enum { MOST = 64 };
    const mha_problem *p = &call->problem;
    const int64_t *size = call->dbias.size;
    if (!call->dbias.rank || (size[1] == 1 && p->H > 1) || (size[2] == 1 && mha_cuda_most_of(p, 2) > 1) ||
        (size[3] == 1 && mha_cuda_most_of(p, 3) > 1))
        return 0;
    if (size[0] > 1 || p->B == 1) return 1;
    return p->B <= MOST && !mha_options_are_ragged(&p->options) ? (int32_t)p->B : 0;
}

int64_t mha_cuda_repair_blocks(mha_cuda_general_kernel kernel, int64_t pieces, int processors)
{
    int64_t fit = processors * (kernel == MHA_CUDA_GENERAL_PREPARE ? 2 : 1);
    return pieces < fit ? pieces : fit;
}

/* ---- Scratch ---------------------------------------------------------------------------------------------------- */

static void lay_spans(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan, const mha_problem *p)
{
    if (!plan->spans) return;
    MHA_TAKE(arena, s->span_counts, MHA_CUDA_SPAN_COUNTS);
    for (unsigned way = 0; way < MHA_CUDA_SPAN_LISTS; way++)
        if (plan->among & MHA_CUDA_BIT(way)) MHA_TAKE(arena, s->spans[way], p->B * plan->row_tiles);
}

void mha_cuda_lay_forward(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan, const mha_problem *p)
{
    *s = (mha_cuda_scratch){0};
    lay_spans(s, arena, plan, p);
    if (plan->kind < MHA_CUDA_OPTIONS) return;
    MHA_TAKE(arena, s->lost_rows, (int64_t)plan->tiles * plan->rows / 64);
    if (mha_same_view(p->out, p->q) && p->output_role == MHA_OUTPUT) /* q is read again where something is lost */
        s->q = mha_arena_take(arena, mha_element_count(p->q), mha_type_size(p->q.type));
}

void mha_cuda_lay_backward(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan,
                           const mha_gradient_call *call)
{
    enum { HALF = 2, ROW_KINDS = 3 }; /* bytes of an element; lse, delta and power of a row */
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    int64_t heads = p->B * p->H, tiles = heads * plan->row_tiles, bounds = p->B * p->G * plan->bound_tiles,
            row_tiles = plan->spans ? p->H * plan->row_slots : tiles,
            rows = mha_arena_times(p->q.size[0] * p->H, p->q.size[2]);
    if (plan->spans) bounds = p->G * plan->bound_slots;
    *s = (mha_cuda_scratch){0};
    MHA_TAKE(arena, s->lse, rows);
    if (!p->extras.softmax.rank) s->out = mha_arena_take(arena, mha_element_count(p->out), HALF);
    if (!g->q.rank) s->dq = mha_arena_take(arena, mha_element_count(p->q), HALF);
    if (!g->k.rank) s->dk = mha_arena_take(arena, mha_element_count(p->k), HALF);
    if (!g->v.rank) s->dv = mha_arena_take(arena, mha_element_count(p->v), HALF);
    int64_t parts = !plan->brief ? 1 : plan->key_tiles > 1 ? plan->parts : 0;
    if (!plan->brief) MHA_TAKE(arena, s->bounds, bounds * 2);
    MHA_TAKE(arena, s->rows_about, mha_arena_times(row_tiles, ROW_KINDS * plan->rows));
    if (parts)
        MHA_TAKE(arena, s->sums, mha_arena_times(row_tiles, parts * plan->rows * backward_widths[plan->width].columns));
    MHA_TAKE(arena, s->lost_keys, p->B * p->G * plan->key_tiles);
    MHA_TAKE(arena, s->lost_heads, p->B * p->G);
    if (!plan->brief && plan->sharers > 1) {
        int64_t key_tiles = plan->spans ? p->G * plan->key_slots : p->B * p->G * plan->key_tiles;
        MHA_TAKE(arena, s->tickets, p->B * p->G * plan->key_tiles * 4);
        MHA_TAKE(arena, s->shares,
                 mha_arena_times(key_tiles, (int64_t)2 * plan->keys * backward_widths[plan->width].columns));
    }
    if (!plan->brief) MHA_TAKE(arena, s->powers, p->B * p->G);
    if (plan->brief || plan->kind >= MHA_CUDA_OPTIONS) MHA_TAKE(arena, s->lost_rows, tiles);
    if (plan->kind < MHA_CUDA_OPTIONS) return;
    MHA_TAKE(arena, s->any, 1);
    MHA_TAKE(arena, s->numbers, mha_arena_times(rows, MHA_CUDA_ROW_NUMBERS));
    if (p->extras.softmax.rank) return;
    mha_cuda_plan anew;
    mha_cuda_plan_anew(&anew, p);
    MHA_TAKE(arena, s->lost_anew, (int64_t)anew.tiles * anew.rows / 64);
    lay_spans(s, arena, &anew, p);
}
