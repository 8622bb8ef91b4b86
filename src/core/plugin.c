/* Finds the plug-in of a device: beside the file that holds this code, then where the loader looks. A plug-in stays
 * loaded (it is linked with -z nodelete), so that its table is valid for good and no handle has to be kept. */
#include "core/device.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path of the file that holds this code, as the system has it: links are resolved, and what the program is called plays
 * no part. `to` (size) gets "" where the system does not say. */
static void own_file(char *to, size_t size)
{
    static const char mark = 0;
    char line[PATH_MAX + 100];
    FILE *maps = fopen("/proc/self/maps", "re");
    *to = 0;
    while (maps && !*to && fgets(line, sizeof line, maps)) {
        char *end = NULL;
        uintptr_t from = (uintptr_t)strtoull(line, &end, 16),
                  behind = *end == '-' ? (uintptr_t)strtoull(end + 1, NULL, 16) : 0;
        const char *path = strchr(line, '/');
        if (path && (uintptr_t)&mark >= from && (uintptr_t)&mark < behind)
            snprintf(to, size, "%.*s", (int)strcspn(path, "\n"), path);
    }
    if (maps) fclose(maps);
}

/* Opens a file of the folder that this code was loaded from; NULL if it is not there. */
static void *open_beside(const char *file)
{
    char here[PATH_MAX], path[PATH_MAX];
    own_file(here, sizeof here);
    const char *slash = strrchr(here, '/');
    if (!slash || snprintf(path, sizeof path, "%.*s/%s", (int)(slash - here), here, file) >= (int)sizeof path)
        return NULL;
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
