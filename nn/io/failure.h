/* Errors of the lower rooms. A function that can fail returns mha_status, zero for success, and leaves one line with the reason,
 * "NAME: reason", with the name of the file:
 *
 *     nn_failure to = {path, error, error_size};
 *     if (!tensor) return nn_error(&to, MHA_BAD_FILE, "%s is missing", name);
 *     TRY(read_numbers(tensor));
 *
 * The status says what kind of error it is; the line is for people only. */
#ifndef NN_IO_FAILURE_H
#define NN_IO_FAILURE_H

#include <errno.h>
#include <mha.h>

typedef struct nn_failure {
    const char *name;
    char *error;       /* (error_size): receives the line; or NULL */
    size_t error_size; /* bytes of `error`; 0 if it is NULL */
} nn_failure;

/* Continues if a call succeeded, and otherwise returns its status. */
#define TRY(call)                  \
    do {                           \
        mha_status tried = (call); \
        if (tried) return tried;   \
    } while (0)

/* Write the line and return `status`. Where there is no room for all of it, the name is cut at its beginning, after "...". */
mha_status nn_error_because(const nn_failure *to, mha_status status, const char *reason);
__attribute__((format(printf, 3, 4))) mha_status nn_error(const nn_failure *to, mha_status status, const char *format,
                                                          ...);

/* The status of a call of the system that failed with this errno. */
static inline mha_status nn_status_of(int number) { return number == ENOMEM ? MHA_NO_MEMORY : MHA_BAD_FILE; }

/* The same for rooms whose functions return false on error. */
bool nn_fail_because(const nn_failure *to, const char *reason);
__attribute__((format(printf, 2, 3))) bool nn_fail(const nn_failure *to, const char *format, ...);

#endif
