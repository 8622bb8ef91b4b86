/* Layer files: safetensors with the tensor names of PyTorch and of common models.
 *
 *     nn_layer_file_options options = {.prefix = "h.0.attn.", .heads = 12};
 *     nn_layer_file file;
 *     if (!nn_layer_file_load(&file, ctx, "gpt2.safetensors", &options, error, sizeof error)) puts(error);
 *     ... file.layer ...
 *     nn_layer_file_free(&file);
 *
 * Loading. The family of names (names.h) is detected from the tensor names; layers with names of none are modules
 * (modules.h). Without a prefix the file is one layer, and
 * an unknown tensor is an error; with a prefix, only names that begin with it are considered, and unknown ones are
 * ignored. All float types are converted to float32. Sizes follow from the shapes and from the number of heads, which
 * comes from the metadata (notes.h) or from the caller; the two must agree. The same holds for a config.json
 * (config.h), if the caller has read one: metadata, tensors and caller options that contradict it are errors. Otherwise
 * the caller's options take precedence over the file, and the file over the family's defaults: GPT-2 and Llama are
 * causal, Llama has rotary embedding with base 10000, and norms of Q and K have an epsilon of 1e-6. A file with
 * PyTorch's names that mha did not write has all biases or none, like nn.MultiheadAttention.
 *
 * Saving. Files have PyTorch's names: nn.MultiheadAttention can load in_proj_weight and the others directly. All other
 * options are in the metadata. Loading a saved layer gives the same bits.
 *
 * Errors are one line such as
 *
 *     layer.safetensors: in_proj_weight is (2304,512), but 12 heads of width 64 need (2304,768) */
#ifndef NN_LAYER_FILE_H
#define NN_LAYER_FILE_H

#include "layer/config.h"
#include "layer/modules.h"
#include "io/safetensors_write.h"
#include <mha_model.h>

typedef struct nn_layer_file_options {
    const char *prefix;            /* NULL or "": the file is one layer */
    int64_t heads, kv_heads;       /* 0: from the file; kv_heads also from the shapes if Q, K and V are separate */
    double rotary_base;            /* 0: from the file */
    const nn_layer_config *config; /* of the file's model; NULL for none */
    nn_layer_map map;              /* names of the projections, for files with names of no family */
    const char *heads_word, *prefix_word; /* the names of these options in messages; NULL: "heads", "the prefix" */
} nn_layer_file_options;

/* A layer and the names in its file. If loading fails, `family` is the detected family, or NULL, and `status` is
 * MHA_BAD_FILE or MHA_NO_MEMORY. */
typedef struct nn_layer_file {
    mha_layer *layer;
    mha_status status;
    const nn_layer_family *family;
    nn_layer_modules *modules;         /* NULL, or what `family` is part of */
    char type[NN_LAYER_CONFIG_TEXT];   /* the model_type that config.json or the tensors say; "" for none */
    double rotary_base;                /* 0: none */
    float frequencies[NN_ROTARY_MOST]; /* of a scaled rotary embedding */
    float *tables;                     /* NULL, or the angles of one that holds for some positions alone */
    mha_layer_source heads_from, causal_from, rotary_from;
    char prefix[NN_LAYER_PREFIX_MAX + 1];
} nn_layer_file;

/* `read` takes an open file; `name` replaces its path in messages. `options` may be NULL. Returns false on error, with
 * one line in `error`, of `error_size` bytes, and out->layer NULL. */
bool nn_layer_file_load(nn_layer_file *out, mha_context *ctx, const char *path, const nn_layer_file_options *options,
                        char *error, size_t error_size);
bool nn_layer_file_read(nn_layer_file *out, mha_context *ctx, const nn_safetensors *from, const char *name,
                        const nn_layer_file_options *options, char *error, size_t error_size);

/* Frees the layer and the names; file->layer may be NULL. */
void nn_layer_file_free(nn_layer_file *file);

/* Atomic, like nn_safetensors_write. Also returns false for a layer that the names and metadata cannot express: a norm
 * other than RMS with one gain for all heads, another output width, rotary frequencies or tables. */
bool nn_layer_file_save(const mha_layer *layer, const char *path, char *error, size_t error_size);

/* The feature of a layer that a file cannot express; NULL if there is none. */
const char *nn_layer_file_cannot_save(const mha_layer *layer);

/* The parameters of a layer with the names and layout of its file; each name is preceded by `before` and the file's
 * prefix. `block` as in mha_layer_view: NULL, or for example gradients. Returns false if out of memory. */
typedef struct nn_layer_items {
    size_t count;
    nn_safetensors_item *item; /* names and items lie in one piece of memory, which nn_layer_items_free frees */
} nn_layer_items;
bool nn_layer_file_items(nn_layer_items *out, const nn_layer_file *file, float *block, const char *before);
void nn_layer_items_free(nn_layer_items *items);

/* Parameter n of them without its name; none if there is none. */
mha_tensor nn_layer_file_item(const nn_layer_file *file, size_t n, float *block);

/* Returns the number of parameters that are NaN or infinite, and in *count, unless NULL, the number of all
 * parameters. */
int64_t nn_layer_count_not_finite(const mha_layer *layer, int64_t *count);

#endif
