/* What the tensors of a Vision Transformer do not say, as metadata of its file: text that reads back to the same bits.
 *
 *     format "mha.vit", version "1"
 *     heads (num_heads), head_width, rows, columns (image_size: both)         whole numbers
 *     epsilon (norm_eps), dropout, mean (input_mean), deviation (input_std)   numbers
 *     activation                                                              linear, relu, gelu_erf, gelu_tanh or silu
 *     causal, pre_norm                                                        true or false
 *     pool                                                                    cls, mean or avg
 *
 * The words in brackets also stand for those before them. The same keys count inside the JSON object under the key
 * "config", if there is one; a key outside it counts before the same one inside. Other keys are passed over. */
#ifndef NN_FAMILIES_VIT_NOTES_H
#define NN_FAMILIES_VIT_NOTES_H

#include "io/safetensors.h"

typedef enum nn_vit_pool { NN_VIT_POOL_UNSAID, NN_VIT_POOL_CLASS, NN_VIT_POOL_MEAN } nn_vit_pool;

typedef struct nn_vit_notes {
    int64_t heads, head_width, rows, columns; /* 0: not said */
    float epsilon, dropout, mean, deviation;
    mha_activation activation;
    bool causal, pre_norm;
    nn_vit_pool pool;
} nn_vit_notes;

/* clang-format off */
#define NN_VIT_NOTES_DEFAULTS {0, 0, 0, 0, 1e-6f, 0.0f, 0.0f, 1.0f, MHA_GELU, false, true, NN_VIT_POOL_UNSAID}
/* clang-format on */

/* Puts what the metadata says into `notes` and leaves the rest. Returns false on error, with one line in `why`. */
bool nn_vit_notes_read(nn_vit_notes *notes, const nn_safetensors *file, char *why, size_t why_size);

/* What readers take for granted because the metadata does not say it, in words; "" if it says all of it: the epsilon,
 * the activation, the mean and the deviation, each of which changes every answer. */
const char *nn_vit_notes_assumed(char *out, size_t room, const nn_safetensors *file);

/* Whether readers take this key for part of the description. */
bool nn_vit_notes_reads(const char *key);

enum { NN_VIT_NOTES = 14 };

typedef struct nn_vit_notes_text {
    size_t count;
    nn_safetensors_pair pair[NN_VIT_NOTES]; /* values point into `text`: not to be copied */
    char text[NN_VIT_NOTES][32];
} nn_vit_notes_text;

void nn_vit_notes_write(nn_vit_notes_text *out, const nn_vit_notes *notes);

#endif
