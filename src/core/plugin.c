/* Finds the plug-in of a device: beside the file that holds this code, then where the loader looks. A plug-in stays
 * loaded (it is linked with -z nodelete), so that its table is valid for good and no handle has to be kept. */
#include "core/device.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

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

const mha_plugin *mha_plugin_find(char *why, size_t size)
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
