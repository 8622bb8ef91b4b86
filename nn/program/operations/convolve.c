/* A convolution over time, as a product over three frames side by side. Beyond the ends frames are zero.
 *
 *     y1[t] = W1 (x[t-1], x[t], x[t+1]) + b1          for all 2T frames x
 *     y2[t] = W2 (y1[2t-1], y1[2t], y1[2t+1]) + b2    for T rows */
#include "ops/linear.h"
#include "program/operation.h"

/* The frames of one sequence. Number (t,c) of what it reads lies at t * frame + c * channel. */
typedef struct frames {
    const float *from;
    float *three; /* (rows,3*width): channel by channel, three frames */
    float *back;  /* as from: gets the gradients of three */
    int64_t rows, count, width, step, frame, channel;
} frames;

static frames frames_of(const nn_run *r, const nn_step *s, int64_t b)
{
    const nn_run_side *side = nn_run_side_of(r, s);
    int64_t T = side->T, width = s->options.width;
    frames f = {.count = 2 * T, .width = width};
    if (s->read[0] < 0) {
        f.from = side->from.features + b * width * 2 * T;
        f.rows = 2 * T, f.step = 1, f.frame = 1, f.channel = 2 * T;
    } else {
        f.from = (const float *)nn_run_value(r, s->read[0]).data + b * width * 2 * T;
        f.rows = T, f.step = 2, f.frame = width, f.channel = 1;
    }
    return f;
}

static void gather(void *arg, int64_t t)
{
    const frames *f = arg;
    float *to = f->three + t * 3 * f->width;
    for (int64_t c = 0; c < f->width; c++)
        for (int64_t k = 0; k < 3; k++) {
            int64_t at = t * f->step + k - 1;
            *to++ = at < 0 || at >= f->count ? 0 : f->from[at * f->frame + c * f->channel];
        }
}

/* Channel c of the gradient, from the rows that have read it. */
static void scatter(void *arg, int64_t c)
{
    const frames *f = arg;
    for (int64_t t = 0; t < f->count; t++) f->back[t * f->frame + c * f->channel] = 0;
    for (int64_t t = 0; t < f->rows; t++)
        for (int64_t k = 0; k < 3; k++) {
            int64_t at = t * f->step + k - 1;
            if (at < 0 || at >= f->count) continue;
            f->back[at * f->frame + c * f->channel] += f->three[(t * f->width + c) * 3 + k];
        }
}

/* The rows of sequence b of a value whose rows are those of the side. */
static mha_tensor rows_of(const nn_run *r, const nn_step *s, mha_tensor y, const frames *f, int64_t b)
{
    int64_t M = nn_run_stack(r, s)->blocks.width;
    return mha_tensor_2d((float *)y.data + b * f->rows * M, MHA_FLOAT32, f->rows, M);
}

static mha_status convolve_run(nn_run *r, const nn_step *s)
{
    for (int64_t b = 0; b < nn_run_side_of(r, s)->B; b++) {
        frames f = frames_of(r, s, b);
        f.three = nn_run_value(r, s->write[1]).data;
        mha_context_each(r->ctx, f.rows, gather, &f);
        TRY(nn_linear_forward(r->ctx, rows_of(r, s, nn_run_value(r, s->write[0]), &f, b),
                              mha_tensor_2d(f.three, MHA_FLOAT32, f.rows, 3 * f.width), nn_run_weight(s, 0),
                              nn_run_weight(s, 1), s->options.activation, false));
    }
    return MHA_OK;
}

static mha_status convolve_back(nn_run *r, const nn_step *s)
{
    mha_tensor dx = nn_run_gradient(r, s->read[0]);
    if (s->weight[1]) { /* all frames are rows of one matrix */
        mha_tensor dy = nn_run_gradient(r, s->write[0]);
        int64_t M = nn_run_stack(r, s)->blocks.width;
        TRY(mha_sum_rows(r->ctx, nn_run_weight_gradient(r, s->weight[1]),
                         mha_tensor_2d(dy.data, MHA_FLOAT32, dy.size[0] * dy.size[1] / M, M)));
    }
    for (int64_t b = 0; b < nn_run_side_of(r, s)->B; b++) {
        frames f = frames_of(r, s, b);
        f.three = nn_run_value(r, s->write[2]).data;
        mha_tensor three = mha_tensor_2d(f.three, MHA_FLOAT32, f.rows, 3 * f.width), dthree = three;
        dthree.data = f.three + f.rows * 3 * f.width;
        nn_linear_gradients g = {.dw = nn_run_weight_gradient(r, s->weight[0])};
        if (dx.rank) g.dx = dthree;
        mha_context_each(r->ctx, f.rows, gather, &f);
        TRY(nn_linear_backward(r->ctx, &g, rows_of(r, s, nn_run_gradient(r, s->write[0]), &f, b), three,
                               nn_run_weight(s, 0)));
        if (!dx.rank) continue;
        f.three = dthree.data;
        f.back = (float *)dx.data + b * f.width * f.count;
        mha_context_each(r->ctx, f.width, scatter, &f);
    }
    return MHA_OK;
}

static double convolve_operations(const nn_run *r, const nn_step *s)
{
    mha_tensor w = nn_run_weight(s, 0);
    double rows = (double)nn_run_rows(r, NN_ROWS, s->decoder) * (s->read[0] < 0 ? 2 : 1);
    return 2 * rows * (double)(w.size[0] * w.size[1]);
}

const nn_operation nn_op_convolve = {.name = "convolution",
                                     .takes = "features",
                                     .operations = convolve_operations,
                                     .run = convolve_run,
                                     .back = convolve_back,
                                     .keeps_reads = 1,
                                     .scratch = 2,
                                     .back_scratch = 4};
