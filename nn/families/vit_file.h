/* Vision Transformers in files: safetensors with timm's names and shapes.
 *
 *     nn_safetensors *file;
 *     nn_safetensors_open(&file, "vit.safetensors", error, sizeof error);
 *     nn_description config;
 *     if (!file || !nn_vit_read_config(&config, file, "vit.safetensors", error, sizeof error)) puts(error);
 *     ... parameters for nn_model_count(&config), v = nn_model_create(ctx, &config, parameters, ...) ...
 *     if (!nn_vit_read(v, ctx, file, "vit.safetensors", error, sizeof error)) puts(error);
 *     nn_safetensors_free(file);
 *
 * Images have one channel.
 *
 *   patch_embed.proj.weight (M,1,p,p) or (M,p*p)   patch_embed.proj.bias (M)   cls_token (1,1,M)   pos_embed (1,T,M)
 *   blocks.N.norm1.weight ... blocks.N.mlp.fc2.bias   norm.weight   norm.bias   head.weight (C,M)   head.bias (C)
 *
 * Width, depth, mlp, patch, classes and key/value heads follow from the shapes, and from which tensors there are: mean
 * pooling (no cls_token), a final norm (norm.weight), RMS norm (no biases of norms). The number of heads and the rest
 * are in the metadata (nn_vit_notes.h), ours or the JSON text under "config"; of a file that does not say the number of
 * heads, the caller may. An image whose size is not said is square.
 *
 * Where the metadata says head_width, as it does for a model that has lost heads (prune.h), each block has the heads
 * that its tensors have room for: H of them in blocks.N.attn.proj.weight (M,H*head_width), and G of keys and values in
 * blocks.N.attn.qkv.weight ((H+2G)*head_width,M).
 *
 * Names that begin with NN_VIT_FILE_EXTRA are no part of the model: there a checkpoint keeps what else it has to keep,
 * and reading passes over them. Any other tensor that is no part of the model is an error. What is wrong with a file is
 * one line such as
 *
 *     model.safetensors: blocks.2.mlp.fc1.weight is float32 (196,50), must be (196,49) */
#ifndef NN_FAMILIES_VIT_FILE_H
#define NN_FAMILIES_VIT_FILE_H

#include "io/safetensors_write.h"
#include "program/model.h"

#define NN_VIT_FILE_EXTRA "checkpoint."

/* What a caller knows of a file that does not say it. */
typedef struct nn_vit_file_options {
    int64_t heads;          /* of a block; 0: as the file says, and they must not differ */
    const char *heads_word; /* how a person gives them, for messages; NULL: "heads" */
} nn_vit_file_options;

/* The configuration of a file, whose tensors have all been held against it: so it asks for no more parameters than the
 * file has. `name` stands for the file's path in messages. Returns false on error, with one line
 * in `error`, of `error_size` bytes. */
bool nn_vit_read_config(nn_description *config, const nn_safetensors *file, const char *name, char *error,
                        size_t error_size);
bool nn_vit_read_config_with(nn_description *config, const nn_safetensors *file, const char *name,
                             const nn_vit_file_options *options, char *error, size_t error_size);

/* The numbers of a file, of any float type, into the model's parameters. On error, as above, they are what they were,
 * unless it ran out of memory. */
bool nn_vit_read(nn_model *v, mha_context *ctx, const nn_safetensors *file, const char *name, char *error,
                 size_t error_size);

/* What else goes into a file. */
typedef struct nn_vit_save_options {
    const nn_safetensors_item *items; /* each name begins with NN_VIT_FILE_EXTRA */
    size_t item_count;
    const nn_safetensors_pair *notes; /* of other keys than those of nn_vit_notes.h */
    size_t note_count;
    nn_file_lock *lock; /* of the file; NULL for none */
} nn_vit_save_options;

/* clang-format off */
#define NN_VIT_SAVE_DEFAULTS {NULL, 0, NULL, 0, NULL}
/* clang-format on */

/* How many bytes a file of a model with so many parameters takes, at most, without items. */
int64_t nn_vit_save_bytes(const nn_description *config, int64_t parameters);

/* Saves a model of that description and its parameters, one block. Atomic, as nn_safetensors_write; what was saved reads
 * back to the same bits. `options` may be NULL. */
bool nn_vit_save(const nn_description *config, const float *parameters, const char *path,
                 const nn_vit_save_options *options, char *error, size_t error_size);

#endif
