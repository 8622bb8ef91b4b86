/* Atomic replacement of a file:
 *
 *     nn_replacement to;
 *     nn_replacement_begin(&to, "layer.safetensors", error, sizeof error);
 *     nn_replacement_put(&to, bytes, size);                   any number of times
 *     if (nn_replacement_end(&to)) puts(error);
 *
 * The bytes are written to a temporary file, .mha-save-PID-N, in the folder of the target. nn_replacement_end syncs it,
 * renames it to the target and syncs the folder. A process killed at any moment leaves the old file or the new one, and
 * possibly the temporary file, which the next replacement in that folder removes, where the file system has locks. After an
 * error the old file is unchanged and the temporary one is removed. Errors are sticky: later calls do nothing and return the
 * first error, so that one check at the end is enough.
 *
 * A new file gets the default permissions; a replaced file keeps its permissions. If the target is a symbolic link, the
 * file that it points to is replaced; a dangling link is replaced itself. Targets that are not regular files or not
 * writable are refused. With a lock (file_lock.h), a target that another process has written is not replaced. */
#ifndef NN_IO_REPLACE_H
#define NN_IO_REPLACE_H

#include "io/file_place.h"

#include <stdint.h>

typedef struct nn_replacement {
    const char *path; /* as given by the caller, for messages */
    nn_file_place at;
    char temporary[48];
    int file;                  /* a descriptor; -1 for none */
    bool made;                 /* the temporary file exists */
    mha_status failed;         /* the first error, or MHA_OK */
    struct nn_file_lock *lock; /* of the target, set after nn_replacement_begin; NULL for none */
    char *error;
    size_t error_size;
    size_t used; /* of the buffer */
    unsigned char buffer[1 << 16];
} nn_replacement;

/* nn_replacement_end must be called in any case. On error, `error`, of `error_size` bytes, gets one line. */
mha_status nn_replacement_begin(nn_replacement *to, const char *path, char *error, size_t error_size);
mha_status nn_replacement_put(nn_replacement *to, const void *bytes, size_t size);

/* Renames the temporary file to the target, unless something has failed. */
mha_status nn_replacement_end(nn_replacement *to);

/* Whether there is room for a file of `bytes` bytes at `path` in addition to the existing one: they are reserved in a
 * temporary file, which is then removed. If not, or if no file can be created there, `error` gets one line. */
mha_status nn_replacement_fits(const char *path, int64_t bytes, char *error, size_t error_size);

/* Removes the temporary files of all replacements that are under way. For a handler of a signal that ends the process: it only
 * calls what is allowed there, and nothing may be replaced afterwards. */
void nn_replacement_abandon(void);

/* Fails with a message of the caller; only the first error is kept, which is returned. */
__attribute__((format(printf, 3, 4))) mha_status nn_replacement_fail(nn_replacement *to, mha_status status,
                                                                     const char *format, ...);

#endif
