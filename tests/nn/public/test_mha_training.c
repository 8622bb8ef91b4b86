/* The public trainings against the trainer inside, and what they refuse. */
#include "small_training.h"
#include <math.h>

/* The same recipe over the same data, without the public calls. */
typedef struct rig {
    mha_context *ctx; /* of one thread */
    nn_recipe how;
    nn_image_set images;
    nn_trainer *t;
} rig;

static rig *make_rig(const mha_data *data)
{
    char error[240] = "";
    rig *g = calloc(1, sizeof *g);
    if (!g) exit(1);
    g->ctx = small_context(1);
    mha_recipe *r = small_recipe(g->ctx, NULL, NULL);
    g->how = r->how;
    mha_recipe_free(r);
    nn_recipe_fit(&g->how, data->set);
    nn_image_set_make(&g->images, data->set, &g->how.model, &g->how.augment);
    g->t = nn_trainer_create(g->ctx, &g->how.model, &g->images.train, &g->images.test, &g->how.training, error,
                             sizeof error);
    if (!expect(g->t, "%s", error)) exit(1);
    return g;
}

static void free_rig(rig *g)
{
    nn_trainer_free(g->t);
    mha_context_free(g->ctx);
    free(g);
}

static bool same_score(const mha_score *a, const nn_trainer_score *b)
{
    return a->count == b->count && a->correct == b->correct && a->loss == b->loss;
}

/* An epoch of both, step by step. */
static void run_epoch(mha_context *ctx, mha_training *t, rig *g, int64_t epoch)
{
    mha_training_report got = {.size = sizeof got};
    nn_trainer_report want;
    nn_trainer_score held;
    mha_score score;
    int64_t correct = 0;
    double loss = 0;
    for (int64_t n = 0; n < SMALL_STEPS; n++) {
        nn_trainer_step(g->t, g->ctx, &want);
        expect(!mha_training_step(ctx, t, &got), "%s", mha_context_error(ctx));
        expect(got.state == MHA_TRAINING_STEPPED && got.epoch == epoch && got.step == epoch * SMALL_STEPS + n &&
                   got.loss == want.loss && got.norm == want.norm && got.rate == want.rate &&
                   got.correct == want.correct && got.examples == SMALL_BATCH,
               "step %lld", (long long)got.step);
        correct += want.correct;
        loss += want.loss * SMALL_BATCH;
    }
    nn_trainer_evaluate(g->t, g->ctx, NN_TRAINER_HELD_OUT, &held);
    expect(!mha_training_evaluate(ctx, t, MHA_TRAINING_HELD_OUT, &score) && same_score(&score, &held), "held out");
    mha_epoch_info e = {.size = sizeof e};
    expect(!mha_training_epoch(ctx, t, epoch, &e), "%s", mha_context_error(ctx));
    expect(e.examples == SMALL_STEPS * SMALL_BATCH && e.correct == correct && e.loss == loss / (double)e.examples &&
               e.rate == want.rate && same_score(&e.held_out, &held) && e.seconds > 0 && e.other_seconds > 0,
           "epoch %lld", (long long)epoch);
}

/* The images that were trained on come first, those that were held out last. */
static void expect_seen(mha_context *ctx, mha_training *t, mha_model *model, const mha_data *data)
{
    mha_tensor none = MHA_NO_TENSOR;
    mha_score seen = {0}, first = {0}, held = {0};
    mha_epoch_info before = {.size = sizeof before}, after = {.size = sizeof after};
    expect(!mha_training_epoch(ctx, t, SMALL_EPOCHS - 1, &before) &&
               !mha_training_evaluate(ctx, t, MHA_TRAINING_SEEN, &seen) &&
               !mha_training_epoch(ctx, t, SMALL_EPOCHS - 1, &after) &&
               !mha_model_evaluate(ctx, model, none, &first, data, MHA_DATA_TRAIN, 0, SMALL_HELD_OUT) &&
               !mha_model_evaluate(ctx, model, none, &held, data, MHA_DATA_TRAIN, 120, SMALL_HELD_OUT),
           "%s", mha_context_error(ctx));
    expect(seen.count == SMALL_HELD_OUT && seen.correct == first.correct &&
               fabs(seen.loss - first.loss) < 1e-6 * first.loss && fabs(seen.loss - held.loss) > 1e-3,
           "seen: %.9g, not %.9g", seen.loss, first.loss);
    expect(after.held_out.loss == before.held_out.loss, "it is part of the history");
}

