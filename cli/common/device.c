#include "cli/common/device.h"

#include <string.h>

bool device_is_gpu(const char *name) { return name && strcmp(name, "cpu") != 0; }

/* Prints what the library says about a device. */
static bool refuse_device(const char *name, const char *why)
{
    static const char prefix[] = "device: ";
    bool prefixed = strncmp(why, prefix, sizeof prefix - 1) == 0;
    return cli_error("--device %s: %s", name, prefixed ? why + sizeof prefix - 1 : why);
}

bool device_is_there(const char *name)
{
    char line[400];
    return !mha_device_describe(name, line, sizeof line) || refuse_device(name, line);
}

mha_context *device_context(const char *name, int threads)
{
    char why[400] = "";
    mha_context *ctx = NULL;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    if (!device_is_gpu(name)) return cli_context_of(threads);
    options.device = name;
    options.threads = threads;
    options.error = why;
    options.error_size = sizeof why;
    if (mha_context_create(&ctx, &options)) refuse_device(name, why);
    return ctx;
}

/* From the first byte of a tensor to its last; strides are not negative. */
static size_t span(const mha_tensor *t)
{
    int64_t last = 0;
    for (int i = 0; i < t->rank; i++) {
        if (!t->size[i]) return 0;
        last += (t->size[i] - 1) * t->stride[i];
    }
    return (size_t)(last + 1) * mha_type_size(t->type);
}

static void copy_to_device(device_copies *c, mha_tensor *t, bool result)
{
    void *there = NULL;
    size_t bytes = t->rank ? span(t) : 0;
    if (!t->rank || !t->data || c->status || !device_is_gpu(mha_context_device(c->ctx))) return;
    if (c->count == DEVICE_COPIES) c->status = mha_context_fail(c->ctx, MHA_TOO_LARGE, "too many tensors");
    if (!c->status) c->status = mha_device_allocate(c->ctx, &there, bytes);
    if (c->status) return;
    c->all[c->count].there = there;
    c->all[c->count].here = t->data;
    c->all[c->count].bytes = bytes;
    c->all[c->count++].result = result;
    c->status = mha_device_write(c->ctx, there, t->data, bytes);
    t->data = there;
}

void device_give(device_copies *c, mha_tensor *tensor) { copy_to_device(c, tensor, false); }

void device_give_result(device_copies *c, mha_tensor *tensor) { copy_to_device(c, tensor, true); }

bool device_end(device_copies *c)
{
    for (int n = 0; n < c->count; n++)
        if (c->all[n].result && !c->status)
            c->status = mha_device_read(c->ctx, c->all[n].here, c->all[n].there, c->all[n].bytes);
    for (int n = 0; n < c->count; n++) mha_device_release(c->ctx, c->all[n].there);
    c->count = 0;
    return !c->status;
}
