/* Learns the merges of byte-level BPE from a text, as the `tokenizers` library does: lines are split into words as GPT-2
 * does, and the most frequent pair of neighbours is merged, again and again; of equally frequent ones that with the
 * smaller ids. */
#ifndef NN_TEXT_TRAIN_BPE_TRAIN_H
#define NN_TEXT_TRAIN_BPE_TRAIN_H

#include "io/buffer.h"
#include "text/steps.h"

#include <stdint.h>

typedef struct nn_train_options {
    int64_t tokens;  /* of the vocabulary, with the special one and the 256 bytes */
    int64_t least;   /* occurrences of a pair */
    const char *end; /* the special token, id 0; "": none */
} nn_train_options;

/* Appends a tokenizer.json to `out`. `splitter` is that of byte-level BPE. `made` gets the number of its tokens.
 * Returns MHA_OK, MHA_NO_MEMORY or an error of the splitter. */
mha_status nn_train_bpe(nn_buffer *out, int64_t *made, const nn_steps *splitter, const char *text, size_t size,
                        const nn_train_options *options);

#endif
