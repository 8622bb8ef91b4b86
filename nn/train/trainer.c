/* The training loop, step by step. */
#include "train/trainer.h"
#include "ops/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Creation --------------------------------------------------------------------------------------------------- */

static const char *problem_of(const nn_description *d, const nn_examples *train, const nn_examples *test,
                              const nn_trainer_options *o)
{
    const char *problem = nn_examples_problem(train, d);
    if (!problem) problem = nn_examples_problem(test, d);
    if (problem) return problem;
    if (test->tokens != train->tokens) return "the test examples do not have as many tokens as the training examples";
    if (o->epochs < 1) return "there must be at least one epoch";
    if (o->steps < 0) return "there must be at least one step";
    if (o->batch < 1) return "a batch must have at least one image";
    if (o->held_out < 0 || o->held_out >= train->count) return "not enough training images to hold out that many";
    if (o->batch > train->count - o->held_out) return "the batch is larger than the training set";
    if (!(o->rate > 0) || isinf(o->rate)) return "the learning rate must be a positive number";
    return NULL;
}

/* Weight decay applies to matrices, not to biases, norms, positions and the class token. */
static nn_optimizer *make_optimizer(nn_trainer *t, char *error, size_t error_size)
{
    nn_optimizer_options options = NN_OPTIMIZER_DEFAULTS;
    const nn_description *d = nn_model_description(t->net);
    nn_part part;
    int parts = 0;
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);) parts++;
    nn_optimizer_group *groups = calloc((size_t)parts + 1, sizeof *groups);
    if (!groups) {
        snprintf(error, error_size, "not enough memory");
        return NULL;
    }
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part);)
        if (part.is_weight)
            groups[options.group_count++] =
                (nn_optimizer_group){part.first, nn_part_numbers(&part), (float)t->options.decay};
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
    if (t->test->count > most) most = t->test->count;
    t->parameters = calloc((size_t)t->count, sizeof(float));
    t->gradients = calloc((size_t)t->count, sizeof(float));
    t->slab_gradients = calloc((size_t)nn_slabs(t->options.batch), (size_t)t->count * sizeof(float));
    t->slab_losses = calloc((size_t)nn_slabs(most), sizeof *t->slab_losses);
    t->order = calloc((size_t)t->examples, sizeof *t->order);
    return t->parameters && t->gradients && t->slab_gradients && t->slab_losses && t->order;
}

static bool fill(nn_trainer *t, mha_context *ctx, const nn_description *c, char *error, size_t error_size)
{
    const nn_trainer_options *o = &t->options;
    t->count = nn_model_count(c, error, error_size);
    if (t->count < 0) return false;
    t->examples = t->train->count - o->held_out;
    t->steps_per_epoch = t->examples / o->batch;
    t->order_epoch = -1;
    if (!make_memory(t)) {
        snprintf(error, error_size, "not enough memory for a batch of %lld images", (long long)o->batch);
        return false;
    }
    t->workers = nn_workers_create(ctx, c, t->parameters, t->train, true, error, error_size);
    if (!t->workers) return false;
    t->net = t->workers->workers[0].net;
    t->dlogits_room = NN_SLAB * t->train->labels * c->output.classes;
    t->dlogits = calloc((size_t)t->workers->count, (size_t)t->dlogits_room * sizeof(float));
    if (!t->dlogits) {
        snprintf(error, error_size, "not enough memory for the logits");
        return false;
    }
    nn_model_initialize(t->net, o->seed);
    int64_t steps = o->steps ? o->steps : o->epochs * t->steps_per_epoch;
    t->plan = (nn_schedule){o->schedule, .peak = o->rate, .start = o->rate / 25, .floor = o->floor, .steps = steps};
    t->plan.warmup = (int64_t)(o->warmup * (double)steps);
    return (t->adam = make_optimizer(t, error, error_size)) != NULL;
}

