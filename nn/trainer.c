/* The training loop, a step at a time. */
#include "trainer.h"
#include "chunks.h"
#include "philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static const char *problem_of(const mnist *set, const vit_config *c, const trainer_options *o)
{
    if (set->rows != c->rows || set->columns != c->columns) return "the images are of another size than the model's";
    if (c->classes != MNIST_CLASSES) return "the data have ten classes, the model has another number";
    if (o->epochs < 1) return "there must be an epoch at least";
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
    options.clip = t->options.clip;
    options.average = t->options.average;
    options.clear = true;
    optimizer *made = optimizer_create(t->parameters, t->gradients, t->count, &options, error, error_size);
    free(groups);
    return made;
}

static bool make_memory(trainer *t, const vit_config *c)
{
    const trainer_options *o = &t->options;
    t->parameters = calloc((size_t)t->count, sizeof(float));
    t->gradients = calloc((size_t)t->count, sizeof(float));
    t->order = calloc((size_t)t->images, sizeof *t->order);
    t->batch = calloc((size_t)(o->batch * c->rows * c->columns), sizeof(float));
    t->dlogits = calloc((size_t)(o->batch * c->classes), sizeof(float));
    t->labels = calloc((size_t)o->batch, 1);
    return t->parameters && t->gradients && t->order && t->batch && t->dlogits && t->labels;
}

static bool fill(trainer *t, mha_context *ctx, const vit_config *c, char *error, size_t error_size)
{
    const trainer_options *o = &t->options;
    t->count = vit_count(c, error, error_size);
    if (t->count < 0) return false;
    t->images = t->set->train.count - o->held_out;
    t->steps_per_epoch = t->images / o->batch;
    t->order_epoch = -1;
    if (!make_memory(t, c)) {
        snprintf(error, error_size, "not enough memory for a batch of %lld images", (long long)o->batch);
        return false;
    }
    t->net = vit_create(ctx, c, t->parameters, o->batch, true, error, error_size);
    if (!t->net) return false;
    vit_initialize(t->net, o->seed);
    int64_t steps = o->epochs * t->steps_per_epoch;
    t->plan = (schedule){SCHEDULE_COSINE, .peak = o->rate, .floor = o->floor, .steps = steps};
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

void trainer_free(trainer *t)
{
    if (!t) return;
    void *memory[] = {t->parameters, t->gradients, t->order, t->batch, t->dlogits, t->labels};
    vit_free(t->net);
    optimizer_free(t->adam);
    nn_workspace_free(&t->workspace);
    for (int n = 0; n < 6; n++) free(memory[n]);
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

typedef struct loading {
    const trainer *t;
    const mnist_part *part;
    const int64_t *which; /* indices of images; NULL: from `first` on */
    int64_t first, epoch; /* epoch -1: as they are */
} loading;

static void load_image(void *arg, int64_t n)
{
    const loading *j = arg;
    const mnist *set = j->t->set;
    int64_t i = j->which ? j->which[n] : j->first + n, pixels = set->rows * set->columns;
    const augment_options *how = &j->t->options.augment;
    float *to = j->t->batch + n * pixels;
    j->t->labels[n] = j->part->labels[i];
    if (j->epoch < 0) augment_plain(to, mnist_image(set, j->part, i), pixels, how);
    else
        augment_image(to, mnist_image(set, j->part, i), set->rows, set->columns, how, j->t->options.seed,
                      (uint32_t)j->epoch, (uint64_t)i);
}

trainer_result trainer_step(trainer *t, mha_context *ctx, trainer_report *report)
{
    const trainer_options *o = &t->options;
    int64_t epoch = t->step / t->steps_per_epoch, within = t->step % t->steps_per_epoch;
    if (epoch >= o->epochs) return TRAINER_DONE;
    if (epoch != t->order_epoch) draw_order(t, epoch);
    loading load = {t, &t->set->train, t->order + within * o->batch, 0, epoch};
    nn_each(ctx, o->batch, load_image, &load);
    transformer_call call = {.seed = o->seed, .stream = (uint64_t)t->step << 20};
    const float *logits = vit_forward(t->net, ctx, t->batch, o->batch, &call);
    nn_loss loss = {0, 0};
    if (!logits || nn_cross_entropy(ctx, &t->workspace, &loss, t->dlogits, logits, t->labels, o->batch,
                                    vit_shape(t->net)->classes, o->smoothing))
        return TRAINER_FAILED;
    *report = (trainer_report){epoch, t->step, loss.mean, 0, (double)schedule_rate(&t->plan, t->step), loss.correct};
    if (!isfinite(loss.mean)) return TRAINER_DIVERGED;
    if (!vit_backward(t->net, ctx, t->dlogits, t->gradients)) return TRAINER_FAILED;
    if (!optimizer_step(t->adam, ctx, report->rate, &report->norm)) return TRAINER_DIVERGED;
    vit_changed(t->net);
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
    vit_changed(t->net);
}

static bool evaluate(trainer *t, mha_context *ctx, const mnist_part *part, int64_t first, trainer_score *score)
{
    int64_t classes = vit_shape(t->net)->classes;
    for (int64_t done = 0; done < score->count;) {
        int64_t B = score->count - done < t->options.batch ? score->count - done : t->options.batch;
        loading load = {t, part, NULL, first + done, -1};
        nn_each(ctx, B, load_image, &load);
        nn_loss loss = {0, 0};
        const float *logits = vit_forward(t->net, ctx, t->batch, B, NULL);
        if (!logits || nn_cross_entropy(ctx, &t->workspace, &loss, NULL, logits, t->labels, B, classes, 0))
            return false;
        score->correct += loss.correct;
        score->loss += loss.mean * (double)B / (double)score->count;
        done += B;
    }
    return true;
}

bool trainer_evaluate(trainer *t, mha_context *ctx, trainer_part part, trainer_score *score)
{
    bool test = part == TRAINER_TEST;
    *score = (trainer_score){.count = test ? t->set->test.count : t->options.held_out};
    exchange(t);
    bool good = evaluate(t, ctx, test ? &t->set->test : &t->set->train, test ? 0 : t->images, score);
    exchange(t);
    return good;
}
