/* Whether a Vision Transformer is right: its formula in float64, as vit.h and transformer.h have it, around the layer of
 * the oracle, one image at a time.
 *
 * A gradient has too many numbers to take differences for each. But its norm is the slope of the loss along itself, and
 * that is two runs of the oracle: whatever part of it is wrong shows, unless it is at a right angle to the rest. */
#include "data/digits.h"
#include "layer.h"
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 4, BLOCK_PARTS = 12, BLOCKS_MOST = 16 };
enum { PATCH, PATCH_BIAS, CLASS, POSITIONS, HEAD, HEAD_BIAS, NORM, NORM_BIAS, NN_PARTS };
enum {
    NN_NORM1,
    NN_NORM1_BIAS,
    NN_QKV,
    NN_QKV_BIAS,
    NN_PROJ,
    NN_PROJ_BIAS,
    NN_NORM2,
    NN_NORM2_BIAS,
    NN_FC1,
    NN_FC1_BIAS,
    NN_FC2,
    NN_FC2_BIAS
};

typedef struct oracle {
    nn_vit_config c;
    nn_vit_input input;
    int64_t tokens, count;
    int64_t at[NN_PARTS], block_at[BLOCKS_MOST][BLOCK_PARTS]; /* where the parts start */
    double *memory, *w;                                       /* w (count): the parameters */
    double *x, *n, *branch, *hidden, *image;
} oracle;

/* ---- Making it -------------------------------------------------------------------------------------------------- */

static int64_t part_at(const nn_vit *net, const char *name)
{
    nn_transformer_part part;
    for (int n = 0; nn_vit_tensor(net, n, &part); n++)
        if (strcmp(part.name, name) == 0) return part.first;
    return -1;
}

static void find_parts(oracle *o, const nn_vit *net)
{
    static const char *const names[NN_PARTS] = {"patch_embed.proj.weight",
                                                "patch_embed.proj.bias",
                                                "cls_token",
                                                "pos_embed",
                                                "head.weight",
                                                "head.bias",
                                                "norm.weight",
                                                "norm.bias"};
    static const char *const parts[BLOCK_PARTS] = {
        "norm1.weight", "norm1.bias", "attn.qkv.weight", "attn.qkv.bias", "attn.proj.weight", "attn.proj.bias",
        "norm2.weight", "norm2.bias", "mlp.fc1.weight",  "mlp.fc1.bias",  "mlp.fc2.weight",   "mlp.fc2.bias"};
    for (int n = 0; n < NN_PARTS; n++) o->at[n] = part_at(net, names[n]);
    for (int l = 0; l < o->c.body.depth; l++)
        for (int n = 0; n < BLOCK_PARTS; n++) {
            char name[64];
            snprintf(name, sizeof name, "blocks.%d.%s", l, parts[n]);
            o->block_at[l][n] = part_at(net, name);
        }
}

static bool make_oracle(oracle *o, const nn_vit *net, nn_vit_input input)
{
    *o = (oracle){.c = *nn_vit_shape(net), .input = input, .tokens = nn_vit_tokens(net)};
    o->count = nn_vit_count(&o->c, NULL, 0);
    int64_t M = o->c.body.width, rows = o->tokens, pixels = o->c.rows * o->c.columns;
    o->memory = malloc((size_t)(o->count + rows * (3 * M + o->c.body.mlp) + pixels) * sizeof(double));
    if (!o->memory) return false;
    o->w = o->memory;
    o->x = o->w + o->count;
    o->n = o->x + rows * M;
    o->branch = o->n + rows * M;
    o->hidden = o->branch + rows * M;
    o->image = o->hidden + rows * o->c.body.mlp;
    find_parts(o, net);
    return true;
}

/* ---- The formula ------------------------------------------------------------------------------------------------ */

/* y (rows,N) = x (rows,K) w^T + b */
static void multiply(double *y, const double *x, const double *w, const double *b, int64_t rows, int64_t K, int64_t N)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; n < N; n++) {
            double sum = b[n];
            for (int64_t k = 0; k < K; k++) sum += x[r * K + k] * w[n * K + k];
            y[r * N + n] = sum;
        }
}

