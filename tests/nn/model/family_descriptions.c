#include "nn/model/family_descriptions.h"
#include "families/family.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The keys of all families: two blocks of width 12, with heads of width 4. */
static const char common[] =
    "\"hidden_size\": 12, \"n_embd\": 12, \"d_model\": 12, \"dim\": 12, \"n_embed\": 12,"
    "\"num_hidden_layers\": 2, \"n_layer\": 2, \"n_layers\": 2, \"num_layers\": 2, \"encoder_layers\": 2, "
    "\"decoder_layers\": 2,"
    "\"num_attention_heads\": 3, \"n_head\": 3, \"n_heads\": 3, \"num_heads\": 3, \"attention_heads\": 3,"
    "\"encoder_attention_heads\": 3, \"decoder_attention_heads\": 3, \"num_key_value_heads\": 1, \"head_dim\": 4, "
    "\"d_kv\": 4,"
    "\"intermediate_size\": 16, \"ffn_dim\": 16, \"encoder_ffn_dim\": 16, \"decoder_ffn_dim\": 16, \"d_ff\": 16, "
    "\"hidden_dim\": 16,"
    "\"vocab_size\": 11, \"max_position_embeddings\": 24, \"n_positions\": 24, \"type_vocab_size\": 2,"
    "\"max_source_positions\": 5, \"max_target_positions\": 24, \"num_mel_bins\": 3,"
    "\"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"swiglu_limit\": 0.7,"
    "\"relative_attention_num_buckets\": 8, \"relative_attention_max_distance\": 7,"
    "\"image_size\": [4, 6], \"patch_size\": 2, \"num_channels\": 2,"
    "\"sliding_window\": 3, \"pad_token_id\": 1, \"bos_token_id\": 2, \"eos_token_id\": 2, "
    "\"decoder_start_token_id\": 2";

/* Pools: NN_POOL_TWO, which the second token is for, NN_POOL_BOTH and NN_POOL_REST. */
#define TIMM(norms, distilled, pool)                                                                                   \
    "\"qkv_bias\": true, \"proj_bias\": true, \"class_token\": true, \"layer_scale\": true, \"layer_norm_eps\": 1e-6," \
    "\"num_classes\": 3, \"hidden_act\": \"gelu\", \"final_norm\": true, \"qk_norm\": " norms ", \"norm_pre\": " norms \
    ", \"fc_norm\": " norms ", \"distilled\": " distilled ", \"pool\": " #pool

/* What single families have beside that, or in its place. */
static const struct {
    const char *type, *keys;
} rows[] = {
    {"gpt2", "\"scale_attn_by_inverse_layer_idx\": true"},
    {"gpt_neox", "\"rotary_pct\": 0.5"},
    {"gpt_neox", "\"rotary_pct\": 0.5, \"use_parallel_residual\": false"},
    {"opt", ""},
    {"opt", "\"word_embed_proj_dim\": 8, \"do_layer_norm_before\": false"},
    {"llama", "\"attention_bias\": true, \"mlp_bias\": true"},
    {"llama", "\"rope_parameters\": {\"rope_type\": \"llama3\", \"rope_theta\": 100.0, \"factor\": 2.0, "
              "\"low_freq_factor\": 1.0, \"high_freq_factor\": 2.0, \"original_max_position_embeddings\": 8}"},
    {"qwen2", "\"use_sliding_window\": true, \"layer_types\": [\"full_attention\", \"sliding_attention\"]"},
    {"gemma2", "\"attn_logit_softcapping\": 1.5, \"final_logit_softcapping\": 3.0, \"query_pre_attn_scalar\": 7"},
    {"phi", "\"partial_rotary_factor\": 0.5, \"qk_layernorm\": true"},
    {"stablelm", "\"partial_rotary_factor\": 0.5, \"qk_layernorm\": true, \"use_parallel_residual\": true"},
    {"stablelm", "\"partial_rotary_factor\": 0.5, \"use_qkv_bias\": true"},
    {"granite", "\"residual_multiplier\": 0.6, \"logits_scaling\": 2.0, \"embedding_multiplier\": 1.5"},
    {"cohere", "\"use_qk_norm\": true"},
    {"falcon", "\"alibi\": true, \"bias\": true"},
    {"falcon", "\"new_decoder_architecture\": true, \"num_kv_heads\": 1"},
    {"falcon", "\"parallel_attn\": false, \"multi_query\": false"},
    {"gptj", "\"rotary_dim\": 2"},
    {"codegen", "\"rotary_dim\": 2"},
    {"gpt_neo", "\"window_size\": 3, \"attention_types\": [[[\"global\", \"local\"], 1]]"},
    {"gpt_bigcode", ""},
    {"gpt_bigcode", "\"multi_query\": false"},
    {"albert", "\"embedding_size\": 8"},
    {"electra", "\"embedding_size\": 8"},
    {"encoder-decoder", "\"activation_function\": \"relu\", \"layer_norm_eps\": 1e-5, \"scale_embedding\": true"},
    {"t5", ""},
    {"t5", "\"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false"},
    {"dinov2", ""},
    {"dinov2", "\"use_swiglu_ffn\": true"},
    {"timm_vit", TIMM("false", "true", 5)},
    {"timm_vit", TIMM("true", "false", 4)},
    {"timm_vit", TIMM("true", "false", 6)},
};

