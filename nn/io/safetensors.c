/* Reading safetensors from a file or from memory.
 *
 * Both use the same code over bounds-checked `content`, so fuzzing the memory reader covers files, too. The order is:
 * check the header's length against the file size; read the header; check its records (safetensors_header.c); only then
 * allocate memory for the data and copy each tensor to an aligned address. A mapped file is content in memory; of its
 * tensors, only those that do not lie at a multiple of their element's size are copied. */
#include "io/safetensors.h"
#include "io/source.h"
#include "io/failure.h"
#include "io/file_map.h"
#include "io/safetensors_header.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are used as they lie in the file: little-endian");

struct nn_safetensors {
    nn_safetensors_header header; /* its tensors are finally sorted by name */
    unsigned char *block;         /* the data of the tensors that were copied */
    void *map;                    /* the mapped file; or NULL */
    size_t map_size;
};

/* Bytes from a file or from memory. */
typedef struct content {
    FILE *file;
    const unsigned char *bytes;
    uint64_t size;
    bool stay; /* tensors stay where they lie */
    nn_failure to;
} content;

/* ---- Types ------------------------------------------------------------------------------------------------------ */

static const struct {
    const char *word, *name;
    size_t size;
} dtypes[NN_SAFETENSORS_DTYPES] = {
    [NN_SAFETENSORS_BOOL] = {"BOOL", "bool", 1},
    [NN_SAFETENSORS_U8] = {"U8", "uint8", 1},
    [NN_SAFETENSORS_I8] = {"I8", "int8", 1},
    [NN_SAFETENSORS_F8_E5M2] = {"F8_E5M2", "float8_e5m2", 1},
    [NN_SAFETENSORS_F8_E4M3] = {"F8_E4M3", "float8_e4m3", 1},
    [NN_SAFETENSORS_F8_E8M0] = {"F8_E8M0", "float8_e8m0", 1},
    [NN_SAFETENSORS_U16] = {"U16", "uint16", 2},
    [NN_SAFETENSORS_I16] = {"I16", "int16", 2},
    [NN_SAFETENSORS_F16] = {"F16", "float16", 2},
    [NN_SAFETENSORS_BF16] = {"BF16", "bfloat16", 2},
    [NN_SAFETENSORS_U32] = {"U32", "uint32", 4},
    [NN_SAFETENSORS_I32] = {"I32", "int32", 4},
    [NN_SAFETENSORS_F32] = {"F32", "float32", 4},
    [NN_SAFETENSORS_U64] = {"U64", "uint64", 8},
    [NN_SAFETENSORS_I64] = {"I64", "int64", 8},
    [NN_SAFETENSORS_F64] = {"F64", "float64", 8},
    [NN_SAFETENSORS_C64] = {"C64", "complex64", 8},
};

const char *nn_safetensors_dtype_name(nn_safetensors_dtype dtype) { return dtypes[dtype].name; }
const char *nn_safetensors_dtype_word(nn_safetensors_dtype dtype) { return dtypes[dtype].word; }
size_t nn_safetensors_dtype_size(nn_safetensors_dtype dtype) { return dtypes[dtype].size; }

bool nn_safetensors_dtype_find(const char *word, nn_safetensors_dtype *dtype)
{
    int i = 0;
    while (i < NN_SAFETENSORS_DTYPES && strcmp(dtypes[i].word, word) != 0) i++;
    *dtype = (nn_safetensors_dtype)(i % NN_SAFETENSORS_DTYPES);
    return i < NN_SAFETENSORS_DTYPES;
}

