/* The MLP of a block:
 *
 *     z = x W1^T + b1   h = a(z)                         y = h W2^T + b2
 *     z = (x Wg^T + bg, x W1^T + b1), side by side       h = a(left half) * right half, if gated
 *
 * For the backward pass the activation is a sweep of its own, which leaves its slope in place of z. */
#include "model/stack/stack.h"

/* One half of z (rows,2N). */
static mha_tensor half_of(float *z, int64_t rows, int64_t N, int which)
{
    mha_tensor half = nn_matrix(z + which * N, rows, N);
    half.stride[0] = 2 * N;
    return half;
}

static bool gated_forward(nn_stack *s, mha_context *ctx, const nn_block *b, mha_tensor x)
{
    int64_t rows = s->B * s->T, N = s->config->mlp;
    if (nn_linear_forward(ctx, half_of(b->z, rows, N, 0), x, b->part[NN_GATE]->factor, nn_value(b->part[NN_GATE_BIAS]),
                          MHA_LINEAR, false) ||
        nn_linear_forward(ctx, half_of(b->z, rows, N, 1), x, b->part[NN_FC1]->factor, nn_value(b->part[NN_FC1_BIAS]),
                          MHA_LINEAR, false))
        return false;
    mha_tensor z = nn_matrix(b->z, rows, 2 * N), none = MHA_NO_TENSOR;
    return !mha_gated_forward(ctx, nn_matrix(b->h, rows, N), s->training ? z : none, z, s->config->activation);
}

bool nn_mlp_forward(nn_stack *s, mha_context *ctx, const nn_block *b, float *y, const float *input)
{
    const nn_blocks_config *c = s->config;
    int64_t rows = s->B * s->T, M = c->width, N = c->mlp;
    mha_tensor x = nn_stack_factor(s, ctx, b->half, input, M), h, w1 = b->part[NN_FC1]->factor;
    mha_tensor b1 = nn_value(b->part[NN_FC1_BIAS]);
    if (c->gated) {
        if (!gated_forward(s, ctx, b, x)) return false;
        h = nn_stack_factor(s, ctx, b->half_h, b->h, N);
    } else if (s->training) {
        mha_tensor z = nn_matrix(b->z, rows, N);
        if (nn_linear_forward(ctx, z, x, w1, b1, MHA_LINEAR, false) ||
            mha_activation_forward(ctx, nn_matrix(b->h, rows, N), z, z, c->activation))
            return false;
        h = nn_stack_factor(s, ctx, b->half_h, b->h, N);
    } else {
        h = s->half ? mha_tensor_2d(b->half_h, MHA_BFLOAT16, rows, N) : nn_matrix(b->h, rows, N);
        if (nn_linear_forward(ctx, h, x, w1, b1, c->activation, false)) return false;
    }
    return nn_inside_hidden(s, ctx, b, h) && !nn_linear_forward(ctx, nn_matrix(y, rows, M), h, b->part[NN_FC2]->factor,
                                                                nn_value(b->part[NN_FC2_BIAS]), MHA_LINEAR, false);
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* The gradients of a linear layer whose factors may be bfloat16: the sum for the bias is taken of the float32 dy. */
static bool linear_back(mha_context *ctx, nn_linear_gradients g, mha_tensor dy, mha_tensor half_dy, mha_tensor x,
                        mha_tensor w)
{
    nn_linear_gradients sums = {.db = g.db};
    g.db = NULL;
    return !nn_linear_backward(ctx, &sums, dy, x, w) && !nn_linear_backward(ctx, &g, half_dy, x, w);
}

/* dz (rows,2N) of a gated MLP lies in b->z; its halves are those of two products of x. */
static bool gated_backward(nn_stack *s, mha_context *ctx, const nn_block *b, mha_tensor x, float *gradients)
{
    static const nn_part_kind weights[] = {NN_GATE, NN_FC1}, biases[] = {NN_GATE_BIAS, NN_FC1_BIAS};
    int64_t rows = s->B * s->T, M = s->config->width, N = s->config->mlp;
    mha_tensor all = nn_stack_factor(s, ctx, s->half_dhidden, b->z, 2 * N);
    for (int n = 0; n < 2; n++) {
        nn_linear_gradients g = {nn_matrix(s->dn, rows, M), n > 0,
                                 nn_matrix(gradients + b->part[weights[n]]->first, N, M),
                                 nn_bias_gradient(b->part[biases[n]], gradients)};
        mha_tensor dz = half_of(b->z, rows, N, n), factor = all;
        factor.size[1] = N;
        factor.data = (char *)factor.data + (size_t)(n * N) * mha_type_size(factor.type);
        if (!linear_back(ctx, g, dz, factor, x, b->part[weights[n]]->factor)) return false;
    }
    return true;
}

bool nn_mlp_backward(nn_stack *s, mha_context *ctx, const nn_block *b, const float *input, const float *dy,
                     float *gradients)
{
    const nn_blocks_config *c = s->config;
    int64_t rows = s->B * s->T, M = c->width, N = c->mlp;
    mha_tensor x = nn_matrix(input, rows, M), h = nn_matrix(b->h, rows, N);
    if (s->half) x = mha_tensor_2d(b->half, MHA_BFLOAT16, rows, M), h = mha_tensor_2d(b->half_h, MHA_BFLOAT16, rows, N);
    nn_linear_gradients g2 = {nn_matrix(s->dhidden, rows, N), false,
                              nn_matrix(gradients + b->part[NN_FC2]->first, M, N),
                              nn_bias_gradient(b->part[NN_FC2_BIAS], gradients)};
    if (!linear_back(ctx, g2, nn_matrix(dy, rows, M), nn_stack_factor(s, ctx, s->half_d, dy, M), h,
                     b->part[NN_FC2]->factor))
        return false;
    mha_tensor dh = nn_matrix(s->dhidden, rows, N);
    if (c->gated)
        return !mha_gated_backward(ctx, nn_matrix(b->z, rows, 2 * N), dh) && gated_backward(s, ctx, b, x, gradients);
    nn_linear_gradients g1 = {nn_matrix(s->dn, rows, M), false, nn_matrix(gradients + b->part[NN_FC1]->first, N, M),
                              nn_bias_gradient(b->part[NN_FC1_BIAS], gradients)};
    return !mha_activation_backward(ctx, dh, nn_matrix(b->z, rows, N)) &&
           linear_back(ctx, g1, dh, nn_stack_factor(s, ctx, s->half_dhidden, s->dhidden, N), x,
                       b->part[NN_FC1]->factor);
}
