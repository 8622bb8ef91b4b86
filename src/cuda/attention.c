/* Calls of attention on a GPU: checks, scratch, the choice of kernels, plans. Everything is checked and reserved before the
 * first launch. */
#include "cuda/attention.h"
#include "cuda/attention/layout.h"
#include "cuda/attention/small_plan.h"
#include "cuda/attention/ways.h"
#include "cuda/attention/decode.h"
#include "cuda/device.h"
#include "cuda/schedule.h"
#include <stdio.h>
#include <string.h>

/* Scratch for what `measure` counted. */
static mha_status reserve(mha_context *ctx, const mha_arena *measure, mha_arena *arena)
{
    *arena = (mha_arena){0};
    if (measure->too_large) return mha_fail(ctx, MHA_TOO_LARGE, "q, k: need more scratch than there is memory");
    return mha_cuda_reserve(ctx, measure->used, &arena->base);
}

/* ---- Forward ---------------------------------------------------------------------------------------------------- */

static mha_cuda_forward_path *forward_path(const mha_problem *p)
{
    static mha_cuda_forward_path *const paths[] = {[MHA_CUDA_PATH_GENERAL] = mha_cuda_general_forward,
                                                   [MHA_CUDA_PATH_TILES] = mha_cuda_hopper_forward,
                                                   [MHA_CUDA_PATH_FLOAT32] = mha_cuda_float32_forward,
                                                   [MHA_CUDA_PATH_DECODE] = mha_cuda_decode_forward,
                                                   [MHA_CUDA_PATH_SMALL] = mha_cuda_small_forward};
    return paths[mha_cuda_path_forward(p)];
}

static mha_status run_forward(const mha_problem *p)
{
    mha_arena measure = {0}, arena;
    mha_problem own = mha_cuda_laid_out(p, &measure);
    mha_cuda_forward_path *path = forward_path(&own);
    TRY(path(&own, &measure, false));
    TRY(reserve(p->ctx, &measure, &arena));
    own = mha_cuda_laid_out(p, &arena);
    TRY(mha_cuda_copy_in(p, &own));
    TRY(path(&own, &arena, true));
    return mha_cuda_copy_out(p, &own);
}