/* For any number of threads the bits are those of the trainer. */
TEST(a_training_is_the_trainers)
{
    for (int threads = 1; threads <= 3; threads++) {
        mha_context *ctx = small_context(threads);
        mha_data *data = small_data(ctx, "synthetic:140");
        mha_training *t = small_training(ctx, data, NULL, NULL);
        rig *g = make_rig(data);
        mha_training_info info = small_info(ctx, t);
        expect(info.parameters == g->t->count && info.epochs == SMALL_EPOCHS && info.batch == SMALL_BATCH &&
                   info.steps_per_epoch == SMALL_STEPS && info.step == 0 && info.epochs_begun == 0 &&
                   info.train == 120 && info.held_out == SMALL_HELD_OUT && info.test == 23 && info.averaged,
               "info");
        expect(strstr(info.data, "140 + 23 images of 28 x 28, hash "), "%s", info.data);
        for (int64_t epoch = 0; epoch < SMALL_EPOCHS; epoch++) run_epoch(ctx, t, g, epoch);
        mha_training_report last = {.size = sizeof last};
        expect(!mha_training_step(ctx, t, &last) && last.state == MHA_TRAINING_DONE && last.examples == 0, "the end");
        nn_trainer_score want;
        mha_score score;
        mha_model *model;
        nn_trainer_evaluate(g->t, g->ctx, NN_TRAINER_TEST, &want);
        expect(!mha_training_evaluate(ctx, t, MHA_TRAINING_TEST, &score) && same_score(&score, &want), "test");
        expect(!mha_training_model(ctx, &model, t) && has_parameters(model, g->t->adam->average), "the average");
        expect_seen(ctx, t, model, data);
        info = small_info(ctx, t);
        expect(info.step == SMALL_EPOCHS * SMALL_STEPS && info.epochs_begun == SMALL_EPOCHS, "info at the end");
        mha_model_free(model);
        free_rig(g);
        mha_training_free(t);
        mha_data_free(data);
        mha_context_free(ctx);
    }
}

/* Without held-out images there are as many as for the test, and never more than are trained on. */
TEST(seen_images_without_held_out_ones)
{
    mha_context *ctx = small_context(1);
    mha_score score;
    for (int n = 0; n < 2; n++) {
        mha_data *data = small_data(ctx, "synthetic:140");
        mha_training *t = small_training(ctx, data, "held_out", n ? "110" : "0");
        small_steps(ctx, t, 1);
        expect(!mha_training_evaluate(ctx, t, MHA_TRAINING_SEEN, &score) && score.count == (n ? 30 : 23), "%lld images",
               (long long)score.count);
        mha_training_free(t);
        mha_data_free(data);
    }
    mha_context_free(ctx);
}

TEST(values_that_depend_on_the_data_are_filled_in)
{
    mha_context *ctx = small_context(1);
    mha_data *data = small_data(ctx, "synthetic:240");
    mha_recipe *r = NULL;
    mha_training *t = NULL;
    if (!expect(!mha_recipe_create(ctx, &r, NULL) && !mha_recipe_set(ctx, r, "depth", "1") &&
                    !mha_training_create(ctx, &t, r, data),
                "%s", mha_context_error(ctx)))
        return;
    expect(!strcmp(mha_recipe_get(mha_training_recipe(t), "held_out"), "20") && !*mha_recipe_get(r, "held_out"),
           "the given recipe has changed");
    expect(small_info(ctx, t).held_out == 20, "not a twelfth");
    mha_recipe_free(r);
    mha_training_free(t);
    t = small_training(ctx, data, "average", "0");
    expect(!small_info(ctx, t).averaged, "averaged");
    small_steps(ctx, t, 2);
    mha_model *model;
    expect(!mha_training_model(ctx, &model, t) && has_parameters(model, t->t->parameters), "the weights themselves");
    mha_model_free(model);
    mha_training_free(t);
    mha_data_free(data);
    mha_context_free(ctx);
}

