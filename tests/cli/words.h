/* A BERT of one block with random weights and a vocabulary of a few words, in a folder as `transformers` saves it. */
#ifndef WORDS_H
#define WORDS_H

#include "cli/generate/letters.h"

#include <mha_model.h>

enum { WORDS = 16, WORDS_WIDTH = 16, WORDS_MASK = 4, WORDS_POSITIONS = 12 };

/* Makes the folder, of a masked language model or, without `head`, of a bare encoder. Returns its path. */
static inline const char *words_make(const char *name, bool head)
{
    static char folder[256];
    static letters_weights w;
    static const char *const rows[] = {"word", "position", "token_type"};
    static const char *const parts[] = {"attention.self.query",       "attention.self.key", "attention.self.value",
                                        "attention.output.dense",     "intermediate.dense", "output.dense",
                                        "attention.output.LayerNorm", "output.LayerNorm"};
    const char *before = head ? "bert." : "";
    char part[64], path[300], error[300] = "";
    w = (letters_weights){.r = rng_make(5, 6)};
    snprintf(folder, sizeof folder, "%s", in_folder(name));
    expect(!mkdir(folder, 0700), "cannot make %s", folder);
    for (int n = 0; n < 3; n++) {
        snprintf(part, sizeof part, "%sembeddings.%s_embeddings.weight", before, rows[n]);
        letters_add(&w, part, n == 0 ? WORDS : n == 1 ? WORDS_POSITIONS : 2, WORDS_WIDTH);
    }
    for (int bias = 0; bias < 2; bias++) {
        const char *kind = bias ? "bias" : "weight";
        snprintf(part, sizeof part, "%sembeddings.LayerNorm.%s", before, kind);
        letters_add(&w, part, WORDS_WIDTH, 0);
        for (int n = 0; n < 8; n++) {
            snprintf(part, sizeof part, "%sencoder.layer.0.%s.%s", before, parts[n], kind);
            letters_add(&w, part, n == 4 ? 24 : WORDS_WIDTH, bias || n > 5 ? 0 : n == 5 ? 24 : WORDS_WIDTH);
        }
    }
    if (head) {
        letters_add(&w, "cls.predictions.transform.dense.weight", WORDS_WIDTH, WORDS_WIDTH);
        letters_add(&w, "cls.predictions.transform.dense.bias", WORDS_WIDTH, 0);
        letters_add(&w, "cls.predictions.transform.LayerNorm.weight", WORDS_WIDTH, 0);
        letters_add(&w, "cls.predictions.transform.LayerNorm.bias", WORDS_WIDTH, 0);
        letters_add(&w, "cls.predictions.bias", WORDS, 0);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    expect(!nn_safetensors_write(path, w.items, w.count, NULL, 0, error, sizeof error), "%s", error);
    for (size_t n = 0; n < w.count; n++) free(w.data[n]);
    snprintf(path, sizeof path,
             "{\"architectures\": [\"%s\"], \"model_type\": \"bert\", \"vocab_size\": 16, \"hidden_size\": 16,"
             " \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"intermediate_size\": 24,",
             head ? "BertForMaskedLM" : "BertModel");
    char config[600];
    snprintf(config, sizeof config,
             "%s \"max_position_embeddings\": 12, \"type_vocab_size\": 2, \"hidden_act\": \"gelu\","
             " \"layer_norm_eps\": 1e-12, \"pad_token_id\": 0}",
             path);
    letters_file(folder, "config.json", config);
    letters_file(folder, "vocab.txt",
                 "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\ncat\ndog\nsat\non\nmat\na\nsaw\nand\nran\n##s\n");
    return folder;
}

/* Runs the model of a folder, without the command, on one sequence: its logits (T,classes) and, unless NULL, the hidden states
 * (L+1,1,T,width). */
static inline void words_run(const char *folder, const int32_t *ids, int64_t T, float *logits, int64_t classes,
                             float *hidden, int64_t layers, int64_t width)
{
    mha_context *ctx = NULL;
    mha_model *model = NULL;
    mha_model_inputs in = {.tokens = mha_tensor_2d(ids, MHA_INT32, 1, T)};
    mha_model_outputs out = {.logits = mha_tensor_3d(logits, MHA_FLOAT32, 1, T, classes)};
    if (hidden) out.hidden = mha_tensor_4d(hidden, MHA_FLOAT32, layers, 1, T, width);
    expect(!mha_context_create(&ctx, NULL), "no context");
    expect(!mha_model_open(ctx, &model, folder, NULL) && !mha_model_run(ctx, model, &out, &in), "%s",
           mha_context_error(ctx));
    mha_model_free(model);
    mha_context_free(ctx);
}

/* The numbers of a JSON array; returns how many there are. */
static inline int words_numbers(const char *array, double *to, int most)
{
    int count = 0;
    const char *at = strchr(array, '[');
    while (at && count < most && *at != ']') {
        char *end;
        to[count] = strtod(at + 1, &end);
        if (end == at + 1) break;
        count++;
        at = end + strspn(end, " \n");
        if (*at != ',') break;
    }
    return count;
}

/* A usage error: exit 2, one line that says `says`, nothing on standard output. */
static inline void words_refused(const char *line, const char *says)
{
    const said *it = command("LC_ALL=C", line);
    expect(it->status == 2 && one_line(it->err) && !*it->out, "%s: status %d, %s%s", line, it->status, it->out,
           it->err);
    expect(strstr(it->err, says) != NULL, "%s: \"%s\" does not say \"%s\"", line, it->err, says);
}

#endif
