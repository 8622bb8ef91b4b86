/* Audio features to rows: two convolutions over time, each a product over three frames side by side. Beyond the ends
 * frames are zero.
 *
 *     y1[t] = gelu(W1 (x[t-1], x[t], x[t+1]) + b1)          for all 2T frames x
 *     y2[t] = gelu(W2 (y1[2t-1], y1[2t], y1[2t+1]) + b2)    for T rows */
#include "model/input.h"
#include "model/stack/stack.h"

typedef struct passage {
    const float *from;
    float *to;
    int64_t count, width, step, frame, channel; /* number (t,c) of the source lies at t * frame + c * channel */
} passage;

/* Row t of the product: channel by channel, three frames. */
static void gather(void *arg, int64_t t)
{
    const passage *j = arg;
    float *to = j->to + t * 3 * j->width;
    for (int64_t c = 0; c < j->width; c++)
        for (int64_t k = 0; k < 3; k++) {
            int64_t at = t * j->step + k - 1;
            *to++ = at < 0 || at >= j->count ? 0 : j->from[at * j->frame + c * j->channel];
        }
}

static bool convolve(nn_input *in, mha_context *ctx, float *y, int64_t rows, const passage *j, nn_part_kind weight)
{
    mha_tensor x = nn_matrix(in->frames, rows, 3 * j->width);
    mha_context_each(ctx, rows, gather, (void *)j);
    return !nn_linear_forward(ctx, nn_matrix(y, rows, in->blocks->width), x, in->part[weight]->value,
                              nn_value(in->part[weight + 1]), MHA_GELU, false);
}

bool nn_frames_forward(nn_input *in, mha_context *ctx, float *x)
{
    int64_t T = in->T, M = in->blocks->width, bins = in->config->bins;
    for (int64_t b = 0; b < in->B; b++) {
        passage first = {in->sequences.features + b * bins * 2 * T, in->frames, 2 * T, bins, 1, 1, 2 * T};
        passage second = {in->embedded, in->frames, 2 * T, M, 2, M, 1};
        if (!convolve(in, ctx, in->embedded, 2 * T, &first, NN_CONV1) ||
            !convolve(in, ctx, x + b * T * M, T, &second, NN_CONV2))
            return false;
    }
    return true;
}
