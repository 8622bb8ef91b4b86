#include "cli/common/output.h"
#include "cli/common/cli.h"
#include "io/replace.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool output_claim(nn_file_lock *lock, const char *path)
{
    char error[600];
    if (!path || !nn_file_lock_take(lock, path, error, sizeof error)) return true;
    return cli_error("%s", error);
}

static bool same_place(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Writes the folder of a path to `out`. Returns the last component. */
static const char *split_path(char out[4096], const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    snprintf(out, 4096, "%.*s.", (int)(name - path), path);
    return name;
}

bool output_same(const char *a, const char *b)
{
    char x[4096], y[4096];
    return same_place(a, b) || (strcmp(split_path(x, a), split_path(y, b)) == 0 && same_place(x, y));
}

bool output_fits(const char *path, int64_t bytes)
{
    char error[600];
    if (!path || !nn_replacement_fits(path, bytes, error, sizeof error)) return true;
    return cli_error("%s", error);
}
