#include "public/check.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

mha_status nn_public_fail(mha_context *ctx, mha_status status, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return mha_context_fail(ctx, status, line);
}

mha_status nn_public_need(mha_context *ctx, const void *pointer, const char *name)
{
    return pointer ? MHA_OK : nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: is NULL", name);
}

void nn_public_defaults(void *options, size_t size, const void *all, size_t all_size)
{
    if (!options || size < sizeof size) return;
    if (size > all_size) size = all_size;
    memcpy(options, all, size);
    memcpy(options, &size, sizeof size);
}

mha_status nn_public_options(mha_context *ctx, void *own, size_t own_size, const void *given, const char *defaults)
{
    size_t size = own_size;
    if (given) memcpy(&size, given, sizeof size);
    if (size < sizeof size)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options: their size is %zu; start from %s", size, defaults);
    if (size > own_size)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              "options: have %zu bytes, this library knows %zu; it is older than the program", size,
                              own_size);
    if (given) memcpy(own, given, size);
    memcpy(own, &own_size, sizeof own_size);
    return MHA_OK;
}

mha_status nn_public_takes(mha_context *ctx, const void *info, size_t all_size, const char *type)
{
    size_t size;
    memcpy(&size, info, sizeof size);
    if (size >= sizeof size && size <= all_size) return MHA_OK;
    return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s.size: is %zu; set it to sizeof(%s)", type, size, type);
}

mha_status nn_public_give(mha_context *ctx, void *info, const void *all, size_t all_size, const char *type)
{
    size_t size;
    mha_status status = nn_public_takes(ctx, info, all_size, type);
    if (status) return status;
    memcpy(&size, info, sizeof size);
    memcpy((char *)info + sizeof size, (const char *)all + sizeof size, size - sizeof size);
    return MHA_OK;
}

mha_status nn_public_cpu(mha_context *ctx)
{
    if (strcmp(mha_context_device(ctx), "cpu") == 0) return MHA_OK;
    return nn_public_fail(ctx, MHA_NO_DEVICE, "models run on the CPU, not on %s", mha_context_device(ctx));
}

mha_status nn_public_tensor(mha_context *ctx, const mha_tensor *t, const char *name, const char *letters, int rank,
                            const int64_t size[4])
{
    if (!t->data && !t->rank) return MHA_OK;
    if (!t->data) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: its data is NULL", name);
    if (t->type != MHA_FLOAT32 && t->type != MHA_BFLOAT16 && t->type != MHA_FLOAT16)
        return nn_public_fail(ctx, MHA_BAD_TYPE, "%s: is %s, must be a float type", name, mha_type_name(t->type));
    bool same = t->rank == rank;
    for (int i = 0; same && i < rank; i++) same = t->size[i] == size[i];
    if (same) return MHA_OK;
    char sizes[100] = "";
    for (int i = 0, at = 0; i < rank; i++)
        at += snprintf(sizes + at, sizeof sizes - (size_t)at, i ? ",%lld" : "%lld", (long long)size[i]);
    return nn_public_fail(ctx, MHA_BAD_SHAPE, "%s: must be %s = (%s)", name, letters, sizes);
}

mha_status nn_public_reason(mha_context *ctx, const char *error)
{
    bool memory = strstr(error, "memory") || strstr(error, "the allocator has no ");
    return mha_context_fail(ctx, memory ? MHA_NO_MEMORY : MHA_BAD_ARGUMENT, error);
}

locale_t nn_public_locale_set(void)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return c ? uselocale(c) : (locale_t)0;
}

void nn_public_locale_restore(locale_t *before)
{
    if (*before) freelocale(uselocale(*before));
}