nn_trainer *nn_trainer_create(mha_context *ctx, const nn_description *d, const nn_examples *train,
                              const nn_examples *test, const nn_trainer_options *options, char *error,
                              size_t error_size)
{
    const char *problem = problem_of(d, train, test, options);
    nn_trainer *t = problem ? NULL : calloc(1, sizeof *t);
    if (!t) {
        snprintf(error, error_size, "%s", problem ? problem : "not enough memory");
        return NULL;
    }
    t->train = train;
    t->test = test;
    t->options = *options;
    if (fill(t, ctx, d, error, error_size)) return t;
    nn_trainer_free(t);
    return NULL;
}

void nn_trainer_begin(nn_trainer *t, const float *parameters)
{
    size_t bytes = (size_t)t->count * sizeof(float);
    memcpy(t->parameters, parameters, bytes);
    if (t->adam->average) memcpy(t->adam->average, parameters, bytes);
    nn_workers_changed(t->workers);
}

void nn_trainer_free(nn_trainer *t)
{
    if (!t) return;
    void *memory[] = {t->parameters, t->gradients, t->slab_gradients, t->slab_losses, t->order, t->dlogits};
    nn_workers_free(t->workers);
    nn_optimizer_free(t->adam);
    for (int n = 0; n < 6; n++) free(memory[n]);
    free(t);
}

/* ---- Steps ------------------------------------------------------------------------------------------------------ */

/* The order of an epoch: every example once, shuffled from the seed and the epoch. */
static void draw_order(nn_trainer *t, int64_t epoch)
{
    nn_philox draw = nn_philox_at(t->options.seed, NN_PHILOX_ORDER, (uint32_t)epoch, 0);
    for (int64_t i = 0; i < t->examples; i++) t->order[i] = i;
    for (int64_t i = t->examples - 1; i > 0; i--) {
        uint64_t bits = (uint64_t)nn_philox_next(&draw) << 32;
        int64_t other = (int64_t)((bits | nn_philox_next(&draw)) % (uint64_t)(i + 1)), kept = t->order[i];
        t->order[i] = t->order[other];
        t->order[other] = kept;
    }
    t->order_epoch = epoch;
}

/* A pass over examples, in slabs. */
typedef struct walk {
    const nn_trainer *t;
    const nn_examples *examples;
    const int64_t *which; /* indices of examples, to train on; NULL: from `first` on, to evaluate */
    int64_t first, count;
} walk;

/* Slab n: its loss and, in training, its share of the gradient of the batch's loss, as a mean over all its labels. */
static bool walk_slab(void *arg, nn_worker *w, int64_t n)
{
    const walk *k = arg;
    const nn_trainer *t = k->t;
    const nn_description *d = nn_model_description(w->net);
    int64_t B = nn_slab_examples(k->count, n), at = n * NN_SLAB, rows = B * k->examples->labels;
    float *dlogits = k->which ? t->dlogits + (w - t->workers->workers) * t->dlogits_room : NULL;
    nn_variation vary = {t->options.seed, (uint32_t)(t->step / t->steps_per_epoch)};
    nn_call call = {.drop = true, .seed = t->options.seed, .stream = ((uint64_t)t->step << 20) + (uint64_t)at};
    nn_slab_load(&w->slab, k->examples, k->which ? k->which + at : NULL, k->first + at, B, k->which ? &vary : NULL);
    const float *logits = nn_model_forward(w->net, w->ctx, &w->slab.batch, k->which ? &call : NULL);
    mha_loss_options smoothed = MHA_LOSS_DEFAULTS;
    mha_tensor none = MHA_NO_TENSOR;
    if (k->which) smoothed.smoothing = t->options.smoothing;
    if (!logits || mha_cross_entropy(w->ctx, &t->slab_losses[n],
                                     dlogits ? mha_tensor_2d(dlogits, MHA_FLOAT32, rows, d->output.classes) : none,
                                     mha_tensor_2d(logits, MHA_FLOAT32, rows, d->output.classes),
                                     mha_tensor_1d(w->slab.labels, MHA_INT32, rows), &smoothed))
        return false;
    if (!dlogits) return true;
    float share = (float)t->slab_losses[n].counted / (float)(k->count * k->examples->labels);
    for (int64_t i = 0; i < rows * d->output.classes; i++) dlogits[i] *= share;
    float *gradients = t->slab_gradients + n * t->count;
    memset(gradients, 0, (size_t)t->count * sizeof(float));
    return nn_model_backward(w->net, w->ctx, dlogits, gradients);
}

