/* A mixture of experts. Every row scores the experts and is computed by the best few; the results are added with the
 * softmax of those scores as weights, best first. The rows of one expert are gathered and go through its MLP together, so
 * that each of its weights is read once; the sum of a row does not depend on which rows these are.
 *
 * Backward, the rows of an expert are computed again. Which experts a row has is constant. */
#include "ops/linear.h"
#include "program/operation.h"
#include <string.h>

/* ---- The choice ------------------------------------------------------------------------------------------------- */

typedef struct choice {
    const float *scores; /* (rows,experts) */
    float *share;        /* (rows,k) */
    int32_t *chosen;     /* (rows,k): best first */
    const float *dshare;
    float *dscores;
    bool add;
    int64_t experts, k;
} choice;

static choice choice_of(const nn_run *r, const nn_step *s)
{
    const nn_blocks_config *c = &nn_run_stack(r, s)->blocks;
    return (choice){.scores = nn_run_value(r, s->read[0]).data,
                    .share = nn_run_value(r, s->write[0]).data,
                    .chosen = nn_run_value(r, s->write[1]).data,
                    .experts = c->experts,
                    .k = c->experts_used};
}

/* The best experts of a row, of equal scores the first, and their softmax. */
static void choose(void *arg, int64_t row)
{
    const choice *j = arg;
    const float *score = j->scores + row * j->experts;
    int32_t *chosen = j->chosen + row * j->k;
    float *share = j->share + row * j->k, sum = 0;
    for (int64_t n = 0; n < j->k; n++) {
        int32_t best = -1;
        for (int32_t i = 0; i < j->experts; i++) {
            bool taken = false;
            for (int64_t m = 0; m < n; m++) taken |= chosen[m] == i;
            if (!taken && (best < 0 || score[i] > score[best])) best = i;
        }
        chosen[n] = best;
        share[n] = expf(score[best] - score[chosen[0]]);
        sum += share[n];
    }
    for (int64_t n = 0; n < j->k; n++) share[n] /= sum;
}

static mha_status choose_run(nn_run *r, const nn_step *s)
{
    choice j = choice_of(r, s);
    mha_context_each(r->ctx, nn_run_value(r, s->write[0]).size[0], choose, &j);
    return MHA_OK;
}

static void unchoose(void *arg, int64_t row)
{
    const choice *j = arg;
    const float *share = j->share + row * j->k, *d = j->dshare + row * j->k;
    float *to = j->dscores + row * j->experts, sum = 0;
    for (int64_t n = 0; n < j->k; n++) sum += share[n] * d[n];
    for (int64_t i = 0; !j->add && i < j->experts; i++) to[i] = 0;
    for (int64_t n = 0; n < j->k; n++) to[j->chosen[row * j->k + n]] += share[n] * (d[n] - sum);
}

static mha_status choose_back(nn_run *r, const nn_step *s)
{
    choice j = choice_of(r, s);
    j.dshare = nn_run_gradient(r, s->write[0]).data;
    j.dscores = nn_run_gradient(r, s->read[0]).data;
    j.add = s->back[0] == NN_BACK_ADD;
    mha_context_each(r->ctx, nn_run_value(r, s->write[0]).size[0], unchoose, &j);
    return MHA_OK;
}

const nn_operation nn_op_choose = {.name = "choose experts", .run = choose_run, .back = choose_back, .keeps_writes = 3};

/* ---- The experts ------------------------------------------------------------------------------------------------ */

typedef struct mixture {
    nn_run *run;
    const nn_step *step;
    const nn_blocks_config *c;
    int64_t rows, M, N, Z, k;
    const float *input, *share; /* (rows,M), (rows,k) */
    const int32_t *chosen;      /* (rows,k) */
    float *y, *each;            /* (rows,M), (rows,k*M): what each of its experts gives a row */

    /* Those rows of one expert. */
    int64_t count;
    int64_t *place;       /* (rows): which of the rows' experts it is, counted over all rows */
    float *x, *z, *h, *e; /* (count,M), (count,Z), (count,N), (count,M) */
    float *slope, *dx;    /* backward: (count,Z), (count,M) */
    float *dh;            /* (count,N) */
    uint16_t *half, *half_d;
} mixture;

