/* --device: contexts of a device, and tensors of the host in its memory. */
#ifndef DEVICE_H
#define DEVICE_H

#include "cli/common/options.h"

#define CLI_DEVICE(type, field) \
    "--device", "NAME", "cpu, cuda or cuda:N: an NVIDIA GPU (Hopper)", CLI_NAME(type, field), .otherwise = "cpu"

/* Whether a value of --device, NULL if it was not given, means a GPU. */
bool device_is_gpu(const char *name);

/* Whether a GPU is there and can be used. Prints an error if not. */
bool device_is_there(const char *name);

/* Creates a context of a device, NULL for the CPU, with `threads` threads, 0 for all. Prints an error and returns NULL on
 * failure. */
mha_context *device_context(const char *name, int threads);

enum { DEVICE_COPIES = 40 };

/* The tensors of a call. On the CPU they stay where they are. */
typedef struct device_copies {
    mha_context *ctx;
    struct {
        void *there, *here;
        size_t bytes;
        bool result;
    } all[DEVICE_COPIES];
    int count;
    mha_status status; /* of the first failure; its reason is the context's message */
} device_copies;

/* Makes a tensor of the host one of the device with the same contents. None stays none. */
void device_give(device_copies *c, mha_tensor *tensor);

/* The same for a result, which device_end copies back. */
void device_give_result(device_copies *c, mha_tensor *tensor);

/* Copies results back unless something has failed, and releases the copies. Returns false if anything failed. */
bool device_end(device_copies *c);

#endif
