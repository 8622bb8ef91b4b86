/* The attention options in a model's config.json, the file that the transformers library writes.
 *
 *     nn_layer_config config;
 *     if (!nn_layer_config_read(&config, "model/config.json", "model.layers.3.self_attn.", error, sizeof error)) puts(error);
 *     nn_layer_file_options options = {.prefix = "model.layers.3.self_attn.", .config = &config};
 *
 * The keys read are sizes (num_attention_heads, n_head, num_heads, encoder_attention_heads and decoder_attention_heads
 * by the prefix; num_key_value_heads; head_dim; hidden_size, n_embd, d_model), rotary embedding (rope_theta,
 * rope_scaling, rope_parameters, partial_rotary_factor, no_rope_layers), scale and cap (query_pre_attn_scalar,
 * attention_multiplier, attn_logit_softcapping), windows (sliding_window, use_sliding_window, layer_types), is_decoder
 * and rms_norm_eps. For a multi-part model the object text_config is used, or vision_config if the prefix contains
 * "vision".
 *
 * A table by model_type supplies what the file does not contain: the tensor names, whether attention is causal, the
 * kind of rotary embedding. Unknown model types and unsupported features (scaled rotary embedding, clipped heads or
 * other norms of heads) are errors, because the layer's results would differ from the model's.
 *
 * The prefix matters because layers may differ: the number in it is the layer index. */
#ifndef NN_LAYER_CONFIG_H
#define NN_LAYER_CONFIG_H

#include "layer/names.h"

enum { NN_LAYER_CONFIG_TEXT = 40 };

typedef struct nn_layer_config {
    char type[NN_LAYER_CONFIG_TEXT]; /* model_type; "" if the file has none, in which case the file is ignored */
    const char *family;              /* title of the family of tensor names */
    bool causal;
    bool causal_said; /* set by is_decoder, not only the family's default */
    bool rotary_said; /* likewise for the base, or its absence */
    bool rotary_interleaved;
    int64_t heads, kv_heads, head_width, width, window, rotary_width; /* 0: not given, or none */
    double rotary_base;                                               /* 0: none */
    float scale, softcap, norm_epsilon;                               /* NAN, 0, 0: not given */
} nn_layer_config;

/* The path of the config.json next to a file, to be freed; "" if there is none, NULL if out of memory. */
char *nn_layer_config_find(const char *file);

/* Returns false on error, with one line in `error` that begins with the path. */
bool nn_layer_config_read(nn_layer_config *config, const char *path, const char *prefix, char *error,
                          size_t error_size);

/* Overrides options, which hold the family's defaults, with the values of the file. `family` must be that of the file.
 * Returns false on error, with one line in `why`. */
bool nn_layer_config_apply(mha_layer_options *options, const nn_layer_config *config, const nn_layer_family *family,
                           char *why, size_t why_size);

/* Whether options still agree with the file after `other` changed them; if not, `why` has one line about the first
 * difference. */
bool nn_layer_config_agrees(const mha_layer_options *options, const nn_layer_config *config, const char *other,
                            char *why, size_t why_size);

#endif
