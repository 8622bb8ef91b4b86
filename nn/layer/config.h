/* What the config.json of a model says of one of its layers, by the tables of the model's family (families/family.h).
 *
 *     nn_layer_config config;
 *     if (!nn_layer_config_read(&config, "model/config.json", "model.layers.3.self_attn.", error, sizeof error)) puts(error);
 *     nn_layer_file_options options = {.prefix = "model.layers.3.self_attn.", .config = &config};
 *
 * The prefix says which layer of the model it is, and whether it is one of the encoder, of the decoder, or cross-attention.
 * For a model with several parts the object text_config is used, or vision_config if the prefix contains "vision". Sizes that
 * the file does not say follow from the tensors. */
#ifndef NN_LAYER_CONFIG_H
#define NN_LAYER_CONFIG_H

#include "io/failure.h"
#include "layer/names.h"

enum { NN_LAYER_CONFIG_TEXT = 64 };

typedef struct nn_layer_config {
    const char *path;                /* of the file */
    char type[NN_LAYER_CONFIG_TEXT]; /* model_type; "" if the file has none, in which case the file is ignored */
    nn_layer_place place;
    mha_layer_options options;     /* of the layer; sizes that are not said are 0 */
    nn_attention_config attention; /* the rotary embedding with its scaling */
    bool causal_said;              /* set by is_decoder, not only the family's default */
    bool rotary_said;              /* likewise for the base, or its absence */
    int64_t turned_width;          /* width of the heads of which a part turns; 0: all of a head does */
} nn_layer_config;

/* The path of the config.json in a folder or next to a file, to be freed; "" if there is none, NULL if out of memory. */
char *nn_layer_config_find(const char *path);

/* Returns false on error, with one line in `error` that begins with the path. */
bool nn_layer_config_read(nn_layer_config *config, const char *path, const char *prefix, char *error,
                          size_t error_size);

/* What the tensors of a Vision Transformer under timm's names say (families/timm.h), with the config.json beside them: `config`
 * is what was read of it, and `heads` is 0 or their number. */
bool nn_layer_config_of_timm(nn_layer_config *to, const nn_layer_config *config, const nn_shards *file,
                             const char *prefix, int64_t heads, const nn_failure *fail);

/* Whether options still agree with the file after `other` changed them; if not, `why` has one line about the first
 * difference. */
bool nn_layer_config_agrees(const mha_layer_options *options, const nn_layer_config *config, const char *other,
                            char *why, size_t why_size);

#endif