static bool walk_all(const walk *k, mha_context *ctx, mha_loss *loss)
{
    const nn_trainer *t = k->t;
    *loss = (mha_loss){0};
    if (!nn_workers_each(t->workers, ctx, nn_slabs(k->count), walk_slab, (void *)k)) return false;
    for (int64_t n = 0; n < nn_slabs(k->count); n++) loss->counted += t->slab_losses[n].counted;
    for (int64_t n = 0; loss->counted && n < nn_slabs(k->count); n++) {
        loss->mean += t->slab_losses[n].mean * (double)t->slab_losses[n].counted / (double)loss->counted;
        loss->correct += t->slab_losses[n].correct;
    }
    return true;
}

/* The gradient is that of the mean over labels that are there, not over all. */
static void leave_out_missing(nn_trainer *t, int64_t counted, int64_t all)
{
    for (int64_t i = 0; counted && counted < all && i < t->count; i++) t->gradients[i] *= (float)all / (float)counted;
}

nn_trainer_result nn_trainer_step(nn_trainer *t, mha_context *ctx, nn_trainer_report *report)
{
    const nn_trainer_options *o = &t->options;
    int64_t epoch = t->step / t->steps_per_epoch, within = t->step % t->steps_per_epoch;
    if (t->step >= t->plan.steps) return NN_TRAINER_DONE;
    if (epoch != t->order_epoch) draw_order(t, epoch);
    walk batch = {t, t->train, t->order + within * o->batch, 0, o->batch};
    mha_loss loss;
    if (!walk_all(&batch, ctx, &loss)) return NN_TRAINER_FAILED;
    *report =
        (nn_trainer_report){epoch, t->step, loss.mean, 0, (double)nn_schedule_rate(&t->plan, t->step), loss.correct};
    if (!isfinite(loss.mean)) return NN_TRAINER_DIVERGED;
    if (mha_sum_rows(ctx, mha_tensor_1d(t->gradients, MHA_FLOAT32, t->count),
                     mha_tensor_2d(t->slab_gradients, MHA_FLOAT32, nn_slabs(o->batch), t->count))) {
        snprintf(t->workers->error, sizeof t->workers->error, "%s", mha_context_error(ctx));
        return NN_TRAINER_FAILED;
    }
    leave_out_missing(t, loss.counted, o->batch * t->train->labels);
    if (!nn_optimizer_step(t->adam, ctx, report->rate, &report->norm)) return NN_TRAINER_DIVERGED;
    nn_workers_changed(t->workers);
    t->step++;
    return NN_TRAINER_WENT_ON;
}

/* ---- Evaluation ------------------------------------------------------------------------------------------------- */

/* Swaps the weights and their average. */
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
    int64_t held_out = t->options.held_out, seen = held_out ? held_out : t->test->count;
    walk all = {.t = t, .examples = part == NN_TRAINER_TEST ? t->test : t->train};
    mha_loss loss;
    if (part == NN_TRAINER_HELD_OUT) all.first = t->examples, all.count = held_out;
    else if (part == NN_TRAINER_TEST) all.count = t->test->count;
    else all.count = seen < t->examples ? seen : t->examples;
    exchange(t);
    bool good = walk_all(&all, ctx, &loss);
    exchange(t);
    *score = (nn_trainer_score){loss.counted, loss.correct, loss.mean};
    return good;
}