const char *nn_safetensors_describe(char *out, size_t room, const nn_safetensors_tensor *tensor)
{
    size_t n = (size_t)snprintf(out, room, "%s (", dtypes[tensor->dtype].name);
    for (int i = 0; i < tensor->rank && n < room; i++)
        n += (size_t)snprintf(out + n, room - n, i ? ",%lld" : "%lld", (long long)tensor->shape[i]);
    if (n < room) snprintf(out + n, room - n, ")");
    return out;
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

static mha_status read_bytes(content *from, void *out, size_t bytes)
{
    if (!from->file) {
        memcpy(out, from->bytes, bytes);
        from->bytes += bytes;
        return MHA_OK;
    }
    if (fread(out, 1, bytes, from->file) == bytes) return MHA_OK;
    return nn_error(&from->to, MHA_BAD_FILE, "%s",
                    ferror(from->file) ? strerror(errno) : "the file was truncated while it was read");
}

/* Peeks at the next byte; EOF at the end. */
static int peek(content *from, uint64_t left)
{
    if (!left) return EOF;
    return from->file ? ungetc(getc(from->file), from->file) : from->bytes[0];
}

/* Reports why a header of n bytes is impossible with `left` bytes after its length: usually the file has another
 * format. */
static mha_status refuse_length(content *from, const unsigned char length[8], uint64_t n, uint64_t left)
{
    unsigned char first[NN_SOURCE_FIRST];
    size_t more = left < sizeof first - 8 ? (size_t)left : sizeof first - 8;
    int next = peek(from, left);
    bool other = next != EOF && next != '{';
    memcpy(first, length, 8);
    const char *is = read_bytes(from, first + 8, more) ? NULL : nn_source_foreign(first, 8 + more);
    if (is) return nn_error(&from->to, MHA_BAD_FILE, "%s", is);
    if (other) return nn_error(&from->to, MHA_BAD_FILE, "not a safetensors file");
    if (n > NN_SAFETENSORS_HEADER_MAX)
        return nn_error(&from->to, MHA_BAD_FILE,
                        "not a safetensors file: a header of %llu bytes is more than the %d allowed",
                        (unsigned long long)n, NN_SAFETENSORS_HEADER_MAX);
    return nn_error(&from->to, MHA_BAD_FILE,
                    "the header says %llu bytes, but the file has %llu after its length; the file is truncated",
                    (unsigned long long)n, (unsigned long long)left);
}

/* The length of the header, checked against the file. */
static mha_status read_length(content *from, size_t *length)
{
    unsigned char bytes[8];
    uint64_t n = 0;
    if (from->size < 8)
        return nn_error(&from->to, MHA_BAD_FILE, "%llu bytes are too few for a safetensors file",
                        (unsigned long long)from->size);
    if (from->size > SIZE_MAX / 2)
        return nn_error(&from->to, MHA_BAD_FILE, "the file is larger than the address space");
    TRY(read_bytes(from, bytes, 8));
    for (int i = 7; i >= 0; i--) n = n << 8 | bytes[i];
    if (n > from->size - 8 || n > NN_SAFETENSORS_HEADER_MAX) return refuse_length(from, bytes, n, from->size - 8);
    *length = (size_t)n;
    return MHA_OK;
}

static mha_status read_header(content *from, nn_safetensors_header *header)
{
    size_t length = 0;
    TRY(read_length(from, &length));
    unsigned char *json = malloc(length ? length : 1); /* exact size, so that a sanitizer detects reads beyond it */
    if (!json) return nn_error(&from->to, MHA_NO_MEMORY, "not enough memory for a header of %zu bytes", length);
    mha_status status = read_bytes(from, json, length);
    if (!status) status = nn_safetensors_header_read(header, json, length, from->size - 8 - length, &from->to);
    free(json);
    return status;
}

static size_t aligned(size_t bytes)
{
    return (bytes + NN_SAFETENSORS_ALIGN - 1) / NN_SAFETENSORS_ALIGN * NN_SAFETENSORS_ALIGN;
}

/* Whether a tensor can stay where it lies, which is `at`. */
static bool can_stay(const content *from, const nn_safetensors_tensor *tensor, const unsigned char *at)
{
    return from->stay && (uintptr_t)(at + tensor->begin) % dtypes[tensor->dtype].size == 0;
}

/* Copies each tensor, in the order of the file, to an aligned address. The sum cannot overflow: the tensors together
 * are no longer than the file, and NN_SAFETENSORS_HEADER_MAX limits their number. */
static mha_status read_data(content *from, nn_safetensors *file)
{
    nn_safetensors_header *header = &file->header;
    size_t total = NN_SAFETENSORS_ALIGN;
    const unsigned char *data = from->bytes;
    for (size_t i = 0; i < header->tensor_count; i++)
        if (!can_stay(from, &header->tensors[i], data))
            total += aligned((size_t)(header->tensors[i].end - header->tensors[i].begin));
    file->block = malloc(total);
    if (!file->block) return nn_error(&from->to, MHA_NO_MEMORY, "not enough memory for %zu bytes of tensors", total);
    unsigned char *at = file->block + (aligned((uintptr_t)file->block) - (uintptr_t)file->block);
    for (size_t i = 0; i < header->tensor_count; i++) {
        nn_safetensors_tensor *tensor = &header->tensors[i];
        size_t bytes = (size_t)(tensor->end - tensor->begin);
        if (can_stay(from, tensor, data)) {
            tensor->data = data + tensor->begin;
            from->bytes += bytes;
            continue;
        }
        tensor->data = at;
        TRY(read_bytes(from, at, bytes));
        at += aligned(bytes);
    }
    return MHA_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const nn_safetensors_tensor *)a)->name, ((const nn_safetensors_tensor *)b)->name);
}

static mha_status read_all(nn_safetensors **out, content *from)
{
    nn_safetensors *file = calloc(1, sizeof *file);
    if (!file) return nn_error(&from->to, MHA_NO_MEMORY, "out of memory");
    mha_status status = read_header(from, &file->header);
    if (!status) status = read_data(from, file);
    if (status) {
        nn_safetensors_free(file);
        return status;
    }
    if (file->header.tensor_count)
        qsort(file->header.tensors, file->header.tensor_count, sizeof *file->header.tensors, by_name);
    *out = file;
    return MHA_OK;
}