mha_status mha_cuda_forward_call(const mha_problem *p)
{
    TRY(mha_cuda_check_sizes(p));
    TRY(mha_cuda_enter(p->ctx));
    mha_status status = run_forward(p);
    mha_cuda_leave(p->ctx);
    return status;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

static mha_cuda_backward_path *backward_path(const mha_gradient_call *call)
{
    static mha_cuda_backward_path *const paths[] = {[MHA_CUDA_PATH_GENERAL] = mha_cuda_general_backward,
                                                    [MHA_CUDA_PATH_TILES] = mha_cuda_hopper_backward,
                                                    [MHA_CUDA_PATH_SMALL] = mha_cuda_small_backward};
    return paths[mha_cuda_path_backward(call)];
}

enum { GRADIENTS = 6 };

static void list(mha_attention_gradients *g, mha_tensor *all[GRADIENTS])
{
    all[0] = &g->q, all[1] = &g->k, all[2] = &g->v;
    all[3] = &g->bias, all[4] = &g->alibi_slopes, all[5] = &g->sinks;
}

/* The call with dense gradients of its own, if they are to be added to what is there. The kernels of Hopper write 16 bits. */
static mha_gradient_call with_own_gradients(const mha_gradient_call *call, mha_arena *arena)
{
    mha_gradient_call own = *call;
    mha_tensor *all[GRADIENTS];
    bool general = mha_cuda_obstacle_backward(call);
    list(&own.gradients, all);
    if (!call->gradients.accumulate) return own;
    for (int n = 0; n < GRADIENTS; n++) {
        mha_tensor *t = all[n];
        int64_t stride = 1;
        if (!t->rank) continue;
        for (int axis = t->rank - 1; axis >= 0; axis--) t->stride[axis] = stride, stride *= t->size[axis];
        if (general) t->type = MHA_FLOAT32;
        t->data = mha_arena_take(arena, mha_element_count(*t), mha_type_size(t->type));
    }
    if (own.gradients.bias.rank) own.dbias = mha_broadcast(own.gradients.bias);
    return own;
}

static mha_status add_gradients(const mha_gradient_call *call, mha_gradient_call *own)
{
    mha_attention_gradients wanted = call->gradients;
    mha_tensor *to[GRADIENTS], *from[GRADIENTS];
    list(&wanted, to);
    list(&own->gradients, from);
    for (int n = 0; n < GRADIENTS; n++) TRY(mha_cuda_copy_tensor(call->problem.ctx, *to[n], *from[n], true));
    return MHA_OK;
}

/* Rows that belong to no sequence are not written. */
static mha_status clear_gradients(mha_gradient_call *own)
{
    mha_tensor *all[GRADIENTS];
    list(&own->gradients, all);
    for (int n = 0; n < GRADIENTS; n++) TRY(mha_cuda_clear(own->problem.ctx, *all[n]));
    return MHA_OK;
}

static mha_status run_backward(const mha_gradient_call *call, mha_cuda_backward_path *path, mha_arena *arena)
{
    mha_gradient_call own = with_own_gradients(call, arena);
    if (!call->gradients.accumulate) return path(&own, arena, true);
    TRY(clear_gradients(&own));
    TRY(path(&own, arena, true));
    return add_gradients(call, &own);
}

static mha_status lay_and_run_backward(const mha_gradient_call *call)
{
    mha_arena measure = {0}, arena;
    mha_gradient_call laid = mha_cuda_laid_out_backward(call, &measure), own = with_own_gradients(&laid, &measure);
    mha_cuda_backward_path *path = backward_path(&laid);
    TRY(path(&own, &measure, false));
    TRY(reserve(call->problem.ctx, &measure, &arena));
    laid = mha_cuda_laid_out_backward(call, &arena);
    TRY(mha_cuda_copy_in_backward(call, &laid));
    TRY(run_backward(&laid, path, &arena));
    return mha_cuda_copy_out_backward(call, &laid);
}

mha_status mha_cuda_backward_call(const mha_gradient_call *call)
{
    mha_context *ctx = call->problem.ctx;
    TRY(mha_cuda_check_sizes(&call->problem));
    TRY(mha_cuda_enter(ctx));
    mha_status status = lay_and_run_backward(call);
    mha_cuda_leave(ctx);
    return status;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------ */

/* What the general kernels do with tiles of rows, and, in a backward call, of keys. */
static mha_attention_plan describe_general(const mha_problem *p, const char *why, bool backward)
{
    int64_t tile = MHA_CUDA_GENERAL_TILE, rows = (p->Tq + tile - 1) / tile, keys = (p->Tk + tile - 1) / tile;
    int64_t pieces = backward ? keys * p->G * p->B : rows * p->H * p->B;
    mha_attention_plan a = {.isa = p->ctx->isa,
                            .kernel = backward ? "general_keys" : "general_forward",
                            .threads = (int)pieces,
                            .tile_rows = tile,
                            .tile_keys = tile,
                            .pieces = pieces};
    snprintf(a.why, sizeof a.why, "general kernels, in float32 without tensor cores, because of %s", why);
    return a;
}

static mha_attention_plan describe_decode(const mha_problem *p)
{
    int64_t blocks = mha_cuda_decode_all_blocks(p);
    int width = mha_cuda_decode_width(p), columns = mha_cuda_decode_widths[width];
    mha_attention_plan a = {.isa = p->ctx->isa,
                            .kernel = mha_cuda_decode_name(p->q.type == MHA_FLOAT16, width),
                            .threads = (int)blocks,
                            .tile_rows = MHA_CUDA_DECODE_ROWS,
                            .tile_keys = MHA_CUDA_DECODE_TILE(columns),
                            .pieces = blocks};
    snprintf(a.why, sizeof a.why, "at most %d rows of a key head: its keys are shared by blocks of %d",
             MHA_CUDA_DECODE_MOST, mha_cuda_decode_keys(columns, (int32_t)mha_cuda_most_of(p, 3)));
    return a;
}

static mha_attention_plan describe_many(const mha_problem *p)
{
    int64_t blocks = mha_cuda_many_all_blocks(p);
    bool wide = mha_cuda_many_is_wide(p);
    mha_attention_plan a = {.isa = p->ctx->isa,
                            .kernel = mha_cuda_many_name(p->q.type == MHA_FLOAT16, mha_cuda_many_width(p), wide),
                            .threads = (int)blocks,
                            .tile_rows = wide ? 128 : 64,
                            .tile_keys = MHA_CUDA_MANY_TILE,
                            .pieces = blocks};
    snprintf(a.why, sizeof a.why, "at most %d rows of a key head: its keys are shared by blocks of %d",
             (int)a.tile_rows, mha_cuda_many_keys((int32_t)mha_cuda_most_of(p, 3)));
    return a;
}

static mha_attention_plan describe_small(const mha_problem *p, bool backward)
{
    const mha_cuda_small_plan plan = mha_cuda_plan_small(p, backward);
    mha_attention_plan a = {.isa = p->ctx->isa,
                            .kernel = mha_cuda_kernel_name(plan.kernel),
                            .threads = (int)plan.blocks,
                            .tile_rows = MHA_CUDA_SMALL_ROWS,
                            .tile_keys = backward ? MHA_CUDA_SMALL_ROWS : MHA_CUDA_SMALL_KEYS,
                            .pieces = plan.blocks * (plan.threads / 32)};
    snprintf(a.why, sizeof a.why, "%s, heads of at most %d columns, %d rows and %d keys: a block for each %s head",
             mha_type_name(p->q.type), MHA_CUDA_SMALL_WIDTH, MHA_CUDA_SMALL_LENGTH, MHA_CUDA_SMALL_LENGTH,
             backward ? "key" : "query");
    return a;
}

/* Of a backward call, what is done with tiles of keys. */
static mha_attention_plan describe_float32(const mha_problem *p, bool backward)
{
    const mha_cuda_kernel kernel = backward ? mha_cuda_float32_keys_kernel(p) : mha_cuda_float32_kernel(p);
    const mha_cuda_tile tile = mha_cuda_kernel_tile(kernel);
    mha_attention_plan a = describe_general(p, "float32", backward);
    a.kernel = mha_cuda_kernel_name(kernel);
    a.tile_rows = backward ? tile.columns : tile.rows, a.tile_keys = backward ? tile.rows : tile.columns;
    a.pieces = backward ? (p->Tk + tile.rows - 1) / tile.rows * p->G * p->B : a.pieces, a.threads = (int)a.pieces;
    snprintf(a.why, sizeof a.why, "float32, D = %lld: multiply-adds of all 24 bits, without tensor cores",
             (long long)p->D);
    return a;
}

static mha_attention_plan describe(const mha_problem *p, const mha_cuda_plan *plan, int64_t blocks)
{
    mha_attention_plan a = {.isa = p->ctx->isa,
                            .kernel = plan->kernel,
                            .threads = (int)blocks,
                            .tile_rows = plan->rows,
                            .tile_keys = plan->keys,
                            .pieces = plan->tiles};
    snprintf(a.why, sizeof a.why, "%s, D = %lld: tensor cores of Hopper%s%s", mha_type_name(p->q.type), (long long)p->D,
             plan->kind != MHA_CUDA_FULL ? "; unseen key tiles skipped" : "",
             p->share > 1 ? "; query heads share keys" : "");
    return a;
}

/* Adds a clause to the reason. */
static void add_why(mha_attention_plan *to, const char *clause)
{
    size_t used = strlen(to->why);
    snprintf(to->why + used, sizeof to->why - used, "; %s", clause);
}

/* Of a call that is copied because of `obstacle`. */
static void add_copies(mha_attention_plan *to, const char *obstacle)
{
    char clause[sizeof to->why];
    snprintf(clause, sizeof clause, "dense copies because of %s", obstacle);
    add_why(to, clause);
}

/* Which sequences of a call have other kernels than most. */
static void add_ways(mha_attention_plan *to, mha_cuda_ways ways, unsigned among)
{
    const unsigned few = MHA_CUDA_BIT(MHA_CUDA_BY_DECODING), many = MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY);
    const struct {
        unsigned ways;
        int32_t most;
        const char *before, *after;
    } all[] = {{few | many, among & many ? ways.decoded_many : ways.decoded, "rows <= ", "decoded"},
               {MHA_CUDA_BIT(MHA_CUDA_BY_SHORT_TILES), ways.short_rows, "193 to ", "64-key blocks"},
               {MHA_CUDA_BIT(MHA_CUDA_BY_ORDER), ways.ordered, "rows, keys <= ", "dQ in order"},
               {MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS), ways.small, "rows, keys <= ", "small heads"}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        char clause[60];
        snprintf(clause, sizeof clause, "%s%d: %s", all[n].before, (int)all[n].most, all[n].after);
        if (among & all[n].ways && among & ~all[n].ways) add_why(to, clause);
    }
}

