/* The Vision Transformer: its gradients by differences, its bits, and that it learns. */
#include "support/contexts.h"
#include "data/digits.h"
#include "support/harness.h"
#include "support/numbers.h"
#include "train/optimizer.h"
#include "families/vit_names.h"
#include "program/model.h"

enum { B = 3 };

typedef struct model {
    mha_context *ctx;
    nn_model *net;
    nn_description config;
    float *parameters, *gradients;
    int64_t count;
    nn_call call;
} model;

static model open_model(nn_description config, int64_t batch, bool training, int threads)
{
    char error[240] = "";
    model m = {.config = config, .ctx = context_make(NULL, threads, (mha_parallel){NULL, NULL}, NULL)};
    m.count = nn_model_count(&config, error, sizeof error);
    expect(m.count > 0, "%s", error);
    m.parameters = array(m.count, sizeof(float));
    m.gradients = array(m.count, sizeof(float));
    m.net = nn_model_create(m.ctx, &config, m.parameters, &(nn_model_options){.batch = batch, .training = training},
                            error, sizeof error);
    if (!expect(m.net != NULL, "%s", error)) exit(1);
    nn_model_initialize(m.net, 11);
    return m;
}

static void close_model(model *m)
{
    nn_model_free(m->net);
    mha_context_free(m->ctx);
    free(m->parameters);
    free(m->gradients);
}

static nn_description small(bool mean_pool, bool final_norm, nn_norm_kind norm, mha_activation activation)
{
    nn_description c = nn_description_default();
    c.encoder.input.rows = 8;
    c.encoder.input.columns = 12;
    c.output.classes = 5;
    c.output.pool = mean_pool ? NN_POOL_MEAN : NN_POOL_FIRST;
    c.encoder.input.class_token = !mean_pool;
    c.encoder.blocks.width = 12;
    c.encoder.blocks.depth = 2;
    c.encoder.blocks.heads = 3;
    c.encoder.blocks.mlp = 20;
    c.encoder.blocks.final_norm = final_norm;
    c.encoder.blocks.norm = norm;
    c.encoder.blocks.activation = activation;
    return c;
}

static double loss_of(model *m, const float *images, const int32_t *labels, int64_t count, float *dlogits)
{
    mha_loss loss = {0};
    nn_model_changed(m->net);
    const float *logits = nn_model_forward_images(m->net, m->ctx, images, count, &m->call);
    if (!expect(logits != NULL, "%s", mha_context_error(m->ctx))) return 0;
    mha_loss_options smoothed = {sizeof smoothed, 0.1f};
    int64_t classes = m->config.output.classes;
    mha_tensor none = MHA_NO_TENSOR, to = dlogits ? mha_tensor_2d(dlogits, MHA_FLOAT32, count, classes) : none;
    expect(!mha_cross_entropy(m->ctx, &loss, to, mha_tensor_2d(logits, MHA_FLOAT32, count, classes),
                              mha_tensor_1d(labels, MHA_INT32, count), &smoothed),
           "%s", mha_context_error(m->ctx));
    return loss.mean;
}

/* Each part is moved along a direction of its own: the loss changes as the gradient says. The step is so large that
 * float32 shows the change and so small that the curve does not. */
static void check_gradients(nn_description config)
{
    static float images[B * 8 * 12], dlogits[B * 5];
    const int32_t labels[B] = {1, 4, 0};
    rng r = rng_make(5, 1);
    model m = open_model(config, B, true, 2);
    m.call = (nn_call){.drop = true, .seed = 9, .stream = 70};
    for (int64_t i = 0; i < m.count; i++) m.parameters[i] += (float)(0.1 * rng_normal(&r));
    for (int i = 0; i < B * 8 * 12; i++) images[i] = (float)rng_normal(&r);
    loss_of(&m, images, labels, B, dlogits);
    expect(nn_model_backward(m.net, m.ctx, dlogits, m.gradients), "%s", mha_context_error(m.ctx));
    nn_vit_part part;
    int64_t covered = 0;
    for (nn_parts w = nn_parts_of(nn_model_description(m.net)); nn_vit_next(&w, &part);) {
        int64_t count = part.count;
        double slope = 0, size = 0, step = 4e-3;
        float *at = m.parameters + part.first, *g = m.gradients + part.first, *old = array(count + 1, sizeof *old);
        double *way = array(count + 1, sizeof *way);
        memcpy(old, at, (size_t)count * sizeof *old);
        for (int64_t i = 0; i < count; i++) {
            way[i] = rng_normal(&r);
            size += way[i] * way[i];
        }
        for (int64_t i = 0; i < count; i++) {
            way[i] /= sqrt(size);
            slope += way[i] * (double)g[i];
        }
        double side[2];
        for (int s = 0; s < 2; s++) {
            for (int64_t i = 0; i < count; i++) at[i] = (float)((double)old[i] + (s ? -step : step) * way[i]);
            side[s] = loss_of(&m, images, labels, B, NULL);
        }
        memcpy(at, old, (size_t)count * sizeof *old);
        double measured = (side[0] - side[1]) / (2 * step);
        expect(fabs(measured - slope) < 6e-3 * (fabs(slope) + 0.02), "%s: the slope is %g, the gradient says %g",
               part.name, measured, slope);
        covered += count;
        free(old);
        free(way);
    }
    expect(covered == m.count, "%lld of %lld parameters have a name", (long long)covered, (long long)m.count);
    close_model(&m);
}

