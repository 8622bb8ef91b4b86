/* Calls for the general kernels, which take every type, width, layout and option. */
#include "cuda/kernels/general.h"
#include "cuda/attention/attention.h"

static int32_t up(int64_t count, int64_t size) { return (int32_t)((count + size - 1) / size); }

static mha_cuda_view per_head(mha_tensor t)
{
    /* (H) or (B,H) as (B,H,1,1) */
    if (t.rank == 1) t = (mha_tensor){t.data, t.type, 4, {1, t.size[0], 1, 1}, {0, t.stride[0], 0, 0}};
    return mha_cuda_view_of(t);
}

/* Without scratch, gradients and maps. */
mha_cuda_general mha_cuda_describe_general(const mha_problem *p)
{
    const mha_attention_options *o = &p->options;
    mha_cuda_general c = {.B = (int32_t)p->B,
                          .H = (int32_t)p->H,
                          .G = (int32_t)p->G,
                          .share = (int32_t)p->share,
                          .Tq = (int32_t)mha_cuda_most_of(p, 2),
                          .Tk = (int32_t)mha_cuda_most_of(p, 3),
                          .D = (int32_t)p->D,
                          .E = (int32_t)p->E,
                          .rows_of_q = (int32_t)p->q.size[2],
                          .q = mha_cuda_view_of(p->q),
                          .k = mha_cuda_view_of(p->k),
                          .v = mha_cuda_view_of(p->v),
                          .out = mha_cuda_view_of(p->out),
                          .lse = mha_cuda_view_of(p->extras.lse),
                          .softmax = mha_cuda_view_of(p->extras.softmax),
                          .mask = mha_cuda_view_of(o->mask),
                          .bias = mha_cuda_view_of(o->bias),
                          .slopes = mha_cuda_view_of(o->alibi_slopes),
                          .sinks = mha_cuda_view_of(o->sinks),
                          .offsets = mha_cuda_view_of(o->offsets),
                          .query_lengths = mha_cuda_view_of(o->query_lengths),
                          .key_lengths = mha_cuda_view_of(o->key_lengths),
                          .query_starts = mha_cuda_view_of(o->query_starts),
                          .key_starts = mha_cuda_view_of(o->key_starts),
                          .scale = o->scale,
                          .softcap = o->softcap,
                          .kept = p->kept,
                          .causal = o->causal,
                          .align = (int32_t)o->align,
                          .window_left = o->window_left,
                          .window_right = o->window_right,
                          .dropped = (uint64_t)((double)o->dropout * 4294967296.0),
                          .seed = o->dropout_seed,
                          .stream = o->dropout_stream};
    c.row_tiles = up(c.Tq, MHA_CUDA_GENERAL_TILE);
    c.key_tiles = up(c.Tk, MHA_CUDA_GENERAL_TILE);
    return c;
}

/* A block for each piece of work; or, to repair results, fewer blocks that start early. */
static mha_status start(mha_context *ctx, mha_cuda_kernel kernel, const mha_cuda_general *c, int64_t pieces)
{
    const bool repairs = c->any || c->only;
    mha_cuda_launch l = {kernel, pieces, MHA_CUDA_GENERAL_THREADS, 0};
    if (repairs) l.blocks = mha_cuda_repair_blocks(kernel, pieces, mha_cuda_of(ctx)->processors);
    return repairs ? mha_cuda_start_early(ctx, &l, c) : mha_cuda_start(ctx, &l, c);
}

/* A kernel in its versions for up to 64 and for more columns of results. */
typedef struct versions {
    mha_cuda_kernel narrow, wide;
} versions;

static const versions forward = {MHA_CUDA_K_general_forward_64, MHA_CUDA_K_general_forward_128},
                      repair = {MHA_CUDA_K_general_repair_64, MHA_CUDA_K_general_repair_128},
                      gradient_of_rows = {MHA_CUDA_K_general_rows_64, MHA_CUDA_K_general_rows_128},
                      gradient_of_keys = {MHA_CUDA_K_general_keys_64, MHA_CUDA_K_general_keys_128};

/* Starts the version for `width` columns of results, with `pieces` of work for each slice of columns. */
static mha_status start_sliced(mha_context *ctx, versions of, mha_cuda_general *c, int64_t width, int64_t pieces)
{
    c->slices = up(width, MHA_CUDA_GENERAL_COLUMNS);
    return start(ctx, width > MHA_CUDA_GENERAL_TILE ? of.wide : of.narrow, c, pieces * c->slices);
}

