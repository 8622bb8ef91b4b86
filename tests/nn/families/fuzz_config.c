/* A fuzz target for config.json, generation_config.json and model.safetensors.index.json: any bytes must either be refused
 * with one line, or give a description that makes sense, settings that can be freed, or shards whose tensors are all there. */
#include "families/family.h"
#include "families/wrapped.h"
#include "generate/config.h"
#include "generate/speech.h"

#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIKED "{}[]\":,.-0123456789eE \\u"
#define SMALL                                                                                        \
    "\"vocab_size\": 50, \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4," \
    " \"intermediate_size\": 24, \"max_position_embeddings\": 64"
#define PAIR                                                                                                           \
    "\"vocab_size\": 50, \"d_model\": 16, \"encoder_layers\": 1, \"decoder_layers\": 1, \"encoder_attention_heads\": " \
    "2,"                                                                                                               \
    " \"decoder_attention_heads\": 2, \"encoder_ffn_dim\": 24, \"decoder_ffn_dim\": 24"

static const char *const seeds[] = {
    "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], " SMALL ", \"num_key_value_heads\": 2,"
    " \"rms_norm_eps\": 1e-6, \"rope_theta\": 1e4, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0,"
    " \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 32}}",
    "{\"model_type\": \"phi3\", " SMALL ", \"original_max_position_embeddings\": 32, \"rope_parameters\":"
    " {\"rope_type\": \"longrope\", \"rope_theta\": 1e4, \"short_factor\": [1.0, 2.0], \"long_factor\": [3, 4.5]}}",
    "{\"model_type\": \"gemma3_text\", " SMALL ", \"head_dim\": 8, \"sliding_window\": 8, \"layer_types\":"
    " [\"sliding_attention\", \"full_attention\"], \"query_pre_attn_scalar\": 8, \"rope_parameters\": "
    "{\"full_attention\":"
    " {\"rope_type\": \"linear\", \"factor\": 8}, \"sliding_attention\": {\"rope_type\": \"default\"}}}",
    "{\"model_type\": \"gpt_oss\", " SMALL ", \"num_local_experts\": 4, \"num_experts_per_tok\": 2, \"rope_scaling\":"
    " {\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32, \"beta_slow\": 1, \"truncate\": false}}",
    "{\"model_type\": \"falcon\", " SMALL ", \"new_decoder_architecture\": true, \"num_kv_heads\": 2, \"alibi\": true}",
    "{\"model_type\": \"gpt_neo\", " SMALL ", \"attention_types\": [[[\"global\", \"local\"], 1]], \"window_size\": 4}",
    "{\"model_type\": \"gemma3\", \"eos_token_id\": [1, 2], \"text_config\": {\"model_type\": \"gemma3_text\", " SMALL
    "}}",
    "{\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], " SMALL ","
    " \"type_vocab_size\": 2, \"hidden_act\": \"gelu\", \"id2label\": {\"0\": \"a\", \"1\": \"b\"}}",
    "{\"model_type\": \"t5\", \"vocab_size\": 50, \"d_model\": 16, \"d_kv\": 4, \"d_ff\": 24, \"num_layers\": 2,"
    " \"num_heads\": 4, \"relative_attention_num_buckets\": 8, \"feed_forward_proj\": \"gated-gelu\"}",
    "{\"model_type\": \"whisper\", " PAIR ", \"num_mel_bins\": 8, \"max_source_positions\": 12, \"forced_decoder_ids\":"
    " [[1, null], [2, 9]]}",
    "{\"model_type\": \"dinov2\", \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,"
    " \"image_size\": [28, 14], \"patch_size\": 14, \"mlp_ratio\": 4, \"use_swiglu_ffn\": true, \"layerscale_value\": "
    "1.0}",
    "{\"do_sample\": true, \"temperature\": 0.5, \"top_k\": 3, \"eos_token_id\": [1, 2], \"bad_words_ids\": [[3, 4], "
    "[5]],"
    " \"suppress_tokens\": [7], \"early_stopping\": \"never\", \"num_beams\": 4, \"typical_p\": 1.0,"
    " \"lang_to_id\": {\"<|en|>\": 3}, \"task_to_id\": {\"transcribe\": 4}, \"is_multilingual\": true,"
    " \"no_timestamps_token_id\": 5, \"language\": \"en\", \"forced_decoder_ids\": [[1, 3], [2, null]]}",
    "{\"metadata\": {\"total_size\": 8}, \"weight_map\": {\"w\": \"a.safetensors\", \"v\": \"b.safetensors\"}}",
    "{\"weight_map\": [28, 14]}",
};
enum { SEEDS = sizeof seeds / sizeof *seeds, FIXED = 1 };

