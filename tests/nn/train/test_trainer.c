/* The training loop on drawn digits: it learns, it has the same bits on any number of threads and when it goes on from a
 * saved state, and it refuses what cannot be trained. */
#include "support/contexts.h"
#include "data/digits.h"
#include "train/image_examples.h"
#include "support/harness.h"
#include "support/numbers.h"
#include "train/trainer.h"

/* The same for all tests: to draw them takes as long as some steps of training. */
static nn_mnist *drawn;

static void free_digits(void) { nn_mnist_free(drawn); }

static const nn_mnist *digits(void)
{
    char error[240] = "";
    if (drawn) return drawn;
    drawn = nn_digits_make(1200, 300, 5, error, sizeof error);
    if (!expect(drawn != NULL, "%s", error)) exit(1);
    atexit(free_digits);
    return drawn;
}

static nn_description small(void)
{
    nn_description c = nn_description_default();
    c.encoder.input.patch = 7;
    c.encoder.blocks.width = 32;
    c.encoder.blocks.depth = 2;
    c.encoder.blocks.mlp = 64;
    c.dropout = 0.05f;
    return c;
}

static nn_trainer_options quick(void)
{
    nn_trainer_options o = NN_TRAINER_DEFAULTS;
    o.epochs = 12;
    o.batch = 50;
    o.held_out = 200;
    o.average = 0.95;
    o.rate = 3e-3;
    return o;
}

/* A trainer and the examples that it reads. */
typedef struct rig {
    nn_image_set images;
    nn_trainer *t;
} rig;

static bool make_rig(rig *g, mha_context *ctx, const nn_mnist *set, nn_description config,
                     const nn_trainer_options *options, char *error, size_t error_size)
{
    const nn_augment_options augment = {.shift = 1, .rotation = 4, .scale = 0.05f};
    nn_input_config *in = &config.encoder.input;
    nn_mnist_statistics(set, &set->train, &in->mean, &in->deviation);
    nn_image_set_make(&g->images, set, &config, &augment);
    g->t = nn_trainer_create(ctx, &config, &g->images.train, &g->images.test, options, error, error_size);
    return g->t != NULL;
}

/* `g` must not be moved: the trainer points to its examples. */
static nn_trainer *open_trainer(rig *g, mha_context *ctx, const nn_mnist *set)
{
    char error[240] = "";
    nn_trainer_options options = quick();
    if (!expect(make_rig(g, ctx, set, small(), &options, error, sizeof error), "%s", error)) exit(1);
    return g->t;
}

static void go(nn_trainer *t, mha_context *ctx, int steps)
{
    nn_trainer_report report;
    for (int n = 0; n < steps; n++) {
        expect(nn_trainer_step(t, ctx, &report) == NN_TRAINER_WENT_ON, "step %d: %s", n, mha_context_error(ctx));
        expect(report.step == t->step - 1 && report.epoch == report.step / t->steps_per_epoch, "step %lld, epoch %lld",
               (long long)report.step, (long long)report.epoch);
    }
}

/* Where every step takes fifty times as long (MHA_SAMPLE of ./dev check), it is enough that the loss falls. */
TEST(digits_are_learnt)
{
    bool whole = sample_size() == 1;
    const nn_mnist *set = digits();
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    rig g;
    nn_trainer *t = open_trainer(&g, ctx, set);
    nn_trainer_score before, after, held;
    nn_trainer_report report;
    expect(t->steps_per_epoch == 20 && t->examples == 1000, "%lld steps", (long long)t->steps_per_epoch);
    expect(nn_trainer_evaluate(t, ctx, NN_TRAINER_TEST, &before), "%s", mha_context_error(ctx));
    go(t, ctx, whole ? 240 : 40);
    if (whole) expect(nn_trainer_step(t, ctx, &report) == NN_TRAINER_DONE, "there is a thirteenth epoch");
    expect(nn_trainer_evaluate(t, ctx, NN_TRAINER_TEST, &after), "%s", mha_context_error(ctx));
    expect(nn_trainer_evaluate(t, ctx, NN_TRAINER_HELD_OUT, &held), "%s", mha_context_error(ctx));
    expect(before.count == 300 && before.correct < 90, "%lld of 300 before training", (long long)before.correct);
    expect(after.loss < (whole ? 0.5 : 0.95) * before.loss, "the loss goes from %g to %g", before.loss, after.loss);
    if (whole) expect(after.correct > 230, "%lld of 300 after it", (long long)after.correct);
    expect(held.count == 200 && (!whole || held.correct > 155), "%lld of 200 held out", (long long)held.correct);
    nn_trainer_free(t);
    mha_context_free(ctx);
}

