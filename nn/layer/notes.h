/* The options of a layer as metadata of a file: text that is read back to the same bits.
 *
 *     format "mha.layer", version "1"
 *     width, heads, kv_heads, head_width, value_head_width, key_width, value_width        whole numbers
 *     out_projection, causal, add_zero_attn (zero_kv), rotary_interleaved                 true or false, also True or False
 *     window_left, window_right (-1: unlimited), rotary_width                             whole numbers
 *     scale (absent: 1/sqrt(head_width)), softcap, dropout, norm_epsilon, rotary_base     numbers
 *     compute                                                                             float32 or bfloat16
 *
 * num_heads, n_head and num_attention_heads are synonyms of heads, num_key_value_heads of kv_heads; synonyms must
 * agree. Biases, gains, sinks and gates are present if their tensors are. */
#ifndef NN_LAYER_NOTES_H
#define NN_LAYER_NOTES_H

#include "io/safetensors.h"

enum { NN_LAYER_NOTES = 24, NN_LAYER_SIZE_MAX = 1 << 30 };

typedef struct nn_layer_notes {
    size_t count;
    nn_safetensors_pair pair[NN_LAYER_NOTES]; /* values point into `text`: do not copy the struct */
    char text[NN_LAYER_NOTES][32];
} nn_layer_notes;

/* All sizes in the options must be filled in. */
void nn_layer_notes_write(nn_layer_notes *notes, const mha_layer_options *options);

/* Sets the options that the metadata contain and leaves the others unchanged. Keys are read from any file, also from
 * other programs; keys not listed above are ignored. Returns false on error, with one line in `why`. */
bool nn_layer_notes_read(mha_layer_options *options, const nn_safetensors *file, char *why, size_t why_size);

/* Whether the metadata are complete, as nn_layer_notes_write writes them. */
bool nn_layer_notes_are_ours(const nn_safetensors *file);

#endif
