/* A Whisper of one block in each stack, in a folder as `transformers` saves it: random weights, windows of a quarter of a
 * second, the letters of letters.h, and names of two languages and tasks. And sounds. */
#ifndef LISTENER_H
#define LISTENER_H

#include "cli/generate/letters.h"

enum { LISTENER_WIDTH = 16, LISTENER_BINS = 8, LISTENER_FRAMES = 24, LISTENER_TOKENS = 36 };

#define LISTENER_NAMES                                                                                                 \
    "{\"decoder_start_token_id\": 30, \"eos_token_id\": 29, \"lang_to_id\": {\"<|en|>\": 31, \"<|de|>\": 32},"         \
    " \"task_to_id\": {\"transcribe\": 33, \"translate\": 34}, \"no_timestamps_token_id\": 35, \"max_new_tokens\": 8," \
    " \"suppress_tokens\": [27, 28, 30, 31, 32, 33, 34, 35], \"begin_suppress_tokens\": [29]}"

static inline void listener_norm(letters_weights *w, const char *name)
{
    char part[100];
    snprintf(part, sizeof part, "%s.weight", name);
    letters_add(w, part, LISTENER_WIDTH, 0);
    snprintf(part, sizeof part, "%s.bias", name);
    letters_add(w, part, LISTENER_WIDTH, 0);
}

static inline void listener_linear(letters_weights *w, const char *name, int64_t rows, int64_t columns, bool bias)
{
    char part[100];
    snprintf(part, sizeof part, "%s.weight", name);
    letters_add(w, part, rows, columns);
    snprintf(part, sizeof part, "%s.bias", name);
    if (bias) letters_add(w, part, rows, 0);
}

static inline void listener_attention(letters_weights *w, const char *name)
{
    static const char *const products[] = {"q_proj", "k_proj", "v_proj", "out_proj"};
    char part[80];
    for (int n = 0; n < 4; n++) {
        snprintf(part, sizeof part, "%s.%s", name, products[n]);
        listener_linear(w, part, LISTENER_WIDTH, LISTENER_WIDTH, n != 1);
    }
    snprintf(part, sizeof part, "%s_layer_norm", name);
    listener_norm(w, part);
}

static inline void listener_stack(letters_weights *w, const char *stack, int64_t positions)
{
    char part[60];
    snprintf(part, sizeof part, "model.%s.embed_positions.weight", stack);
    letters_add(w, part, positions, LISTENER_WIDTH);
    snprintf(part, sizeof part, "model.%s.layers.0.self_attn", stack);
    listener_attention(w, part);
    if (stack[0] == 'd') listener_attention(w, "model.decoder.layers.0.encoder_attn");
    snprintf(part, sizeof part, "model.%s.layers.0.fc1", stack);
    listener_linear(w, part, 24, LISTENER_WIDTH, true);
    snprintf(part, sizeof part, "model.%s.layers.0.fc2", stack);
    listener_linear(w, part, LISTENER_WIDTH, 24, true);
    snprintf(part, sizeof part, "model.%s.layers.0.final_layer_norm", stack);
    listener_norm(w, part);
    snprintf(part, sizeof part, "model.%s.layer_norm", stack);
    listener_norm(w, part);
}

/* A convolution is a product with the bins and the three frames of each place. */
static inline void listener_convolution(letters_weights *w, const char *name, int64_t channels)
{
    listener_linear(w, name, LISTENER_WIDTH, channels * 3, true);
    nn_safetensors_item *item = &w->items[w->count - 2];
    const int64_t shape[3] = {LISTENER_WIDTH, channels, 3};
    *item = nn_safetensors_item_dense(w->names[w->count - 2], NN_SAFETENSORS_F32, 3, shape, w->data[w->count - 2]);
}

/* Makes the folder with that generation_config.json. Returns its path. */
static inline const char *listener_make(const char *name, const char *generation)
{
    static char folder[256];
    static letters_weights w;
    char path[300], error[300] = "";
    w = (letters_weights){.r = rng_make(33, 5)};
    snprintf(folder, sizeof folder, "%s", in_folder(name));
    expect(!mkdir(folder, 0700), "cannot make %s", folder);
    listener_convolution(&w, "model.encoder.conv1", LISTENER_BINS);
    listener_convolution(&w, "model.encoder.conv2", LISTENER_WIDTH);
    listener_stack(&w, "encoder", LISTENER_FRAMES / 2);
    letters_add(&w, "model.decoder.embed_tokens.weight", LISTENER_TOKENS, LISTENER_WIDTH);
    listener_stack(&w, "decoder", 20);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    expect(!nn_safetensors_write(path, w.items, w.count, NULL, 0, error, sizeof error), "%s", error);
    for (size_t n = 0; n < w.count; n++) free(w.data[n]);
    letters_file(
        folder, "config.json",
        "{\"architectures\": [\"WhisperForConditionalGeneration\"], \"model_type\": \"whisper\","
        " \"vocab_size\": 36, \"d_model\": 16, \"num_mel_bins\": 8, \"encoder_layers\": 1, \"decoder_layers\": 1,"
        " \"encoder_attention_heads\": 2, \"decoder_attention_heads\": 2, \"encoder_ffn_dim\": 24,"
        " \"decoder_ffn_dim\": 24, \"max_source_positions\": 12, \"max_target_positions\": 20,"
        " \"activation_function\": \"gelu\", \"scale_embedding\": false, \"tie_word_embeddings\": true}");
    letters_file(folder, "generation_config.json", generation);
    letters_tokenizer(folder);
    return folder;
}

/* A WAV file of 16 bits: a tone that rises. Returns its path. */
static inline const char *listener_sound(const char *name, int rate, int samples)
{
    static char path[300];
    unsigned char head[44] = "RIFF....WAVEfmt \x10\0\0\0\1\0\1\0........\2\0\x10\0data....";
    const unsigned numbers[][2] = {
        {4, 36 + 2 * (unsigned)samples}, {24, (unsigned)rate}, {28, 2 * (unsigned)rate}, {40, 2 * (unsigned)samples}};
    for (int n = 0; n < 4; n++)
        for (unsigned i = 0; i < 4; i++) head[numbers[n][0] + i] = (unsigned char)(numbers[n][1] >> 8 * i);
    snprintf(path, sizeof path, "%s", in_folder(name));
    FILE *file = fopen(path, "wb");
    expect(file && fwrite(head, 1, sizeof head, file) == sizeof head, "cannot write %s", path);
    for (int n = 0; file && n < samples; n++) {
        int sample = (int)(8000 * sin(1e-5 * n * n + 0.3 * n));
        fputc(sample & 255, file), fputc(sample >> 8 & 255, file);
    }
    if (file) fclose(file);
    return path;
}

#endif