static void normalise(double *y, const double *x, const double *gain, const double *bias, int64_t rows, int64_t M,
                      double epsilon)
{
    for (int64_t r = 0; r < rows; r++, x += M, y += M) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < M; i++) mean += x[i] / (double)M;
        for (int64_t i = 0; i < M; i++) square += (x[i] - mean) * (x[i] - mean) / (double)M;
        for (int64_t i = 0; i < M; i++) y[i] = (x[i] - mean) / sqrt(square + epsilon) * gain[i] + bias[i];
    }
}

static void attend(const oracle *o, const int64_t *at)
{
    const double *w = o->w + at[NN_QKV], *b = o->w + at[NN_QKV_BIAS];
    int64_t M = o->c.body.width, H = o->c.body.heads;
    ref_layer layer = {.B = 1,
                       .Tq = o->tokens,
                       .Tk = o->tokens,
                       .M = M,
                       .Mk = M,
                       .Mv = M,
                       .H = H,
                       .G = H,
                       .D = M / H,
                       .E = M / H,
                       .query = o->n,
                       .key = o->n,
                       .value = o->n,
                       .q_weight = w,
                       .k_weight = w + M * M,
                       .v_weight = w + 2 * M * M,
                       .q_bias = b,
                       .k_bias = b + M,
                       .v_bias = b + 2 * M,
                       .out_weight = o->w + at[NN_PROJ],
                       .out_bias = o->w + at[NN_PROJ_BIAS]};
    layer.attention = (ref_attention){.scale = NAN, .window_left = -1, .window_right = -1};
    ref_layer_forward(&layer, o->branch, NULL, NULL);
}

/* Both branches, each added to x. */
static void pass_block(const oracle *o, const int64_t *at)
{
    const double *w = o->w, epsilon = (double)o->c.body.epsilon;
    int64_t T = o->tokens, M = o->c.body.width, N = o->c.body.mlp;
    normalise(o->n, o->x, w + at[NN_NORM1], w + at[NN_NORM1_BIAS], T, M, epsilon);
    attend(o, at);
    for (int64_t i = 0; i < T * M; i++) o->x[i] += o->branch[i];
    normalise(o->n, o->x, w + at[NN_NORM2], w + at[NN_NORM2_BIAS], T, M, epsilon);
    multiply(o->hidden, o->n, w + at[NN_FC1], w + at[NN_FC1_BIAS], T, M, N);
    for (int64_t i = 0; i < T * N; i++) o->hidden[i] *= erfc(-o->hidden[i] / sqrt(2)) / 2; /* GELU */
    multiply(o->branch, o->hidden, w + at[NN_FC2], w + at[NN_FC2_BIAS], T, N, M);
    for (int64_t i = 0; i < T * M; i++) o->x[i] += o->branch[i];
}

/* x: the class token and the patches, each with its position. */
static void place_tokens(const oracle *o)
{
    const nn_vit_config *c = &o->c;
    int64_t M = c->body.width, p = c->patch, wide = c->columns / p;
    for (int64_t t = 0; t < o->tokens; t++)
        for (int64_t m = 0; m < M; m++) {
            const double *weight = o->w + o->at[PATCH] + m * p * p;
            double sum = o->w[o->at[POSITIONS] + t * M + m] + o->w[o->at[t ? PATCH_BIAS : CLASS] + m];
            for (int64_t i = 0; t && i < p * p; i++) {
                int64_t row = (t - 1) / wide * p + i / p, column = (t - 1) % wide * p + i % p;
                sum += weight[i] * o->image[row * c->columns + column];
            }
            o->x[t * M + m] = sum;
        }
}

static void look_at(const oracle *o, double *logits, const unsigned char *image)
{
    int64_t M = o->c.body.width;
    for (int64_t i = 0; i < o->c.rows * o->c.columns; i++)
        o->image[i] = (image[i] / 255.0 - (double)o->input.mean) / (double)o->input.deviation;
    place_tokens(o);
    for (int64_t l = 0; l < o->c.body.depth; l++) pass_block(o, o->block_at[l]);
    normalise(o->n, o->x, o->w + o->at[NORM], o->w + o->at[NORM_BIAS], 1, M, (double)o->c.body.epsilon);
    multiply(logits, o->n, o->w + o->at[HEAD], o->w + o->at[HEAD_BIAS], 1, M, o->c.classes);
}

