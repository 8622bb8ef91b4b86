/* Pruning with data: the rounds of nn_prune_run over a copy of the model. */
#include "families/pruned.h"
#include "families/wrapped.h"
#include "inspect/prune.h"
#include "train/image_examples.h"
#include "public/check.h"
#include "public/data.h"
#include "public/model.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

void mha_prune_defaults(mha_prune_options *options, size_t size)
{
    mha_prune_options all = MHA_PRUNE_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

/* What the callbacks of nn_prune_run need. */
typedef struct listener {
    const mha_prune_options *options;
    const mha_model *model; /* the original */
    int64_t *gone;          /* room for all heads */
    bool stopped;
} listener;

static mha_score score_of(const nn_trainer_score *s) { return (mha_score){s->count, s->correct, s->loss}; }

static bool watch(void *arg, const nn_prune_round *round)
{
    listener *l = arg;
    if (!l->options->watch) return true;
    for (int64_t i = 0; i < round->gone_count; i++) {
        l->gone[i] = round->gone[i].head;
        for (int64_t n = 0; n < round->gone[i].block; n++) l->gone[i] += mha_model_attention_get(l->model, n).heads;
    }
    mha_prune_round told = {.number = round->number,
                            .heads = round->heads,
                            .gone = l->gone,
                            .gone_count = round->gone_count,
                            .cut = score_of(&round->cut),
                            .tuned = score_of(&round->tuned),
                            .undone = round->taken_back};
    l->stopped = !l->options->watch(l->options->arg, &told);
    return !l->stopped;
}

static void step(void *arg, int64_t n, int64_t steps)
{
    const listener *l = arg;
    if (l->options->step) l->options->step(l->options->arg, n, steps);
}

static mha_status bad(mha_context *ctx, const char *name, const char *should)
{
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.%s: must be %s", name, should);
}

static mha_status check(mha_context *ctx, const mha_prune_options *o, const mha_model *model, const mha_data *data)
{
    int64_t heads = nn_description_all_heads(&model->d), least = mha_model_attention_count(model);
    mha_status status = mha_data_check(ctx, data, model);
    if (status) return status;
    if (o->keep && (o->keep < least || o->keep > heads))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              "options.keep: must be from %lld, one head of each attention, to %lld, not %lld",
                              (long long)least, (long long)heads, (long long)o->keep);
    if (!(o->max_drop >= 0)) return bad(ctx, "max_drop", "0 or more");
    if (o->rounds < 0) return bad(ctx, "rounds", "0 or more");
    if (o->sample < 1) return bad(ctx, "sample", "1 or more");
    if (o->tune < 0) return bad(ctx, "tune", "0 or more");
    if (o->finish < 0) return bad(ctx, "finish", "0 or more");
    if (o->batch < 1) return bad(ctx, "batch", "1 or more");
    if (!(o->tune_rate > 0) || isinf(o->tune_rate)) return bad(ctx, "tune_rate", "a number above 0");
    if (!(o->finish_rate > 0) || isinf(o->finish_rate)) return bad(ctx, "finish_rate", "a number above 0");
    if (o->held_out < 1 || o->held_out >= data->set->train.count)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              "options.held_out: is %lld, must be from 1 to %lld: the training part has %lld examples",
                              (long long)o->held_out, (long long)data->set->train.count - 1,
                              (long long)data->set->train.count);
    return MHA_OK;
}

static nn_prune_options inner(const mha_prune_options *o, const mha_model *model, const mha_data *data)
{
    int64_t images = data->set->train.count - o->held_out;
    return (nn_prune_options){.keep = o->keep ? o->keep : mha_model_attention_count(model),
                              .max_drop = o->max_drop,
                              .rounds = o->rounds,
                              .sample = o->sample,
                              .held_out = o->held_out,
                              .tune = o->tune,
                              .finish = o->finish,
                              .batch = o->batch < images ? o->batch : images,
                              .tune_rate = o->tune_rate,
                              .finish_rate = o->finish_rate,
                              .bfloat16 = model->d.bfloat16,
                              .seed = o->seed,
                              .step = step};
}

