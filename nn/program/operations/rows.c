/* Operations that look at rows one by one: norms, sums, rounding, scales, dropout. */
#include "program/operation.h"

/* ---- Norms ------------------------------------------------------------------------------------------------------ */

static mha_norm_options norm_options(const nn_run *r, const nn_step *s)
{
    const nn_blocks_config *c = &nn_run_stack(r, s)->blocks;
    mha_norm_options norm = MHA_NORM_DEFAULTS;
    norm.kind = c->norm == NN_LAYER_NORM ? MHA_NORM_LAYER : MHA_NORM_RMS;
    norm.epsilon = c->epsilon;
    norm.gain = nn_run_weight(s, 0);
    norm.bias = nn_run_weight(s, 1);
    return norm;
}

/* dx, or added to it, from dy. */
static mha_status norm_gradient(nn_run *r, const nn_step *s, mha_tensor dx, bool add, mha_tensor dy, mha_tensor x,
                                mha_tensor kept)
{
    mha_norm_options norm = norm_options(r, s);
    mha_norm_gradients g = {.x = dx, .accumulate = add};
    g.gain = nn_run_weight_gradient(r, s->weight[0]);
    g.bias = nn_run_weight_gradient(r, s->weight[1]);
    return mha_norm_backward(r->ctx, &g, dy, x, kept, &norm);
}

static mha_status norm_run(nn_run *r, const nn_step *s)
{
    mha_norm_options norm = norm_options(r, s);
    return mha_norm_forward(r->ctx, nn_run_value(r, s->write[0]), nn_run_value(r, s->write[1]),
                            nn_run_value(r, s->read[0]), &norm);
}

static mha_status norm_back(nn_run *r, const nn_step *s)
{
    return norm_gradient(r, s, nn_run_gradient(r, s->read[0]), s->back[0] == NN_BACK_ADD,
                         nn_run_gradient(r, s->write[0]), nn_run_value(r, s->read[0]), nn_run_value(r, s->write[1]));
}

const nn_operation nn_op_norm = {
    .name = "norm", .run = norm_run, .back = norm_back, .keeps_reads = 1, .keeps_writes = 2};

/* ---- Sums ------------------------------------------------------------------------------------------------------- */

/* write[0] = read[1] + read[0], in place of read[0]. */
static mha_status add_run(nn_run *r, const nn_step *s)
{
    const nn_given *given = nn_run_given(r, s->write[0]);
    if (given) return nn_run_take(r, given);
    mha_tensor x = nn_run_value(r, s->write[0]), y = nn_run_value(r, s->read[0]);
    if (x.data != y.data) TRY(mha_tensor_copy(r->ctx, x, y));
    return mha_add(r->ctx, x, nn_run_value(r, s->read[1]));
}

const nn_operation nn_op_add = {.name = "add", .run = add_run, .passes = 3, .in_place = true};

/* The same, and write[1] = norm(write[0]). */
static mha_status add_norm_run(nn_run *r, const nn_step *s)
{
    mha_norm_options norm = norm_options(r, s);
    mha_tensor x = nn_run_value(r, s->write[0]), y = nn_run_value(r, s->read[0]);
    mha_tensor normed = nn_run_value(r, s->write[1]), kept = nn_run_value(r, s->write[2]);
    const nn_given *given = nn_run_given(r, s->write[0]);
    if (given) {
        TRY(nn_run_take(r, given));
        return mha_norm_forward(r->ctx, normed, kept, x, &norm);
    }
    if (x.data != y.data) TRY(mha_tensor_copy(r->ctx, x, y));
    return mha_norm_forward_add(r->ctx, normed, kept, x, nn_run_value(r, s->read[1]), &norm);
}

static mha_status add_norm_back(nn_run *r, const nn_step *s)
{
    if (!nn_run_wants(r, s->write[1])) return MHA_OK;
    return norm_gradient(r, s, nn_run_gradient(r, s->write[0]), s->sum_has_gradient, nn_run_gradient(r, s->write[1]),
                         nn_run_value(r, s->write[0]), nn_run_value(r, s->write[2]));
}

const nn_operation nn_op_add_norm = {.name = "add, norm",
                                     .run = add_norm_run,
                                     .back = add_norm_back,
                                     .keeps_writes = 5,
                                     .passes = 3,
                                     .sums = true,
                                     .in_place = true};

