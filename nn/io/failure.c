#include "io/failure.h"
#include <stdarg.h>
#include <stdio.h>

bool nn_fail(const nn_failure *to, const char *format, ...)
{
    char line[600];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (to->error_size) snprintf(to->error, to->error_size, "%s: %s", to->name, line);
    return false;
}