static int64_t tiles_of_maps(mha_cuda_view t)
{
    return t.size[0] * t.size[1] * up(t.size[2], MHA_CUDA_GENERAL_TILE) * up(t.size[3], MHA_CUDA_GENERAL_TILE);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

/* Scratch of a forward call: what is not needed is NULL. */
typedef struct forward_scratch {
    double *rows; /* for maps */
    void *q;      /* its own copy, dense: results in place of q, in several slices */
} forward_scratch;

static forward_scratch lay_forward(const mha_problem *p, mha_arena *arena)
{
    forward_scratch s = {0};
    bool maps = p->extras.weights.rank || (p->extras.scores.rank && p->extras.scores_stage >= MHA_STAGE_SOFTMAX);
    int64_t rows = mha_arena_times(p->q.size[0] * p->H, p->q.size[2]);
    if (maps) MHA_TAKE(arena, s.rows, mha_arena_times(rows, MHA_CUDA_ROW_NUMBERS));
    if (mha_same_view(p->out, p->q) && p->output_role == MHA_OUTPUT && p->E > MHA_CUDA_GENERAL_COLUMNS)
        s.q = mha_arena_take(arena, mha_element_count(p->q), mha_type_size(p->q.type));
    return s;
}

/* A map of weights or scores; (B,Tq,Tk) is the mean over heads. */
static mha_status start_map(mha_context *ctx, mha_cuda_general *c, mha_tensor map, mha_stage stage)
{
    if (!map.rank || !mha_element_count(map)) return MHA_OK;
    if (map.rank == 3)
        map = (mha_tensor){map.data,
                           map.type,
                           4,
                           {map.size[0], 1, map.size[1], map.size[2]},
                           {map.stride[0], 0, map.stride[1], map.stride[2]}};
    c->map = mha_cuda_view_of(map);
    c->stage = (int32_t)stage;
    return start(ctx, MHA_CUDA_K_general_map, c, tiles_of_maps(c->map));
}

mha_status mha_cuda_general_forward(const mha_problem *p, const mha_cuda_choice *choice, mha_arena *arena, bool run)
{
    (void)choice;
    forward_scratch s = lay_forward(p, arena);
    mha_cuda_general c = mha_cuda_describe_general(p);
    if (!run) return MHA_OK;
    c.rows = s.rows;
    if (s.q) {
        mha_tensor copy = mha_tensor_4d(s.q, p->q.type, p->q.size[0], p->q.size[1], p->q.size[2], p->q.size[3]);
        TRY(mha_cuda_copy_tensor(p->ctx, copy, p->q, false));
        c.q = mha_cuda_view_of(copy);
    }
    TRY(start_sliced(p->ctx, forward, &c, p->E, (int64_t)c.row_tiles * p->H * p->B));
    TRY(start_map(p->ctx, &c, p->extras.weights, MHA_STAGE_DROPPED));
    return start_map(p->ctx, &c, p->extras.scores, p->extras.scores_stage);
}

mha_status mha_cuda_general_repair(const mha_problem *p, const int32_t *only, int32_t tiles, const int32_t *any)
{
    mha_cuda_general c = mha_cuda_describe_general(p);
    c.only = only, c.only_tiles = tiles, c.any = any;
    return start_sliced(p->ctx, repair, &c, p->E, (int64_t)c.row_tiles * p->H * p->B);
}

mha_status mha_cuda_general_softmax(const mha_problem *p, double *rows)
{
    mha_cuda_general c = mha_cuda_describe_general(p);
    c.rows = rows, c.out = c.softmax = (mha_cuda_view){0};
    return start_sliced(p->ctx, forward, &c, 1, (int64_t)c.row_tiles * p->H * p->B);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* Without heads or sequences no row and no key belongs to one, and the other gradients are zeros. */
static mha_status clear_all(const mha_gradient_call *call)
{
    const mha_attention_gradients *g = &call->gradients;
    const mha_tensor all[] = {g->bias, g->alibi_slopes, g->sinks, g->importance};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) TRY(mha_cuda_clear(call->problem.ctx, all[n]));
    return MHA_OK;
}

/* The softmax of all rows: of the forward call, or from another pass over scores. */
static mha_status start_rows(const mha_problem *p, mha_cuda_general *c)
{
    int64_t tiles = (int64_t)c->row_tiles * p->H * p->B;
    if (!p->extras.softmax.rank) {
        mha_cuda_general anew = *c;
        anew.out = (mha_cuda_view){0};
        TRY(start_sliced(p->ctx, c->any ? repair : forward, &anew, 1, tiles));
    }
    return start(p->ctx, MHA_CUDA_K_general_prepare, c, tiles);
}

static void add_gradients(mha_cuda_general *c, const mha_gradient_call *call)
{
    const mha_attention_gradients *g = &call->gradients;
    c->dout = mha_cuda_view_of(call->dout), c->dlse = mha_cuda_view_of(call->dlse);
    c->dq = mha_cuda_view_of(g->q), c->dk = mha_cuda_view_of(g->k), c->dv = mha_cuda_view_of(g->v);
    c->dbias = mha_cuda_view_of(call->dbias), c->importance = per_head(g->importance);
    c->dslopes = per_head(g->alibi_slopes), c->dsinks = per_head(g->sinks);
}

static mha_status start_gradient_of_rows(const mha_problem *p, mha_cuda_general *c)
{
    return start_sliced(p->ctx, gradient_of_rows, c, p->D, (int64_t)c->row_tiles * p->H * p->B);
}

static mha_status start_gradient_of_keys(const mha_problem *p, mha_cuda_general *c)
{
    return start_sliced(p->ctx, gradient_of_keys, c, p->D > p->E ? p->D : p->E, (int64_t)c->key_tiles * p->G * p->B);
}

/* Of float32, the kernels that need no general ones take the rest. */
mha_status mha_cuda_general_backward(const mha_gradient_call *call, const mha_cuda_choice *choice, mha_arena *arena,
                                     bool run)
{
    const mha_cuda_row *row = choice->row;
    const mha_problem *p = &call->problem;
    const mha_attention_gradients *g = &call->gradients;
    mha_cuda_general c = mha_cuda_describe_general(p);
    int64_t rows = mha_arena_times(p->q.size[0] * p->H, p->q.size[2]);
    MHA_TAKE(arena, c.rows, mha_arena_times(rows, MHA_CUDA_ROW_NUMBERS));
    if (!run) return MHA_OK;
    if (!p->B || !p->H) return clear_all(call);
    add_gradients(&c, call);
    TRY(start_rows(p, &c));
    const bool float32 = row->type == MHA_FLOAT32;
    if (g->q.rank || g->alibi_slopes.rank)
        TRY(float32 ? mha_cuda_float32_start(p, row, row->rows_kernel, &c, c.Tq, p->H) : start_gradient_of_rows(p, &c));
    if (g->k.rank || g->v.rank)
        TRY(float32 ? mha_cuda_float32_start(p, row, row->kernel, &c, c.Tk, p->G) : start_gradient_of_keys(p, &c));
    if (call->dbias.rank) TRY(start(p->ctx, MHA_CUDA_K_general_bias, &c, tiles_of_maps(c.dbias)));
    int64_t heads = (g->importance.rank ? p->B * p->H : 0) + (g->sinks.rank ? p->H : 0) +
                    (g->alibi_slopes.rank ? c.dslopes.size[0] * p->H : 0);
    return start(p->ctx, MHA_CUDA_K_general_heads, &c, heads);
}

mha_status mha_cuda_general_repair_backward(const mha_gradient_call *call, const mha_cuda_plan *plan,
                                            const mha_cuda_scratch *s)
{
    const mha_problem *p = &call->problem;
    mha_cuda_general c = mha_cuda_describe_general(p);
    bool bias = call->dbias.rank && !mha_cuda_bias_launches(call); /* what the other kernels have not computed */
    add_gradients(&c, call);
    c.rows = s->numbers;
    c.any = bias ? NULL : s->any;
    TRY(start_rows(p, &c));
    if (call->dbias.rank) TRY(start(p->ctx, MHA_CUDA_K_general_bias, &c, tiles_of_maps(c.dbias)));
    c.any = s->any;
    c.only = s->lost_rows, c.only_tiles = plan->row_tiles, c.only_shift = plan->row->rows > MHA_CUDA_GENERAL_TILE;
    if (call->gradients.q.rank) TRY(start_gradient_of_rows(p, &c));
    c.only = s->lost_keys, c.only_tiles = plan->key_tiles, c.only_shift = plan->row->keys > MHA_CUDA_GENERAL_TILE;
    return call->gradients.k.rank || call->gradients.v.rank ? start_gradient_of_keys(p, &c) : MHA_OK;
}