/* A step that diverges changes neither parameters nor history. */
TEST(divergence_is_a_state)
{
    mha_context *ctx = small_context(2);
    mha_data *data = small_data(ctx, "synthetic:140");
    mha_training *t = small_training(ctx, data, "lr", "1e30");
    mha_training_report report = {.size = sizeof report};
    int steps = 0;
    do expect(!mha_training_step(ctx, t, &report), "%s", mha_context_error(ctx));
    while (report.state == MHA_TRAINING_STEPPED && steps++ < 20);
    expect(report.state == MHA_TRAINING_DIVERGED && (!isfinite(report.loss) || !isfinite(report.norm)),
           "state %d after %d steps", (int)report.state, steps);
    expect(small_info(ctx, t).step == steps, "a step was counted");
    mha_epoch_info e = {.size = sizeof e};
    if (steps) expect(!mha_training_epoch(ctx, t, 0, &e) && e.examples == steps * SMALL_BATCH, "history");
    mha_training_free(t);
    mha_data_free(data);
    mha_context_free(ctx);
}

TEST(wrong_arguments_are_refused)
{
    mha_context *ctx = small_context(1), *other = small_context(1);
    mha_data *data = small_data(ctx, "synthetic:140");
    mha_recipe *r = small_recipe(ctx, "held_out", "140");
    mha_training *t = small_training(ctx, data, NULL, NULL), *none = t;
    mha_model *model;
    mha_score score;
    mha_epoch_info e = {.size = sizeof e};
    mha_training_info info = {.size = 0};
    mha_training_report report = {.size = 0};
    expect(mha_training_create(ctx, &none, r, data) == MHA_BAD_ARGUMENT && !none &&
               !strcmp(mha_context_error(ctx), "not enough training images to hold out that many"),
           "%s", mha_context_error(ctx));
    expect(mha_training_create(ctx, &none, NULL, data) == MHA_BAD_ARGUMENT && *mha_context_error(ctx), "no recipe");
    expect(mha_training_create(ctx, &none, r, NULL) == MHA_BAD_ARGUMENT && *mha_context_error(ctx), "no data");
    expect(mha_training_create(NULL, &none, r, data) == MHA_BAD_ARGUMENT, "no context");
    expect(mha_training_create(ctx, NULL, r, data) == MHA_BAD_ARGUMENT, "nowhere to put it");
    expect(mha_training_step(ctx, t, &report) == MHA_BAD_ARGUMENT &&
               strstr(mha_context_error(ctx), "mha_training_report"),
           "%s", mha_context_error(ctx));
    expect(mha_training_step(ctx, t, NULL) == MHA_BAD_ARGUMENT && mha_training_step(NULL, t, &report), "no report");
    report.size = sizeof report;
    expect(mha_training_step(other, t, &report) == MHA_BAD_ARGUMENT &&
               !strcmp(mha_context_error(other), "training: was made with another context"),
           "%s", mha_context_error(other));
    expect(mha_training_evaluate(other, t, MHA_TRAINING_TEST, &score) == MHA_BAD_ARGUMENT, "another context");
    expect(mha_training_evaluate(ctx, t, (mha_training_part)3, &score) == MHA_BAD_ARGUMENT, "part 3");
    expect(mha_training_evaluate(ctx, t, MHA_TRAINING_TEST, NULL) == MHA_BAD_ARGUMENT, "no score");
    expect(mha_training_evaluate(ctx, NULL, MHA_TRAINING_TEST, &score) == MHA_BAD_ARGUMENT, "no training");
    expect(mha_training_epoch(ctx, t, 0, &e) == MHA_BAD_ARGUMENT &&
               !strcmp(mha_context_error(ctx), "n: epoch 0 has not begun"),
           "%s", mha_context_error(ctx));
    expect(mha_training_about(ctx, t, &info) == MHA_BAD_ARGUMENT && mha_training_about(ctx, NULL, &info), "info");
    expect(mha_training_model(ctx, &model, NULL) == MHA_BAD_ARGUMENT && !model, "a model of nothing");
    expect(small_info(ctx, t).step == 0 && !mha_training_recipe(NULL), "something was done");
    small_steps(ctx, t, 1);
    expect(!mha_training_epoch(ctx, t, 0, &e) && mha_training_epoch(ctx, t, 1, &e) == MHA_BAD_ARGUMENT &&
               mha_training_epoch(ctx, t, -1, &e) == MHA_BAD_ARGUMENT,
           "epochs");
    mha_recipe_free(r);
    mha_training_free(t);
    mha_training_free(NULL);
    mha_data_free(data);
    mha_context_free(other);
    mha_context_free(ctx);
}