/* The sizes of what OpenNMT's config.json does not say. */
static nn_safetensors *parse_tables(void)
{
    static const char header[] =
        "{\"model.encoder.embed_tokens.weight\": {\"dtype\": \"U8\", \"shape\": [11], \"data_offsets\": [0, 11]},"
        "\"model.decoder.embed_tokens.weight\": {\"dtype\": \"U8\", \"shape\": [9], \"data_offsets\": [11, 20]},"
        "\"lm_head.weight\": {\"dtype\": \"U8\", \"shape\": [9], \"data_offsets\": [20, 29]}}";
    char bytes[8 + sizeof header - 1 + 29] = {(char)(sizeof header - 1), (char)((sizeof header - 1) >> 8)}, error[240];
    memcpy(bytes + 8, header, sizeof header - 1);
    nn_safetensors *file = NULL;
    nn_safetensors_parse(&file, bytes, sizeof bytes, "tables", error, sizeof error);
    return file;
}

static void describe(nn_description *d, const char *type, const char *keys, const char *architecture)
{
    char text[4000], error[240] = "";
    nn_safetensors *tables = strcmp(type, "encoder-decoder") ? NULL : parse_tables();
    nn_shards shards = {&tables, tables != NULL};
    nn_config config;
    const nn_family *family;
    const nn_head *head;
    snprintf(text, sizeof text, "{\"model_type\": \"%s\", \"architectures\": [\"Tiny%s\"], %s%s%s}", type, architecture,
             keys, *keys ? ", " : "", common);
    if (!nn_config_text(&config, text, "config.json", error, sizeof error) ||
        !nn_family_describe(d, &family, &head, &config, &shards, error, sizeof error)) {
        fprintf(stderr, "%s%s: %s\n", type, architecture, error);
        exit(1);
    }
    nn_safetensors_free(tables);
}

bool family_description(nn_description *d, int64_t n, char words[100])
{
    for (int64_t f = 0; nn_family_get(f); f++) {
        const nn_family *family = nn_family_get(f);
        int64_t configurations = 0, heads = 0;
        while (heads < NN_FAMILY_HEADS && family->heads[heads].architecture) heads++;
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) configurations += !strcmp(rows[k].type, family->type);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            bool own = strcmp(rows[k].type, family->type) == 0;
            if (!own && (configurations || k)) continue;
            if (n > heads) {
                n -= heads + 1;
                continue;
            }
            const char *architecture = n < heads ? family->heads[n].architecture : "Model";
            snprintf(words, 100, "%s%s", family->type, architecture);
            describe(d, family->type, own ? rows[k].keys : "", architecture);
            return true;
        }
    }
    return false;
}