static mha_attention_plan describe_decoding(const mha_problem *p, unsigned among)
{
    return among & MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY) ? describe_many(p) : describe_decode(p);
}

static mha_attention_plan describe_tiles(const mha_problem *p)
{
    const unsigned tiles = MHA_CUDA_BIT(MHA_CUDA_BY_TILES) | MHA_CUDA_BIT(MHA_CUDA_BY_SHORT_TILES);
    const int processors = mha_cuda_of(p->ctx)->processors;
    mha_cuda_plan plan;
    mha_cuda_plan_forward(&plan, p);
    if (plan.among & tiles) return describe(p, &plan, plan.tiles < processors ? plan.tiles : processors);
    return describe_decoding(p, plan.among); /* and small heads */
}

/* Why a call does not have the kernels for its type. */
static const char *obstacle_of(const mha_problem *p)
{
    return p->q.type == MHA_FLOAT32 ? mha_cuda_float32_obstacle(p) : mha_cuda_obstacle(p);
}

static const char *obstacle_of_backward(const mha_gradient_call *call)
{
    bool float32 = call->problem.q.type == MHA_FLOAT32;
    return float32 ? mha_cuda_float32_obstacle_backward(call) : mha_cuda_obstacle_backward(call);
}

mha_status mha_cuda_explain(const mha_problem *call, mha_attention_plan *to)
{
    mha_arena measure = {0};
    TRY(mha_cuda_check_sizes(call));
    const mha_problem laid = mha_cuda_laid_out(call, &measure), *p = &laid;
    bool copied = measure.used > 0;
    TRY(forward_path(p)(p, &measure, false));
    switch (mha_cuda_path_forward(p)) {
    case MHA_CUDA_PATH_SMALL:
        *to = describe_small(p, false);
        break;
    case MHA_CUDA_PATH_DECODE:
        *to = describe_decoding(p, mha_cuda_ways_among(p, mha_cuda_ways_forward(p)));
        break;
    case MHA_CUDA_PATH_TILES:
        *to = describe_tiles(p);
        break;
    case MHA_CUDA_PATH_FLOAT32:
        *to = describe_float32(p, false);
        break;
    case MHA_CUDA_PATH_GENERAL:
        *to = describe_general(p, obstacle_of(p), false);
        break;
    }
    to->scratch_bytes = measure.used;
    if (copied) add_copies(to, obstacle_of(call));
    const mha_cuda_ways ways = mha_cuda_ways_forward(p);
    if (mha_cuda_path_forward(p) == MHA_CUDA_PATH_TILES) add_ways(to, ways, mha_cuda_ways_among(p, ways));
    return MHA_OK;
}

