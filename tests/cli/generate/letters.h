/* A language model of the 26 letters, in a folder as `transformers` saves it: a Llama of two blocks with random weights, and
 * a tokenizer with one token for each letter, the space, the two bytes of an e with an accent, and an end token. */
#ifndef LETTERS_H
#define LETTERS_H

#include "cli/command.h"
#include "io/safetensors_write.h"

#include <sys/stat.h>

enum { LETTERS = 30, LETTERS_END = 29, LETTERS_WIDTH = 16 };

static inline void letters_file(const char *folder, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    expect(file && fputs(text, file) >= 0, "cannot write %s", path);
    if (file) fclose(file);
}

static inline void letters_tokenizer(const char *folder)
{
    char vocab[1000] = "", text[2000];
    for (int n = 0; n < 26; n++) snprintf(vocab + strlen(vocab), 16, "\"%c\": %d, ", 'a' + n, n);
    snprintf(text, sizeof text,
             "{\"version\": \"1.0\", \"added_tokens\": [{\"id\": %d, \"content\": \"<end>\", \"special\": true,"
             " \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false}],"
             " \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": false},"
             " \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": \"BPE\", \"merges\": [],"
             " \"vocab\": {%s\"\xC4\xA0\": 26, \"\xC3\x83\": 27, \"\xC2\xA9\": 28, \"<end>\": %d}}}",
             LETTERS_END, vocab, LETTERS_END);
    letters_file(folder, "tokenizer.json", text);
}

typedef struct letters_weights {
    nn_safetensors_item items[64];
    char names[64][120];
    float *data[64];
    size_t count;
    rng r;
} letters_weights;

static inline void letters_add(letters_weights *w, const char *name, int64_t rows, int64_t columns)
{
    const int64_t shape[2] = {rows, columns};
    int64_t count = columns ? rows * columns : rows;
    float *data = w->data[w->count] = malloc((size_t)count * sizeof *data);
    for (int64_t n = 0; n < count; n++) data[n] = columns ? (float)rng_normal(&w->r) * 0.4f : 1;
    snprintf(w->names[w->count], sizeof w->names[0], "%s", name);
    w->items[w->count] =
        nn_safetensors_item_dense(w->names[w->count], NN_SAFETENSORS_F32, columns ? 2 : 1, shape, data);
    w->count++;
}

/* Makes the folder; `generation` is its generation_config.json, or NULL. Returns its path. */
static inline const char *letters_make(const char *name, const char *generation)
{
    static char folder[256];
    static letters_weights w;
    char path[300], error[300] = "", part[64];
    const char *const square[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    w = (letters_weights){.r = rng_make(21, 4)};
    snprintf(folder, sizeof folder, "%s", in_folder(name));
    expect(!mkdir(folder, 0700), "cannot make %s", folder);
    letters_add(&w, "model.embed_tokens.weight", LETTERS, LETTERS_WIDTH);
    letters_add(&w, "model.norm.weight", LETTERS_WIDTH, 0);
    letters_add(&w, "lm_head.weight", LETTERS, LETTERS_WIDTH);
    for (int l = 0; l < 2; l++) {
        for (int n = 0; n < 4; n++) {
            snprintf(part, sizeof part, "model.layers.%d.self_attn.%s.weight", l, square[n]);
            letters_add(&w, part, LETTERS_WIDTH, LETTERS_WIDTH);
        }
        for (int n = 0; n < 5; n++) {
            static const char *const rest[] = {"input_layernorm", "post_attention_layernorm", "mlp.gate_proj",
                                               "mlp.up_proj", "mlp.down_proj"};
            snprintf(part, sizeof part, "model.layers.%d.%s.weight", l, rest[n]);
            letters_add(&w, part, n == 2 || n == 3 ? 24 : LETTERS_WIDTH, n < 2 ? 0 : n < 4 ? LETTERS_WIDTH : 24);
        }
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    expect(!nn_safetensors_write(path, w.items, w.count, NULL, 0, error, sizeof error), "%s", error);
    for (size_t n = 0; n < w.count; n++) free(w.data[n]);
    letters_file(
        folder, "config.json",
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"vocab_size\": 30,"
        " \"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 24,"
        " \"max_position_embeddings\": 256, \"rms_norm_eps\": 1e-6, \"eos_token_id\": 29}");
    if (generation) letters_file(folder, "generation_config.json", generation);
    letters_tokenizer(folder);
    return folder;
}

#endif
