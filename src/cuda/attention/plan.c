#include "cuda/attention/plan.h"
#include "cuda/kernels/general.h"

/* ---- Plans ------------------------------------------------------------------------------------------------------ */

enum { PROCESSORS = 132 }; /* of an H200: what is chosen by them changes no bits */

static int32_t tiles_of(int64_t count, int64_t size) { return (int32_t)((count + size - 1) / size); }

static int32_t clamp(int64_t x, int64_t low, int64_t high) { return (int32_t)(x < low ? low : x > high ? high : x); }

/* As many heads as have `bytes` each in half of the cache of the GPU. */
static int32_t section_of(int64_t heads, int64_t bytes)
{
    enum { CACHE = 32 << 20 };
    return clamp(bytes > 0 ? CACHE / bytes : heads, 1, heads > 1 ? heads : 1);
}

void mha_cuda_plan_method(mha_cuda_plan *plan, const mha_problem *p, const mha_cuda_choice *choice,
                          mha_cuda_method method)
{
    const mha_cuda_row *row = mha_cuda_row_for(choice, p, method);
    *plan =
        (mha_cuda_plan){.row = row, .choice = *choice, .spans = mha_cuda_has_spans(p), .edges = mha_cuda_edges_of(p)};
    plan->row_tiles = tiles_of(mha_cuda_most_of(p, 2), row->rows);
    plan->key_tiles = tiles_of(p->Tk, row->keys);
    plan->tiles = (int32_t)(plan->row_tiles * p->H * p->B);
    /* With spans, the keys of all sequences of a head count. */
    plan->section = plan->spans ? section_of(p->H, p->k.size[0] * p->k.size[2] * (p->D + p->E) * 2)
                                : section_of(p->B * p->H, p->Tk * (p->D + p->E) * 2);
}

void mha_cuda_plan_forward(mha_cuda_plan *plan, const mha_problem *p, const mha_cuda_choice *choice)
{
    const unsigned tiles = MHA_CUDA_BIT(MHA_CUDA_BY_TILES), one_tile = MHA_CUDA_BIT(MHA_CUDA_BY_ONE_TILE);
    const bool all_in_one = (choice->methods & (tiles | one_tile)) == one_tile;
    mha_cuda_plan_method(plan, p, choice, all_in_one ? MHA_CUDA_BY_ONE_TILE : MHA_CUDA_BY_TILES);
}

void mha_cuda_plan_anew(mha_cuda_plan *plan, const mha_problem *p)
{
    const mha_cuda_choice choice = mha_cuda_choose_tiles(p);
    mha_cuda_plan_forward(plan, p, &choice);
}

/* Tiles of rows that key tile `tile` of a call in order adds to. */
static int64_t steps_of(const mha_cuda_plan *plan, int32_t tile)
{
    const mha_cuda_row *row = plan->row;
    bool window = row->takes & MHA_CUDA_HAS(WINDOW) && tile; /* the first one writes all rows */
    return plan->row_tiles -
           mha_cuda_first_rows(tile * row->keys, row->rows, plan->row_tiles, plan->edges.right, window);
}