static mha_attention_plan describe_tiles_backward(const mha_problem *p)
{
    mha_cuda_plan plan;
    mha_cuda_plan_backward(&plan, p);
    return describe(p, &plan, plan.tiles);
}

mha_status mha_cuda_explain_backward(const mha_gradient_call *call, mha_attention_plan *to)
{
    mha_arena measure = {0};
    TRY(mha_cuda_check_sizes(&call->problem));
    const mha_gradient_call laid = mha_cuda_laid_out_backward(call, &measure);
    const mha_problem *p = &laid.problem;
    bool copied = measure.used > 0;
    const char *obstacle = obstacle_of_backward(&laid);
    mha_gradient_call own = with_own_gradients(&laid, &measure);
    TRY(backward_path(&laid)(&own, &measure, false));
    if (measure.too_large) return mha_fail(p->ctx, MHA_TOO_LARGE, "q, k: need more scratch than there is memory");
    if (obstacle) *to = describe_general(p, obstacle, true);
    else if (p->q.type == MHA_FLOAT32) *to = describe_float32(p, true);
    else
        *to =
            mha_cuda_path_backward(&laid) == MHA_CUDA_PATH_SMALL ? describe_small(p, true) : describe_tiles_backward(p);
    to->scratch_bytes = measure.used;
    if (copied) add_copies(to, obstacle_of_backward(call));
    if (!obstacle && own.dbias.rank && !mha_cuda_bias_launches(&own))
        add_why(to, "the gradient of a shared bias in general kernels");
    if (!p->extras.softmax.rank) add_why(to, "no softmax is given: another forward pass");
    const mha_cuda_ways ways = mha_cuda_ways_backward(p);
    if (mha_cuda_path_backward(&laid) == MHA_CUDA_PATH_TILES) add_ways(to, ways, mha_cuda_ways_among(p, ways));
    return MHA_OK;
}
