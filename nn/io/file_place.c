/* Splitting a path into folder and name. */
#include "io/file_place.h"
#include "io/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A path that does not resolve is used unchanged, except if memory ran out: it could be a link, and the link would be
 * replaced. */
static char *resolve(const char *path)
{
    char *found = realpath(path, NULL);
    return found || errno == ENOMEM ? found : strdup(path);
}

mha_status nn_file_place_find(nn_file_place *p, const char *path, char *why, size_t why_size)
{
    *p = (nn_file_place){.path = resolve(path), .folder = -1};
    if (!p->path) {
        snprintf(why, why_size, "out of memory");
        return MHA_NO_MEMORY;
    }
    char *slash = strrchr(p->path, '/');
    p->name = slash ? slash + 1 : p->path;
    if (!*p->name) {
        snprintf(why, why_size, "%s", strerror(EISDIR));
        return MHA_BAD_FILE;
    }
    if (slash) *slash = 0;
    p->folder = open(!slash ? "." : slash == p->path ? "/" : p->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (p->folder >= 0) return MHA_OK;
    int number = errno;
    snprintf(why, why_size, "cannot open its folder: %s", strerror(number));
    return nn_status_of(number);
}

void nn_file_place_free(nn_file_place *p)
{
    if (p->folder >= 0) close(p->folder);
    free(p->path);
    *p = (nn_file_place){.folder = -1};
}
