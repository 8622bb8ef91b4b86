/* Files of named tensors in the safetensors format:
 *
 *     8 bytes          n, the length of the header, little-endian
 *     n bytes          JSON: {"name": {"dtype": "F32", "shape": [2,3], "data_offsets": [begin, end]}, ...}
 *                      and optionally "__metadata__": {"key": "text", ...}
 *     the rest         the data; offsets count from here, and the tensors cover it without gap or overlap
 *
 * The whole file is read and checked before anything is returned: every tensor has a known dtype, a unique name, as
 * many bytes as its shape needs, and lies inside the file. Errors are one line such as
 *
 *     layer.safetensors: tensor "in:Q" says 96 bytes, but float32 (2,3,4,8) needs 768
 *
 * Alignment: the format guarantees none. The reader therefore copies each tensor to memory aligned to
 * NN_SAFETENSORS_ALIGN bytes, and `data` may be read through a pointer of the element's type.
 *
 * Memory: the file's size, plus NN_SAFETENSORS_ALIGN bytes per tensor, plus a small multiple of the header. For a
 * header that claims more than the file holds, nothing is allocated. */
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

/* The readable name ("float32") and the size of one element in bytes. */
const char *nn_safetensors_dtype_name(nn_safetensors_dtype dtype);
size_t nn_safetensors_dtype_size(nn_safetensors_dtype dtype);

/* One tensor, dense and row-major. It is owned by its file. */
typedef struct nn_safetensors_tensor {
    const char *name;
    nn_safetensors_dtype dtype;
    int rank;                           /* 0 to NN_SAFETENSORS_RANK */
    int64_t shape[NN_SAFETENSORS_RANK]; /* the product of the sizes that are not 0 fits in 63 bits */
    int64_t count;                      /* elements */
    int64_t begin, end;                 /* range of its bytes in the file's data */
    const void *data;                   /* aligned, of a mapped file to its element alone; never NULL, even for a tensor
                                           without elements */
} nn_safetensors_tensor;

/* An entry of the metadata. */
typedef struct nn_safetensors_pair {
    const char *key, *value;
} nn_safetensors_pair;

typedef struct nn_safetensors nn_safetensors;

/* Reads a file, or `size` bytes of one in memory (copied; `name` replaces the path in messages). On error *file is
 * NULL, and `error`, of `error_size` bytes (240 are enough unless the path is long), gets one line. */
mha_status nn_safetensors_open(nn_safetensors **file, const char *path, char *error, size_t error_size);
mha_status nn_safetensors_parse(nn_safetensors **file, const void *bytes, size_t size, const char *name, char *error,
                                size_t error_size);

/* The same without reading the data: the file is mapped, and its pages are read when they are used. A file that is
 * truncated by someone else while it is mapped ends the process with SIGBUS. */
mha_status nn_safetensors_map(nn_safetensors **file, const char *path, char *error, size_t error_size);

/* Lets pages of a mapped file go, those that lie between these bytes as a whole: they are read again where they are needed.
 * Nothing happens to memory that is not of the mapping. */
void nn_safetensors_forget(const nn_safetensors *file, const void *from, size_t bytes);

/* NULL is legal. */
void nn_safetensors_free(nn_safetensors *file);

/* The tensors, sorted by name: their number, a tensor by index (from 0 to count - 1), a tensor by name, or NULL. */
size_t nn_safetensors_count(const nn_safetensors *file);
const nn_safetensors_tensor *nn_safetensors_get(const nn_safetensors *file, size_t index);
const nn_safetensors_tensor *nn_safetensors_find(const nn_safetensors *file, const char *name);

/* The metadata, sorted by key: the number of entries, a key by index, the value of a key, or NULL. */
size_t nn_safetensors_metadata_count(const nn_safetensors *file);
const char *nn_safetensors_metadata_key(const nn_safetensors *file, size_t index);
const char *nn_safetensors_metadata(const nn_safetensors *file, const char *key);

/* The tensor as an mha_tensor of up to four axes; false if the type is not supported or the rank is larger. */
bool nn_safetensors_view(const nn_safetensors_tensor *tensor, mha_tensor *view);

/* Writes "float32 (2,3,4,8)" for messages, truncated to `room` bytes. Returns `out`. */
const char *nn_safetensors_describe(char *out, size_t room, const nn_safetensors_tensor *tensor);

#endif
