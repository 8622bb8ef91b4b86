/* The public trainings: steps, evaluation and history. */
#include "public/training.h"
#include "public/check.h"
#include "public/data.h"
#include "public/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

mha_status nn_public_training(mha_context *ctx, const mha_training *training)
{
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    mha_status status = nn_public_need(ctx, training, "training");
    if (status || training->ctx == ctx) return status;
    return mha_context_fail(ctx, MHA_BAD_ARGUMENT, "training: was made with another context");
}

double nn_public_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void nn_public_spent(mha_training *training, double begun)
{
    nn_checkpoint_run *run = &training->run;
    if (run->begun) run->epochs[run->begun - 1].other_seconds += nn_public_clock() - begun;
}

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static mha_status fill(mha_training *made, const nn_recipe *how, const char *preset, const mha_data *data,
                       const nn_checkpoint *from)
{
    char error[500] = "";
    nn_checkpoint_run *run = &made->run;
    mha_status status = nn_public_recipe(made->ctx, &made->recipe, how, preset);
    if (status) return status;
    run->how = *how;
    run->preset = made->recipe->preset;
    run->synthetic = data->set->synthetic;
    if (from && !nn_checkpoint_knows(from, data->set, error, sizeof error))
        return mha_context_fail(made->ctx, MHA_BAD_FILE, error);
    nn_checkpoint_describe_set(run->set, data->set);
    run->epochs = calloc((size_t)how->training.epochs, sizeof *run->epochs);
    if (!run->epochs)
        return nn_public_fail(made->ctx, MHA_NO_MEMORY, "not enough memory for %lld epochs",
                              (long long)how->training.epochs);
    nn_image_set_make(&made->images, data->set, &how->model, &how->augment);
    made->t = nn_trainer_create(made->ctx, &how->model, &made->images.train, &made->images.test, &how->training, error,
                                sizeof error);
    return made->t ? MHA_OK : nn_public_reason(made->ctx, error);
}

mha_status nn_public_train(mha_context *ctx, mha_training **training, const nn_recipe *how, const char *preset,
                           const mha_data *data, const nn_checkpoint *from)
{
    mha_training *made = calloc(1, sizeof *made);
    if (!made) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a training");
    made->ctx = ctx;
    mha_status status = fill(made, how, preset, data, from);
    if (status) mha_training_free(made);
    else *training = made;
    return status;
}

mha_status mha_training_create(mha_context *ctx, mha_training **training, const mha_recipe *recipe,
                               const mha_data *data)
{
    mha_status status;
    if (!ctx || !training) return MHA_BAD_ARGUMENT;
    *training = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, recipe, "recipe")) || (status = nn_public_need(ctx, data, "data")) ||
        (status = nn_public_cpu(ctx)))
        return status;
    nn_recipe how = recipe->how;
    nn_recipe_fit(&how, data->set);
    return nn_public_train(ctx, training, &how, recipe->preset, data, NULL);
}

void mha_training_free(mha_training *training)
{
    if (!training) return;
    nn_trainer_free(training->t);
    mha_recipe_free(training->recipe);
    free(training->run.epochs);
    free(training);
}

/* ---- What it is ------------------------------------------------------------------------------------------------- */

const mha_recipe *mha_training_recipe(const mha_training *training) { return training ? training->recipe : NULL; }

mha_status mha_training_about(mha_context *ctx, const mha_training *training, mha_training_info *info)
{
    mha_status status = nn_public_training(ctx, training);
    if (status || (status = nn_public_need(ctx, info, "info"))) return status;
    const nn_trainer *t = training->t;
    mha_training_info all = {.parameters = t->count,
                             .epochs = t->options.epochs,
                             .batch = t->options.batch,
                             .steps_per_epoch = t->steps_per_epoch,
                             .step = t->step,
                             .epochs_begun = training->run.begun,
                             .train = t->examples,
                             .held_out = t->options.held_out,
                             .test = t->test->count,
                             .averaged = t->adam->average,
                             .data = training->run.set,
                             .checkpoint_bytes = nn_checkpoint_bytes(t, &training->run),
                             .model_bytes = nn_vit_save_bytes(&training->run.how.model, t->count)};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_training_info");
}

mha_status mha_training_epoch(mha_context *ctx, const mha_training *training, int64_t n, mha_epoch_info *info)
{
    mha_status status = nn_public_training(ctx, training);
    if (status || (status = nn_public_need(ctx, info, "info"))) return status;
    if (n < 0 || n >= training->run.begun)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "n: epoch %lld has not begun", (long long)n);
    const nn_checkpoint_epoch *e = &training->run.epochs[n];
    mha_epoch_info all = {.examples = (int64_t)e->images,
                          .correct = (int64_t)e->correct,
                          .loss = e->loss / e->images,
                          .rate = e->rate,
                          .held_out = {(int64_t)e->held_out, (int64_t)e->held_correct, e->held_loss},
                          .seconds = e->seconds,
                          .other_seconds = e->other_seconds};
    return nn_public_give(ctx, info, &all, sizeof all, "mha_epoch_info");
}

