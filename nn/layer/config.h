/* What the config.json of a model says about its attention layers, as the transformers library writes that file.
 *
 *     nn_layer_config config;
 *     if (!nn_layer_config_read(&config, "model/config.json", "model.layers.3.self_attn.", error, sizeof error)) puts(error);
 *     nn_layer_file_options options = {.prefix = "model.layers.3.self_attn.", .config = &config};
 *
 * Read are the sizes (num_attention_heads, n_head, num_heads, encoder_attention_heads and decoder_attention_heads by
 * the prefix; num_key_value_heads; head_dim; hidden_size, n_embd, d_model), rotary embedding (rope_theta, rope_scaling,
 * rope_parameters, partial_rotary_factor, no_rope_layers), scale and cap (query_pre_attn_scalar, attention_multiplier,
 * attn_logit_softcapping), windows (sliding_window, use_sliding_window, layer_types), is_decoder and rms_norm_eps. Of a
 * model of several parts the object text_config counts, or vision_config if the prefix has "vision" in it.
 *
 * A table by model_type has what such a file leaves to the program that reads it: which names its tensors have, whether
 * it is causal, how it rotates. A model_type that is not in it, and what the layer cannot do (a scaling of the rotary
 * embedding, clipped or normalised heads of other kinds), are errors: the layer would give other numbers than the
 * model.
 *
 * Prefixes count because layers differ: the number in a prefix is the layer's. */
#ifndef NN_LAYER_CONFIG_H
#define NN_LAYER_CONFIG_H

#include "layer/names.h"

enum { NN_LAYER_CONFIG_TEXT = 40 };

typedef struct nn_layer_config {
    char type[NN_LAYER_CONFIG_TEXT]; /* model_type; "" if the file has none, and then nothing of it counts */
    const char *family;              /* title of the names that go with it */
    bool causal;
    bool causal_said; /* by is_decoder, not only by what is usual */
    bool rotary_said; /* likewise: the base, or that there is none */
    bool rotary_interleaved;
    int64_t heads, kv_heads, head_width, width, window, rotary_width; /* 0: not said, or none */
    double rotary_base;                                               /* 0: none */
    float scale, softcap, norm_epsilon;                               /* NAN, 0, 0: not said */
} nn_layer_config;

/* Returns false on error, with one line in `error` that begins with the path. */
bool nn_layer_config_read(nn_layer_config *config, const char *path, const char *prefix, char *error,
                          size_t error_size);

/* Puts what the file says into options that have what is usual in the family, which must be that of the file. False on
 * error, with one line in `why`. */
bool nn_layer_config_apply(mha_layer_options *options, const nn_layer_config *config, const nn_layer_family *family,
                           char *why, size_t why_size);

/* Whether options still are what the file says, after `other` has had its say; if not, `why` has one line about the
 * first that is not. */
bool nn_layer_config_agrees(const mha_layer_options *options, const nn_layer_config *config, const char *other,
                            char *why, size_t why_size);

#endif
