/* For tests of layers in files: files with the tensors that a list asks for, made in memory, and loaded. */
#ifndef LAYER_SPECS_H
#define LAYER_SPECS_H

#include "support/harness.h"
#include "layer/file.h"

/* A tensor of a file that is made here. Element (i,j) of the layer's part is painted(part,i,j). */
typedef struct spec {
    const char *name, *dtype;
    int rank;
    int64_t shape[3];
    nn_layer_part part;
    bool turned; /* lies as (in,out) */
} spec;

enum { SPECS = 16 };

/* Whole numbers below 251, which every float type holds. */
static inline float paint(nn_layer_part part, int64_t i, int64_t j)
{
    return (float)(((int)part * 37 + i * 11 + j * 5) % 251);
}

static inline mha_context *context(void)
{
    static mha_context *ctx;
    if (!ctx && mha_context_create(&ctx, NULL)) abort();
    return ctx;
}

__attribute__((destructor)) static void free_context(void) { mha_context_free(context()); }

static inline size_t width_of(const char *dtype)
{
    return strcmp(dtype, "F64") == 0 ? 8 : strcmp(dtype, "F32") == 0 ? 4 : 2;
}

static inline void put_number(unsigned char *to, const char *dtype, float number)
{
    double wide = (double)number;
    mha_tensor from = mha_tensor_1d(&number, MHA_FLOAT32, 1);
    if (strcmp(dtype, "F64") == 0) memcpy(to, &wide, sizeof wide);
    else if (strcmp(dtype, "F32") == 0) memcpy(to, &number, sizeof number);
    else {
        uint16_t half = 0;
        mha_type type = strcmp(dtype, "BF16") == 0 ? MHA_BFLOAT16 : MHA_FLOAT16;
        expect(mha_tensor_copy(context(), mha_tensor_1d(&half, type, 1), from) == MHA_OK, "no copy");
        memcpy(to, &half, sizeof half);
    }
}

/* The file of `count` tensors, and of metadata such as "\"heads\":\"2\"", or "". */
static inline nn_safetensors *make(const spec *specs, int count, const char *metadata, char *error, size_t error_size)
{
    static unsigned char file[1 << 16];
    static char header[1 << 13];
    size_t n = (size_t)snprintf(header, sizeof header, "{\"__metadata__\":{%s}", metadata), at = 0, size;
    for (int s = 0; s < count; s++) {
        size_t begin = at;
        int64_t elements = 1;
        for (int i = 0; i < specs[s].rank; i++) elements *= specs[s].shape[i];
        at += (size_t)elements * width_of(specs[s].dtype);
        n += (size_t)snprintf(header + n, sizeof header - n, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", specs[s].name,
                              specs[s].dtype);
        for (int i = 0; i < specs[s].rank; i++)
            n += (size_t)snprintf(header + n, sizeof header - n, i ? ",%lld" : "%lld", (long long)specs[s].shape[i]);
        n += (size_t)snprintf(header + n, sizeof header - n, "],\"data_offsets\":[%zu,%zu]}", begin, at);
    }
    n += (size_t)snprintf(header + n, sizeof header - n, "}");
    size = 8 + n + at;
    if (!expect(size < sizeof file && n < sizeof header - 1, "a file too large for this test")) return NULL;
    memset(file, 0, size);
    file[0] = (unsigned char)n, file[1] = (unsigned char)(n >> 8);
    memcpy(file + 8, header, n);
    unsigned char *data = file + 8 + n;
    for (int s = 0; s < count; s++) {
        int64_t columns = specs[s].rank ? specs[s].shape[specs[s].rank - 1] : 1, elements = 1;
        for (int i = 0; i < specs[s].rank; i++) elements *= specs[s].shape[i];
        for (int64_t e = 0; e < elements; e++, data += width_of(specs[s].dtype)) {
            int64_t i = e / columns, j = e % columns;
            bool vector = specs[s].rank != 2;
            put_number(data, specs[s].dtype,
                       paint(specs[s].part, vector || specs[s].turned ? j : i,
                             vector            ? 0
                             : specs[s].turned ? i
                                               : j));
        }
    }
    nn_safetensors *read;
    nn_safetensors_parse(&read, file, size, "layer.safetensors", error, error_size);
    return read;
}

static inline bool load(nn_layer_file *out, const spec *specs, int count, const char *metadata,
                        const nn_layer_file_options *options, char *error, size_t error_size)
{
    error[0] = 0;
    *out = (nn_layer_file){0};
    nn_safetensors *file = make(specs, count, metadata, error, error_size);
    bool ok = file && nn_layer_file_read(out, context(), file, "layer.safetensors", options, error, error_size);
    nn_safetensors_free(file);
    return ok;
}

#endif