TEST(gradients_are_slopes)
{
    check_gradients(small(false, true, NN_LAYER_NORM, MHA_GELU));
    check_gradients(small(true, true, NN_LAYER_NORM, MHA_GELU_TANH));
    check_gradients(small(false, false, NN_RMS_NORM, MHA_SILU));
    nn_description grouped = small(true, false, NN_LAYER_NORM, MHA_RELU);
    grouped.encoder.blocks.heads = 4;
    grouped.encoder.blocks.kv_heads = 2;
    grouped.encoder.blocks.causal = true;
    check_gradients(grouped);
    nn_description behind = small(true, false, NN_LAYER_NORM, MHA_GELU);
    behind.encoder.blocks.place = NN_NORM_BEHIND;
    check_gradients(behind);
    nn_description dropping = small(false, true, NN_LAYER_NORM, MHA_GELU);
    dropping.dropout = dropping.drop = 0.2f;
    dropping.drop_path = 0.4f;
    check_gradients(dropping);
    dropping.encoder.blocks.place = NN_NORM_BEHIND;
    dropping.encoder.blocks.final_norm = false;
    check_gradients(dropping);
}

/* Only a call that asks for it drops anything; then an image's losses depend on its place, not on what is beside it. */
TEST(dropout_is_for_training)
{
    static float images[B * 8 * 12];
    rng r = rng_make(8, 1);
    for (int i = 0; i < B * 8 * 12; i++) images[i] = (float)rng_normal(&r);
    for (int kind = 0; kind < 3; kind++) {
        nn_description config = small(false, true, NN_LAYER_NORM, MHA_GELU), plain = config;
        *(kind == 0 ? &config.dropout : kind == 1 ? &config.drop : &config.drop_path) = 0.5f;
        model a = open_model(config, B, true, 2), b = open_model(plain, B, true, 1);
        nn_call drop = {.drop = true, .seed = 3, .stream = 12}, last = drop;
        last.stream += B - 1;
        float dropped[B * 5];
        const float *x = nn_model_forward_images(a.net, a.ctx, images, B, NULL),
                    *y = nn_model_forward_images(b.net, b.ctx, images, B, NULL);
        if (!x || !y) exit(1);
        expect(!memcmp(x, y, sizeof dropped), "kind %d drops without being asked to", kind);
        memcpy(dropped, nn_model_forward_images(a.net, a.ctx, images, B, &drop), sizeof dropped);
        expect(memcmp(dropped, y, sizeof dropped) != 0, "kind %d drops nothing", kind);
        x = nn_model_forward_images(a.net, a.ctx, images + (B - 1) * 8 * 12, 1, &last);
        expect(x && !memcmp(x, dropped + (B - 1) * 5, 5 * sizeof *x), "kind %d depends on the batch", kind);
        close_model(&a);
        close_model(&b);
    }
}

/* Factors of 8 bits, sums of 24: every part of the gradient keeps its direction, and most of its length. */
TEST(bfloat16_is_near)
{
    static float images[B * 8 * 12], dlogits[B * 5];
    const int32_t labels[B] = {1, 4, 0};
    rng r = rng_make(7, 1);
    nn_description config = small(false, true, NN_LAYER_NORM, MHA_GELU), half = config;
    half.bfloat16 = true;
    for (int i = 0; i < B * 8 * 12; i++) images[i] = (float)rng_normal(&r);
    model a = open_model(config, B, true, 2), b = open_model(half, B, true, 2), c = open_model(half, B, false, 1);
    double want = loss_of(&a, images, labels, B, dlogits);
    nn_model_backward(a.net, a.ctx, dlogits, a.gradients);
    double got = loss_of(&b, images, labels, B, dlogits), alone = loss_of(&c, images, labels, B, NULL);
    nn_model_backward(b.net, b.ctx, dlogits, b.gradients);
    expect(fabs(got - want) < 0.02 * want && got != want, "the loss is %.7g in float32, %.7g in bfloat16", want, got);
    expect(fabs(got - alone) < 0.01 * got, "the loss is %.7g in training, %.7g without", got, alone);
    nn_vit_part part;
    for (nn_parts w = nn_parts_of(nn_model_description(a.net)); nn_vit_next(&w, &part);) {
        double off = 0, all = 0;
        for (int64_t i = part.first; i < part.first + part.count; i++) {
            off += pow((double)(a.gradients[i] - b.gradients[i]), 2);
            all += pow((double)a.gradients[i], 2);
        }
        expect(off < 0.05 * 0.05 * (all + 1e-6), "%s: %.3g of the gradient is elsewhere", part.name, sqrt(off / all));
    }
    close_model(&a);
    close_model(&b);
    close_model(&c);
}

