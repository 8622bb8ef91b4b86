/* Inside the reader: from the text of a safetensors header to records that have been checked against each other and
 * against the size of the data. The words and the limit of the format serve the writer, too. */
#ifndef SAFETENSORS_HEADER_H
#define SAFETENSORS_HEADER_H

#include "io/safetensors.h"

enum { SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000 }; /* the limit of the format's own library */

typedef struct safetensors_header {
    char *text; /* what names, keys and values point into */
    safetensors_tensor *tensors;
    safetensors_pair *pairs; /* sorted by key */
    size_t tensor_count, pair_count;
} safetensors_header;

/* Fills `header` from `length` bytes of JSON; the tensors come out in the order of their data, which they cover without
 * gap or overlap, and without `data`. False on error, with one line in `why`; `header` is to be freed either way. */
bool safetensors_header_read(safetensors_header *header, const void *bytes, size_t length, uint64_t data_size,
                             char *why, size_t why_size);
void safetensors_header_free(safetensors_header *header);

/* The dtype of a word such as "F32", false if there is none; and the word of a dtype. */
bool safetensors_dtype_find(const char *word, safetensors_dtype *dtype);
const char *safetensors_dtype_word(safetensors_dtype dtype);

#endif