static size_t make_seed(uint8_t *bytes, size_t room, unsigned which)
{
    size_t size = strlen(seeds[which % SEEDS]);
    if (size > room) return 0;
    memcpy(bytes, seeds[which % SEEDS], size);
    return size;
}

/* Bytes that no JSON has outside of strings become some that it has, and now and then a number becomes a huge one. */
static void repair(uint8_t *bytes, size_t size)
{
    bytes[0] = '{';
    for (size_t n = 1; n < size; n++)
        if (bytes[n] < ' ' || bytes[n] > '~') bytes[n] = (uint8_t) "0123456789,:\"{}[]-.e"[bytes[n] % 20];
    size_t at = size > 2 ? bytes[size / 2] * (size - 2) / 127 : 0;
    while (at && at + 1 < size && (bytes[at] < '0' || bytes[at] > '9')) at++;
    if (at && at + 3 < size && size % 4 == 0 && bytes[at + 1] == ',')
        memmove(bytes + at + 3, bytes + at + 1, size - at - 3), memcpy(bytes + at, "9e9", 3);
}

#include "support/fuzz.h"

static void require(int held, const char *what)
{
    if (held) return;
    fprintf(stderr, "fuzz_config: %s\n", what);
    abort();
}

static void refused(const char *error) { require(error[0] && !strchr(error, '\n'), "refused without one line"); }

static void describe(const nn_config *given)
{
    char error[500] = "", text[200];
    const nn_failure to = {"f", error, sizeof error};
    nn_description d;
    const nn_family *family;
    const nn_head *head;
    nn_shards none = {0};
    nn_config c = {strdup(given->text), given->size, given->name};
    require(c.text != NULL, "no memory");
    if (!nn_wrapped_open(&c, &to) || !nn_family_describe(&d, &family, &head, &c, &none, error, sizeof error))
        refused(error);
    else
        require(!nn_description_problem(&d, text, sizeof text) && nn_parameter_count(&d) > 0,
                "a description of nothing");
    nn_config_free(&c);
}

static void read_settings(const nn_config *c)
{
    char error[500] = "";
    const nn_failure to = {"f", error, sizeof error};
    nn_generation_config generation;
    nn_speech_config speech;
    nn_speech_prompt prompt;
    nn_generation_config_defaults(&generation);
    if (!nn_generation_config_read(&generation, c->text, c->size, &to)) refused(error);
    nn_generation_config_free(&generation);
    nn_speech_config_defaults(&speech);
    if (!nn_speech_config_read(&speech, c->text, c->size, &to)) refused(error);
    else if (nn_speech_prompt_make(&prompt, &speech, 1, NULL, NULL, &to))
        require(prompt.count > 0 && prompt.count <= NN_SPEECH_PROMPT, "a prompt without tokens");
    nn_speech_config_free(&speech);
}

/* ---- The index: a folder with two shards ------------------------------------------------------------------------ */

static char folder[] = "/tmp/mha-fuzz-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(in_folder(name), "wb");
    require(file && fwrite(bytes, 1, size, file) == size && !fclose(file), "cannot write");
}

static void clean(void)
{
    static const char *const names[] = {"a.safetensors", "b.safetensors", "model.safetensors.index.json"};
    for (int n = 0; n < 3; n++) unlink(in_folder(names[n]));
    rmdir(folder);
}

static void make_folder(void)
{
    static const char *const headers[] = {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                                          "{\"v\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"};
    if (!strstr(folder, "XXXXXX")) return;
    require(mkdtemp(folder) != NULL, "no folder");
    atexit(clean);
    for (int n = 0; n < 2; n++) {
        char bytes[128] = {(char)strlen(headers[n])};
        memcpy(bytes + 8, headers[n], strlen(headers[n]));
        write_file(n ? "b.safetensors" : "a.safetensors", bytes, 8 + strlen(headers[n]) + 4);
    }
}

static void open_index(const uint8_t *bytes, size_t size)
{
    char error[500] = "";
    nn_shards shards;
    make_folder();
    write_file("model.safetensors.index.json", bytes, size);
    if (!nn_shards_open(&shards, folder, true, error, sizeof error)) {
        refused(error);
        return;
    }
    for (int64_t n = 0; n < nn_shards_tensors(&shards); n++)
        require(nn_shards_get(&shards, n)->count == 1, "a tensor of nothing");
    nn_shards_close(&shards);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char error[500] = "", *text = malloc(size + 1);
    nn_config c;
    require(text != NULL, "no memory");
    memcpy(text, bytes, size);
    text[size] = 0;
    if (strstr(text, "weight_map")) open_index(bytes, size);
    else if (!nn_config_text(&c, text, "f", error, sizeof error)) refused(error);
    else {
        describe(&c);
        read_settings(&c);
    }
    free(text);
    return 0;
}