/* ---- Inference -------------------------------------------------------------------------------------------------- */

double bench_logits_error(const nn_vit *net, nn_vit_input input, const nn_mnist *set, const float *logits)
{
    oracle o;
    int64_t samples = set->train.count < SAMPLES ? set->train.count : SAMPLES;
    double want[NN_MNIST_CLASSES], worst = 0, largest = 0;
    if (!make_oracle(&o, net, input)) return NAN;
    for (int64_t i = 0; i < o.count; i++) o.w[i] = (double)nn_vit_parameters(net)[i];
    for (int64_t n = 0; n < samples; n++) {
        int64_t i = (set->train.count - 1) * (n + 1) / samples; /* the last one is among them */
        look_at(&o, want, nn_mnist_image(set, &set->train, i));
        for (int64_t c = 0; c < o.c.classes; c++) {
            worst = bench_worse(worst, fabs((double)logits[i * o.c.classes + c] - want[c]));
            if (fabs(want[c]) > largest) largest = fabs(want[c]);
        }
    }
    free(o.memory);
    return worst / largest;
}

/* ---- Training --------------------------------------------------------------------------------------------------- */

/* The mean cross-entropy of all images, with parameters `at` + step * `along`. */
static double loss_at(const oracle *o, const nn_mnist *set, const float *at, const float *along, double step)
{
    double loss = 0, logits[NN_MNIST_CLASSES];
    for (int64_t i = 0; i < o->count; i++) o->w[i] = (double)at[i] + step * (double)along[i];
    for (int64_t i = 0; i < set->train.count; i++) {
        double sum = 0;
        look_at(o, logits, nn_mnist_image(set, &set->train, i));
        for (int64_t c = 0; c < o->c.classes; c++) sum += exp(logits[c]);
        loss += (log(sum) - logits[set->train.labels[i]]) / (double)set->train.count;
    }
    return loss;
}

/* The first moment after one step is the gradient times 1 - beta1. */
static double slope_error(const oracle *o, const nn_trainer *t, const float *start)
{
    const float *moment = t->adam->moment1;
    double square = 0, step = 1e-5, keep = 1 - t->adam->options->beta1;
    for (int64_t i = 0; i < t->count; i++) square += (double)moment[i] * (double)moment[i];
    double length = sqrt(square), norm = length / keep;
    double rise = loss_at(o, t->set, start, moment, step / length) - loss_at(o, t->set, start, moment, -step / length);
    return fabs(rise / (2 * step) - norm) / norm;
}

static double first_step_error(oracle *o, nn_trainer *t, mha_context *ctx)
{
    nn_trainer_report report;
    double error = INFINITY;
    float *start = malloc((size_t)t->count * sizeof *start);
    if (!start) return NAN;
    memcpy(start, t->parameters, (size_t)t->count * sizeof *start);
    if (nn_trainer_step(t, ctx, &report) == NN_TRAINER_WENT_ON) {
        double want = loss_at(o, t->set, start, start, 0);
        error = bench_worse(fabs(report.loss - want) / want, slope_error(o, t, start));
    }
    free(start);
    return error;
}

double bench_training_error(mha_context *ctx, mha_type type, int64_t batch)
{
    char error[200];
    oracle o = {.memory = NULL};
    nn_vit_config config = bench_model_config(type);
    nn_trainer_options options = bench_model_options(batch < SAMPLES ? batch : SAMPLES);
    nn_mnist *set = nn_digits_make(options.batch, 1, 1, error, sizeof error);
    nn_trainer *t = set ? nn_trainer_create(ctx, set, &config, &options, error, sizeof error) : NULL;
    double worst = NAN;
    if (t) {
        nn_vit_input input = {t->options.augment.mean, t->options.augment.deviation};
        if (make_oracle(&o, t->net, input)) worst = first_step_error(&o, t, ctx);
    }
    free(o.memory);
    nn_trainer_free(t);
    nn_mnist_free(set);
    return worst;
}
