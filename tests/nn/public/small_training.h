/* For tests of public trainings: a small recipe and data for it. */
#ifndef SMALL_TRAINING_H
#define SMALL_TRAINING_H

#include "public/training.h"
#include "public/data.h"
#include "support/contexts.h"
#include "support/harness.h"
#include <stdlib.h>
#include <string.h>

/* 120 of 140 images in batches of 16: 7 steps an epoch. */
enum { SMALL_STEPS = 7, SMALL_EPOCHS = 3, SMALL_BATCH = 16, SMALL_HELD_OUT = 20 };

static inline mha_context *small_context(int threads)
{
    return context_make(NULL, threads, (mha_parallel){NULL, NULL}, NULL);
}

static inline mha_data *small_data(mha_context *ctx, const char *place)
{
    mha_data *data;
    if (!expect(!mha_data_open(ctx, &data, place, NULL), "%s", mha_context_error(ctx))) exit(1);
    return data;
}

/* `key` and `value` NULL: as it is. */
static inline mha_recipe *small_recipe(mha_context *ctx, const char *key, const char *value)
{
    static const char *const values[][2] = {
        {"patch", "14"},    {"width", "16"}, {"depth", "2"},     {"heads", "2"},  {"mlp", "24"},
        {"epochs", "3"},    {"batch", "16"}, {"held_out", "20"}, {"drop", "0.1"}, {"dropout", "0.1"},
        {"average", "0.9"}, {"lr", "0.003"}, {"rotation", "10"}};
    mha_recipe *r;
    bool good = !mha_recipe_create(ctx, &r, "demo");
    for (size_t n = 0; good && n < sizeof values / sizeof *values; n++)
        good = !mha_recipe_set(ctx, r, values[n][0], values[n][1]);
    if (good && key) good = !mha_recipe_set(ctx, r, key, value);
    if (!expect(good, "%s", mha_context_error(ctx))) exit(1);
    return r;
}

static inline mha_training *small_training(mha_context *ctx, const mha_data *data, const char *key, const char *value)
{
    mha_training *t;
    mha_recipe *r = small_recipe(ctx, key, value);
    if (!expect(!mha_training_create(ctx, &t, r, data), "%s", mha_context_error(ctx))) exit(1);
    mha_recipe_free(r);
    return t;
}

/* Takes steps, with a held-out score after each epoch. */
static inline void small_steps(mha_context *ctx, mha_training *t, int steps)
{
    mha_training_report report = {.size = sizeof report};
    mha_score score;
    for (int n = 0; n < steps; n++) {
        bool good = !mha_training_step(ctx, t, &report) && report.state == MHA_TRAINING_STEPPED;
        if (good && (report.step + 1) % SMALL_STEPS == 0)
            good = !mha_training_evaluate(ctx, t, MHA_TRAINING_HELD_OUT, &score);
        if (!expect(good, "step %d: %s", n, mha_context_error(ctx))) exit(1);
    }
}

static inline mha_training_info small_info(mha_context *ctx, const mha_training *t)
{
    mha_training_info info = {.size = sizeof info};
    expect(!mha_training_about(ctx, t, &info), "%s", mha_context_error(ctx));
    return info;
}

/* Whether a model has these parameters. */
static inline bool has_parameters(const mha_model *m, const float *want)
{
    mha_model_parameter first = mha_model_parameter_get(m, 0);
    mha_model_info info = {.size = sizeof info};
    mha_context *ctx = small_context(1);
    mha_model_about(ctx, m, &info);
    mha_context_free(ctx);
    return memcmp(first.tensor.data, want, (size_t)info.parameters * sizeof *want) == 0;
}

#endif