/* ---- Rounding to bfloat16 --------------------------------------------------------------------------------------- */

static mha_status round_run(nn_run *r, const nn_step *s)
{
    return mha_tensor_copy(r->ctx, nn_run_value(r, s->write[0]), nn_run_value(r, s->read[0]));
}

const nn_operation nn_op_round = {.name = "round", .run = round_run, .passes = 1};

/* ---- Scales ----------------------------------------------------------------------------------------------------- */

static mha_status scale_all(nn_run *r, const nn_step *s, mha_tensor to, mha_tensor from, bool add)
{
    int64_t count = to.size[0] * to.size[1];
    const float *x = from.data;
    float *y = to.data, scale = s->options.scale;
    (void)r;
    for (int64_t i = 0; i < count; i++) y[i] = add ? y[i] + x[i] * scale : x[i] * scale;
    return MHA_OK;
}

static mha_status scale_run(nn_run *r, const nn_step *s)
{
    return scale_all(r, s, nn_run_value(r, s->write[0]), nn_run_value(r, s->read[0]), false);
}

static mha_status scale_back(nn_run *r, const nn_step *s)
{
    return scale_all(r, s, nn_run_gradient(r, s->read[0]), nn_run_gradient(r, s->write[0]), s->back[0] == NN_BACK_ADD);
}

const nn_operation nn_op_scale = {
    .name = "scale", .run = scale_run, .back = scale_back, .in_place = true, .back_in_place = true};

/* write[0] (rows,N) = read[0] * w, w (N) */
static mha_status scale_columns_run(nn_run *r, const nn_step *s)
{
    mha_tensor to = nn_run_value(r, s->write[0]), from = nn_run_value(r, s->read[0]);
    const float *x = from.data, *w = s->weight[0]->value.data;
    float *y = to.data;
    int64_t N = to.size[1];
    for (int64_t i = 0; i < to.size[0]; i++)
        for (int64_t n = 0; n < N; n++) y[i * N + n] = x[i * N + n] * w[n];
    return MHA_OK;
}

static mha_status scale_columns_back(nn_run *r, const nn_step *s)
{
    mha_tensor to = nn_run_gradient(r, s->read[0]), from = nn_run_gradient(r, s->write[0]);
    const float *dy = from.data, *x = nn_run_value(r, s->read[0]).data, *w = s->weight[0]->value.data;
    float *dx = to.data, *dw = r->gradients + s->weight[0]->first;
    int64_t N = to.size[1];
    for (int64_t i = 0; i < to.size[0]; i++)
        for (int64_t n = 0; n < N; n++) {
            dw[n] += dy[i * N + n] * x[i * N + n];
            dx[i * N + n] = (s->back[0] == NN_BACK_ADD ? dx[i * N + n] : 0) + dy[i * N + n] * w[n];
        }
    return MHA_OK;
}

const nn_operation nn_op_scale_columns = {.name = "scale by a vector",
                                          .run = scale_columns_run,
                                          .back = scale_columns_back,
                                          .keeps_reads = 1,
                                          .in_place = true};

/* ---- Dropout ---------------------------------------------------------------------------------------------------- */

static mha_status drop(const nn_run *r, const nn_step *s, mha_tensor to, mha_tensor from)
{
    const nn_run_side *side = nn_run_side_of(r, s);
    mha_dropout_options o = MHA_DROPOUT_DEFAULTS;
    if (!r->call->drop) return to.data == from.data ? MHA_OK : mha_tensor_copy(r->ctx, to, from);
    o.drop = s->options.drop, o.path = s->options.path, o.seed = r->call->seed;
    o.stream = r->call->stream + ((uint64_t)s->options.stream << 44);
    return mha_dropout(r->ctx, nn_run_sequences(side, to), nn_run_sequences(side, from), &o);
}

static mha_status dropout_run(nn_run *r, const nn_step *s)
{
    return drop(r, s, nn_run_value(r, s->write[0]), nn_run_value(r, s->read[0]));
}

static mha_status dropout_back(nn_run *r, const nn_step *s)
{
    return drop(r, s, nn_run_gradient(r, s->read[0]), nn_run_gradient(r, s->write[0]));
}

const nn_operation nn_op_dropout = {
    .name = "dropout", .run = dropout_run, .back = dropout_back, .in_place = true, .back_in_place = true};