mha_status nn_safetensors_parse(nn_safetensors **file, const void *bytes, size_t size, const char *name, char *error,
                                size_t error_size)
{
    content from = {.bytes = bytes, .size = size, .to = {name, error, error_size}};
    *file = NULL;
    return read_all(file, &from);
}

/* Opens a regular file and finds its size. On error the descriptor is -1. Without O_NONBLOCK, opening a pipe without a
 * writer would block. */
static mha_status open_file(content *from, const char *path, int *descriptor)
{
    struct stat about;
    *descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    mha_status status = MHA_OK;
    if (*descriptor < 0 || fstat(*descriptor, &about))
        status = nn_error(&from->to, nn_status_of(errno), "%s", strerror(errno));
    else if (!S_ISREG(about.st_mode)) status = nn_error(&from->to, MHA_BAD_FILE, "not a regular file");
    else from->size = (uint64_t)about.st_size;
    if (status && *descriptor >= 0) close(*descriptor);
    return status;
}

mha_status nn_safetensors_map(nn_safetensors **file, const char *path, char *error, size_t error_size)
{
    content from = {.stay = true, .to = {path, error, error_size}};
    int descriptor;
    *file = NULL;
    TRY(open_file(&from, path, &descriptor));
    size_t size = (size_t)from.size;
    void *map = size ? nn_file_map(descriptor, size) : NULL;
    int number = errno;
    close(descriptor);
    if (size && !map) return nn_error(&from.to, nn_status_of(number), "cannot be mapped: %s", strerror(number));
    from.bytes = map;
    mha_status status = read_all(file, &from);
    if (!status) (*file)->map = map, (*file)->map_size = size;
    else nn_file_unmap(map, size);
    return status;
}

void nn_safetensors_forget(const nn_safetensors *file, const void *from, size_t bytes)
{
    nn_file_map_forget(file->map, file->map_size, from, bytes);
}

mha_status nn_safetensors_open(nn_safetensors **file, const char *path, char *error, size_t error_size)
{
    content from = {.to = {path, error, error_size}};
    int descriptor;
    *file = NULL;
    TRY(open_file(&from, path, &descriptor));
    from.file = fdopen(descriptor, "rb");
    if (!from.file) {
        int number = errno;
        close(descriptor);
        return nn_error(&from.to, nn_status_of(number), "%s", strerror(number));
    }
    mha_status status = read_all(file, &from);
    fclose(from.file);
    return status;
}

void nn_safetensors_free(nn_safetensors *file)
{
    if (!file) return;
    nn_safetensors_header_free(&file->header);
    free(file->block);
    nn_file_unmap(file->map, file->map_size);
    free(file);
}

/* ---- Lookup ----------------------------------------------------------------------------------------------------- */

size_t nn_safetensors_count(const nn_safetensors *file) { return file->header.tensor_count; }
const nn_safetensors_tensor *nn_safetensors_get(const nn_safetensors *file, size_t index)
{
    return &file->header.tensors[index];
}

const nn_safetensors_tensor *nn_safetensors_find(const nn_safetensors *file, const char *name)
{
    nn_safetensors_tensor key = {.name = name};
    if (!file->header.tensor_count) return NULL;
    return bsearch(&key, file->header.tensors, file->header.tensor_count, sizeof key, by_name);
}

size_t nn_safetensors_metadata_count(const nn_safetensors *file) { return file->header.pair_count; }
const char *nn_safetensors_metadata_key(const nn_safetensors *file, size_t index)
{
    return file->header.pairs[index].key;
}

const char *nn_safetensors_metadata(const nn_safetensors *file, const char *key)
{
    const nn_safetensors_header *header = &file->header;
    size_t low = 0, high = header->pair_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(key, header->pairs[middle].key);
        if (order == 0) return header->pairs[middle].value;
        if (order < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

bool nn_safetensors_view(const nn_safetensors_tensor *tensor, mha_tensor *view)
{
    mha_tensor dense = {.data = (void *)(uintptr_t)tensor->data, .rank = tensor->rank};
    switch (tensor->dtype) {
    case NN_SAFETENSORS_F32:
        dense.type = MHA_FLOAT32;
        break;
    case NN_SAFETENSORS_BF16:
        dense.type = MHA_BFLOAT16;
        break;
    case NN_SAFETENSORS_F16:
        dense.type = MHA_FLOAT16;
        break;
    case NN_SAFETENSORS_BOOL:
        dense.type = MHA_BOOL;
        break;
    case NN_SAFETENSORS_I64:
        dense.type = MHA_INT64;
        break;
    default:
        return false;
    }
    if (tensor->rank > 4) return false;
    int64_t stride = 1;
    for (int i = tensor->rank - 1; i >= 0; i--) {
        dense.size[i] = tensor->shape[i];
        dense.stride[i] = stride;
        if (tensor->shape[i]) stride *= tensor->shape[i];
    }
    *view = dense;
    return true;
}
