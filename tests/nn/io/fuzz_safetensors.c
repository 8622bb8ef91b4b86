/* A fuzz target for the reader of safetensors files.
 *
 *     cmake -B build/fuzz -G Ninja -DMHA_FUZZ=ON -DCMAKE_C_COMPILER=clang
 *     cmake --build build/fuzz --target fuzz_safetensors
 *     build/fuzz/tests/fuzz_safetensors -max_total_time=60
 *
 * Any bytes must either be refused with one line, or give tensors that can be read to the last byte. No corpus is
 * stored: the mutator starts from the seeds below, and repairs the header's length after a change, without which nearly
 * every change would be refused at the first check.
 *
 * Without MHA_FUZZ the same file becomes a plain program for any compiler: it replays the files named on its command
 * line (such as a crash that the fuzzer left), or, without any, mutates the seeds some ten thousand times with a
 * generator of its own. That runs as an ordinary test. */
#include "io/json.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *header;
    size_t data;
} seeds[] = {
    {"{}", 0},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24},
    {"{\"__metadata__\":{\"op\":\"Attention\",\"\":\"\\\"\\u00e9\\ud83d\\ude00\"},"
     "\"b\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]},"
     "\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[3,11]}}  ",
     11},
    {"{\"e\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[0,0],\"z\":[{\"k\":[1.5e-3,null,true]},-0]},"
     "\"f\":{\"dtype\":\"BF16\",\"shape\":[1,1,1,2],\"data_offsets\":[0,4]}}",
     4},
};
enum { SEEDS = sizeof seeds / sizeof *seeds };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(int held, const char *what)
{
    if (held) return;
    fprintf(stderr, "fuzz_safetensors: %s\n", what);
    abort();
}

static volatile unsigned sink; /* keeps the reads below */

static void read_all(const nn_safetensors *file, size_t size)
{
    size_t bytes = 0;
    for (size_t i = 0; i < nn_safetensors_count(file); i++) {
        const nn_safetensors_tensor *tensor = nn_safetensors_get(file, i);
        size_t length = (size_t)tensor->count * nn_safetensors_dtype_size(tensor->dtype);
        mha_tensor view;
        char what[40];
        require((uintptr_t)tensor->data % NN_SAFETENSORS_ALIGN == 0, "a tensor is not aligned");
        require(nn_safetensors_find(file, tensor->name) == tensor, "a tensor is not found by its name");
        for (size_t k = 0; k < length; k++) sink += ((const unsigned char *)tensor->data)[k];
        if (nn_safetensors_view(tensor, &view)) require(view.rank == tensor->rank, "a view of another rank");
        sink += (unsigned)strlen(nn_safetensors_describe(what, sizeof what, tensor));
        bytes += length;
    }
    require(bytes < size, "more data than the file has");
    for (size_t i = 0; i < nn_safetensors_metadata_count(file); i++)
        require(nn_safetensors_metadata(file, nn_safetensors_metadata_key(file, i)) != NULL, "a key without its text");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char error[300] = "";
    nn_safetensors *file = nn_safetensors_parse(bytes, size, "f", error, sizeof error);
    if (file) read_all(file, size);
    else require(strncmp(error, "f: ", 3) == 0 && !strpbrk(error, "\n\r\x1b"), "an error is not one clean line");
    nn_safetensors_free(file);
    return 0;
}

static size_t make_seed(uint8_t *bytes, size_t room, unsigned which)
{
    size_t header = strlen(seeds[which % SEEDS].header), size = 8 + header + seeds[which % SEEDS].data;
    if (size > room) return 0;
    memset(bytes, 0, size);
    memcpy(bytes + 8, seeds[which % SEEDS].header, header);
    bytes[0] = (uint8_t)header;
    bytes[1] = (uint8_t)(header >> 8);
    return size;
}

/* Makes the length say where the last '}' is, if there is one in reach of two bytes of length. */
static void repair_length(uint8_t *bytes, size_t size)
{
    size_t end = size < 0xffff ? size : 0xffff;
    while (end > 8 && bytes[end - 1] != '}') end--;
    if (end <= 8) return;
    memset(bytes, 0, 8);
    bytes[0] = (uint8_t)(end - 8);
    bytes[1] = (uint8_t)((end - 8) >> 8);
}

#ifdef MHA_FUZZ

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned seed)
{
    if (size < 10 || seed % 64 == 0) size = make_seed(bytes, room, seed / 64);
    size = LLVMFuzzerMutate(bytes, size, room);
    if (size > 8 && seed % 8) repair_length(bytes, size);
    return size;
}

#else

static uint32_t draw(uint64_t *state) /* xorshift: good enough to shake bytes */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}

/* Changes, removes or repeats a few bytes, mostly into characters that JSON cares about. */
static size_t shake(uint8_t *bytes, size_t size, size_t room, uint64_t *state)
{
    static const char liked[] = "{}[]\",:\\0123456789-eu";
    for (uint32_t n = 1 + draw(state) % 4; n && size > 9; n--) {
        size_t at = 8 + draw(state) % (size - 8), rest = size - at;
        switch (draw(state) % 4) {
        case 0:
            bytes[at] = (uint8_t)draw(state);
            break;
        case 1:
            bytes[at] = (uint8_t)liked[draw(state) % (sizeof liked - 1)];
            break;
        case 2:
            memmove(bytes + at, bytes + at + 1, rest - 1);
            size--;
            break;
        default:
            if (size == room) break;
            memmove(bytes + at + 1, bytes + at, rest);
            size++;
        }
    }
    return size;
}

static int replay(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 2;
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
    printf("%s: %zu bytes, no harm\n", path, size);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    int worst = 0;
    for (int i = 1; i < argc; i++) {
        int rc = replay(argv[i]);
        worst = rc > worst ? rc : worst;
    }
    if (argc > 1) return worst;
    for (unsigned round = 0; round < 20000; round++) {
        uint8_t seed[1024];
        size_t size = make_seed(seed, sizeof seed, round);
        if (round >= SEEDS) size = shake(seed, size, sizeof seed, &state);
        if (round >= SEEDS && round % 8) repair_length(seed, size);
        uint8_t *exact = malloc(size); /* of its exact length, for the address sanitizer */
        if (!exact) return 1;
        memcpy(exact, seed, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    puts("20000 files, no harm");
    return 0;
}

#endif
