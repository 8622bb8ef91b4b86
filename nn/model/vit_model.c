/* From a path to a model: the file, its configuration, memory, the numbers. */
#include "model/vit_model.h"
#include "model/vit_notes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A model that computes nothing but NaN answers all the same: better to say so. */
static bool is_finite(const vit *net, const char *path, char *error, size_t error_size)
{
    const float *numbers = vit_parameters(net);
    transformer_part part;
    for (int n = 0; vit_tensor(net, n, &part); n++) {
        int64_t count = part.shape.size[0] * (part.shape.rank == 2 ? part.shape.size[1] : 1);
        for (int64_t i = part.first; i < part.first + count; i++) {
            if (isfinite(numbers[i])) continue;
            snprintf(error, error_size, "%s: %s has numbers that are not finite", path, part.name);
            return false;
        }
    }
    return true;
}

bool vit_model_make(vit_model *model, mha_context *ctx, const vit_config *config, vit_input input, char *error,
                    size_t error_size)
{
    *model = (vit_model){.config = *config, .input = input, .count = vit_count(config, error, error_size)};
    if (model->count < 0) return false;
    model->parameters = calloc((size_t)model->count, sizeof *model->parameters);
    if (!model->parameters) snprintf(error, error_size, "not enough memory");
    else model->net = vit_create(ctx, config, model->parameters, 1, false, error, error_size);
    if (!model->net) vit_model_free(model);
    return model->net;
}

static bool fill(vit_model *m, mha_context *ctx, const safetensors *file, const char *path,
                 const vit_file_options *options, char *error, size_t error_size)
{
    char why[240] = "";
    vit_config config;
    vit_input input;
    if (!vit_read_config_with(&config, &input, file, path, options, error, error_size)) return false;
    if (vit_model_make(m, ctx, &config, input, why, sizeof why)) {
        vit_notes_assumed(m->assumed, sizeof m->assumed, file);
        return vit_read(m->net, ctx, file, path, error, error_size) && is_finite(m->net, path, error, error_size);
    }
    if (error_size) snprintf(error, error_size, "%s: %s", path, why);
    return false;
}

bool vit_model_open(vit_model *model, mha_context *ctx, const char *path, char *error, size_t error_size)
{
    return vit_model_open_with(model, ctx, path, NULL, error, error_size);
}

bool vit_model_open_with(vit_model *model, mha_context *ctx, const char *path, const vit_file_options *options,
                         char *error, size_t error_size)
{
    *model = (vit_model){0};
    safetensors *file = safetensors_open(path, error, error_size);
    bool ok = file && fill(model, ctx, file, path, options, error, error_size);
    safetensors_free(file);
    if (!ok) vit_model_free(model);
    return ok;
}

void vit_model_free(vit_model *model)
{
    vit_free(model->net);
    free(model->parameters);
    *model = (vit_model){0};
}
