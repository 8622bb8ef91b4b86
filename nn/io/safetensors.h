/* Files of named tensors in the safetensors format:
 *
 *     8 bytes          n, the length of the header, little-endian
 *     n bytes          JSON: {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [begin, end]}, ...}
 *                      and optionally "__metadata__": {"key": "text", ...}
 *     the rest         the data; offsets count from here, and the tensors cover it without gap or overlap
 *
 * A file is read whole and checked whole before anything is returned, so a `safetensors` in hand is sound: every tensor
 * has a known dtype, as many bytes as its shape needs, a name of its own, and lies inside the file. What is wrong with
 * a bad one is one line such as
 *
 *     layer.safetensors: tensor "in:Q" says 96 bytes, but float32 (2,3,4,8) needs 768
 *
 * Alignment: the format promises none. The reader therefore puts each tensor at its own place in memory, aligned to
 * NN_SAFETENSORS_ALIGN bytes, and `data` may be read through a pointer of the element's type.
 *
 * Memory: the file's size, plus NN_SAFETENSORS_ALIGN bytes a tensor, plus a small multiple of the header. A header that
 * claims more than the file holds costs nothing. */
#ifndef NN_IO_SAFETENSORS_H
#define NN_IO_SAFETENSORS_H

#include <mha.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { NN_SAFETENSORS_RANK = 8, NN_SAFETENSORS_ALIGN = 64 };

typedef enum nn_safetensors_dtype {
    NN_SAFETENSORS_BOOL,
    NN_SAFETENSORS_U8,
    NN_SAFETENSORS_I8,
    NN_SAFETENSORS_F8_E5M2,
    NN_SAFETENSORS_F8_E4M3,
    NN_SAFETENSORS_F8_E8M0,
    NN_SAFETENSORS_U16,
    NN_SAFETENSORS_I16,
    NN_SAFETENSORS_F16,
    NN_SAFETENSORS_BF16,
    NN_SAFETENSORS_U32,
    NN_SAFETENSORS_I32,
    NN_SAFETENSORS_F32,
    NN_SAFETENSORS_U64,
    NN_SAFETENSORS_I64,
    NN_SAFETENSORS_F64,
    NN_SAFETENSORS_C64,
    NN_SAFETENSORS_DTYPES
} nn_safetensors_dtype;

/* The word for people ("float32") and the bytes of one element. */
const char *nn_safetensors_dtype_name(nn_safetensors_dtype dtype);
size_t nn_safetensors_dtype_size(nn_safetensors_dtype dtype);

/* One tensor, dense and row-major. It belongs to its file and lives as long. */
typedef struct nn_safetensors_tensor {
    const char *name;
    nn_safetensors_dtype dtype;
    int rank;                           /* 0 to NN_SAFETENSORS_RANK */
    int64_t shape[NN_SAFETENSORS_RANK]; /* the product of the sizes that are not 0 fits 63 bits */
    int64_t count;                      /* elements */
    int64_t begin, end;                 /* where its bytes lie in the file's data */
    const void *data;                   /* aligned; never NULL, even for a tensor without elements */
} nn_safetensors_tensor;

/* An entry of the metadata. */
typedef struct nn_safetensors_pair {
    const char *key, *value;
} nn_safetensors_pair;

typedef struct nn_safetensors nn_safetensors;

/* Reads a file, or the `size` bytes of one in memory (copied; `name` stands for the path in messages). Returns NULL on
 * error, with its one line in `error`, of `error_size` bytes (240 hold any message but for a long path). */
nn_safetensors *nn_safetensors_open(const char *path, char *error, size_t error_size);
nn_safetensors *nn_safetensors_parse(const void *bytes, size_t size, const char *name, char *error, size_t error_size);

/* NULL is legal. */
void nn_safetensors_free(nn_safetensors *file);

/* The tensors in the order of their names: how many, one of them (index from 0 to count - 1), the one with that name or
 * NULL. */
size_t nn_safetensors_count(const nn_safetensors *file);
const nn_safetensors_tensor *nn_safetensors_get(const nn_safetensors *file, size_t index);
const nn_safetensors_tensor *nn_safetensors_find(const nn_safetensors *file, const char *name);

/* The metadata in the order of its keys: how many entries, a key by index, the text of a key or NULL. */
size_t nn_safetensors_metadata_count(const nn_safetensors *file);
const char *nn_safetensors_metadata_key(const nn_safetensors *file, size_t index);
const char *nn_safetensors_metadata(const nn_safetensors *file, const char *key);

/* The library's view of a tensor of up to four axes; false if the library has no such type or the rank is larger. */
bool nn_safetensors_view(const nn_safetensors_tensor *tensor, mha_tensor *view);

/* Writes "float32 (2,3,4,8)" for messages, cut to `room` bytes. Returns `out`. */
const char *nn_safetensors_describe(char *out, size_t room, const nn_safetensors_tensor *tensor);

#endif
