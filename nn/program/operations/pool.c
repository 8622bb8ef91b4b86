/* One vector for each sequence, and rows that a call asks for. */
#include "program/operation.h"
#include <string.h>

typedef struct pooling {
    const nn_run_side *side;
    unsigned kind;
    const int64_t *picked;
    float *rows, *pooled; /* (B*T,M); (B,M) or (B,2M): one is read, the other written */
    int64_t M;
} pooling;

static pooling pooling_of(const nn_run *r, const nn_step *s, mha_tensor rows, mha_tensor pooled)
{
    return (pooling){nn_run_side_of(r, s), s->options.pool, r->call->rows, rows.data, pooled.data, rows.size[1]};
}

/* Which rows of sequence b are pooled. */
static void find_rows(const pooling *j, int64_t b, int64_t *first, int64_t *count)
{
    const nn_sequences *from = &j->side->from;
    int64_t begin = from->starts ? from->starts[b] : b * j->side->T;
    int64_t length = from->starts ? from->starts[b + 1] - begin : from->lengths ? from->lengths[b] : j->side->T;
    *first = begin, *count = 1;
    if (j->kind == NN_POOL_MEAN) *count = length;
    if (j->kind == NN_POOL_LAST) *first = begin + length - 1;
    if (j->kind == NN_POOL_SECOND) *first = begin + 1;
    if (j->kind == NN_POOL_BOTH || j->kind == NN_POOL_REST) *first = begin + 1, *count = length - 1;
    if (j->kind == NN_POOL_PICKED) *first = j->picked[b];
}

static void pool(void *arg, int64_t b)
{
    const pooling *j = arg;
    int64_t M = j->M, first, count;
    bool both = j->kind == NN_POOL_BOTH;
    find_rows(j, b, &first, &count);
    const float *from = j->rows + first * M;
    float *to = j->pooled + b * M * (both ? 2 : 1);
    if (both) memcpy(to, from - M, (size_t)M * sizeof(float)), to += M;
    memcpy(to, from, (size_t)M * sizeof(float));
    for (int64_t t = 1; t < count; t++)
        for (int64_t m = 0; m < M; m++) to[m] += from[t * M + m];
    for (int64_t m = 0; m < M; m++) to[m] *= 1.0f / (float)count;
}

static mha_status pool_run(nn_run *r, const nn_step *s)
{
    pooling j = pooling_of(r, s, nn_run_value(r, s->read[0]), nn_run_value(r, s->write[0]));
    mha_context_each(r->ctx, j.side->sequences, pool, &j);
    return MHA_OK;
}

static void unpool(void *arg, int64_t b)
{
    const pooling *j = arg;
    int64_t M = j->M, first, count;
    bool both = j->kind == NN_POOL_BOTH;
    find_rows(j, b, &first, &count);
    const float *from = j->pooled + b * M * (both ? 2 : 1);
    float share = 1.0f / (float)count;
    if (both) {
        for (int64_t m = 0; m < M; m++) j->rows[(first - 1) * M + m] += from[m];
        from += M;
    }
    for (int64_t t = first; t < first + count; t++)
        for (int64_t m = 0; m < M; m++) j->rows[t * M + m] += from[m] * share;
}

static mha_status pool_back(nn_run *r, const nn_step *s)
{
    mha_tensor dx = nn_run_gradient(r, s->read[0]);
    pooling j = pooling_of(r, s, dx, nn_run_gradient(r, s->write[0]));
    if (s->back[0] == NN_BACK_WRITE) TRY(nn_zero(r->ctx, dx));
    mha_context_each(r->ctx, j.side->sequences, unpool, &j);
    return MHA_OK;
}

const nn_operation nn_op_pool = {.name = "pool", .run = pool_run, .back = pool_back};

static void pick(void *arg, int64_t n)
{
    const pooling *j = arg;
    memcpy(j->pooled + n * j->M, j->rows + j->picked[n] * j->M, (size_t)j->M * sizeof(float));
}

static mha_status pick_run(nn_run *r, const nn_step *s)
{
    pooling j = pooling_of(r, s, nn_run_value(r, s->read[0]), nn_run_value(r, s->write[0]));
    mha_context_each(r->ctx, r->call->row_count, pick, &j);
    return MHA_OK;
}

static mha_status pick_back(nn_run *r, const nn_step *s)
{
    mha_tensor dx = nn_run_gradient(r, s->read[0]), dy = nn_run_gradient(r, s->write[0]);
    if (s->back[0] == NN_BACK_WRITE) TRY(nn_zero(r->ctx, dx));
    for (int64_t n = 0; n < r->call->row_count; n++) { /* in order: a row may be picked more than once */
        float *to = (float *)dx.data + r->call->rows[n] * dx.size[1];
        const float *from = (const float *)dy.data + n * dx.size[1];
        for (int64_t m = 0; m < dx.size[1]; m++) to[m] += from[m];
    }
    return MHA_OK;
}

const nn_operation nn_op_pick = {.name = "pick", .run = pick_run, .back = pick_back};
