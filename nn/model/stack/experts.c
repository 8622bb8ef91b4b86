/* A mixture of experts. Every row scores the experts and is computed by the best few; the results are added with the
 * softmax of those scores as weights, best first. The rows of one expert are gathered and go through its MLP together, so
 * that each of its weights is read once; the sum of a row does not depend on which rows these are. */
#include "model/stack/stack.h"
#include <stdlib.h>
#include <string.h>

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

bool nn_experts_create(nn_stack *s)
{
    const nn_blocks_config *c = s->config;
    nn_experts *e = &s->experts;
    int64_t rows = s->rows, M = c->width, Z = c->gated ? 2 * c->mlp : c->mlp, k = c->experts_used;
    const int64_t size[] = {rows * c->experts * 4,
                            rows * k * 4,
                            rows * k * 4,
                            rows * 8,
                            rows * 8,
                            rows * M * 4,
                            rows * Z * 4,
                            rows * c->mlp * 4,
                            rows * M * 4,
                            rows * k * M * 4,
                            rows * larger(M, c->mlp) * 2};
    void **parts[] = {(void **)&e->scores, (void **)&e->chosen, (void **)&e->share, (void **)&e->row,
                      (void **)&e->slot,   (void **)&e->x,      (void **)&e->z,     (void **)&e->h,
                      (void **)&e->y,      (void **)&e->sum,    (void **)&e->half};
    enum { PARTS = sizeof size / sizeof *size };
    int64_t all = 0;
    for (int n = 0; n < PARTS; n++) all += (size[n] + 63) / 64 * 64;
    char *at = e->memory = malloc((size_t)all + 1);
    for (int n = 0; at && n < PARTS; n++) {
        *parts[n] = at;
        at += (size[n] + 63) / 64 * 64;
    }
    return e->memory;
}

void nn_experts_free(nn_experts *e) { free(e->memory); }

/* The best experts of a row, of equal scores the first, and their softmax. */
static void choose(void *arg, int64_t row)
{
    const nn_stack *s = arg;
    const nn_experts *e = &s->experts;
    int64_t count = s->config->experts, k = s->config->experts_used;
    const float *score = e->scores + row * count;
    int32_t *chosen = e->chosen + row * k;
    float *share = e->share + row * k, sum = 0;
    for (int64_t n = 0; n < k; n++) {
        int32_t best = -1;
        for (int32_t i = 0; i < count; i++) {
            bool taken = false;
            for (int64_t m = 0; m < n; m++) taken |= chosen[m] == i;
            if (!taken && (best < 0 || score[i] > score[best])) best = i;
        }
        chosen[n] = best;
        share[n] = expf(score[best] - score[chosen[0]]);
        sum += share[n];
    }
    for (int64_t n = 0; n < k; n++) share[n] /= sum;
}

static mha_tensor factor_of(const nn_stack *s, mha_context *ctx, const float *x, int64_t rows, int64_t columns)
{
    if (!s->half) return nn_matrix(x, rows, columns);
    mha_tensor half = mha_tensor_2d(s->experts.half, MHA_BFLOAT16, rows, columns);
    mha_tensor_copy(ctx, half, nn_matrix(x, rows, columns));
    return half;
}

/* h (rows,N) = a(min(g, clamp)) * (max(min(u, clamp), -clamp) + 1), each row of z being g, then u. */
static void clamp_gates(float *z, int64_t rows, int64_t N, float clamp)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < N; n++) {
            float *g = z + i * 2 * N + n, *u = g + N;
            *g = fminf(*g, clamp);
            *u = fmaxf(fminf(*u, clamp), -clamp) + 1;
        }
}

static mha_tensor bias_of(const nn_block *b, nn_part_kind kind, int64_t n)
{
    return nn_value(b->part[kind] ? b->part[kind] + n : NULL);
}

/* y (rows,M): the MLP of expert n for the rows of x. */
static bool pass_expert(nn_stack *s, mha_context *ctx, const nn_block *b, int64_t n, int64_t rows)
{
    static const nn_part_kind weights[] = {NN_GATE, NN_FC1}, biases[] = {NN_GATE_BIAS, NN_FC1_BIAS};
    const nn_blocks_config *c = s->config;
    const nn_experts *e = &s->experts;
    int64_t M = c->width, N = c->mlp, Z = c->gated ? 2 * N : N;
    mha_tensor x = factor_of(s, ctx, e->x, rows, M), none = MHA_NO_TENSOR;
    for (int k = c->gated ? 0 : 1; k < 2; k++) {
        mha_tensor z = nn_matrix(e->z + (c->gated ? k * N : 0), rows, N);
        z.stride[0] = Z;
        if (nn_linear_forward(ctx, z, x, b->part[weights[k]][n].factor, bias_of(b, biases[k], n), MHA_LINEAR, false))
            return false;
    }
    mha_tensor z = nn_matrix(e->z, rows, Z), h = nn_matrix(e->h, rows, N);
    if (c->clamp > 0) clamp_gates(e->z, rows, N, c->clamp);
    if (c->gated ? mha_gated_forward(ctx, h, none, z, c->activation)
                 : mha_activation_forward(ctx, h, none, z, c->activation))
        return false;
    return !nn_linear_forward(ctx, nn_matrix(e->y, rows, M), factor_of(s, ctx, e->h, rows, N),
                              b->part[NN_FC2][n].factor, bias_of(b, NN_FC2_BIAS, n), MHA_LINEAR, false);
}

static int64_t gather(nn_stack *s, int64_t n, const float *x)
{
    const nn_experts *e = &s->experts;
    int64_t rows = s->B * s->T, k = s->config->experts_used, M = s->config->width, count = 0;
    for (int64_t i = 0; i < rows * k; i++) {
        if (e->chosen[i] != n) continue;
        memcpy(e->x + count * M, x + i / k * M, (size_t)M * sizeof *x);
        e->row[count] = i / k;
        e->slot[count++] = i % k;
    }
    return count;
}

static void add_up(void *arg, int64_t row)
{
    const nn_stack *s = arg;
    const nn_experts *e = &s->experts;
    int64_t k = s->config->experts_used, M = s->config->width;
    float *y = e->y + row * M;
    for (int64_t m = 0; m < M; m++) y[m] = 0;
    for (int64_t n = 0; n < k; n++)
        for (int64_t m = 0; m < M; m++) y[m] += e->share[row * k + n] * e->sum[(row * k + n) * M + m];
}

bool nn_experts_forward(nn_stack *s, mha_context *ctx, const nn_block *b, float *y, const float *x)
{
    const nn_blocks_config *c = s->config;
    const nn_experts *e = &s->experts;
    int64_t rows = s->B * s->T, M = c->width;
    mha_tensor router = b->part[NN_ROUTER]->value;
    if (nn_linear_forward(ctx, nn_matrix(e->scores, rows, c->experts), nn_matrix(x, rows, M), router,
                          nn_value(b->part[NN_ROUTER_BIAS]), MHA_LINEAR, false))
        return false;
    mha_context_each(ctx, rows, choose, s);
    for (int64_t n = 0; n < c->experts; n++) {
        int64_t count = gather(s, n, x);
        if (count && !pass_expert(s, ctx, b, n, count)) return false;
        for (int64_t i = 0; i < count; i++)
            memcpy(e->sum + (e->row[i] * c->experts_used + e->slot[i]) * M, e->y + i * M, (size_t)M * sizeof *x);
    }
    mha_context_each(ctx, rows, add_up, s);
    memcpy(y, e->y, (size_t)(rows * M) * sizeof *y);
    return true;
}
