/* Devices by their names. */
#include "core/device.h"
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

/* The plug-in of a device and its number. */
static mha_status find(const char *name, const mha_plugin **plugin, int *ordinal, char *why, size_t size)
{
    *ordinal = mha_device_ordinal(name);
    if (*ordinal < 0) {
        snprintf(why, size, "device: there is none called '%.40s'; there are cpu, cuda and cuda:N", name);
        return MHA_NO_DEVICE;
    }
    *plugin = mha_plugin_find(why, size);
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
