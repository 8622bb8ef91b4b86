/* For platforms without writing: replacing and locking files are errors. */
#include "io/file_lock.h"
#include "io/replace.h"

#include <stdio.h>

static const char refusal[] = "files cannot be written on this platform";

/* The first error, which is kept, is that of nn_replacement_begin. */
bool nn_replacement_fail(nn_replacement *to, const char *format, ...)
{
    (void)format;
    to->failed = true;
    return false;
}

bool nn_replacement_begin(nn_replacement *to, const char *path, char *error, size_t error_size)
{
    to->path = path, to->error = error, to->error_size = error_size;
    if (error_size) snprintf(error, error_size, "%s: %s", path, refusal);
    return nn_replacement_fail(to, "%s", refusal);
}

bool nn_replacement_put(nn_replacement *to, const void *bytes, size_t size)
{
    (void)to, (void)bytes, (void)size;
    return false;
}

bool nn_replacement_end(nn_replacement *to)
{
    (void)to;
    return false;
}

bool nn_replacement_fits(const char *path, int64_t bytes, char *error, size_t error_size)
{
    (void)bytes;
    snprintf(error, error_size, "%s: %s", path, refusal);
    return false;
}

bool nn_file_lock_take(nn_file_lock *l, const char *path, char *error, size_t error_size)
{
    *l = (nn_file_lock){.file = -1};
    snprintf(error, error_size, "%s: %s", path, refusal);
    return false;
}

void nn_file_lock_free(nn_file_lock *l) { (void)l; }
