/* A file that is replaced atomically:
 *
 *     nn_replacement to;
 *     nn_replacement_begin(&to, "layer.safetensors", error, sizeof error);
 *     nn_replacement_put(&to, bytes, size);                   any number of times
 *     if (!nn_replacement_end(&to)) puts(error);
 *
 * What is put goes to a temporary file, .mha-save-PID-N, in the folder of the target. The end forces it to the disk,
 * renames it to the target and forces the folder to the disk. A process killed at any moment leaves the old file or
 * the new one, and at worst the temporary file. After an error the old file is what it was, and the temporary one is
 * gone. Errors are sticky: later calls do nothing and return false, so that one check at the end is enough.
 *
 * A new file gets the permissions that any new file gets, one that is replaced keeps those it had. A symbolic link to a
 * file stays, and that file is replaced; one that leads nowhere is replaced itself. What is not a regular file, or may
 * not be written, is refused. With a lock (nn_file_lock.h), what another process has put in the target's place stays.
 * */
#ifndef NN_IO_REPLACE_H
#define NN_IO_REPLACE_H

#include "io/file_place.h"

#include <stdint.h>

typedef struct nn_replacement {
    const char *path; /* as the caller calls it, for messages */
    nn_file_place at;
    char temporary[48];
    int file;  /* a descriptor; -1 for none */
    bool made; /* the temporary file is there */
    bool failed;
    struct nn_file_lock *lock; /* of the target, set after the begin; NULL for none */
    char *error;
    size_t error_size;
    size_t used; /* of the buffer */
    unsigned char buffer[1 << 16];
} nn_replacement;

/* It must be ended in any case. One line about an error is left in `error`, of `error_size` bytes. */
bool nn_replacement_begin(nn_replacement *to, const char *path, char *error, size_t error_size);
bool nn_replacement_put(nn_replacement *to, const void *bytes, size_t size);

/* Renames the temporary file to the target, unless something has failed. */
bool nn_replacement_end(nn_replacement *to);

/* Whether there is room for a file of so many bytes at `path`, beside the one that is there: they are reserved in a
 * temporary file, which is then removed. False, with one line in `error`, if not, or if no file can be made there. */
bool nn_replacement_fits(const char *path, int64_t bytes, char *error, size_t error_size);

/* Notes the caller's own reason why there will be no new file; the first one counts. Returns false. */
__attribute__((format(printf, 2, 3))) bool nn_replacement_fail(nn_replacement *to, const char *format, ...);

#endif
