/* Where the reason of a failure goes: one line "NAME: reason", with the name of the file.
 *
 *     nn_failure to = {path, error, error_size};
 *     if (!tensor) return nn_fail(&to, "%s is missing", name);
 */
#ifndef NN_IO_FAILURE_H
#define NN_IO_FAILURE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct nn_failure {
    const char *name;
    char *error; /* (error_size), or NULL with a size of 0 */
    size_t error_size;
} nn_failure;

/* Write the line and return false. Where there is no room for all of it, the name is cut at its beginning, after "...". */
bool nn_fail_because(const nn_failure *to, const char *reason);
__attribute__((format(printf, 2, 3))) bool nn_fail(const nn_failure *to, const char *format, ...);

#endif
