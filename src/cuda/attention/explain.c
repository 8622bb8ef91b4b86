/* What a call will run, in words: the names and tiles of the table, and why no faster kernels. */
#include "cuda/attention/attention.h"
#include "cuda/attention/layout.h"
#include "cuda/kernels/small.h"
#include <stdio.h>
#include <string.h>

static mha_attention_plan plan_of(const mha_problem *p, const mha_cuda_row *row, int64_t blocks, int64_t pieces)
{
    return (mha_attention_plan){.isa = p->ctx->isa,
                                .kernel = mha_cuda_kernel_name(row->kernel),
                                .threads = (int)blocks,
                                .tile_rows = row->rows,
                                .tile_keys = row->keys,
                                .pieces = pieces};
}

static int64_t tiles_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

/* A block for each tile of rows or, backward, of keys. */
static mha_attention_plan of_blocks(const mha_problem *p, const mha_cuda_row *row)
{
    const int64_t pieces = row->pass == MHA_CUDA_BACKWARD ? tiles_of(p->Tk, row->keys) * p->G * p->B
                                                          : tiles_of(p->Tq, row->rows) * p->H * p->B;
    return plan_of(p, row, pieces, pieces);
}

static mha_attention_plan of_general(const mha_problem *p, const mha_cuda_choice *choice)
{
    mha_attention_plan a = of_blocks(p, choice->row);
    snprintf(a.why, sizeof a.why, "general kernels, in float32 without tensor cores, because of %s", choice->why_not);
    return a;
}

static mha_attention_plan of_float32(const mha_problem *p, const mha_cuda_choice *choice)
{
    mha_attention_plan a = of_blocks(p, choice->row);
    snprintf(a.why, sizeof a.why, "float32, D = %lld: multiply-adds of all 24 bits, without tensor cores",
             (long long)p->D);
    return a;
}

/* Of the kernel for more rows, if sequences have both. */
static mha_attention_plan of_decoding(const mha_problem *p, const mha_cuda_choice *choice)
{
    const bool many = choice->methods & MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY);
    const mha_cuda_row *row = mha_cuda_row_for(choice, p, many ? MHA_CUDA_BY_DECODING_MANY : MHA_CUDA_BY_DECODING);
    const int64_t blocks = mha_cuda_decode_all_blocks(p, row);
    const int32_t keys = (int32_t)mha_cuda_most_of(p, 3);
    mha_attention_plan a = plan_of(p, row, blocks, blocks);
    snprintf(a.why, sizeof a.why, "at most %d rows of a key head: its keys are shared by blocks of %d",
             many ? row->rows : MHA_CUDA_DECODE_MOST,
             many ? mha_cuda_many_keys(keys) : mha_cuda_decode_keys(row->D, keys));
    return a;
}

static mha_attention_plan of_small_heads(const mha_problem *p, const mha_cuda_choice *choice)
{
    const mha_cuda_row *row = mha_cuda_row_for(choice, p, MHA_CUDA_BY_SMALL_HEADS);
    const mha_cuda_small_launch small = mha_cuda_small_launch_of(p, row);
    mha_attention_plan a = plan_of(p, row, small.blocks, small.blocks * (small.threads / 32));
    snprintf(a.why, sizeof a.why, "%s, heads of at most %d columns, %d rows and %d keys: a block for each %s head",
             mha_type_name(p->q.type), MHA_CUDA_SMALL_WIDTH, MHA_CUDA_SMALL_LENGTH, MHA_CUDA_SMALL_LENGTH,
             row->pass == MHA_CUDA_BACKWARD ? "key" : "query");
    return a;
}

/* Adds a clause to the reason. */
static void add_why(mha_attention_plan *to, const char *clause)
{
    size_t used = strlen(to->why);
    snprintf(to->why + used, sizeof to->why - used, "; %s", clause);
}

/* Which sequences of a call have other kernels than most. */
static void add_methods(mha_attention_plan *to, const mha_cuda_choice *choice)
{
    const unsigned decoding = MHA_CUDA_BIT(MHA_CUDA_BY_DECODING), many = MHA_CUDA_BIT(MHA_CUDA_BY_DECODING_MANY);
    const mha_cuda_limits most = choice->limits;
    const unsigned among = choice->methods;
    const struct {
        unsigned methods;
        int32_t most;
        const char *before, *after;
    } all[] = {{decoding | many, among & many ? most.decoded_many : most.decoded, "rows <= ", "decoded"},
               {MHA_CUDA_BIT(MHA_CUDA_BY_ONE_TILE), most.one_tile, "193 to ", "64-key blocks"},
               {MHA_CUDA_BIT(MHA_CUDA_BY_ORDER), most.ordered, "rows, keys <= ", "dQ in order"},
               {MHA_CUDA_BIT(MHA_CUDA_BY_SMALL_HEADS), most.small, "rows, keys <= ", "small heads"}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        char clause[60];
        snprintf(clause, sizeof clause, "%s%d: %s", all[n].before, (int)all[n].most, all[n].after);
        if (among & all[n].methods && among & ~all[n].methods) add_why(to, clause);
    }
}