/* How many blocks share a head whose sums are in order: what takes the fewest steps of the multiprocessors. The first blocks of all heads, with
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
    plan->row_slots = mha_cuda_slots(B, rows, plan->row->rows, plan->row_tiles, packed_rows);
    plan->key_slots = mha_cuda_slots(B, keys, plan->row->keys, plan->key_tiles, packed_keys);
    plan->bound_slots = mha_cuda_slots(B, keys, MHA_CUDA_BOUND_KEYS, plan->bound_tiles, packed_keys);
    plan->tiles = (int32_t)(plan->key_slots * p->G);
    plan->section = section_of(p->G, p->q.size[0] * rows * plan->row->D * 8 * p->share);
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
    const int32_t most = tiles_of(plan->choice.limits.ordered, plan->row->keys);
    plan->ordered_tiles = plan->key_tiles < most ? plan->key_tiles : most;
    plan->parts = plan->ordered ? parts_of(plan, p->B * p->G) : 1;
    if (!plan->ordered) return;
    plan->bound_tiles = plan->bound_slots = 0;
    plan->tiles = (int32_t)(plan->parts * p->G * p->B);
}

void mha_cuda_plan_backward(mha_cuda_plan *plan, const mha_problem *p, const mha_cuda_choice *choice)
{
    const int64_t Tq = mha_cuda_most_of(p, 2), Tk = mha_cuda_most_of(p, 3);
    const unsigned tiles = MHA_CUDA_BIT(MHA_CUDA_BY_TILES), order = MHA_CUDA_BIT(MHA_CUDA_BY_ORDER);
    const bool ordered = (choice->methods & (tiles | order)) == order;
    const mha_cuda_row *row = mha_cuda_row_for(choice, p, ordered ? MHA_CUDA_BY_ORDER : MHA_CUDA_BY_TILES);
    *plan = (mha_cuda_plan){.row = row,
                            .choice = *choice,
                            .spans = (row->takes & MHA_CUDA_HAS(UNLIKE)) != 0,
                            .ordered = ordered,
                            .edges = mha_cuda_edges_of(p)};
    plan->row_tiles = tiles_of(Tq, row->rows);
    plan->key_tiles = tiles_of(Tk, row->keys);
    plan->bound_tiles = tiles_of(Tk, MHA_CUDA_BOUND_KEYS);
    plan->tiles = (int32_t)(plan->key_tiles * p->G * p->B);
    plan->sharers = row->D > 128 ? 1 : mha_cuda_sharers((int32_t)p->share, plan->spans ? 0 : (int32_t)Tq);
    plan->section = backward_section(plan, p->B * p->G, p->Tq * row->D * 8 * p->share);
    if (plan->spans) plan_slots(plan, p);
    if (choice->methods & order) plan_order(plan, p);
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

int64_t mha_cuda_repair_blocks(mha_cuda_kernel kernel, int64_t pieces, int processors)
{
    int64_t fit = processors * (kernel == MHA_CUDA_K_general_prepare ? 2 : 1);
    return pieces < fit ? pieces : fit;
}

/* ---- Scratch ---------------------------------------------------------------------------------------------------- */

static void lay_spans(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan, const mha_problem *p)
{
    if (!plan->spans) return;
    MHA_TAKE(arena, s->span_counts, MHA_CUDA_SPAN_COUNTS);
    for (unsigned n = 0; n < MHA_CUDA_SPAN_LISTS; n++)
        if (plan->choice.methods & MHA_CUDA_BIT(n)) MHA_TAKE(arena, s->spans[n], p->B * plan->row_tiles);
}

void mha_cuda_lay_forward(mha_cuda_scratch *s, mha_arena *arena, const mha_cuda_plan *plan, const mha_problem *p)
{
    *s = (mha_cuda_scratch){0};
    lay_spans(s, arena, plan, p);
    if (!mha_cuda_has_options(plan->row)) return;
    MHA_TAKE(arena, s->lost_rows, (int64_t)plan->tiles * plan->row->rows / 64);
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
    int64_t parts = !plan->ordered ? 1 : plan->key_tiles > 1 ? plan->parts : 0;
    if (!plan->ordered) MHA_TAKE(arena, s->bounds, bounds * 2);
    MHA_TAKE(arena, s->rows_about, mha_arena_times(row_tiles, ROW_KINDS * plan->row->rows));
    if (parts) MHA_TAKE(arena, s->sums, mha_arena_times(row_tiles, parts * plan->row->rows * plan->row->D));
    MHA_TAKE(arena, s->lost_keys, p->B * p->G * plan->key_tiles);
    MHA_TAKE(arena, s->lost_heads, p->B * p->G);
    if (!plan->ordered && plan->sharers > 1) {
        int64_t key_tiles = plan->spans ? p->G * plan->key_slots : p->B * p->G * plan->key_tiles;
        MHA_TAKE(arena, s->tickets, p->B * p->G * plan->key_tiles * 4);
        MHA_TAKE(arena, s->shares, mha_arena_times(key_tiles, (int64_t)2 * plan->row->keys * plan->row->D));
    }
    if (!plan->ordered) MHA_TAKE(arena, s->powers, p->B * p->G);
    if (plan->ordered || mha_cuda_has_options(plan->row)) MHA_TAKE(arena, s->lost_rows, tiles);
    if (!mha_cuda_has_options(plan->row)) return;
    MHA_TAKE(arena, s->any, 1);
    MHA_TAKE(arena, s->numbers, mha_arena_times(rows, MHA_CUDA_ROW_NUMBERS));
    if (p->extras.softmax.rank) return;
    mha_cuda_plan anew;
    mha_cuda_plan_anew(&anew, p);
    MHA_TAKE(arena, s->lost_anew, (int64_t)anew.tiles * anew.row->rows / 64);
    lay_spans(s, arena, &anew, p);
}
