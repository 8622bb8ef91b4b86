/* The result: rows after the final norm, or one vector for each sequence, and from them logits. */
#include "program/operation.h"

static int32_t compile_pool(nn_compiler *c, int32_t x, unsigned pool)
{
    int64_t M = c->stack->blocks.width;
    int32_t y = nn_compile_value(c, "pooled", NN_SEQUENCES, pool == NN_POOL_BOTH ? 2 * M : M, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_pool, x);
    s->write[0] = y;
    s->options.pool = pool;
    return y;
}

/* The rows that logits are computed of. */
static int32_t compile_rows(nn_compiler *c, int32_t x)
{
    const nn_output_config *o = &c->p->d->output;
    if (o->pool == NN_POOL_TWO) return compile_pool(c, x, NN_POOL_FIRST);
    if (o->pool) return c->p->value[x].extent == NN_SEQUENCES ? x : compile_pool(c, x, o->pool);
    if (!(c->p->variant & NN_PICKS)) return x;
    int32_t y = nn_compile_value(c, "picked", NN_RESULTS, c->stack->blocks.width, MHA_FLOAT32);
    nn_compile_step(c, &nn_op_pick, x)->write[0] = y;
    return y;
}

/* The mean of these logits and of those of the second row of each sequence. */
static int32_t compile_second(nn_compiler *c, int32_t x, int32_t logits)
{
    int32_t row = compile_pool(c, x, NN_POOL_SECOND), sum;
    sum = nn_compile_product(c, "logits", row, c->part[NN_SECOND], c->part[NN_SECOND_BIAS], MHA_LINEAR);
    c->p->step[c->p->steps - 1].read[1] = logits;
    int32_t mean = nn_compile_value(c, "logits", NN_SEQUENCES, c->p->d->output.classes, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_scale, sum);
    s->write[0] = mean;
    s->options.scale = 0.5f;
    return mean;
}

int32_t nn_compile_output(nn_compiler *c, int32_t x)
{
    const nn_output_config *o = &c->p->d->output;
    nn_weights_find(c->weights, c->decoder, -1, c->part);
    int32_t h = compile_rows(c, x);
    if (c->part[NN_TRANSFORM])
        h = nn_compile_product(c, "h", h, c->part[NN_TRANSFORM], c->part[NN_TRANSFORM_BIAS], o->transform_activation);
    h = nn_compile_norm(c, h, c->part[NN_TRANSFORM_NORM], c->part[NN_TRANSFORM_NORM_BIAS]);
    if (!o->classes) return h;
    const nn_weight *weight = c->part[o->tied ? NN_TOKENS : NN_OUTPUT];
    int32_t logits = nn_compile_product(c, "logits", h, weight, c->part[NN_OUTPUT_BIAS], MHA_LINEAR);
    if (o->pool == NN_POOL_TWO) logits = compile_second(c, x, logits);
    if (o->scale == 1 && !(o->softcap > 0)) return logits;
    int32_t y = nn_compile_value(c, "logits", c->p->value[logits].extent, o->classes, MHA_FLOAT32);
    nn_step *s = nn_compile_step(c, &nn_op_cap, logits);
    s->write[0] = y;
    s->options.scale = o->scale, s->options.softcap = o->softcap;
    return y;
}