/* A run has the rates of the schedule that it was told. */
TEST(schedules_are_kept_to)
{
    char error[240] = "";
    const nn_mnist *set = digits();
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    for (int kind = NN_SCHEDULE_CONSTANT; kind <= NN_SCHEDULE_ONE_CYCLE; kind++) {
        nn_trainer_options options = quick();
        options.schedule = (nn_schedule_kind)kind;
        options.epochs = 1;
        options.held_out = 1000; /* 4 steps are left, of which 2 go up */
        options.warmup = 0.5;
        rig g;
        if (!expect(make_rig(&g, ctx, set, small(), &options, error, sizeof error), "%s", error)) break;
        nn_trainer *t = g.t;
        nn_trainer_report first = {0}, last = {0}, report;
        while (nn_trainer_step(t, ctx, &report) == NN_TRAINER_WENT_ON) {
            if (report.step == 0) first = report;
            last = report;
        }
        double start = kind == NN_SCHEDULE_ONE_CYCLE ? options.rate / 25 : options.rate / 2;
        double end = kind == NN_SCHEDULE_CONSTANT ? options.rate : options.floor;
        expect(last.step == 3 && fabs(first.rate / start - 1) < 1e-6 && fabs(last.rate / end - 1) < 1e-6,
               "schedule %d: %g to %g", kind, first.rate, last.rate);
        nn_trainer_free(t);
    }
    mha_context_free(ctx);
}

/* So many steps, or a quarter of them where every step takes long. */
static int few(int steps) { return sample_size() > 1 ? (steps + 3) / 4 : steps; }

TEST(the_same_bits_on_any_number_of_threads)
{
    const nn_mnist *set = digits();
    float *want = NULL;
    const int threads[] = {1, 2, 7};
    for (int n = 0; n < 3; n++) {
        mha_context *ctx = context_make(NULL, threads[n], (mha_parallel){NULL, NULL}, NULL);
        rig g;
        nn_trainer *t = open_trainer(&g, ctx, set);
        nn_trainer_score score;
        size_t bytes = (size_t)t->count * sizeof *want;
        go(t, ctx, few(12));
        nn_trainer_evaluate(t, ctx, NN_TRAINER_HELD_OUT, &score); /* must not disturb */
        go(t, ctx, few(12));
        if (!want) want = memcpy(array(t->count, sizeof *want), t->parameters, bytes);
        expect(!memcmp(want, t->parameters, bytes), "%d threads end elsewhere", threads[n]);
        nn_trainer_free(t);
        mha_context_free(ctx);
    }
    free(want);
}

/* Parameters, moments, average and the number of steps are all there is to keep. */
TEST(going_on_is_not_having_stopped)
{
    const nn_mnist *set = digits();
    mha_context *ctx = context_make(NULL, 2, (mha_parallel){NULL, NULL}, NULL);
    rig g[3];
    nn_trainer *whole = open_trainer(&g[0], ctx, set), *first = open_trainer(&g[1], ctx, set),
               *then = open_trainer(&g[2], ctx, set);
    size_t bytes = (size_t)whole->count * sizeof(float);
    go(whole, ctx, few(24) + few(23));
    go(first, ctx, few(23));
    memcpy(then->parameters, first->parameters, bytes);
    memcpy(then->adam->moment1, first->adam->moment1, bytes);
    memcpy(then->adam->moment2, first->adam->moment2, bytes);
    memcpy(then->adam->average, first->adam->average, bytes);
    then->adam->steps = first->adam->steps;
    then->step = first->step;
    go(then, ctx, few(24));
    expect(!memcmp(whole->parameters, then->parameters, bytes), "parameters");
    expect(!memcmp(whole->adam->average, then->adam->average, bytes), "their average");
    nn_trainer_free(whole);
    nn_trainer_free(first);
    nn_trainer_free(then);
    mha_context_free(ctx);
}

TEST(what_cannot_be_trained)
{
    const nn_mnist *set = digits();
    mha_context *ctx = context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL);
    char error[240];
#define REFUSE(change, line)                                                                        \
    do {                                                                                            \
        rig g;                                                                                      \
        nn_description c = small();                                                                 \
        nn_trainer_options o = quick();                                                             \
        change;                                                                                     \
        bool made = make_rig(&g, ctx, set, c, &o, error, sizeof error);                             \
        expect(!made && !strcmp(error, line), "'%s' instead of '%s'", made ? "made" : error, line); \
        nn_trainer_free(g.t);                                                                       \
    } while (0)
    REFUSE(o.epochs = 0, "there must be at least one epoch");
    REFUSE(o.batch = 0, "a batch must have at least one image");
    REFUSE(o.batch = 1001, "the batch is larger than the training set");
    REFUSE(o.held_out = 1200, "not enough training images to hold out that many");
    REFUSE(o.rate = NAN, "the learning rate must be a positive number");
    REFUSE(c.encoder.input.rows = 56, "the images do not have the size of the model's input");
    REFUSE((c.encoder.input.rows = 14, c.encoder.input.columns = 56),
           "the images do not have the size of the model's input");
    REFUSE(c.output.classes = 9, "the model does not have as many classes as the data set");
    REFUSE(c.encoder.input.patch = 5, "patches of 5 x 5 do not divide images of 28 x 28");
    REFUSE(c.encoder.blocks.heads = 5, "5 heads do not divide the width 32");
#undef REFUSE
    rig g;
    nn_trainer *t = open_trainer(&g, ctx, set);
    nn_trainer_report report;
    go(t, ctx, 2);
    t->parameters[7] = NAN;
    nn_model_changed(t->net);
    float kept = t->parameters[8];
    expect(nn_trainer_step(t, ctx, &report) == NN_TRAINER_DIVERGED && t->step == 2 && t->parameters[8] == kept, "NaN");
    nn_trainer_free(t);
    mha_context_free(ctx);
}