static mixture mixture_of(nn_run *r, const nn_step *s)
{
    const nn_blocks_config *c = &nn_run_stack(r, s)->blocks;
    return (mixture){.run = r,
                     .step = s,
                     .c = c,
                     .rows = nn_run_value(r, s->write[0]).size[0],
                     .M = c->width,
                     .N = c->mlp,
                     .Z = c->gated ? 2 * c->mlp : c->mlp,
                     .k = c->experts_used,
                     .input = nn_run_value(r, s->read[0]).data,
                     .share = nn_run_value(r, s->read[1]).data,
                     .chosen = nn_run_value(r, s->read[2]).data,
                     .y = nn_run_value(r, s->write[0]).data,
                     .each = nn_run_value(r, s->write[1]).data};
}

static float *cut(float **at, int64_t count)
{
    float *here = *at;
    *at += count;
    return here;
}

static void lay_forward(mixture *m, float *room)
{
    m->place = (int64_t *)cut(&room, 4 * m->rows);
    m->x = cut(&room, m->rows * m->M), m->e = cut(&room, m->rows * m->M);
    m->z = cut(&room, m->rows * m->Z), m->h = cut(&room, m->rows * m->N);
    m->half = (uint16_t *)room;
}

static void lay_backward(mixture *m, float *room)
{
    m->place = (int64_t *)cut(&room, 4 * m->rows);
    m->x = cut(&room, m->rows * m->M), m->e = cut(&room, m->rows * m->M), m->dx = cut(&room, m->rows * m->M);
    m->z = cut(&room, m->rows * m->Z), m->slope = cut(&room, m->rows * m->Z);
    m->h = cut(&room, m->rows * m->N), m->dh = cut(&room, m->rows * m->N);
    m->half = (uint16_t *)cut(&room, (m->rows * (m->M > m->N ? m->M : m->N) + 1) / 2);
    m->half_d = (uint16_t *)room;
}

static mha_tensor matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

/* x (count,columns) as a factor of products: itself, or rounded to `home`. */
static mha_status factor_of(const mixture *m, mha_tensor *factor, uint16_t *home, const float *x, int64_t columns)
{
    *factor = matrix(x, m->count, columns);
    if (!m->run->program->d->bfloat16) return MHA_OK;
    *factor = mha_tensor_2d(home, MHA_BFLOAT16, m->count, columns);
    return mha_tensor_copy(m->run->ctx, *factor, matrix(x, m->count, columns));
}

/* The weights of the step: of the first expert, behind which those of the others lie. */
enum { GATE, GATE_BIAS, FC1, FC1_BIAS, FC2, FC2_BIAS };

static const nn_weight *weight_of(const mixture *m, int which, int64_t n)
{
    return m->step->weight[which] ? m->step->weight[which] + n : NULL;
}

/* The rows that have chosen expert n. */
static void gather(mixture *m, int64_t n)
{
    m->count = 0;
    for (int64_t i = 0; i < m->rows * m->k; i++) {
        if (m->chosen[i] != n) continue;
        memcpy(m->x + m->count * m->M, m->input + i / m->k * m->M, (size_t)m->M * sizeof(float));
        m->place[m->count++] = i;
    }
}

/* z: a(min(g, clamp)) * (max(min(u, clamp), -clamp) + 1), each row of z being g, then u. */
static void clamp_gates(const mixture *m)
{
    float clamp = m->c->clamp;
    for (int64_t i = 0; clamp > 0 && i < m->count; i++)
        for (int64_t n = 0; n < m->N; n++) {
            float *g = m->z + i * m->Z + n, *u = g + m->N;
            *g = fminf(*g, clamp);
            *u = fmaxf(fminf(*u, clamp), -clamp) + 1;
        }
}

