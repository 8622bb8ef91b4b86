/* A training in the page: the steps of mha_training over data that lie in the engine's files. */
#include "web/engine/engine.h"

#include <stdlib.h>

struct page_training {
    mha_data *data;
    mha_training *training;
    double numbers[PAGE_TRAINING_NUMBERS];
};

static int set_value(void *recipe, const char *key, const char *value)
{
    return page_check(mha_recipe_set(page_context, recipe, key, value));
}

PAGE_API(page_train_close) void page_train_close(page_training *t)
{
    if (!t) return;
    mha_training_free(t->training);
    mha_data_free(t->data);
    free(t);
}

PAGE_API(page_train) page_training *page_train(const char *folder, const char *settings)
{
    mha_recipe *recipe = NULL;
    if (page_start()) return NULL;
    page_training *t = calloc(1, sizeof *t);
    if (!t) return page_fail("not enough memory for a training"), NULL;
    int failed = page_check(mha_recipe_create(page_context, &recipe, NULL)) ||
                 page_settings(settings, set_value, recipe) ||
                 page_check(mha_data_open(page_context, &t->data, folder, NULL)) ||
                 page_check(mha_training_create(page_context, &t->training, recipe, t->data));
    mha_recipe_free(recipe);
    if (!failed) return t;
    page_train_close(t);
    return NULL;
}

PAGE_API(page_train_step) int page_train_step(page_training *t)
{
    mha_training_report report = {.size = sizeof report};
    if (page_check(mha_training_step(page_context, t->training, &report))) return -1;
    t->numbers[PAGE_TRAINING_STATE] = report.state;
    if (report.state != MHA_TRAINING_STEPPED) return 0;
    t->numbers[PAGE_TRAINING_STEP] = (double)report.step + 1;
    t->numbers[PAGE_TRAINING_EPOCH] = (double)report.epoch + 1;
    t->numbers[PAGE_TRAINING_LOSS] = report.loss;
    t->numbers[PAGE_TRAINING_CORRECT] = (double)report.correct / (double)report.examples;
    return 0;
}

PAGE_API(page_train_evaluate) int page_train_evaluate(page_training *t)
{
    mha_score score = {0};
    if (page_check(mha_training_evaluate(page_context, t->training, MHA_TRAINING_TEST, &score))) return -1;
    t->numbers[PAGE_TRAINING_TEST_LOSS] = score.loss;
    t->numbers[PAGE_TRAINING_TEST_CORRECT] = score.count ? (double)score.correct / (double)score.count : 0;
    return 0;
}

PAGE_API(page_train_numbers) const double *page_train_numbers(const page_training *t) { return t->numbers; }

PAGE_API(page_trained) page *page_trained(const page_training *t)
{
    mha_model *model = NULL;
    return page_check(mha_training_model(page_context, &model, t->training)) ? NULL : page_of(model);
}
