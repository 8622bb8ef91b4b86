/* The training loop, a step at a time. */
#include "train/trainer.h"
#include "ops/chunks.h"
#include "ops/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static const char *problem_of(const nn_mnist *set, const nn_vit_config *c, const nn_trainer_options *o)
{
    if (set->rows != c->rows || set->columns != c->columns)
        return "the images do not have the size of the model's input";
    if (c->classes != NN_MNIST_CLASSES) return "the data set has ten classes, but the model does not";
    if (o->epochs < 1) return "there must be at least one epoch";
    if (o->steps < 0) return "there must be at least one step";
    if (o->batch < 1) return "a batch must have at least one image";
    if (o->held_out < 0 || o->held_out >= set->train.count) return "not enough training images to hold out that many";
    if (o->batch > set->train.count - o->held_out) return "the batch is larger than the training set";
    if (!(o->rate > 0) || isinf(o->rate)) return "the learning rate must be a positive number";
    return NULL;
}

/* The products' weights decay; biases, norms, positions and the class token do not. */
static nn_optimizer *make_optimizer(nn_trainer *t, char *error, size_t error_size)
{
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    nn_transformer_part part;
    int parts = 0;
    while (nn_vit_tensor(t->net, parts, &part)) parts++;
    nn_optimizer_group *groups = calloc((size_t)parts + 1, sizeof *groups);
    if (!groups) {
        snprintf(error, error_size, "not enough memory");
        return NULL;
    }
    for (int n = 0; n < parts; n++) {
        nn_vit_tensor(t->net, n, &part);
        if (!part.is_weight) continue;
        groups[options.group_count++] =
            (nn_optimizer_group){part.first, part.shape.size[0] * part.shape.size[1], (float)t->options.decay};
    }
    options.groups = groups;
    options.beta2 = t->options.beta2;
    options.clip = t->options.clip;
    options.average = t->options.average;
    options.clear = true;
    nn_optimizer *made = nn_optimizer_create(t->parameters, t->gradients, t->count, &options, error, error_size);
    free(groups);
    return made;
}

static bool make_memory(nn_trainer *t)
{
    int64_t most = t->options.batch > t->options.held_out ? t->options.batch : t->options.held_out;
    if (t->set->test.count > most) most = t->set->test.count;
    t->parameters = calloc((size_t)t->count, sizeof(float));
    t->gradients = calloc((size_t)t->count, sizeof(float));
    t->slab_gradients = calloc((size_t)nn_slabs(t->options.batch), (size_t)t->count * sizeof(float));
    t->slab_losses = calloc((size_t)nn_slabs(most), sizeof *t->slab_losses);
    t->order = calloc((size_t)t->images, sizeof *t->order);
    return t->parameters && t->gradients && t->slab_gradients && t->slab_losses && t->order;
}

static bool fill(nn_trainer *t, mha_context *ctx, const nn_vit_config *c, char *error, size_t error_size)
{
    const nn_trainer_options *o = &t->options;
    t->count = nn_vit_count(c, error, error_size);
    if (t->count < 0) return false;
    t->images = t->set->train.count - o->held_out;
    t->steps_per_epoch = t->images / o->batch;
    t->order_epoch = -1;
    if (!make_memory(t)) {
        snprintf(error, error_size, "not enough memory for a batch of %lld images", (long long)o->batch);
        return false;
    }
    t->workers = nn_workers_create(ctx, c, t->parameters, true, error, error_size);
    if (!t->workers) return false;
    t->net = t->workers->workers[0].net;
    nn_vit_initialize(t->net, o->seed);
    int64_t steps = o->steps ? o->steps : o->epochs * t->steps_per_epoch;
    t->plan = (nn_schedule){o->schedule, .peak = o->rate, .start = o->rate / 25, .floor = o->floor, .steps = steps};
    t->plan.warmup = (int64_t)(o->warmup * (double)steps);
    nn_mnist_statistics(t->set, &t->set->train, &t->options.augment.mean, &t->options.augment.deviation);
    return (t->adam = make_optimizer(t, error, error_size)) != NULL;
}

nn_trainer *nn_trainer_create(mha_context *ctx, const nn_mnist *set, const nn_vit_config *config,
                              const nn_trainer_options *options, char *error, size_t error_size)
{
    const char *problem = problem_of(set, config, options);
    nn_trainer *t = problem ? NULL : calloc(1, sizeof *t);
    if (!t) {
        snprintf(error, error_size, "%s", problem ? problem : "not enough memory");
        return NULL;
    }
    t->set = set;
    t->options = *options;
    if (fill(t, ctx, config, error, error_size)) return t;
    nn_trainer_free(t);
    return NULL;
}

void nn_trainer_begin(nn_trainer *t, const float *parameters, float mean, float deviation)
{
    size_t bytes = (size_t)t->count * sizeof(float);
    memcpy(t->parameters, parameters, bytes);
    if (t->adam->average) memcpy(t->adam->average, parameters, bytes);
    t->options.augment.mean = mean;
    t->options.augment.deviation = deviation;
    nn_workers_changed(t->workers);
}

