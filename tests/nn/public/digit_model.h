/* For tests of the public header: a small Vision Transformer for digits, and synthetic digits. */
#ifndef DIGIT_MODEL_H
#define DIGIT_MODEL_H

#include "public/data.h"
#include "public/model.h"
#include "support/contexts.h"
#include "support/harness.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DIGITS_TEST = 20, DIGITS_TRAIN = 6 * DIGITS_TEST, DIGIT_CLASSES = 10, DIGIT_TOKENS = 17 };

static inline mha_context *make_context(int threads)
{
    return context_make(NULL, threads, (mha_parallel){NULL, NULL}, NULL);
}

/* 16 patches and a class token; blocks of two and three heads; large weights, so that heads look at something. */
static inline nn_description digit_description(void)
{
    nn_description d = nn_description_default();
    d.encoder.input.patch = 7, d.encoder.input.mean = 0.13f, d.encoder.input.deviation = 0.31f;
    d.encoder.blocks.width = 12, d.encoder.blocks.depth = 2, d.encoder.blocks.mlp = 16;
    d.encoder.blocks.heads = 3, d.encoder.blocks.head_width = 5;
    d.encoder.blocks.block[0] = (nn_block_config){.heads = 2, .kv_heads = 2};
    return d;
}

/* Saves one and opens it; to be freed. */
static inline mha_model *digit_model(mha_context *ctx, const nn_description *d, const mha_model_options *options)
{
    char path[300], error[300] = "";
    mha_model *model = NULL;
    int64_t count = nn_parameter_count(d);
    float *parameters = calloc((size_t)count, sizeof *parameters);
    nn_model *net = nn_model_create(ctx, d, parameters, &(nn_model_options){.batch = 1}, error, sizeof error);
    if (net) nn_model_initialize(net, 5);
    for (int64_t i = 0; i < count; i++) parameters[i] *= 3;
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/digit_model_%d.safetensors", folder ? folder : "/tmp", (int)getpid());
    expect(net && nn_vit_save(nn_model_description(net), nn_model_parameters(net), path, NULL, error, sizeof error),
           "%s", error);
    if (!expect(!mha_model_open(ctx, &model, path, options), "%s", mha_context_error(ctx))) exit(1);
    remove(path);
    nn_model_free(net);
    free(parameters);
    return model;
}

static inline mha_data *digits(mha_context *ctx)
{
    mha_data *data;
    if (!expect(!mha_data_open(ctx, &data, "synthetic:120", NULL), "%s", mha_context_error(ctx))) exit(1);
    return data;
}

#endif
