#include "io/failure.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LEAST = 20 }; /* characters of a name */

bool nn_fail(const nn_failure *to, const char *format, ...)
{
    char line[600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return nn_fail_because(to, line);
}

mha_status nn_error(const nn_failure *to, mha_status status, const char *format, ...)
{
    char line[600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    return nn_error_because(to, status, line);
}

bool nn_fail_because(const nn_failure *to, const char *reason) { return !nn_error_because(to, MHA_BAD_FILE, reason); }

mha_status nn_error_because(const nn_failure *to, mha_status status, const char *reason)
{
    size_t length = strlen(to->name), around = strlen(reason) + sizeof ": ";
    size_t room = to->error_size > around ? to->error_size - around : 0;
    const char *name = to->name, *before = "";
    if (length > room && room > LEAST) {
        before = "...";
        name += length - room + strlen(before);
        while ((*name & 0xc0) == 0x80) name++; /* not in the middle of a character */
    }
    if (to->error_size) snprintf(to->error, to->error_size, "%s%s: %s", before, name, reason);
    return status;
}