/* ---- Steps ------------------------------------------------------------------------------------------------------ */

static void account(mha_training *training, const nn_trainer_report *r, double seconds)
{
    nn_checkpoint_run *run = &training->run;
    double batch = (double)training->t->options.batch;
    if (r->epoch == run->begun) run->epochs[run->begun++] = (nn_checkpoint_epoch){0};
    nn_checkpoint_epoch *e = &run->epochs[r->epoch];
    e->images += batch;
    e->correct += (double)r->correct;
    e->loss += r->loss * batch;
    e->rate = r->rate;
    e->seconds += seconds;
}

mha_status mha_training_step(mha_context *ctx, mha_training *training, mha_training_report *report)
{
    nn_trainer_report r = {0};
    mha_training_report all = {.size = sizeof all};
    mha_status status = nn_public_training(ctx, training);
    if (status || (status = nn_public_need(ctx, report, "report"))) return status;
    if ((status = nn_public_takes(ctx, report, sizeof all, "mha_training_report"))) return status;
    double begun = nn_public_clock();
    nn_trainer_result result = nn_trainer_step(training->t, ctx, &r);
    if (result == NN_TRAINER_FAILED) return mha_context_fail(ctx, MHA_NO_MEMORY, training->t->workers->error);
    if (result == NN_TRAINER_WENT_ON) {
        training->tested = false;
        account(training, &r, nn_public_clock() - begun);
    }
    all.state = result == NN_TRAINER_WENT_ON ? MHA_TRAINING_STEPPED
                : result == NN_TRAINER_DONE  ? MHA_TRAINING_DONE
                                             : MHA_TRAINING_DIVERGED;
    all.epoch = r.epoch;
    all.step = r.step;
    all.loss = r.loss;
    all.norm = r.norm;
    all.rate = r.rate;
    all.examples = result == NN_TRAINER_DONE ? 0 : training->t->options.batch;
    all.correct = r.correct;
    return nn_public_give(ctx, report, &all, sizeof all, "mha_training_report");
}

/* ---- Results ---------------------------------------------------------------------------------------------------- */

static void record(mha_training *training, const nn_trainer_score *s)
{
    nn_checkpoint_run *run = &training->run;
    if (!run->begun || !isfinite(s->loss)) return;
    nn_checkpoint_epoch *e = &run->epochs[run->begun - 1];
    e->held_out = (double)s->count;
    e->held_correct = (double)s->correct;
    e->held_loss = s->loss;
}

mha_status mha_training_evaluate(mha_context *ctx, mha_training *training, mha_training_part part, mha_score *score)
{
    nn_trainer_score s;
    mha_status status = nn_public_training(ctx, training);
    if (status || (status = nn_public_need(ctx, score, "score"))) return status;
    if (part != MHA_TRAINING_HELD_OUT && part != MHA_TRAINING_TEST && part != MHA_TRAINING_SEEN)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "part: %d is no part of a training", (int)part);
    double begun = nn_public_clock();
    static const nn_trainer_part parts[] = {[MHA_TRAINING_HELD_OUT] = NN_TRAINER_HELD_OUT,
                                            [MHA_TRAINING_TEST] = NN_TRAINER_TEST,
                                            [MHA_TRAINING_SEEN] = NN_TRAINER_SEEN};
    if (!nn_trainer_evaluate(training->t, ctx, parts[part], &s))
        return mha_context_fail(ctx, MHA_NO_MEMORY, training->t->workers->error);
    if (part == MHA_TRAINING_TEST) training->tested = true, training->test = s;
    else if (part == MHA_TRAINING_HELD_OUT) record(training, &s);
    nn_public_spent(training, begun);
    *score = (mha_score){s.count, s.correct, s.loss};
    return MHA_OK;
}

/* The description is that of the finished file, which knows neither the type of products nor what is dropped in
 * training. */
mha_status mha_training_model(mha_context *ctx, mha_model **model, const mha_training *training)
{
    if (!ctx || !model) return MHA_BAD_ARGUMENT;
    *model = NULL;
    mha_status status = nn_public_training(ctx, training);
    if (status) return status;
    const nn_trainer *t = training->t;
    nn_description d = training->run.how.model;
    d.bfloat16 = false;
    d.drop = d.drop_path = 0;
    float *parameters = malloc((size_t)t->count * sizeof *parameters);
    if (!parameters) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a model");
    memcpy(parameters, t->adam->average ? t->adam->average : t->parameters, (size_t)t->count * sizeof *parameters);
    return nn_public_make(ctx, model, &d, parameters, "");
}