/* z (count,Z) of expert n, before its activation. */
static mha_status inner(const mixture *m, int64_t n, mha_tensor x)
{
    for (int which = m->c->gated ? GATE : FC1; which <= FC1; which += FC1 - GATE) {
        mha_tensor z = nn_columns(matrix(m->z, m->count, m->Z), which == GATE || !m->c->gated ? 0 : m->N, m->N);
        TRY(nn_linear_forward(m->run->ctx, z, x, weight_of(m, which, n)->factor,
                              nn_weight_value(weight_of(m, which + 1, n)), MHA_LINEAR, false));
    }
    return MHA_OK;
}

static mha_status activate(const mixture *m, mha_tensor slope)
{
    mha_tensor z = matrix(m->z, m->count, m->Z), h = matrix(m->h, m->count, m->N);
    clamp_gates(m);
    return m->c->gated ? mha_gated_forward(m->run->ctx, h, slope, z, m->c->activation)
                       : mha_activation_forward(m->run->ctx, h, slope, z, m->c->activation);
}

static mha_status pass_expert(const mixture *m, int64_t n)
{
    mha_tensor x, h, none = MHA_NO_TENSOR;
    TRY(factor_of(m, &x, m->half, m->x, m->M));
    TRY(inner(m, n, x));
    TRY(activate(m, none));
    TRY(factor_of(m, &h, m->half, m->h, m->N));
    return nn_linear_forward(m->run->ctx, matrix(m->e, m->count, m->M), h, weight_of(m, FC2, n)->factor,
                             nn_weight_value(weight_of(m, FC2_BIAS, n)), MHA_LINEAR, false);
}

static void add_up(void *arg, int64_t row)
{
    const mixture *m = arg;
    float *y = m->y + row * m->M;
    for (int64_t i = 0; i < m->M; i++) y[i] = 0;
    for (int64_t n = 0; n < m->k; n++)
        for (int64_t i = 0; i < m->M; i++) y[i] += m->share[row * m->k + n] * m->each[(row * m->k + n) * m->M + i];
}

static mha_status experts_run(nn_run *r, const nn_step *s)
{
    mixture m = mixture_of(r, s);
    lay_forward(&m, nn_run_value(r, s->write[2]).data);
    for (int64_t n = 0; n < m.c->experts; n++) {
        gather(&m, n);
        if (m.count) TRY(pass_expert(&m, n));
        for (int64_t i = 0; i < m.count; i++)
            memcpy(m.each + m.place[i] * m.M, m.e + i * m.M, (size_t)m.M * sizeof(float));
    }
    mha_context_each(r->ctx, m.rows, add_up, &m);
    return MHA_OK;
}

/* ---- Backward --------------------------------------------------------------------------------------------------- */

/* dw += dy^T x, db += the sum of dy and, if given, dx = dy w, or added to it. */
static mha_status product_gradient(const mixture *m, int which, int64_t n, mha_tensor dy, mha_tensor x, mha_tensor dx,
                                   bool add)
{
    const nn_weight *w = weight_of(m, which, n), *bias = weight_of(m, which + 1, n);
    nn_linear_gradients g = {.dx = dx, .add = add, .dw = nn_run_weight_gradient(m->run, w)};
    if (bias) TRY(mha_sum_rows(m->run->ctx, nn_run_weight_gradient(m->run, bias), dy));
    if (m->run->program->d->bfloat16) {
        mha_tensor half = mha_tensor_2d(m->half_d, MHA_BFLOAT16, dy.size[0], dy.size[1]);
        TRY(mha_tensor_copy(m->run->ctx, half, dy));
        dy = half;
    }
    return nn_linear_backward(m->run->ctx, &g, dy, x, w->factor);
}

/* dz, which lies in `slope`, through the bounds of gates: nothing comes back from beyond them. Bounds are where z is at
 * its largest or smallest: min(g, clamp), and max(min(u, clamp), -clamp) + 1. */
