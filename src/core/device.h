/* Devices beside the CPU: their names, and the plug-ins that bring them. */
#ifndef MHA_CORE_DEVICE_H
#define MHA_CORE_DEVICE_H

#include "core/context.h"

/* A plug-in is a shared library with one exported function, which returns this table or, if the library that asks has
 * another key, NULL. Plug-in and library share the structs of core/ and attention/. */
typedef struct mha_plugin {
    const mha_backend *backend;
    const char *isa; /* what its kernels are compiled for */

    /* Describes a device in one line, or says why it cannot be used. */
    mha_status (*describe)(int ordinal, char *text, size_t size);

    /* Sets ctx->device of a context that has this backend; on error the reason is the context's message. */
    mha_status (*open)(mha_context *ctx, int ordinal, void *stream);
} mha_plugin;

/* What library and plug-in must have alike. A change of a struct that both use raises `seam`. */
typedef struct mha_plugin_key {
    int seam, major, minor, patch;
    size_t context, backend, options;
} mha_plugin_key;

#define MHA_PLUGIN_KEY                                                                                        \
    {                                                                                                         \
        4, MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH, sizeof(mha_context), sizeof(mha_backend), \
            sizeof(mha_attention_options)                                                                     \
    }

/* The exported function of libmha-cuda.so. */
#define MHA_CUDA_PLUGIN "libmha-cuda.so"
#define MHA_CUDA_OPEN   "mha_cuda_open"
typedef const mha_plugin *mha_plugin_open(const mha_plugin_key *key);

/* Whether a device's name, or NULL, means the CPU. */
bool mha_device_is_cpu(const char *name);

/* The number of "cuda" or "cuda:N"; -1 for every other name. */
int mha_device_ordinal(const char *name);

/* The plug-in for "cuda", valid for good; NULL if there is none, with the reason at `why`. plugin.c asks the dynamic
 * loader; plugin_none.c is for platforms without one. */
const mha_plugin *mha_plugin_find(char *why, size_t size);

/* A context, or a line, of a device that is not the CPU. On error the reason is at `why` or `text`. */
mha_status mha_device_context(mha_context **ctx, const mha_context_options *options, char *why, size_t size);
mha_status mha_device_line(const char *name, char *text, size_t size);

#endif
