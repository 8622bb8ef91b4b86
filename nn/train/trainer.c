/* The training loop, a step at a time. */
#include "train/trainer.h"
#include "ops/chunks.h"
#include "ops/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static const char *problem_of(const mnist *set, const vit_config *c, const trainer_options *o)
{
    if (set->rows != c->rows || set->columns != c->columns) return "the images are of another size than the model's";
    if (c->classes != MNIST_CLASSES) return "the data have ten classes, the model has another number";
    if (o->epochs < 1) return "there must be an epoch at least";
    if (o->steps < 0) return "there must be a step at least";
    if (o->batch < 1) return "there must be an image in a batch at least";
    if (o->held_out < 0 || o->held_out >= set->train.count) return "more images are held out than there are";
    if (o->batch > set->train.count - o->held_out) return "a batch has more images than there are to train on";
    if (!(o->rate > 0) || isinf(o->rate)) return "the learning rate must be a positive number";
    return NULL;
}

/* The products' weights decay; biases, norms, positions and the class token do not. */
static optimizer *make_optimizer(trainer *t, char *error, size_t error_size)
{
    optimizer_options options = OPTIMIZER_DEFAULTS;
    transformer_part part;
    int parts = 0;
    while (vit_tensor(t->net, parts, &part)) parts++;
    optimizer_group *groups = calloc((size_t)parts + 1, sizeof *groups);
    if (!groups) {
        snprintf(error, error_size, "not enough memory");
        return NULL;
    }
    for (int n = 0; n < parts; n++) {
        vit_tensor(t->net, n, &part);
        if (!part.is_weight) continue;
        groups[options.group_count++] =
            (optimizer_group){part.first, part.shape.size[0] * part.shape.size[1], (float)t->options.decay};
    }
    options.groups = groups;
    options.beta2 = t->options.beta2;
    options.clip = t->options.clip;
    options.average = t->options.average;
    options.clear = true;
    optimizer *made = optimizer_create(t->parameters, t->gradients, t->count, &options, error, error_size);
    free(groups);
    return made;
}

static bool make_memory(trainer *t)
{
    int64_t most = t->options.batch > t->options.held_out ? t->options.batch : t->options.held_out;
    if (t->set->test.count > most) most = t->set->test.count;
    t->parameters = calloc((size_t)t->count, sizeof(float));
    t->gradients = calloc((size_t)t->count, sizeof(float));
    t->slab_gradients = calloc((size_t)crew_slabs(t->options.batch), (size_t)t->count * sizeof(float));
    t->slab_losses = calloc((size_t)crew_slabs(most), sizeof *t->slab_losses);
    t->order = calloc((size_t)t->images, sizeof *t->order);
    return t->parameters && t->gradients && t->slab_gradients && t->slab_losses && t->order;
}

static bool fill(trainer *t, mha_context *ctx, const vit_config *c, char *error, size_t error_size)
{
    const trainer_options *o = &t->options;
    t->count = vit_count(c, error, error_size);
    if (t->count < 0) return false;
    t->images = t->set->train.count - o->held_out;
    t->steps_per_epoch = t->images / o->batch;
    t->order_epoch = -1;
    if (!make_memory(t)) {
        snprintf(error, error_size, "not enough memory for a batch of %lld images", (long long)o->batch);
        return false;
    }
    t->crew = crew_create(ctx, c, t->parameters, true, error, error_size);
    if (!t->crew) return false;
    t->net = t->crew->workers[0].net;
    vit_initialize(t->net, o->seed);
    int64_t steps = o->steps ? o->steps : o->epochs * t->steps_per_epoch;
    t->plan = (schedule){o->schedule, .peak = o->rate, .start = o->rate / 25, .floor = o->floor, .steps = steps};
    t->plan.warmup = (int64_t)(o->warmup * (double)steps);
    mnist_statistics(t->set, &t->set->train, &t->options.augment.mean, &t->options.augment.deviation);
    return (t->adam = make_optimizer(t, error, error_size)) != NULL;
}

trainer *trainer_create(mha_context *ctx, const mnist *set, const vit_config *config, const trainer_options *options,
                        char *error, size_t error_size)
{
    const char *problem = problem_of(set, config, options);
    trainer *t = problem ? NULL : calloc(1, sizeof *t);
    if (!t) {
        snprintf(error, error_size, "%s", problem ? problem : "not enough memory");
        return NULL;
    }
    t->set = set;
    t->options = *options;
    if (fill(t, ctx, config, error, error_size)) return t;
    trainer_free(t);
    return NULL;
}

void trainer_begin(trainer *t, const float *parameters, float mean, float deviation)
{
    size_t bytes = (size_t)t->count * sizeof(float);
    memcpy(t->parameters, parameters, bytes);
    if (t->adam->average) memcpy(t->adam->average, parameters, bytes);
    t->options.augment.mean = mean;
    t->options.augment.deviation = deviation;
    crew_changed(t->crew);
}

