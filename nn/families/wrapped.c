#include "families/wrapped.h"
#include "io/buffer.h"
#include "io/json.h"
#include <stdio.h>
#include <string.h>

/* The checkpoints: models whose text model computes the same without pictures as by itself. */
static const char *const types[] = {"gemma3",     "mistral3", "llava",    "llava_next", "llava_onevision", "qwen2_vl",
                                    "qwen2_5_vl", "qwen3_vl", "internvl", "idefics3",   "smolvlm"};

/* The text models: their model_type there and by themselves, and what is usual, which their config may leave out. */
static const struct {
    const char *type, *family, *usual;
} texts[] = {
    {"gemma3_text", "gemma3_text",
     "\"vocab_size\":262208,\"hidden_size\":2304,\"intermediate_size\":9216,\"num_hidden_layers\":26,"
     "\"num_attention_heads\":8,\"max_position_embeddings\":131072"},
    {"llama", "llama",
     "\"vocab_size\":32000,\"hidden_size\":4096,\"intermediate_size\":11008,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"max_position_embeddings\":2048"},
    {"mistral", "mistral",
     "\"vocab_size\":32000,\"hidden_size\":4096,\"intermediate_size\":14336,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"max_position_embeddings\":131072"},
    {"qwen2", "qwen2",
     "\"vocab_size\":151936,\"hidden_size\":4096,\"intermediate_size\":22016,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"max_position_embeddings\":32768"},
    {"qwen2_vl_text", "qwen2",
     "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-5,\"max_window_layers\":80,\"rope_theta\":1000000"},
    {"qwen2_5_vl_text", "qwen2",
     "\"num_key_value_heads\":8,\"rms_norm_eps\":1e-5,\"max_window_layers\":80,\"rope_theta\":1000000"},
    {"qwen3_vl_text", "qwen3", "\"rope_theta\":500000"},
    {"qwen3", "qwen3", ""},
    {"ministral", "ministral", ""},
    {"ministral3", "ministral3", ""},
};

/* Where the text model's tensors lie: those that begin with "model.", and the others. */
static const char *const stems[] = {"model.language_model.", "language_model.model.", "model.text_model."};
static const char head[] = "language_model.";

/* Keys of the whole that count where the text model does not say them. */
static const char *const shared[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

enum { STEMS = sizeof stems / sizeof *stems, TEXTS = sizeof texts / sizeof *texts };

static bool is_wrapper(const char *type)
{
    for (size_t n = 0; n < sizeof types / sizeof *types; n++)
        if (strcmp(types[n], type) == 0) return true;
    return false;
}

const char *nn_wrapped_type(const nn_config *c)
{
    nn_fact f = nn_config_find(c, "text_of");
    for (size_t n = 0; n < sizeof types / sizeof *types; n++)
        if (nn_fact_is(f, types[n])) return types[n];
    return NULL;
}

static void put_fact(nn_buffer *out, const char *key, nn_fact f)
{
    if (f.text && !nn_fact_is_null(f)) nn_buffer_printf(out, "\"%s\":%.*s,", key, (int)f.size, f.text);
}

/* The last of several members with the same key counts: what is usual, then what the text model says, then what is known of
 * it. A head is tied if the file has no other numbers for it, and its logits are not capped: it belongs to the whole. */
static void write_text(nn_buffer *out, const nn_config *c, const char *type, nn_fact text, int kind)
{
    char architecture[128] = "";
    nn_buffer_printf(out, "{%s%s", texts[kind].usual, *texts[kind].usual ? "," : "");
    for (size_t k = 0; k < sizeof shared / sizeof *shared; k++) put_fact(out, shared[k], nn_config_find(c, shared[k]));
    nn_buffer_put(out, text.text + 1, text.size - 2);
    nn_buffer_printf(out,
                     "%s\"model_type\":\"%s\",\"text_of\":\"%s\",\"tie_word_embeddings\":true,"
                     "\"final_logit_softcapping\":null,",
                     nn_fact_count(text) > 0 ? "," : "", texts[kind].family, type);
    put_fact(out, "quantization_config", nn_config_find(c, "quantization_config"));
    if (!nn_fact_string(nn_fact_item(nn_config_find(c, "architectures"), 0), architecture, sizeof architecture) ||
        strstr(architecture, "ForConditionalGeneration"))
        snprintf(architecture, sizeof architecture, "ForCausalLM");
    for (char *at = architecture; *at; at++) /* which goes into JSON again */
        if (*at == '"' || *at == '\\' || (unsigned char)*at < 32) *at = '?';
    nn_buffer_printf(out, "\"architectures\":[\"%s\"]}", architecture);
}

/* The object that says what reads text: text_config, or in Qwen 2 VL of version 4, all of it. */
static bool find_text(const nn_config *c, const char *type, nn_fact *text, int *kind, const nn_failure *to)
{
    char own[80] = "";
    *text = nn_config_find(c, "text_config");
    bool whole = !text->text || *text->text != '{';
    if (!whole) nn_fact_string(nn_fact_find(*text, "model_type"), own, sizeof own);
    else if (strcmp(type, "qwen2_vl") == 0 || strcmp(type, "qwen2_5_vl") == 0) {
        snprintf(own, sizeof own, "%s_text", type);
        *text = nn_fact_of(c->text, c->size);
        while (text->size && *text->text != '{') text->text++, text->size--;
        while (text->size && text->text[text->size - 1] != '}') text->size--;
    } else return nn_fail(to, "has no text_config, which says what reads text");
    for (*kind = 0; *kind < TEXTS; ++*kind)
        if (strcmp(texts[*kind].type, own) == 0) return true;
    return nn_fail(to, "text_config.model_type is %s, which is not supported in a model of type %s",
                   nn_json_brief(own).text, type);
}

bool nn_wrapped_open(nn_config *c, const nn_failure *to)
{
    char type[64];
    int kind = 0;
    nn_fact text = {NULL, 0};
    nn_buffer out = {0};
    if (!nn_fact_string(nn_config_find(c, "model_type"), type, sizeof type) || !is_wrapper(type)) return true;
    if (!find_text(c, type, &text, &kind, to)) return false;
    write_text(&out, c, type, text, kind);
    nn_buffer_putc(&out, '\0');
    if (out.failed) {
        nn_buffer_free(&out);
        return nn_fail(to, "out of memory");
    }
    nn_config_free(c);
    c->text = out.bytes, c->size = out.size - 1;
    return true;
}

const char *nn_wrapped_name(char *out, size_t room, const char *name, int n)
{
    static const char model[] = "model.";
    bool inner = strncmp(name, model, strlen(model)) == 0;
    if (n >= (inner ? STEMS : 1)) return NULL;
    snprintf(out, room, "%s%s", inner ? stems[n] : head, inner ? name + strlen(model) : name);
    return out;
}

bool nn_wrapped_is_text(const char *name)
{
    static const char *const plain[] = {"model.layers.", "model.embed_tokens.", "model.norm.", "lm_head."};
    for (int n = 0; n < STEMS; n++)
        if (strncmp(name, stems[n], strlen(stems[n])) == 0) return true;
    for (size_t n = 0; n < sizeof plain / sizeof *plain; n++)
        if (strncmp(name, plain[n], strlen(plain[n])) == 0) return true;
    return strncmp(name, head, strlen(head)) == 0;
}
