/* The arrays of a measurement as a safetensors file, so that another program can do the same work on the same numbers
 * and compare its results. */
#include "bench.h"
#include "io/replace.h"

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

bool bench_save_path(char path[BENCH_PATH], const bench_setting *set, const char *pass, const char *shape,
                     char error[200])
{
    int end = snprintf(path, BENCH_PATH, "%s/%s-%s-%s.safetensors", set->save, pass, shape, bench_type_word(set->type));
    if (end >= 0 && end < BENCH_PATH) return true;
    snprintf(error, 200, "%s: cannot save its arrays: %s", shape, strerror(ENAMETOOLONG));
    return false;
}

bool bench_save(const bench_setting *set, bench_about about, const bench_saved *arrays, int count, char error[200])
{
    char path[BENCH_PATH], header[4096], why[BENCH_PATH + 300];
    unsigned char size[8];
    nn_replacement to;
    if (!set->save) return true;
    if (!bench_save_path(path, set, about.pass, about.shape, error)) return false;
    size_t length = make_header(header, sizeof header, set, about, arrays, count);
    for (int i = 0; i < 8; i++) size[i] = (unsigned char)((uint64_t)length >> (8 * i));
    nn_replacement_begin(&to, path, why, sizeof why);
    nn_replacement_put(&to, size, sizeof size);
    nn_replacement_put(&to, header, length);
    for (int i = 0; i < count; i++) nn_replacement_put(&to, arrays[i].tensor.data, (size_t)bytes_of(&arrays[i].tensor));
    if (!nn_replacement_end(&to)) return true;
    snprintf(error, 200, "%s: cannot save its arrays: %.140s", about.shape, why);
    return false;
}
