/* How a layer's call will attend: the pass is measured, and the device says what it would do with its attention. */
#include "layer/pass.h"
#include <stdio.h>
#include <string.h>

/* Starts that count from the first, as a pass has them once it has memory. */
static void move_starts(mha_tensor *to, mha_tensor from, int64_t *room)
{
    if (!from.rank) return;
    for (int64_t b = 0; b < from.size[0]; b++) room[b] = mha_integer_at(from, b) - mha_integer_at(from, 0);
    *to = mha_tensor_1d(room, MHA_INT64, from.size[0]);
}

static void say_weights(mha_attention_plan *plan, const mha_pass *p)
{
    size_t used = strlen(plan->why);
    snprintf(plan->why + used, sizeof plan->why - used, "; weights are %s",
             !p->packs               ? "not packed: the layer is not frozen"
             : mha_pass_is_packed(p) ? "packed"
                                     : "packed by the first call");
}

mha_status mha_layer_explain(mha_context *ctx, mha_attention_plan *plan, const mha_layer *layer, mha_tensor out,
                             const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                             const mha_attention_options *options)
{
    mha_pass p;
    mha_problem problem;
    size_t ignored = 0;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, plan);
    MHA_NEED(ctx, layer);
    MHA_NEED(ctx, inputs);
    mha_layer shape = *layer; /* nothing of it is written */
    mha_memory starts = {.allocator = ctx->allocator};
    TRY(mha_pass_make(&p, ctx, &shape, out, extras, inputs, options, false));
    TRY(mha_pass_measure(&p, &ignored));
    size_t count = (size_t)mha_pass_sequences(&p) + 1;
    if (mha_options_are_ragged(&p.options) && !ctx->backend->remote) {
        TRY(mha_memory_reserve(ctx, &starts, 2 * count * sizeof(int64_t) + MHA_ALIGNMENT));
        move_starts(&p.options.query_starts, p.query_starts, (int64_t *)(void *)starts.start);
        move_starts(&p.options.key_starts, p.key_starts, (int64_t *)(void *)starts.start + count);
    }
    mha_attention_extras wanted = mha_pass_extras(&p);
    mha_status status = mha_problem_make(&problem, ctx, MHA_SHAPE, p.heads, &wanted, p.q, p.k, p.v, &p.options);
    if (!status) status = ctx->backend->attention_explain(&problem, plan);
    if (!status) say_weights(plan, &p);
    mha_memory_release(&starts);
    return status;
}
