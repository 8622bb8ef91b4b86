/* Internal to the reader: parses a safetensors header and checks its records against each other and against the size of
 * the data. The dtype words and the header limit are also used by the writer. */
#ifndef NN_IO_SAFETENSORS_HEADER_H
#define NN_IO_SAFETENSORS_HEADER_H

#include "io/failure.h"
#include "io/safetensors.h"

enum { NN_SAFETENSORS_HEADER_MAX = 100 * 1000 * 1000 }; /* the limit of the format's own library */

typedef struct nn_safetensors_header {
    char *text; /* owns the memory of names, keys and values */
    nn_safetensors_tensor *tensors;
    nn_safetensors_pair *pairs; /* sorted by key */
    size_t tensor_count, pair_count;
} nn_safetensors_header;

/* Fills `header` from `length` bytes of JSON; the tensors are sorted by their data, which they cover without gap or
 * overlap; their `data` is not set. Free `header` in any case. */
mha_status nn_safetensors_header_read(nn_safetensors_header *header, const void *bytes, size_t length,
                                      uint64_t data_size, const nn_failure *to);
void nn_safetensors_header_free(nn_safetensors_header *header);

/* The dtype of a word such as "F32", or false if it is unknown; the word of a dtype. */
bool nn_safetensors_dtype_find(const char *word, nn_safetensors_dtype *dtype);
const char *nn_safetensors_dtype_word(nn_safetensors_dtype dtype);

#endif