static void unclamp_gates(const mixture *m)
{
    float clamp = m->c->clamp;
    for (int64_t i = 0; clamp > 0 && i < m->count; i++)
        for (int64_t n = 0; n < m->N; n++) {
            int64_t g = i * m->Z + n, u = g + m->N;
            if (m->z[g] >= clamp) m->slope[g] = 0;
            if (m->z[u] >= clamp + 1 || m->z[u] <= 1 - clamp) m->slope[u] = 0;
        }
}

/* From e, the gradient by what expert n gave its rows, to dx, that by the rows. */
static mha_status pass_back(const mixture *m, int64_t n)
{
    mha_context *ctx = m->run->ctx;
    mha_tensor x, h, dh = matrix(m->dh, m->count, m->N), slope = matrix(m->slope, m->count, m->Z);
    TRY(factor_of(m, &x, m->half, m->x, m->M));
    TRY(inner(m, n, x));
    TRY(activate(m, slope));
    TRY(factor_of(m, &h, m->half, m->h, m->N));
    TRY(product_gradient(m, FC2, n, matrix(m->e, m->count, m->M), h, dh, false));
    TRY(factor_of(m, &x, m->half, m->x, m->M));
    if (m->c->gated) TRY(mha_gated_backward(ctx, slope, dh));
    else TRY(mha_activation_backward(ctx, dh, slope));
    unclamp_gates(m);
    mha_tensor dx = matrix(m->dx, m->count, m->M);
    if (!m->c->gated) return product_gradient(m, FC1, n, dh, x, dx, false);
    TRY(product_gradient(m, GATE, n, nn_columns(slope, 0, m->N), x, dx, false));
    return product_gradient(m, FC1, n, nn_columns(slope, m->N, m->N), x, dx, true);
}

/* The gradient by the share of each expert of a row. */
static void find_share_gradients(const mixture *m, const float *dy, float *dshare)
{
    for (int64_t i = 0; i < m->rows * m->k; i++) {
        const float *each = m->each + i * m->M, *d = dy + i / m->k * m->M;
        float sum = 0;
        for (int64_t n = 0; n < m->M; n++) sum += d[n] * each[n];
        dshare[i] = sum;
    }
}

static mha_status experts_back(nn_run *r, const nn_step *s)
{
    mixture m = mixture_of(r, s);
    const float *dy = nn_run_gradient(r, s->write[0]).data;
    mha_tensor to = nn_run_gradient(r, s->read[0]);
    float *dx = to.data;
    lay_backward(&m, nn_run_value(r, s->write[3]).data);
    find_share_gradients(&m, dy, nn_run_gradient(r, s->read[1]).data);
    if (s->back[0] == NN_BACK_WRITE) TRY(nn_zero(r->ctx, to));
    for (int64_t n = 0; n < m.c->experts; n++) {
        gather(&m, n);
        for (int64_t i = 0; i < m.count; i++)
            for (int64_t k = 0; k < m.M; k++) m.e[i * m.M + k] = m.share[m.place[i]] * dy[m.place[i] / m.k * m.M + k];
        if (m.count) TRY(pass_back(&m, n));
        for (int64_t i = 0; i < m.count; i++)
            for (int64_t k = 0; k < m.M; k++) dx[m.place[i] / m.k * m.M + k] += m.dx[i * m.M + k];
    }
    return MHA_OK;
}

static double experts_operations(const nn_run *r, const nn_step *s)
{
    const nn_blocks_config *c = &nn_run_stack(r, s)->blocks;
    double rows = (double)nn_run_rows(r, NN_ROWS, s->decoder) * (double)c->experts_used;
    return 2 * rows * (double)(c->width * c->mlp) * (c->gated ? 3 : 2);
}

const nn_operation nn_op_experts = {.name = "experts",
                                    .operations = experts_operations,
                                    .run = experts_run,
                                    .back = experts_back,
                                    .keeps_reads = 7,
                                    .keeps_writes = 2,
                                    .scratch = 4,
                                    .back_scratch = 8};