static mha_attention_plan of_tiles(const mha_problem *p, const mha_cuda_plan *plan, int64_t blocks)
{
    const mha_cuda_row *row = plan->row;
    const bool skips = row->takes & (MHA_CUDA_HAS(WINDOW) | MHA_CUDA_HAS(UNLIKE));
    mha_attention_plan a = plan_of(p, row, blocks, plan->tiles);
    snprintf(a.why, sizeof a.why, "%s, D = %lld: tensor cores of Hopper%s%s", mha_type_name(p->q.type), (long long)p->D,
             skips ? "; unseen key tiles skipped" : "", p->share > 1 ? "; query heads share keys" : "");
    return a;
}

/* Sequences may have no tiles, but only decoding and small heads. */
static mha_attention_plan of_tiles_forward(const mha_problem *p, const mha_cuda_choice *choice)
{
    const unsigned tiles = MHA_CUDA_BIT(MHA_CUDA_BY_TILES) | MHA_CUDA_BIT(MHA_CUDA_BY_ONE_TILE);
    const int processors = mha_cuda_of(p->ctx)->processors;
    mha_cuda_plan plan;
    if (!(choice->methods & tiles)) return of_decoding(p, choice);
    mha_cuda_plan_forward(&plan, p, choice);
    return of_tiles(p, &plan, plan.tiles < processors ? plan.tiles : processors);
}

static mha_attention_plan of_tiles_backward(const mha_problem *p, const mha_cuda_choice *choice)
{
    mha_cuda_plan plan;
    mha_cuda_plan_backward(&plan, p, choice);
    return of_tiles(p, &plan, plan.tiles);
}

/* Of a call whose tensors are copied: `before` is the choice for them as they are. */
static void add_copies(mha_attention_plan *to, const mha_cuda_choice *before)
{
    char clause[sizeof to->why];
    snprintf(clause, sizeof clause, "dense copies because of %s", before->why_not);
    add_why(to, clause);
}

mha_status mha_cuda_op_attention_explain(const mha_problem *call, mha_attention_plan *to)
{
    mha_arena measure = {0};
    mha_cuda_choice choice;
    TRY(mha_cuda_check_sizes(call));
    const mha_problem laid = mha_cuda_laid_out(call, &measure, &choice), *p = &laid;
    const mha_cuda_choice before = mha_cuda_choose(MHA_CUDA_FORWARD, call, NULL);
    const bool copied = measure.used > 0;
    mha_cuda_forward_family *family = mha_cuda_forward_family_of(&choice);
    TRY(family(p, &choice, &measure, false));
    *to = family == mha_cuda_general_forward   ? of_general(p, &choice)
          : family == mha_cuda_float32_forward ? of_float32(p, &choice)
          : family == mha_cuda_decode_forward  ? of_decoding(p, &choice)
          : family == mha_cuda_small_forward   ? of_small_heads(p, &choice)
                                               : of_tiles_forward(p, &choice);
    to->scratch_bytes = measure.used;
    if (copied) add_copies(to, &before);
    if (family == mha_cuda_tiles_forward) add_methods(to, &choice);
    return MHA_OK;
}

mha_status mha_cuda_op_attention_explain_backward(const mha_gradient_call *call, mha_attention_plan *to)
{
    mha_arena measure = {0};
    mha_cuda_choice choice;
    TRY(mha_cuda_check_sizes(&call->problem));
    const mha_gradient_call laid = mha_cuda_laid_out_backward(call, &measure, &choice);
    const mha_problem *p = &laid.problem;
    const mha_cuda_choice before = mha_cuda_choose(MHA_CUDA_BACKWARD, &call->problem, call);
    const bool copied = measure.used > 0;
    mha_cuda_backward_family *family = mha_cuda_backward_family_of(&choice);
    mha_gradient_call own = mha_cuda_with_own_gradients(&laid, &choice, &measure);
    TRY(family(&own, &choice, &measure, false));
    if (measure.too_large) return mha_fail(p->ctx, MHA_TOO_LARGE, "q, k: need more scratch than there is memory");
    *to = mha_cuda_is_general(&choice)          ? of_general(p, &choice)
          : family == mha_cuda_general_backward ? of_float32(p, &choice)
          : family == mha_cuda_small_backward   ? of_small_heads(p, &choice)
                                                : of_tiles_backward(p, &choice);
    to->scratch_bytes = measure.used;
    if (copied) add_copies(to, &before);
    if (!mha_cuda_is_general(&choice) && own.dbias.rank && !mha_cuda_bias_launches(&own))
        add_why(to, "the gradient of a shared bias in general kernels");
    if (!p->extras.softmax.rank) add_why(to, "no softmax is given: another forward pass");
    if (family == mha_cuda_tiles_backward) add_methods(to, &choice);
    return MHA_OK;
}
