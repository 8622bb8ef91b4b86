/* A lock that allows a single writer for a file that is written repeatedly:
 *
 *     nn_file_lock lock;
 *     if (nn_file_lock_take(&lock, "vit.safetensors", error, sizeof error)) puts(error);      another process has it
 *     ...
 *     nn_safetensors_write_locked("vit.safetensors", &lock, ...);                              any number of times
 *     nn_file_lock_free(&lock);
 *
 * The lock is an flock on a file of its own, .mha-lock-NAME beside the target, which is removed at the end; a lock on
 * the target itself would be lost with the first rename. The kernel releases the lock when the process ends; the lock
 * file of a killed process remains but blocks no other process.
 *
 * On a file system without locks there is a weaker fallback: before the target is replaced, it is compared with the
 * file that the owner wrote last. If it differs, another process has written it, and it is not replaced (replace.h). */
#ifndef NN_IO_FILE_LOCK_H
#define NN_IO_FILE_LOCK_H

#include "io/file_place.h"

#include <sys/stat.h>

typedef struct nn_file_lock {
    bool taken; /* must be freed */
    bool held;  /* a kernel lock is held; otherwise the target is checked for changes */
    bool lost;  /* such a change was found */
    nn_file_place at;
    char name[256]; /* of the lock file */
    int file;       /* its descriptor; -1 for none */
    bool there;     /* the target existed when the owner last checked it, as `known`: */
    struct stat known;
} nn_file_lock;

/* On error, such as a lock that another process has, `error` gets one line, and nothing needs to be freed. */
mha_status nn_file_lock_take(nn_file_lock *l, const char *path, char *error, size_t error_size);

/* Whether the target may be replaced; if not, sets `lost`. nn_file_lock_replaced records the new target, `mine`. */
bool nn_file_lock_check(nn_file_lock *l);
void nn_file_lock_replaced(nn_file_lock *l, const struct stat *mine);

void nn_file_lock_free(nn_file_lock *l); /* a zeroed one is legal */

#endif
