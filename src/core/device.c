/* Finds the plug-in of a device: beside the file that holds this code, then where the loader looks. A plug-in stays
 * loaded (it is linked with -z nodelete), so that its table is valid for good and no handle has to be kept. */
#include "core/device.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

bool mha_device_is_cpu(const char *name) { return !name || strcmp(name, "cpu") == 0; }

int mha_device_ordinal(const char *name)
{
    int ordinal = 0;
    if (strncmp(name, "cuda", 4) != 0) return -1;
    name += 4;
    if (!*name) return 0;
    if (*name++ != ':' || !*name) return -1;
    for (; *name; name++) {
        if (*name < '0' || *name > '9' || ordinal > 9999) return -1;
        ordinal = ordinal * 10 + (*name - '0');
    }
    return ordinal;
}

/* Opens a file of the folder that this code was loaded from; NULL if it is not there. */
static void *open_beside(const char *file)
{
    Dl_info here;
    static const char mark = 0;
    char path[4096];
    if (!dladdr(&mark, &here) || !here.dli_fname) return NULL;
    const char *slash = strrchr(here.dli_fname, '/');
    if (!slash) return NULL;
    int folder = (int)(slash - here.dli_fname);
    if (snprintf(path, sizeof path, "%.*s/%s", folder, here.dli_fname, file) >= (int)sizeof path) return NULL;
    return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static const mha_plugin *find_plugin(char *why, size_t size)
{
    static const mha_plugin_key key = MHA_PLUGIN_KEY;
    void *library = open_beside(MHA_CUDA_PLUGIN);
    if (!library) library = dlopen(MHA_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *reason = dlerror();
        snprintf(why, size, "device: cuda needs a plug-in that cannot be loaded: %s",
                 reason ? reason : MHA_CUDA_PLUGIN);
        return NULL;
    }
    mha_plugin_open *open = NULL;
    void *symbol = dlsym(library, MHA_CUDA_OPEN);
    memcpy(&open, &symbol, sizeof open);
    const mha_plugin *plugin = open ? open(&key) : NULL;
    if (!plugin)
        snprintf(why, size, "device: " MHA_CUDA_PLUGIN " belongs to another version than this library, %s",
                 mha_version());
    dlclose(library);
    return plugin;
}

/* The plug-in of a device and its number. */
static mha_status find(const char *name, const mha_plugin **plugin, int *ordinal, char *why, size_t size)
{
    *ordinal = mha_device_ordinal(name);
    if (*ordinal < 0) {
        snprintf(why, size, "device: there is none called '%.40s'; there are cpu, cuda and cuda:N", name);
        return MHA_NO_DEVICE;
    }
    *plugin = find_plugin(why, size);
    return *plugin ? MHA_OK : MHA_NO_DEVICE;
}

mha_status mha_device_context(mha_context **ctx, const mha_context_options *options, char *why, size_t size)
{
    const mha_plugin *plugin;
    int ordinal;
    TRY(find(options->device, &plugin, &ordinal, why, size));
    if (options->isa) {
        snprintf(why, size, "isa: must be NULL, it is one of the CPU");
        return MHA_BAD_ARGUMENT;
    }
    mha_status status = mha_context_make(ctx, options, (mha_choice){.backend = plugin->backend, .isa = plugin->isa});
    if (status) {
        snprintf(why, size, "allocator: has no memory for a context");
        return status;
    }
    status = plugin->open(*ctx, ordinal, options->stream);
    if (!status) return MHA_OK;
    snprintf(why, size, "%s", (*ctx)->error);
    mha_context_free(*ctx);
    *ctx = NULL;
    return status;
}

mha_status mha_device_line(const char *name, char *text, size_t size)
{
    const mha_plugin *plugin;
    int ordinal;
    TRY(find(name, &plugin, &ordinal, text, size));
    return plugin->describe(ordinal, text, size);
}
