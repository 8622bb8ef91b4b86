/* Options of callers that may know fewer of them, or more. */
#ifndef MHA_CORE_OPTIONS_H
#define MHA_CORE_OPTIONS_H

#include "core/context.h"

/* Writes what the caller gave over `own`, which holds the defaults: as many bytes as the caller's size says. NULL gives
 * nothing. On error the reason, with `macro` as the way to begin, is at `why`. */
mha_status mha_options_read(void *own, size_t own_size, const void *given, const char *macro, char *why,
                            size_t why_size);

/* The same, with the reason as the context's message. */
mha_status mha_options_take(mha_context *ctx, void *own, size_t own_size, const void *given, const char *macro);

#endif
