/* For platforms without writing: replacing and locking files are errors. */
#include "io/failure.h"
#include "io/file_lock.h"
#include "io/replace.h"

#include <stdio.h>

static const char refusal[] = "files cannot be written on this platform";

static mha_status refuse(const char *path, char *error, size_t error_size)
{
    return nn_error_because(&(nn_failure){path, error, error_size}, MHA_BAD_FILE, refusal);
}

/* The first error, which is kept, is that of nn_replacement_begin. */
mha_status nn_replacement_fail(nn_replacement *to, mha_status status, const char *format, ...)
{
    (void)status, (void)format;
    return to->failed;
}

mha_status nn_replacement_begin(nn_replacement *to, const char *path, char *error, size_t error_size)
{
    to->path = path, to->error = error, to->error_size = error_size;
    return to->failed = refuse(path, error, error_size);
}

mha_status nn_replacement_put(nn_replacement *to, const void *bytes, size_t size)
{
    (void)bytes, (void)size;
    return to->failed;
}

mha_status nn_replacement_end(nn_replacement *to) { return to->failed; }

mha_status nn_replacement_fits(const char *path, int64_t bytes, char *error, size_t error_size)
{
    (void)bytes;
    return refuse(path, error, error_size);
}

mha_status nn_file_lock_take(nn_file_lock *l, const char *path, char *error, size_t error_size)
{
    *l = (nn_file_lock){.file = -1};
    return refuse(path, error, error_size);
}

void nn_file_lock_free(nn_file_lock *l) { (void)l; }
