#include "io/foreign.h"

#include <string.h>

#define PYTORCH                                                                                                        \
    "is a file of PyTorch, a pickle, which is not read; load it there and save the model with save_pretrained, which " \
    "writes config.json and safetensors"

static const struct {
    const char *first;
    const char *is;
} kinds[] = {
    {"version https://git-lfs.github.com/spec/",
     "is a Git LFS pointer, not the file that it stands for; 'git lfs pull' in its folder downloads that"},
    {"PK\x03\x04", PYTORCH},
    {"\x80\x02\x8a\x0al\xfc", PYTORCH}, /* as it was saved before version 1.6 */
    {"GGUF", "is a GGUF file, which is not read; the safetensors files that it was made from are"},
    {"\x89HDF\r\n", "is a file of TensorFlow (HDF5), which is not read; save the model with safe_serialization=True"},
};

const char *nn_foreign(const void *first, size_t size)
{
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        size_t length = strlen(kinds[n].first);
        if (size >= length && memcmp(first, kinds[n].first, length) == 0) return kinds[n].is;
    }
    return NULL;
}
