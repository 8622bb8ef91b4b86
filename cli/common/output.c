#include "cli/common/output.h"
#include "cli/common/cli.h"
#include "io/replace.h"

bool output_claim(nn_file_lock *lock, const char *path)
{
    char error[600];
    if (!path || nn_file_lock_take(lock, path, error, sizeof error)) return true;
    cli_error("%s", error);
    return false;
}

bool output_fits(const char *path, int64_t bytes)
{
    char error[600];
    if (!path || nn_replacement_fits(path, bytes, error, sizeof error)) return true;
    cli_error("%s", error);
    return false;
}