/* A copy of the model inside, with a net of its own. */
static mha_status copy_model(mha_context *ctx, nn_vit_model *to, const mha_model *model)
{
    char error[240] = "";
    if (!nn_vit_model_make(to, ctx, &model->d, error, sizeof error)) return nn_public_reason(ctx, error);
    memcpy(to->parameters, model->parameters, (size_t)model->count * sizeof *to->parameters);
    nn_model_changed(to->net);
    return MHA_OK;
}

mha_status mha_model_prune_and_tune(mha_context *ctx, mha_model **smaller, const mha_model *model, const mha_data *data,
                                    const mha_prune_options *options)
{
    char error[500] = "";
    mha_prune_options o = MHA_PRUNE_DEFAULTS;
    nn_augment_options augment = NN_AUGMENT_OPTIONS_DEFAULT;
    nn_image_set images;
    nn_vit_model now;
    mha_status status;
    if (!ctx || !smaller) return MHA_BAD_ARGUMENT;
    *smaller = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, data, "data")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_PRUNE_DEFAULTS")) || (status = nn_public_cpu(ctx)))
        return status;
    if (!o.held_out) o.held_out = data->set->train.count / 12;
    if ((status = check(ctx, &o, model, data)) || (status = copy_model(ctx, &now, model))) return status;
    listener l = {&o, model, calloc((size_t)nn_description_all_heads(&model->d), sizeof(int64_t)), false};
    nn_image_set_make(&images, data->set, &model->d, &augment);
    nn_prune_options how = inner(&o, model, data);
    if (!l.gone) status = mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory to prune");
    else if (!nn_prune_run(&now, ctx, &images.train, &how, watch, &l, error, sizeof error) && !l.stopped)
        status = nn_public_reason(ctx, error);
    if (!status) {
        float *parameters = now.parameters;
        now.parameters = NULL; /* the model's now */
        status = nn_public_make(ctx, smaller, &now.config, parameters, model->assumed);
    }
    nn_vit_model_free(&now);
    free(l.gone);
    return status;
}

/* Of a model whose parameters are one block. */
static mha_status save_smaller(mha_context *ctx, const mha_model *model, const char *path, const bool *keep,
                               int64_t count)
{
    mha_model *smaller = NULL;
    mha_status status = mha_model_prune(ctx, &smaller, model, keep, count);
    if (!status) status = mha_model_save(ctx, smaller, path, NULL);
    mha_model_free(smaller);
    return status;
}

mha_status mha_model_save_pruned(mha_context *ctx, const mha_model *model, const char *path, const bool *keep,
                                 int64_t count)
{
    NN_PUBLIC_C_LOCALE;
    char error[600] = "";
    nn_config config;
    nn_bound views;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, path, "path")) ||
        (status = nn_public_need(ctx, keep, "keep")))
        return status;
    if (model->parameters) return save_smaller(ctx, model, path, keep, count);
    if (!model->config)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: has no config.json, which would list the heads");
    int64_t heads = nn_description_all_heads(&model->d);
    if (count != heads)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "count: is %lld, the model has %lld heads", (long long)count,
                              (long long)heads);
    if (!nn_config_text(&config, model->config, "model", error, sizeof error))
        return mha_context_fail(ctx, MHA_BAD_FILE, error);
    if (nn_wrapped_type(&config))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              "model: is the text model of a %s checkpoint, which cannot be saved by itself",
                              nn_wrapped_type(&config));
    if (!nn_bind_views(&views, ctx, &model->d, model->family, model->head, &config, &model->shards, "model", error,
                       sizeof error))
        return mha_context_fail(ctx, MHA_BAD_FILE, error);
    if (!nn_pruned_save(path, &model->d, model->family, &views, &config, &model->shards, keep, error, sizeof error))
        status = mha_context_fail(ctx, MHA_BAD_FILE, error);
    nn_bound_free(&views);
    return status;
}