void trainer_free(trainer *t)
{
    if (!t) return;
    void *memory[] = {t->parameters, t->gradients, t->slab_gradients, t->slab_losses, t->order};
    crew_free(t->crew);
    optimizer_free(t->adam);
    for (int n = 0; n < 5; n++) free(memory[n]);
    free(t);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------ */

/* The order of an epoch: every image once, shuffled from the seed and the epoch. */
static void draw_order(trainer *t, int64_t epoch)
{
    philox draw = philox_at(t->options.seed, PHILOX_ORDER, (uint32_t)epoch, 0);
    for (int64_t i = 0; i < t->images; i++) t->order[i] = i;
    for (int64_t i = t->images - 1; i > 0; i--) {
        uint64_t bits = (uint64_t)philox_next(&draw) << 32;
        int64_t other = (int64_t)((bits | philox_next(&draw)) % (uint64_t)(i + 1)), kept = t->order[i];
        t->order[i] = t->order[other];
        t->order[other] = kept;
    }
    t->order_epoch = epoch;
}

/* A walk over images of a part, in slabs. */
typedef struct walk {
    const trainer *t;
    const mnist_part *part;
    const int64_t *which; /* indices of images, to train on; NULL: from `first` on, to be judged */
    int64_t first, count;
} walk;

static void load(const walk *k, float *images, uint8_t *labels, int64_t n, int64_t B)
{
    const trainer *t = k->t;
    const augment_options *how = &t->options.augment;
    int64_t pixels = t->set->rows * t->set->columns, epoch = t->step / t->steps_per_epoch;
    for (int64_t b = 0; b < B; b++, images += pixels) {
        int64_t place = n * CREW_SLAB + b, i = k->which ? k->which[place] : k->first + place;
        const unsigned char *image = mnist_image(t->set, k->part, i);
        labels[b] = k->part->labels[i];
        if (!k->which) augment_plain(images, image, pixels, how);
        else
            augment_image(images, image, t->set->rows, t->set->columns, how, t->options.seed, (uint32_t)epoch,
                          (uint64_t)i);
    }
}

/* Slab n: its loss and, in training, its share of the gradient of the batch's mean loss. */
static bool walk_slab(void *arg, crew_worker *w, int64_t n)
{
    const walk *k = arg;
    const trainer *t = k->t;
    const vit_config *c = vit_shape(w->net);
    int64_t B = crew_slab_images(k->count, n);
    uint8_t labels[CREW_SLAB];
    float dlogits[CREW_SLAB * MNIST_CLASSES];
    transformer_call call = {
        .drop = true, .seed = t->options.seed, .stream = ((uint64_t)t->step << 20) + (uint64_t)(n * CREW_SLAB)};
    load(k, w->images, labels, n, B);
    const float *logits = vit_forward(w->net, w->ctx, w->images, B, k->which ? &call : NULL);
    if (!logits || nn_cross_entropy(w->ctx, &w->workspace, &t->slab_losses[n], k->which ? dlogits : NULL, logits,
                                    labels, B, c->classes, k->which ? t->options.smoothing : 0))
        return false;
    if (!k->which) return true;
    for (int64_t i = 0; i < B * c->classes; i++) dlogits[i] *= (float)B / (float)k->count;
    float *gradients = t->slab_gradients + n * t->count;
    memset(gradients, 0, (size_t)t->count * sizeof(float));
    return vit_backward(w->net, w->ctx, dlogits, gradients);
}

static bool walk_all(const walk *k, mha_context *ctx, nn_loss *loss)
{
    const trainer *t = k->t;
    *loss = (nn_loss){0, 0};
    if (!crew_each(t->crew, ctx, crew_slabs(k->count), walk_slab, (void *)k)) return false;
    for (int64_t n = 0; n < crew_slabs(k->count); n++) {
        loss->mean += t->slab_losses[n].mean * (double)crew_slab_images(k->count, n) / (double)k->count;
        loss->correct += t->slab_losses[n].correct;
    }
    return true;
}

trainer_result trainer_step(trainer *t, mha_context *ctx, trainer_report *report)
{
    const trainer_options *o = &t->options;
    int64_t epoch = t->step / t->steps_per_epoch, within = t->step % t->steps_per_epoch;
    if (t->step >= t->plan.steps) return TRAINER_DONE;
    if (epoch != t->order_epoch) draw_order(t, epoch);
    walk batch = {t, &t->set->train, t->order + within * o->batch, 0, o->batch};
    nn_loss loss;
    if (!walk_all(&batch, ctx, &loss)) return TRAINER_FAILED;
    *report = (trainer_report){epoch, t->step, loss.mean, 0, (double)schedule_rate(&t->plan, t->step), loss.correct};
    if (!isfinite(loss.mean)) return TRAINER_DIVERGED;
    nn_add_chunks(ctx, t->gradients, t->slab_gradients, crew_slabs(o->batch), t->count, t->count);
    if (!optimizer_step(t->adam, ctx, report->rate, &report->norm)) return TRAINER_DIVERGED;
    crew_changed(t->crew);
    t->step++;
    return TRAINER_WENT_ON;
}

/* ---- Evaluation ------------------------------------------------------------------------------------------------- */

/* The average takes the place of the weights, or goes back to its own. */
static void exchange(trainer *t)
{
    float *a = t->parameters, *b = t->adam->average;
    for (int64_t i = 0; b && i < t->count; i++) {
        float kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
    crew_changed(t->crew);
}

bool trainer_evaluate(trainer *t, mha_context *ctx, trainer_part part, trainer_score *score)
{
    bool test = part == TRAINER_TEST;
    walk all = {t, test ? &t->set->test : &t->set->train, NULL, test ? 0 : t->images,
                test ? t->set->test.count : t->options.held_out};
    nn_loss loss;
    exchange(t);
    bool good = walk_all(&all, ctx, &loss);
    exchange(t);
    *score = (trainer_score){all.count, loss.correct, loss.mean};
    return good;
}
