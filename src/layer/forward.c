/* The forward call of a layer, and the tape that it leaves.
 *
 * Everything is rehearsed first: each step checks its arguments and reserves its scratch without computing. So whatever
 * can go wrong has gone wrong before the first result is written. */
#include "layer/tape.h"

static const mha_tensor none = MHA_NO_TENSOR;

/* ---- The steps -------------------------------------------------------------------------------------------------- */

mha_status mha_pass_extra_keys(const mha_pass *p, mha_tensor weights, mha_extra_keys_call *call)
{
    *call = (mha_extra_keys_call){.count = p->extra,
                                  .bias_k = p->parts.bias_k,
                                  .bias_v = p->parts.bias_v,
                                  .softmax = p->softmax,
                                  .lse = p->extras.lse,
                                  .weights = weights};
    return mha_problem_make(&call->problem, p->ctx, MHA_INPUT, p->heads, NULL, p->q, p->k, p->v, &p->options);
}

mha_attention_extras mha_pass_extras(const mha_pass *p)
{
    mha_attention_extras extras = p->extras;
    extras.softmax = p->softmax;
    if (p->maps.rank) extras.weights = p->maps;
    if (extras.weights.rank) extras.weights.size[extras.weights.rank - 1] -= p->extra;
    extras.q = extras.k = extras.v = extras.heads = none;
    return extras;
}

mha_status mha_pass_attend(mha_pass *p)
{
    mha_attention_extras extras = mha_pass_extras(p);
    mha_tensor weights = p->maps.rank ? p->maps : p->extras.weights;
    TRY(mha_attention_forward(p->ctx, p->heads, &extras, p->q, p->k, p->v, &p->options));
    if (mha_pass_has_unowned_rows(p)) p->ctx->backend->clear(p->ctx, p->heads, 2, none, p->options.query_starts);
    if (p->extra) {
        mha_extra_keys_call extra;
        TRY(mha_pass_extra_keys(p, weights, &extra));
        p->ctx->backend->extra_keys(&extra);
    }
    if (p->maps.rank) p->ctx->backend->average_heads(p->ctx, p->extras.weights, p->maps);
    return MHA_OK;
}

mha_status mha_pass_finish(mha_pass *p)
{
    const mha_layer *layer = p->layer;
    const mha_layer_options *s = &layer->shape;
    if (p->extras.softmax.rank) p->ctx->backend->copy(p->ctx, p->extras.softmax, p->softmax, false);
    if (s->gates) p->ctx->backend->gate(p->ctx, p->gated, p->heads, p->parts.gates);
    mha_pass_leave_intermediates(p);
    if (!s->out_projection) {
        p->ctx->backend->copy(p->ctx, mha_as_split(p->out, s->heads, s->value_head_width), p->gated, false);
        mha_pass_clear_padding(p, p->out, 1);
        return MHA_OK;
    }
    if (p->out_rounded) p->ctx->backend->copy(p->ctx, p->out_weight, layer->parts.out_weight, false);
    TRY(mha_pass_multiply(p, MHA_IN, p->result, p->gated_rows));
    if (p->out_copied)
        p->ctx->backend->copy(p->ctx, p->out, mha_as_input(p->result, p->out_across, p->B, p->Tq), false);
    mha_pass_clear_padding(p, p->out, 1); /* which has out_bias there */
    return MHA_OK;
}

/* ---- Calls ------------------------------------------------------------------------------------------------------ */

static mha_status steps(void *arg)
{
    mha_pass *p = arg;
    TRY(mha_pass_project(p));
    TRY(mha_pass_attend(p));
    return mha_pass_finish(p);
}

mha_status mha_rehearsed(mha_context *ctx, mha_status (*run)(void *arg), void *arg)
{
    ctx->trusting = true;
    ctx->rehearsing = true;
    mha_status status = run(arg);
    if (!status) status = mha_call_end(ctx);
    ctx->rehearsing = false;
    if (!status) status = run(arg);
    ctx->trusting = false;
    return status ? status : mha_call_end(ctx);
}

mha_status mha_layer_forward(mha_context *ctx, mha_layer *layer, mha_tensor out, const mha_attention_extras *extras,
                             const mha_layer_inputs *inputs, const mha_attention_options *options, mha_tape *tape)
{
    mha_pass pass;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, layer);
    MHA_NEED(ctx, inputs);
    if (tape) TRY(mha_tape_check_device(ctx, tape));
    TRY(mha_pass_make(&pass, ctx, layer, out, extras, inputs, options, tape != NULL));
    if (tape) tape->filled = false; /* what it holds will be written over */
    TRY(mha_pass_settle(&pass, tape ? &tape->block : &ctx->room));
    TRY(mha_rehearsed(ctx, steps, &pass));
    if (!tape) return MHA_OK;
    tape->pass = pass;
    tape->pass.out = none;
    tape->pass.extras = (mha_attention_extras)MHA_ATTENTION_NO_EXTRAS;
    tape->given[MHA_K] = mha_is_given(inputs->key);
    tape->given[MHA_V] = mha_is_given(inputs->value);
    tape->filled = true;
    return MHA_OK;
}

mha_status mha_tape_create(mha_context *ctx, mha_tape **tape)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_succeed(ctx);
    MHA_NEED(ctx, tape);
    *tape = NULL;
    mha_memory self = {.allocator = ctx->allocator};
    TRY(mha_memory_reserve(ctx, &self, sizeof(mha_tape) + MHA_ALIGNMENT));
    *tape = (mha_tape *)self.start;
    **tape = (mha_tape){.self = self, .block = mha_device_memory(ctx), .backend = ctx->backend};
    return MHA_OK;
}

void mha_tape_free(mha_tape *tape)
{
    if (!tape) return;
    mha_memory self = tape->self;
    mha_memory_release(&tape->block);
    mha_memory_release(&self);
}
