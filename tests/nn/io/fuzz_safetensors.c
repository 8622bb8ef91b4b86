/* A fuzz target for the reader of safetensors files: any bytes must either be refused with one line, or give tensors that
 * can be read to the last byte. After a change the header's length is repaired, without which nearly every change would
 * be refused at the first check. */
#include "io/json.h"
#include "io/safetensors.h"

#include <stdint.h>
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
enum { SEEDS = sizeof seeds / sizeof *seeds, FIXED = 8 };
#define LIKED "{}[]\",:\\0123456789-eu"

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
static void repair(uint8_t *bytes, size_t size)
{
    size_t end = size < 0xffff ? size : 0xffff;
    while (end > 8 && bytes[end - 1] != '}') end--;
    if (end <= 8) return;
    memset(bytes, 0, 8);
    bytes[0] = (uint8_t)(end - 8);
    bytes[1] = (uint8_t)((end - 8) >> 8);
}

#include "support/fuzz.h"

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
    nn_safetensors *file;
    nn_safetensors_parse(&file, bytes, size, "f", error, sizeof error);
    if (file) read_all(file, size);
    else require(strncmp(error, "f: ", 3) == 0 && !strpbrk(error, "\n\r\x1b"), "an error is not one clean line");
    nn_safetensors_free(file);
    return 0;
}
