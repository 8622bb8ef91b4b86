/* Where nothing can be loaded at run time. */
#include "core/device.h"
#include <stdio.h>

const mha_plugin *mha_plugin_find(char *why, size_t size)
{
    snprintf(why, size, "device: cuda needs a plug-in, which this platform cannot load");
    return NULL;
}