/* For inference memory is shared between blocks: the same results, also for fewer images than there is room for. */
TEST(inference_is_training_without_memory)
{
    static float images[B * 8 * 12];
    rng r = rng_make(6, 1);
    for (int i = 0; i < B * 8 * 12; i++) images[i] = (float)rng_normal(&r);
    for (int64_t depth = 1; depth < 5; depth++) {
        nn_description config = small(depth % 2, depth < 3, NN_LAYER_NORM, MHA_GELU);
        config.encoder.blocks.depth = depth;
        config.encoder.blocks.place = depth >= 3 ? NN_NORM_BEHIND : NN_NORM_BEFORE;
        model a = open_model(config, B, true, 2), b = open_model(config, B + 2, false, 1);
        const float *x = nn_model_forward_images(a.net, a.ctx, images, B, NULL),
                    *y = nn_model_forward_images(b.net, b.ctx, images, B, NULL);
        for (int i = 0; x && y && i < B * 5; i++)
            expect(fabsf(x[i] - y[i]) < 1e-5f, "depth %lld: %g is %g", (long long)depth, (double)x[i], (double)y[i]);
        close_model(&a);
        close_model(&b);
    }
}

static void train(model *m, const nn_mnist *set, const nn_mnist_part *part, int64_t batch, int steps, double *first,
                  double *last)
{
    char error[240];
    int64_t pixels = set->rows * set->columns;
    float *images = array(batch * pixels, sizeof *images), *dlogits = array(batch * 10, sizeof *dlogits);
    int32_t *labels = array(batch, sizeof *labels);
    nn_optimizer *adam = nn_optimizer_create(m->parameters, m->gradients, m->count, NULL, error, sizeof error);
    expect(adam != NULL, "%s", error);
    for (int step = 0; adam && step < steps; step++) {
        for (int64_t b = 0; b < batch; b++) labels[b] = part->labels[step * batch + b];
        for (int64_t i = 0; i < batch * pixels; i++)
            images[i] = ((float)part->images[step * batch * pixels + i] / 255 - 0.13f) / 0.31f;
        memset(m->gradients, 0, (size_t)m->count * sizeof(float));
        *last = loss_of(m, images, labels, batch, dlogits);
        if (step == 0) *first = *last;
        expect(nn_model_backward(m->net, m->ctx, dlogits, m->gradients), "%s", mha_context_error(m->ctx));
        expect(nn_optimizer_step(adam, m->ctx, 2e-3, NULL), "a step");
    }
    nn_optimizer_free(adam);
    free(images);
    free(labels);
    free(dlogits);
}

/* A few steps over drawn digits: the loss falls, and its bits do not depend on the number of threads. */
TEST(it_learns_the_same_bits_on_any_number_of_threads)
{
    char error[240];
    nn_mnist *set = nn_digits_make(32 * 30, 10, 1, error, sizeof error);
    expect(set != NULL, "%s", error);
    if (!set) return;
    nn_description config = nn_description_default();
    config.encoder.input.patch = 7;
    config.encoder.blocks.width = 32;
    config.encoder.blocks.depth = 2;
    config.encoder.blocks.mlp = 64;
    float *want = NULL;
    const int threads[] = {1, 2, 7};
    for (int n = 0; n < 3; n++) {
        model m = open_model(config, 32, true, threads[n]);
        double first = 0, last = 0;
        train(&m, set, &set->train, 32, 30, &first, &last);
        expect(first > 2 && last < 0.8 * first, "the loss goes from %g to %g", first, last);
        if (!want) {
            want = array(m.count, sizeof *want);
            memcpy(want, m.parameters, (size_t)m.count * sizeof *want);
        }
        expect(!memcmp(want, m.parameters, (size_t)m.count * sizeof *want), "%d threads end elsewhere", threads[n]);
        close_model(&m);
    }
    free(want);
    nn_mnist_free(set);
}
