/* Products with weights, activations, and what is done to logits. */
#include "ops/linear.h"
#include "program/operation.h"

/* ---- Products --------------------------------------------------------------------------------------------------- */

/* A weight as this product reads it: rounded if the other factor is. */
static mha_tensor factor_of(const nn_run *r, const nn_step *s)
{
    bool half = r->program->value[s->read[0]].type == MHA_BFLOAT16;
    return half ? s->weight[0]->factor : s->weight[0]->value;
}

/* The columns of write[0] that this product gives. */
static mha_tensor columns_of(const nn_step *s, mha_tensor y)
{
    return nn_columns(y, s->options.column, s->weight[0]->value.size[0]);
}

/* write[0] = activation(read[0] w^T + b), or read[1] + that, in place of read[1] */
static mha_status product_run(nn_run *r, const nn_step *s)
{
    mha_tensor y = columns_of(s, nn_run_value(r, s->write[0])), base = nn_run_value(r, s->read[1]);
    if (base.rank && base.data != y.data) TRY(mha_tensor_copy(r->ctx, y, base));
    return nn_linear_forward(r->ctx, y, nn_run_value(r, s->read[0]), factor_of(r, s), nn_run_weight(s, 1),
                             s->options.activation, base.rank > 0);
}

/* The sum for the bias is taken of the float32 dy. */
static mha_status product_back(nn_run *r, const nn_step *s)
{
    mha_tensor dy = columns_of(s, nn_run_gradient(r, s->write[0])), rounded = nn_run_value(r, s->write[1]);
    nn_linear_gradients g = {.dx = nn_run_gradient(r, s->read[0]), .add = s->back[0] == NN_BACK_ADD};
    g.dw = nn_run_weight_gradient(r, s->weight[0]);
    if (s->weight[1]) TRY(mha_sum_rows(r->ctx, nn_run_weight_gradient(r, s->weight[1]), dy));
    if (rounded.rank) TRY(mha_tensor_copy(r->ctx, rounded, dy));
    return nn_linear_backward(r->ctx, &g, rounded.rank ? rounded : dy, nn_run_value(r, s->read[0]), factor_of(r, s));
}

static double product_operations(const nn_run *r, const nn_step *s)
{
    const nn_value *x = &r->program->value[s->read[0]];
    return 2 * (double)(nn_run_rows(r, x->extent, x->decoder) * x->columns) * (double)s->weight[0]->value.size[0];
}

const nn_operation nn_op_product = {.name = "product",
                                    .operations = product_operations,
                                    .run = product_run,
                                    .back = product_back,
                                    .keeps_reads = 1,
                                    .back_scratch = 2,
                                    .passes = 2,
                                    .in_place = true,
                                    .home_write = 0,
                                    .home_read = 1};

/* ---- Activations ------------------------------------------------------------------------------------------------ */

static mha_status activate_run(nn_run *r, const nn_step *s)
{
    return mha_activation_forward(r->ctx, nn_run_value(r, s->write[0]), nn_run_value(r, s->write[1]),
                                  nn_run_value(r, s->read[0]), s->options.activation);
}

static mha_status activate_back(nn_run *r, const nn_step *s)
{
    mha_tensor dz = nn_run_gradient(r, s->read[0]), dh = nn_run_gradient(r, s->write[0]);
    if (dz.data != dh.data) TRY(mha_tensor_copy(r->ctx, dz, dh));
    return mha_activation_backward(r->ctx, dz, nn_run_value(r, s->write[1]));
}

const nn_operation nn_op_activate = {.name = "activation",
                                     .run = activate_run,
                                     .back = activate_back,
                                     .keeps_writes = 2,
                                     .in_place = true,
                                     .home_write = 1,
                                     .home_read = 0,
                                     .back_in_place = true};

/* write[0] (rows,N) = a(left half) * right half of read[0] (rows,2N) */
static mha_status gated_run(nn_run *r, const nn_step *s)
{
    return mha_gated_forward(r->ctx, nn_run_value(r, s->write[0]), nn_run_value(r, s->write[1]),
                             nn_run_value(r, s->read[0]), s->options.activation);
}

static mha_status gated_back(nn_run *r, const nn_step *s)
{
    return mha_gated_backward(r->ctx, nn_run_value(r, s->write[1]), nn_run_gradient(r, s->write[0]));
}

const nn_operation nn_op_gated = {.name = "gated activation",
                                  .run = gated_run,
                                  .back = gated_back,
                                  .keeps_writes = 2,
                                  .in_place = true,
                                  .home_write = 1,
                                  .home_read = 0,
                                  .back_in_write = true,
                                  .back_write = 1};

/* ---- Logits ----------------------------------------------------------------------------------------------------- */

/* write[0] = cap * tanh(scale * read[0] / cap) */
static mha_status cap_run(nn_run *r, const nn_step *s)
{
    mha_tensor to = nn_run_value(r, s->write[0]);
    const float *from = nn_run_value(r, s->read[0]).data;
    float *y = to.data, cap = s->options.softcap;
    for (int64_t i = 0; i < to.size[0] * to.size[1]; i++) {
        float x = from[i] * s->options.scale;
        y[i] = cap > 0 ? cap * tanhf(x / cap) : x;
    }
    return MHA_OK;
}

static mha_status cap_back(nn_run *r, const nn_step *s)
{
    mha_tensor to = nn_run_gradient(r, s->read[0]);
    const float *y = nn_run_value(r, s->write[0]).data, *dy = nn_run_gradient(r, s->write[0]).data;
    float *dx = to.data, cap = s->options.softcap;
    for (int64_t i = 0; i < to.size[0] * to.size[1]; i++) {
        float share = cap > 0 ? y[i] / cap : 0;
        dx[i] = dy[i] * s->options.scale * (1 - share * share);
    }
    return MHA_OK;
}

const nn_operation nn_op_cap = {.name = "cap", .run = cap_run, .back = cap_back, .keeps_writes = 1, .in_place = true};
