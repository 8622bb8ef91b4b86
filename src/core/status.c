/* Statuses: their names, and the message that goes with them; the version. */
#include "core/context.h"
#include <stdarg.h>
#include <stdio.h>

#define TEXT(x)  #x
#define VALUE(x) TEXT(x)

const char *mha_status_name(mha_status status)
{
    static const char *const names[] = {"MHA_OK",          "MHA_BAD_ARGUMENT", "MHA_BAD_SHAPE", "MHA_BAD_TYPE",
                                        "MHA_OVERLAP",     "MHA_TOO_LARGE",    "MHA_NO_MEMORY", "MHA_NO_ISA",
                                        "MHA_FULL",        "MHA_NO_DEVICE",    "MHA_BAD_FILE",  "MHA_UNSUPPORTED",
                                        "MHA_DEVICE_ERROR"};
    unsigned index = (unsigned)status;
    return index < sizeof names / sizeof *names ? names[index] : "unknown status";
}

const char *mha_version(void)
{
    return VALUE(MHA_VERSION_MAJOR) "." VALUE(MHA_VERSION_MINOR) "." VALUE(MHA_VERSION_PATCH);
}

mha_status mha_fail(mha_context *ctx, mha_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(ctx->error, sizeof ctx->error, format, args); // NOLINT(clang-analyzer-valist.Uninitialized)
    va_end(args);
    return status;
}

void mha_succeed(mha_context *ctx) { ctx->error[0] = 0; }

mha_status mha_need_host(mha_context *ctx, const char *what)
{
    if (!ctx->backend->remote) return MHA_OK;
    return mha_fail(ctx, MHA_UNSUPPORTED, "%s: not supported on %s yet; use a context of the CPU", what,
                    ctx->backend->device);
}