void nn_trainer_free(nn_trainer *t)
{
    if (!t) return;
    void *memory[] = {t->parameters, t->gradients, t->slab_gradients, t->slab_losses, t->order};
    nn_workers_free(t->workers);
    nn_optimizer_free(t->adam);
    for (int n = 0; n < 5; n++) free(memory[n]);
    free(t);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------ */

/* The order of an epoch: every nn_image once, shuffled from the seed and the epoch. */
static void draw_order(nn_trainer *t, int64_t epoch)
{
    nn_philox draw = nn_philox_at(t->options.seed, NN_PHILOX_ORDER, (uint32_t)epoch, 0);
    for (int64_t i = 0; i < t->images; i++) t->order[i] = i;
    for (int64_t i = t->images - 1; i > 0; i--) {
        uint64_t bits = (uint64_t)nn_philox_next(&draw) << 32;
        int64_t other = (int64_t)((bits | nn_philox_next(&draw)) % (uint64_t)(i + 1)), kept = t->order[i];
        t->order[i] = t->order[other];
        t->order[other] = kept;
    }
    t->order_epoch = epoch;
}

/* A walk over images of a part, in slabs. */
typedef struct walk {
    const nn_trainer *t;
    const nn_mnist_part *part;
    const int64_t *which; /* indices of images, to train on; NULL: from `first` on, to be judged */
    int64_t first, count;
} walk;

static void load(const walk *k, float *images, uint8_t *labels, int64_t n, int64_t B)
{
    const nn_trainer *t = k->t;
    const nn_augment_options *how = &t->options.augment;
    int64_t pixels = t->set->rows * t->set->columns, epoch = t->step / t->steps_per_epoch;
    for (int64_t b = 0; b < B; b++, images += pixels) {
        int64_t place = n * NN_SLAB + b, i = k->which ? k->which[place] : k->first + place;
        const unsigned char *image = nn_mnist_image(t->set, k->part, i);
        labels[b] = k->part->labels[i];
        if (!k->which) nn_augment_plain(images, image, pixels, how);
        else
            nn_augment_image(images, image, t->set->rows, t->set->columns, how, t->options.seed, (uint32_t)epoch,
                             (uint64_t)i);
    }
}

/* Slab n: its loss and, in training, its share of the gradient of the batch's mean loss. */
static bool walk_slab(void *arg, nn_worker *w, int64_t n)
{
    const walk *k = arg;
    const nn_trainer *t = k->t;
    const nn_vit_config *c = nn_vit_shape(w->net);
    int64_t B = nn_slab_images(k->count, n);
    uint8_t labels[NN_SLAB];
    float dlogits[NN_SLAB * NN_MNIST_CLASSES];
    nn_transformer_call call = {
        .drop = true, .seed = t->options.seed, .stream = ((uint64_t)t->step << 20) + (uint64_t)(n * NN_SLAB)};
    load(k, w->images, labels, n, B);
    const float *logits = nn_vit_forward(w->net, w->ctx, w->images, B, k->which ? &call : NULL);
    if (!logits || nn_cross_entropy(w->ctx, &w->workspace, &t->slab_losses[n], k->which ? dlogits : NULL, logits,
                                    labels, B, c->classes, k->which ? t->options.smoothing : 0))
        return false;
    if (!k->which) return true;
    for (int64_t i = 0; i < B * c->classes; i++) dlogits[i] *= (float)B / (float)k->count;
    float *gradients = t->slab_gradients + n * t->count;
    memset(gradients, 0, (size_t)t->count * sizeof(float));
    return nn_vit_backward(w->net, w->ctx, dlogits, gradients);
}

static bool walk_all(const walk *k, mha_context *ctx, nn_loss *loss)
{
    const nn_trainer *t = k->t;
    *loss = (nn_loss){0, 0};
    if (!nn_workers_each(t->workers, ctx, nn_slabs(k->count), walk_slab, (void *)k)) return false;
    for (int64_t n = 0; n < nn_slabs(k->count); n++) {
        loss->mean += t->slab_losses[n].mean * (double)nn_slab_images(k->count, n) / (double)k->count;
        loss->correct += t->slab_losses[n].correct;
    }
    return true;
}

nn_trainer_result nn_trainer_step(nn_trainer *t, mha_context *ctx, nn_trainer_report *report)
{
    const nn_trainer_options *o = &t->options;
    int64_t epoch = t->step / t->steps_per_epoch, within = t->step % t->steps_per_epoch;
    if (t->step >= t->plan.steps) return NN_TRAINER_DONE;
    if (epoch != t->order_epoch) draw_order(t, epoch);
    walk batch = {t, &t->set->train, t->order + within * o->batch, 0, o->batch};
    nn_loss loss;
    if (!walk_all(&batch, ctx, &loss)) return NN_TRAINER_FAILED;
    *report =
        (nn_trainer_report){epoch, t->step, loss.mean, 0, (double)nn_schedule_rate(&t->plan, t->step), loss.correct};
    if (!isfinite(loss.mean)) return NN_TRAINER_DIVERGED;
    nn_add_chunks(ctx, t->gradients, t->slab_gradients, nn_slabs(o->batch), t->count, t->count);
    if (!nn_optimizer_step(t->adam, ctx, report->rate, &report->norm)) return NN_TRAINER_DIVERGED;
    nn_workers_changed(t->workers);
    t->step++;
    return NN_TRAINER_WENT_ON;
}

/* ---- Evaluation ------------------------------------------------------------------------------------------------- */

/* The average takes the place of the weights, or goes back to its own. */
static void exchange(nn_trainer *t)
{
    float *a = t->parameters, *b = t->adam->average;
    for (int64_t i = 0; b && i < t->count; i++) {
        float kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
    nn_workers_changed(t->workers);
}

bool nn_trainer_evaluate(nn_trainer *t, mha_context *ctx, nn_trainer_part part, nn_trainer_score *score)
{
    bool test = part == NN_TRAINER_TEST;
    walk all = {t, test ? &t->set->test : &t->set->train, NULL, test ? 0 : t->images,
                test ? t->set->test.count : t->options.held_out};
    nn_loss loss;
    exchange(t);
    bool good = walk_all(&all, ctx, &loss);
    exchange(t);
    *score = (nn_trainer_score){all.count, loss.correct, loss.mean};
    return good;
}
