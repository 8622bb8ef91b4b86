/* Layers in files: safetensors with the tensor names of PyTorch and of the models that people have.
 *
 *     nn_layer_file_options options = {.prefix = "h.0.attn.", .heads = 12};
 *     nn_layer_file file;
 *     if (!nn_layer_file_load(&file, ctx, "gpt2.safetensors", &options, error, sizeof error)) puts(error);
 *     ... file.layer ...
 *     nn_layer_file_free(&file);
 *
 * Loading. The family of names (layer_names.h) is found from the names themselves. Without a prefix the file is one
 * layer, and a tensor that is no part of it is an error; with one, only names that begin with it are looked at, and
 * those that are no part are passed over. Numbers of any float type become float32. Sizes come from the shapes and from
 * the number of heads, which a file of ours says in its metadata (nn_layer_notes.h), as any file may; else the caller
 * says it; they must not differ. So with what the config.json of its model says (nn_layer_config.h), if the caller has
 * read one: metadata, tensors and callers that say something else are errors. Else what the caller says counts before
 * what the file says, and that before what is usual in the family: GPT-2 and Llama are causal, Llama has rotary
 * embedding with base 10000; gains of Q and K come with an epsilon of 1e-6. A file with PyTorch's names that is not
 * ours has both biases or none, as nn.MultiheadAttention has.
 *
 * Saving. PyTorch's names: nn.MultiheadAttention loads in_proj_weight and so on as they are. Everything else is in the
 * metadata. What was saved loads to the same bits.
 *
 * What is wrong with a file is one line such as
 *
 *     layer.safetensors: in_proj_weight is (2304,512), but 12 heads of width 64 need (2304,768) */
#ifndef NN_LAYER_FILE_H
#define NN_LAYER_FILE_H

#include "layer/config.h"
#include "layer/names.h"
#include "io/safetensors_write.h"

typedef struct nn_layer_file_options {
    const char *prefix;      /* NULL or "": the file is one layer */
    int64_t heads, kv_heads; /* 0: as the file says; kv_heads also from the shapes, where Q, K and V have their own */
    double rotary_base;      /* 0: as the file says */
    const nn_layer_config *config;        /* of the model that the file is of; NULL for none */
    const char *heads_word, *prefix_word; /* how a person gives them, for messages; NULL: "heads", "the prefix" */
} nn_layer_file_options;

/* A layer, and how its file calls it; without a layer, `family` still says what the file was taken for, or NULL. */
typedef struct nn_layer_file {
    mha_layer *layer;
    const nn_layer_family *family;
    char prefix[NN_LAYER_PREFIX_MAX + 1];
} nn_layer_file;

/* `read` takes a file that is open already; `name` stands for its path in messages. `options` may be NULL. False on
 * error, with one line in `error`, of `error_size` bytes; out->layer is NULL then. */
bool nn_layer_file_load(nn_layer_file *out, mha_context *ctx, const char *path, const nn_layer_file_options *options,
                        char *error, size_t error_size);
bool nn_layer_file_read(nn_layer_file *out, mha_context *ctx, const nn_safetensors *from, const char *name,
                        const nn_layer_file_options *options, char *error, size_t error_size);

/* Releases the layer. One without is legal. */
void nn_layer_file_free(nn_layer_file *file);

/* Atomic, as nn_safetensors_write. False also for a layer that the names and metadata of a file cannot express: a norm
 * other than RMS with one gain for all heads, another output width, rotary frequencies or tables. */
bool nn_layer_file_save(const mha_layer *layer, const char *path, char *error, size_t error_size);

/* The parameters of a layer under the names and in the layout of its file, each name behind `before` and the file's
 * prefix. `block` as in mha_layer_view: NULL, or gradients and the like. */
typedef struct nn_layer_items {
    size_t count;
    nn_safetensors_item item[NN_LAYER_PARTS]; /* names point into `name`: not to be copied */
    char name[NN_LAYER_PARTS][NN_LAYER_PREFIX_MAX + 56];
} nn_layer_items;
void nn_layer_file_items(nn_layer_items *out, const nn_layer_file *file, float *block, const char *before);

/* How many parameters are NaN or infinite, and, where `count` is not NULL, how many there are. */
int64_t nn_layer_count_not_finite(const mha_layer *layer, int64_t *count);

#endif
