/* Images become patches, and these rows: a class token, a distilled token, then one row for each patch, each with its
 * position. */
#include "program/operation.h"
#include <string.h>

typedef struct images {
    const nn_run *run;
    const nn_step *step;
    const nn_input_config *in;
    const float *from;
    float *to;
    int64_t T, P, M; /* rows of a sequence, of its patches; width */
} images;

static images images_of(const nn_run *r, const nn_step *s, const float *from, float *to)
{
    const nn_stack_config *stack = nn_run_stack(r, s);
    const nn_input_config *in = &stack->input;
    int64_t T = nn_input_tokens(in);
    return (images){r, s, in, from, to, T, T - in->class_token - in->distilled, stack->blocks.width};
}

/* Image b, cut into patches that lie one after another. */
static void cut_image(void *arg, int64_t b)
{
    const images *j = arg;
    const nn_input_config *c = j->in;
    int64_t p = c->patch, wide = c->columns / p, plane = c->rows * c->columns;
    const float *image = j->from + b * c->channels * plane;
    float *to = j->to + b * j->P * p * p * c->channels;
    for (int64_t n = 0; n < j->P; n++)
        for (int64_t row = 0; row < c->channels * p; row++, to += p) /* of a channel, then of the next */
            memcpy(to, image + row / p * plane + (n / wide * p + row % p) * c->columns + n % wide * p,
                   (size_t)p * sizeof(float));
}

static mha_status cut_run(nn_run *r, const nn_step *s)
{
    images j = images_of(r, s, nn_run_side_of(r, s)->from.images, nn_run_value(r, s->write[0]).data);
    mha_context_each(r->ctx, nn_run_side_of(r, s)->B, cut_image, &j);
    return MHA_OK;
}

const nn_operation nn_op_cut = {.name = "cut", .takes = "images", .run = cut_run};

static const float *positions_of(const images *j)
{
    const nn_weight *learned = j->step->weight[2];
    if (j->in->position_kind == NN_POSITIONS_NONE) return NULL;
    const float *table = learned ? learned->value.data : j->run->side[j->step->decoder].waves;
    return table + j->in->first_position * j->M;
}

/* The rows of image b. */
static void place_image(void *arg, int64_t b)
{
    const images *j = arg;
    int64_t M = j->M, skip = j->T - j->P;
    const float *positions = positions_of(j);
    for (int64_t t = 0; t < j->T; t++) {
        const nn_weight *first = j->step->weight[t ? 1 : 0];
        const float *from = t < skip && first ? first->value.data : j->from + (b * j->P + t - skip) * M;
        float *to = j->to + (b * j->T + t) * M;
        memcpy(to, from, (size_t)M * sizeof(float));
        for (int64_t m = 0; positions && m < M; m++) to[m] += positions[t * M + m];
    }
}

static mha_status place_run(nn_run *r, const nn_step *s)
{
    images j = images_of(r, s, nn_run_value(r, s->read[0]).data, nn_run_value(r, s->write[0]).data);
    mha_context_each(r->ctx, nn_run_side_of(r, s)->B, place_image, &j);
    return MHA_OK;
}

/* The rows of image b that belong to patches, dense again. */
static void gather_patches(void *arg, int64_t b)
{
    const images *j = arg;
    memcpy(j->to + b * j->P * j->M, j->from + (b * j->T + j->T - j->P) * j->M, (size_t)(j->P * j->M) * sizeof(float));
}

static mha_status place_back(nn_run *r, const nn_step *s)
{
    mha_tensor dx = nn_run_gradient(r, s->write[0]);
    images j = images_of(r, s, dx.data, nn_run_gradient(r, s->read[0]).data);
    mha_tensor all = mha_tensor_2d(dx.data, MHA_FLOAT32, nn_run_side_of(r, s)->B, j.T * j.M);
    const nn_weight *position = s->weight[2];
    if (position) {
        float *to = r->gradients + position->first + j.in->first_position * j.M;
        TRY(mha_sum_rows(r->ctx, mha_tensor_1d(to, MHA_FLOAT32, j.T * j.M), all));
    }
    for (int n = 0; n < 2; n++)
        if (s->weight[n])
            TRY(mha_sum_rows(r->ctx, nn_run_weight_gradient(r, s->weight[n]), nn_columns(all, n * j.M, j.M)));
    mha_context_each(r->ctx, nn_run_side_of(r, s)->B, gather_patches, &j);
    return MHA_OK;
}

const nn_operation nn_op_place = {.name = "place", .run = place_run, .back = place_back};
