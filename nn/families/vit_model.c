/* From a path to a model: the file, its configuration, memory, the numbers. */
#include "families/vit_model.h"
#include "families/vit_names.h"
#include "families/vit_notes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A model that computes nothing but NaN answers all the same: better to say so. */
static bool is_finite(const nn_model *net, const char *path, char *error, size_t error_size)
{
    const float *numbers = nn_model_parameters(net);
    nn_vit_part part;
    for (nn_parts w = nn_parts_of(nn_model_description(net)); nn_vit_next(&w, &part);) {
        for (int64_t i = part.first; i < part.first + part.count; i++) {
            if (isfinite(numbers[i])) continue;
            snprintf(error, error_size, "%s: %s contains values that are not finite", path, part.name);
            return false;
        }
    }
    return true;
}

bool nn_vit_model_make(nn_vit_model *model, mha_context *ctx, const nn_description *config, char *error,
                       size_t error_size)
{
    *model = (nn_vit_model){.config = *config, .count = nn_model_count(config, error, error_size)};
    if (model->count < 0) return false;
    model->parameters = calloc((size_t)model->count, sizeof *model->parameters);
    if (!model->parameters) snprintf(error, error_size, "not enough memory");
    else
        model->net = nn_model_create(ctx, config, model->parameters, &(nn_model_options){.batch = 1, .training = false},
                                     error, error_size);
    if (!model->net) nn_vit_model_free(model);
    return model->net;
}

static bool fill(nn_vit_model *m, mha_context *ctx, const nn_safetensors *file, const char *path,
                 const nn_vit_file_options *options, char *error, size_t error_size)
{
    char why[240] = "";
    nn_description config;
    if (!nn_vit_read_config_with(&config, file, path, options, error, error_size)) return false;
    if (nn_vit_model_make(m, ctx, &config, why, sizeof why)) {
        nn_vit_notes_assumed(m->assumed, sizeof m->assumed, file);
        return nn_vit_read(m->net, ctx, file, path, error, error_size) && is_finite(m->net, path, error, error_size);
    }
    if (error_size) snprintf(error, error_size, "%s: %s", path, why);
    return false;
}

bool nn_vit_model_open(nn_vit_model *model, mha_context *ctx, const char *path, char *error, size_t error_size)
{
    return nn_vit_model_open_with(model, ctx, path, NULL, error, error_size);
}

bool nn_vit_model_open_with(nn_vit_model *model, mha_context *ctx, const char *path, const nn_vit_file_options *options,
                            char *error, size_t error_size)
{
    *model = (nn_vit_model){0};
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, error_size);
    bool ok = file && fill(model, ctx, file, path, options, error, error_size);
    nn_safetensors_free(file);
    if (!ok) nn_vit_model_free(model);
    return ok;
}

void nn_vit_model_free(nn_vit_model *model)
{
    nn_model_free(model->net);
    free(model->parameters);
    *model = (nn_vit_model){0};
}
