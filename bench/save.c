/* The arrays of a measurement as a safetensors file, so that another program can do the same work on the same numbers
 * and compare its results. */
#include "bench.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int64_t bytes_of(const mha_tensor *t)
{
    int64_t bytes = (int64_t)mha_type_size(t->type);
    for (int i = 0; i < t->rank; i++) bytes *= t->size[i];
    return bytes;
}

static const char *dtype_of(mha_type type)
{
    return type == MHA_FLOAT32 ? "F32" : type == MHA_BFLOAT16 ? "BF16" : "F16";
}

/* An entry of the header for one tensor; returns how long it is. */
static size_t describe(char *out, size_t room, const bench_saved *array, int64_t begin)
{
    const mha_tensor *t = &array->tensor;
    int64_t end = begin + bytes_of(t);
    int n = snprintf(out, room, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", array->name, dtype_of(t->type));
    for (int i = 0; i < t->rank; i++)
        n += snprintf(out + n, room - (size_t)n, "%s%lld", i ? "," : "", (long long)t->size[i]);
    n += snprintf(out + n, room - (size_t)n, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)end);
    return (size_t)n;
}

/* Blanks at its end put the data on a cache line. */
static size_t make_header(char *out, size_t room, const bench_setting *set, bench_about about,
                          const bench_saved *arrays, int count)
{
    int64_t begin = 0;
    size_t n = (size_t)snprintf(out, room,
                                "{\"__metadata__\":{\"pass\":\"%s\",\"shape\":\"%s\",\"dtype\":\"%s\","
                                "\"causal\":\"%d\",\"threads\":\"%d\",\"seconds\":\"%g\",\"heads\":\"%lld\","
                                "\"weights\":\"%d\",\"cached\":\"%lld\"}",
                                about.pass, about.shape, bench_type_word(set->type), about.causal,
                                mha_context_threads(set->ctx), set->seconds, (long long)about.heads, about.weights,
                                (long long)about.cached);
    for (int i = 0; i < count; i++) {
        n += describe(out + n, room - n, &arrays[i], begin);
        begin += bytes_of(&arrays[i].tensor);
    }
    out[n++] = '}';
    while ((n + 8) % 64 != 0) out[n++] = ' ';
    return n;
}

static bool write_all(FILE *file, const char *header, size_t length, const bench_saved *arrays, int count)
{
    unsigned char size[8] = {0};
    for (int i = 0; i < 8; i++) size[i] = (unsigned char)((uint64_t)length >> (8 * i));
    bool done = fwrite(size, 1, 8, file) == 8 && fwrite(header, 1, length, file) == length;
    for (int i = 0; done && i < count; i++) {
        size_t bytes = (size_t)bytes_of(&arrays[i].tensor);
        done = fwrite(arrays[i].tensor.data, 1, bytes, file) == bytes;
    }
    return done;
}

bool bench_save(const bench_setting *set, bench_about about, const bench_saved *arrays, int count, char error[200])
{
    char path[4096], header[4096];
    if (!set->save) return true;
    snprintf(path, sizeof path, "%s/%s-%s-%s.safetensors", set->save, about.pass, about.shape,
             bench_type_word(set->type));
    size_t length = make_header(header, sizeof header, set, about, arrays, count);
    errno = 0;
    FILE *file = fopen(path, "wb");
    bool done = file && write_all(file, header, length, arrays, count);
    if (file && fclose(file) != 0) done = false;
    if (!done) snprintf(error, 200, "%s: cannot save its arrays: %s", about.shape, strerror(errno));
    return done;
}
