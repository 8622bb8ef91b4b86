/* Layers in files: nn/layer behind the public header, with the config.json of the file's model. */
#include "layer/file.h"
#include "layer/notes.h"
#include "public/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mha_layer_file {
    nn_layer_file file;
    nn_layer_items items; /* of the layer's parameters */
    nn_layer_config config;
    char *config_path; /* "" for none */
};

enum { ERROR = 500 };

/* ---- Options ---------------------------------------------------------------------------------------------------- */

void mha_layer_file_defaults(mha_layer_file_options *options, size_t size)
{
    mha_layer_file_options all = MHA_LAYER_FILE_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

static mha_status check_heads(mha_context *ctx, const char *name, int64_t heads)
{
    if (heads >= 0 && heads <= NN_LAYER_SIZE_MAX) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.%s: %lld must be from 1 to %d, or 0", name, (long long)heads,
                          NN_LAYER_SIZE_MAX);
}

static mha_status read_options(mha_context *ctx, mha_layer_file_options *own, const mha_layer_file_options *given)
{
    mha_status status;
    *own = (mha_layer_file_options)MHA_LAYER_FILE_DEFAULTS;
    if ((status = nn_public_options(ctx, own, sizeof *own, given, "MHA_LAYER_FILE_DEFAULTS"))) return status;
    if (own->prefix && strlen(own->prefix) > NN_LAYER_PREFIX_MAX)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.prefix: is longer than %d bytes", NN_LAYER_PREFIX_MAX);
    if ((status = check_heads(ctx, "heads", own->heads)) || (status = check_heads(ctx, "kv_heads", own->kv_heads)))
        return status;
    if (!(own->rotary_base >= 0) || isinf(own->rotary_base))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.rotary_base: must be 0 or a positive number");
    return MHA_OK;
}

/* ---- Opening ---------------------------------------------------------------------------------------------------- */

/* Reads the config.json that the options select, if any. */
static mha_status read_config(mha_context *ctx, mha_layer_file *f, const char *path, const mha_layer_file_options *o)
{
    char error[ERROR] = "";
    f->config_path = o->config ? strdup(o->config) : nn_layer_config_find(path);
    if (!f->config_path) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a layer");
    if (!*f->config_path) return MHA_OK;
    if (nn_layer_config_read(&f->config, f->config_path, o->prefix ? o->prefix : "", error, sizeof error))
        return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_FILE, "%s; options.config = \"\" ignores the file", error);
}

static mha_status read_layer(mha_context *ctx, mha_layer_file *f, const char *path, const mha_layer_file_options *o)
{
    char error[ERROR] = "";
    nn_layer_file_options options = {
        .prefix = o->prefix,
        .heads = o->heads,
        .kv_heads = o->kv_heads,
        .rotary_base = o->rotary_base,
        .config = *f->config_path ? &f->config : NULL,
        .map = {{o->q, o->k, o->v, o->out}, {"options.q", "options.k", "options.v", "options.out"}},
        .heads_word = "options.heads",
        .prefix_word = "options.prefix"};
    if (nn_layer_file_load(&f->file, ctx, path, &options, error, sizeof error)) return MHA_OK;
    if (options.config && !*f->config.type)
        return nn_public_fail(ctx, f->file.status, "%s; %s has no model_type and was ignored", error, f->config_path);
    return mha_context_fail(ctx, f->file.status, error);
}

mha_status mha_layer_file_open(mha_context *ctx, mha_layer_file **file, const char *path,
                               const mha_layer_file_options *options)
{
    NN_PUBLIC_C_LOCALE;
    mha_layer_file_options o;
    mha_status status;
    if (!ctx || !file) return MHA_BAD_ARGUMENT;
    *file = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, path, "path")) || (status = read_options(ctx, &o, options))) return status;
    mha_layer_file *f = calloc(1, sizeof *f);
    if (!f) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for a layer");
    if ((status = read_config(ctx, f, path, &o)) || (status = read_layer(ctx, f, path, &o))) {
        mha_layer_file_free(f);
        return status;
    }
    if (!nn_layer_file_items(&f->items, &f->file, NULL, "")) {
        mha_layer_file_free(f);
        return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the names of a layer");
    }
    *file = f;
    return MHA_OK;
}

void mha_layer_file_free(mha_layer_file *file)
{
    if (!file) return;
    nn_layer_items_free(&file->items);
    nn_layer_file_free(&file->file);
    free(file->config_path);
    free(file);
}

/* ---- What it is ------------------------------------------------------------------------------------------------- */

mha_layer *mha_layer_file_layer(const mha_layer_file *file) { return file ? file->file.layer : NULL; }

mha_status mha_layer_file_about(mha_context *ctx, const mha_layer_file *file, mha_layer_file_info *info)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, file, "file")) || (status = nn_public_need(ctx, info, "info"))) return status;
    const mha_layer_options *o = mha_layer_shape(file->file.layer);
    mha_layer_file_info all = {.family = file->file.family->title,
                               .config = file->config_path,
                               .model_type = *file->config_path ? file->file.type : "",
                               .heads = o->heads,
                               .kv_heads = o->kv_heads,
                               .causal = o->causal,
                               .rotary_base = file->file.rotary_base,
                               .heads_from = file->file.heads_from,
                               .causal_from = file->file.causal_from,
                               .rotary_from = file->file.rotary_from};
    all.not_finite = nn_layer_count_not_finite(file->file.layer, &all.parameters);
    return nn_public_give(ctx, info, &all, sizeof all, "mha_layer_file_info");
}

/* ---- Parameters ------------------------------------------------------------------------------------------------- */

int64_t mha_layer_file_parameter_count(const mha_layer_file *file) { return file ? (int64_t)file->items.count : 0; }

mha_layer_file_parameter mha_layer_file_parameter_get(const mha_layer_file *file, int64_t n, float *block)
{
    mha_layer_file_parameter part = {NULL, MHA_NO_TENSOR};
    if (n < 0 || n >= mha_layer_file_parameter_count(file)) return part;
    part.name = file->items.item[n].name;
    part.tensor = nn_layer_file_item(&file->file, (size_t)n, block);
    return part;
}

/* ---- Saving ----------------------------------------------------------------------------------------------------- */

mha_status mha_layer_save(mha_context *ctx, const mha_layer *layer, const char *path)
{
    NN_PUBLIC_C_LOCALE;
    char error[ERROR] = "";
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, layer, "layer")) || (status = nn_public_need(ctx, path, "path"))) return status;
    if (nn_layer_file_save(layer, path, error, sizeof error)) return MHA_OK;
    return mha_context_fail(ctx, nn_layer_file_cannot_save(layer) ? MHA_BAD_ARGUMENT : MHA_BAD_FILE, error);
}
