/* Calls for statistics of heads.
 *
 * Each result has one kernel, which depends on tensors and options alone and not on what else is asked for, so that its bits
 * do not either. */
#include "cuda/kernels/stats.h"
#include "cuda/attention/attention.h"
#include <stdio.h>
#include <string.h>

/* One call: what kernels are told. */
typedef struct work {
    mha_cuda_stats c;
    bool pairs;
    mha_cuda_choice rows, heads; /* the kernels of rows, and of pairs of heads */
} work;

static int64_t up(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* ---- Layout ----------------------------------------------------------------------------------------------------- */

/* The list of a row is one of two results, and the other one in scratch if only one is asked for. */
static void lay_tops(work *w, mha_arena *arena, const mha_stats_call *call)
{
    mha_tensor weights = call->want.top_weights, keys = call->want.top_keys, q = call->problem.q;
    mha_tensor like = weights.rank ? weights : keys;
    int64_t rows = mha_arena_times(q.size[0] * q.size[1], q.size[2]);
    if (!like.rank || !like.size[3]) return;
    if (!weights.rank) {
        float *list;
        MHA_TAKE(arena, list, mha_arena_times(rows, like.size[3]));
        weights = mha_tensor_4d(list, MHA_FLOAT32, q.size[0], q.size[1], q.size[2], like.size[3]);
    }
    if (!keys.rank) {
        int64_t *list;
        MHA_TAKE(arena, list, mha_arena_times(rows, like.size[3]));
        keys = mha_tensor_4d(list, MHA_INT64, q.size[0], q.size[1], q.size[2], like.size[3]);
    }
    w->c.top_weights = mha_cuda_view_of(weights);
    w->c.top_keys = mha_cuda_view_of(keys);
}

static void lay_out(work *w, mha_arena *arena, const mha_stats_call *call)
{
    const mha_problem *p = &call->problem;
    const mha_stats *want = &call->want;
    mha_cuda_stats *c = &w->c;
    int64_t heads = p->B * p->H, rows = mha_arena_times(p->q.size[0] * p->H, p->q.size[2]);
    MHA_TAKE(arena, c->g.rows, mha_arena_times(rows, MHA_CUDA_ROW_NUMBERS));
    c->received_pitch = up(p->Tk, MHA_CUDA_STATS_KEYS) * MHA_CUDA_STATS_KEYS;
    if (want->received.rank) MHA_TAKE(arena, c->received_sums, mha_arena_times(heads, c->received_pitch));
    if (want->heatmap.rank)
        MHA_TAKE(arena, c->heat_sums, mha_arena_times(mha_element_count(want->heatmap), MHA_CUDA_STATS_WORDS));
    lay_tops(w, arena, call);
    if (w->pairs && !mha_cuda_is_general(&w->heads)) MHA_TAKE(arena, c->lost_pairs, p->B * c->pair_tiles);
    if (!w->pairs) return;
    MHA_TAKE(arena, c->pair_sums, mha_arena_times(mha_arena_times(heads, c->pair_tiles), p->H * 2));
}

/* Everything but scratch. */
static work describe(const mha_stats_call *call)
{
    const mha_stats *want = &call->want;
    work w = {.pairs = want->divergence.rank || want->cosine.rank,
              .rows = mha_cuda_choose(MHA_CUDA_STATS, &call->problem, NULL),
              .heads = mha_cuda_choose(MHA_CUDA_PAIRS, &call->problem, NULL)};
    w.c = (mha_cuda_stats){.g = mha_cuda_describe_general(&call->problem),
                           .entropy = mha_cuda_view_of(want->entropy),
                           .effective = mha_cuda_view_of(want->effective),
                           .largest = mha_cuda_view_of(want->largest),
                           .distance = mha_cuda_view_of(want->distance),
                           .mass = mha_cuda_view_of(want->mass),
                           .received = mha_cuda_view_of(want->received),
                           .heatmap = mha_cuda_view_of(want->heatmap),
                           .divergence = mha_cuda_view_of(want->divergence),
                           .cosine = mha_cuda_view_of(want->cosine),
                           .sets = mha_cuda_view_of(call->options.sets),
                           .sums_of_rows = w.pairs,
                           .grid_columns = call->options.grid_columns,
                           .grid_first = call->options.grid_first};
    w.c.g.out = (mha_cuda_view){0};
    w.c.g.dropped = 0;
    w.c.pair_tiles = w.c.g.row_tiles;
    return w;
}

/* ---- Launches --------------------------------------------------------------------------------------------------- */

/* A kernel that is not matched with calls. */
static mha_status start(mha_context *ctx, mha_cuda_kernel kernel, const mha_cuda_stats *c, int64_t blocks)
{
    mha_cuda_launch l = {kernel, blocks, MHA_CUDA_GENERAL_THREADS, 0};
    return mha_cuda_start(ctx, &l, c);
}

static mha_status start_row(mha_context *ctx, const mha_cuda_row *row, const mha_cuda_stats *c, int64_t blocks)
{
    mha_cuda_launch l = {row->kernel, blocks, row->threads, mha_cuda_row_shared(row)};
    return mha_cuda_start(ctx, &l, c);
}

/* The softmax of all rows where none is given: on tensor cores with results that nobody reads, or by itself. */
static mha_status start_softmax(work *w, const mha_stats_call *call, mha_arena *arena, bool really)
{
    mha_problem p = call->problem;
    if (p.extras.softmax.rank) return MHA_OK;
    p.v = p.k, p.E = p.D, p.options.dropout = 0, p.kept = 1;
    p.out = mha_tensor_4d(NULL, p.q.type, p.q.size[0], p.q.size[1], p.q.size[2], p.q.size[3]);
    const mha_cuda_choice choice = mha_cuda_choose(MHA_CUDA_FORWARD, &p, NULL);
    if (mha_cuda_is_general(&choice) || p.q.type == MHA_FLOAT32 || choice.features & MHA_CUDA_LAYOUTS)
        return really ? mha_cuda_general_softmax(&call->problem, w->c.g.rows) : MHA_OK;
    p.extras.softmax = mha_tensor_4d(NULL, MHA_FLOAT32, p.q.size[0], p.q.size[1], p.q.size[2], 2);
    p.out.data = mha_arena_take(arena, mha_element_count(p.out), mha_type_size(p.out.type));
    p.extras.softmax.data = mha_arena_take(arena, mha_element_count(p.extras.softmax), sizeof(float));
    w->c.g.softmax = mha_cuda_view_of(p.extras.softmax);
    return mha_cuda_tiles_forward(&p, &choice, arena, really);
}

/* Rows and what keys receive, on tensor cores; what is left is none then. */
static mha_status start_fast_rows(work *w, const mha_problem *p, mha_cuda_stats *rest)
{
    const mha_cuda_view none = {0};
    mha_cuda_stats fast = w->c;
    bool grid = w->c.grid_columns > 0;
    if (grid) fast.distance = none;
    else rest->distance = none;
    rest->entropy = rest->effective = rest->largest = rest->received = none, rest->sums_of_rows = 0;
    if (!w->pairs && !fast.entropy.data && !fast.effective.data && !fast.largest.data && !fast.distance.data &&
        !fast.received.data)
        return MHA_OK;
    TRY(mha_cuda_map(p->ctx, &fast.q, p->q, MHA_CUDA_STATS_BOX));
    TRY(mha_cuda_map(p->ctx, &fast.k, p->k, MHA_CUDA_STATS_KEYS));
    return start_row(p->ctx, w->rows.row, &fast, up(w->c.g.Tq, MHA_CUDA_STATS_ROWS) * p->H * p->B);
}

static mha_status start_rows(work *w, const mha_problem *p)
{
    int64_t tiles = (int64_t)w->c.g.row_tiles * p->H * p->B;
    mha_cuda_stats rest = w->c;
    if (w->c.mass.data) TRY(start(p->ctx, MHA_CUDA_K_stats_mass, &w->c, tiles));
    if (!mha_cuda_is_general(&w->rows)) TRY(start_fast_rows(w, p, &rest));
    bool any = rest.sums_of_rows || rest.entropy.data || rest.effective.data || rest.largest.data ||
               rest.distance.data || rest.sets.data || rest.top_weights.data || rest.received.data || rest.heatmap.data;
    return any ? start(p->ctx, MHA_CUDA_K_stats_rows, &rest, tiles) : MHA_OK;
}

static mha_status start_sums(const work *w, mha_context *ctx)
{
    const mha_cuda_stats *c = &w->c;
    int64_t keys = c->received.data ? c->g.Tk : 0,
            cells = c->heatmap.data ? c->heatmap.size[2] * c->heatmap.size[3] : 0;
    int64_t pieces = up(keys > cells ? keys : cells, MHA_CUDA_STATS_NUMBERS);
    return start(ctx, MHA_CUDA_K_stats_sums, c, pieces * c->g.H * c->g.B);
}

/* What tensor cores could not compare is compared after them. */
static mha_status start_pairs(const work *w, const mha_problem *p)
{
    int64_t fours = up(p->H, 4), passes = fours * (fours - 1) / 2 + fours % 2;
    if (!w->pairs) return MHA_OK;
    if (!mha_cuda_is_general(&w->heads) && p->H > 1) {
        const mha_cuda_row *row = w->heads.row;
        mha_cuda_stats fast = w->c;
        TRY(mha_cuda_map(p->ctx, &fast.q, p->q, row->rows));
        TRY(mha_cuda_map(p->ctx, &fast.k, p->k, row->keys));
        TRY(start_row(p->ctx, row, &fast, up(w->c.g.Tq, row->rows) * passes * p->B));
    }
    if (p->H > 1)
        TRY(start(p->ctx, MHA_CUDA_K_stats_pairs, &w->c,
                  p->B * w->c.pair_tiles * p->H * up(p->H - 1, MHA_CUDA_STATS_OTHERS)));
    return start(p->ctx, MHA_CUDA_K_stats_heads, &w->c, p->B * p->H * p->H);
}

static mha_status run_stats(const mha_stats_call *call, mha_arena *arena, bool really)
{
    const mha_problem *p = &call->problem;
    work w = describe(call);
    lay_out(&w, arena, call);
    really = really && p->B && p->H;
    TRY(start_softmax(&w, call, arena, really));
    if (!really) return MHA_OK;
    int64_t tiles = (int64_t)w.c.g.row_tiles * p->H * p->B;
    TRY(start(p->ctx, MHA_CUDA_K_stats_prepare, &w.c, tiles > 0 ? tiles : 1));
    TRY(start_rows(&w, p));
    TRY(start_sums(&w, p->ctx));
    return start_pairs(&w, p);
}

/* ---- The call --------------------------------------------------------------------------------------------------- */

/* Blocks are counted with 32 bits. */
static mha_status check_sizes(const mha_stats_call *call)
{
    enum { MOST = INT32_MAX / 4 };
    const mha_problem *p = &call->problem;
    mha_tensor heat = call->want.heatmap;
    int64_t heads = mha_arena_times(p->B, p->H), pairs = mha_arena_times(mha_arena_times(heads, p->H), p->Tq / 64 + 1);
    int64_t cells = heat.rank ? mha_arena_times(heads, mha_arena_times(heat.size[2], heat.size[3]) / 2048 + 1) : 0;
    TRY(mha_cuda_check_sizes(p));
    if ((call->want.divergence.rank || call->want.cosine.rank) && pairs > MOST)
        return mha_fail(p->ctx, MHA_UNSUPPORTED, "q: has more pairs of heads than the kernels of cuda can count");
    if (cells > MOST)
        return mha_fail(p->ctx, MHA_UNSUPPORTED, "stats.heatmap: is larger than the kernels of cuda can count");
    return MHA_OK;
}

static mha_status measure(const mha_stats_call *call, mha_arena *arena)
{
    *arena = (mha_arena){0};
    TRY(check_sizes(call));
    TRY(run_stats(call, arena, false));
    if (!arena->too_large) return MHA_OK;
    return mha_fail(call->problem.ctx, MHA_TOO_LARGE, "stats: needs more scratch than there is memory");
}

mha_status mha_cuda_op_attention_stats(const mha_stats_call *call)
{
    mha_context *ctx = call->problem.ctx;
    mha_arena arena;
    TRY(measure(call, &arena));
    TRY(mha_cuda_enter(ctx));
    size_t bytes = arena.used;
    arena = (mha_arena){0};
    mha_status status = mha_cuda_reserve(ctx, bytes, &arena.base);
    if (!status) status = run_stats(call, &arena, true);
    mha_cuda_leave(ctx);
    return status;
}

mha_status mha_cuda_op_attention_explain_stats(const mha_stats_call *call, mha_attention_plan *to)
{
    const mha_problem *p = &call->problem;
    mha_arena arena;
    TRY(measure(call, &arena));
    const mha_cuda_choice choice = mha_cuda_choose(MHA_CUDA_STATS, p, NULL);
    const mha_cuda_row *row = choice.row;
    int64_t pieces = up(p->Tq, row->rows) * p->H * p->B;
    *to = (mha_attention_plan){.isa = p->ctx->isa,
                               .kernel = mha_cuda_kernel_name(row->kernel),
                               .threads = (int)pieces,
                               .tile_rows = row->rows,
                               .tile_keys = row->keys,
                               .pieces = pieces,
                               .scratch_bytes = arena.used};
    const char *anew = p->extras.softmax.rank ? "" : "; the softmax of rows was not given and takes a pass of its own";
    if (choice.why_not)
        snprintf(to->why, sizeof to->why, "general kernels, in float32 without tensor cores, because of %s%s",
                 choice.why_not, anew);
    else
        snprintf(to->why, sizeof to->why,
                 "%s, D = %lld: tensor cores and copy engine of Hopper, but for heatmap, sets, top and distances on a "
                 "grid%s",
                 mha_type_name(p->q.type), (long long)p->D, anew);
    return MHA_OK;
}
