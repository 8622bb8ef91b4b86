/* File locks that a killed process cannot leave behind.
 *
 * Removing a lock file is a race: a process may have opened it just before and then lock an unlinked file, while
 * another creates and locks a new one. So after taking the lock, a process checks that the name still refers to the
 * locked file, and otherwise starts again. */
#include "io/file_lock.h"
#include "io/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PREFIX ".mha-lock-"

enum { TRIES = 100, NAME_MOST = 255 };

typedef enum result { HELD, ANOTHER_HAS_IT, NO_LOCKS, AGAIN } result;

/* Opens the lock file, or creates it. One left by another user may be read-only, which is enough for a lock. */
static int open_lock(const nn_file_lock *l, bool *made)
{
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int file = openat(l->at.folder, l->name, flags | O_RDWR | O_CREAT | O_EXCL, 0666);
    *made = file >= 0;
    if (file < 0 && errno == EEXIST) file = openat(l->at.folder, l->name, flags | O_RDWR);
    if (file < 0 && errno == EACCES) file = openat(l->at.folder, l->name, flags | O_RDONLY);
    return file;
}

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

static result try_lock(nn_file_lock *l)
{
    struct stat locked, named;
    bool made;
    if ((l->file = open_lock(l, &made)) < 0) return errno == ENOENT ? AGAIN : NO_LOCKS;
    int failed = flock(l->file, LOCK_EX | LOCK_NB), why = errno;
    result r = !failed ? HELD : why == EWOULDBLOCK ? ANOTHER_HAS_IT : why == EINTR ? AGAIN : NO_LOCKS;
    if (r == HELD && (fstat(l->file, &locked) || fstatat(l->at.folder, l->name, &named, AT_SYMLINK_NOFOLLOW) ||
                      !same_file(&locked, &named)))
        r = AGAIN;
    if (r == NO_LOCKS && made) unlinkat(l->at.folder, l->name, 0); /* not needed */
    if (r != HELD) {
        close(l->file);
        l->file = -1;
    }
    return r;
}

static bool stat_target(const nn_file_lock *l, struct stat *found)
{
    return fstatat(l->at.folder, l->at.name, found, 0) == 0;
}

/* Of a long name the end is used, which differs more often than the beginning. */
static void name_lock(nn_file_lock *l)
{
    size_t length = strlen(l->at.name), most = NAME_MOST - strlen(PREFIX);
    snprintf(l->name, sizeof l->name, PREFIX "%s", l->at.name + (length > most ? length - most : 0));
}

mha_status nn_file_lock_take(nn_file_lock *l, const char *path, char *error, size_t error_size)
{
    char why[300] = "another process is writing to it; wait until that has ended, or name another file";
    result r = AGAIN;
    *l = (nn_file_lock){.file = -1};
    mha_status status = nn_file_place_find(&l->at, path, why, sizeof why);
    if (!status) name_lock(l);
    for (int i = 0; !status && i < TRIES && r == AGAIN; i++) r = try_lock(l);
    if (r == ANOTHER_HAS_IT) status = MHA_BAD_FILE;
    l->held = r == HELD;
    l->taken = !status;
    if (l->taken) {
        l->there = stat_target(l, &l->known);
        return MHA_OK;
    }
    nn_file_place_free(&l->at);
    return nn_error_because(&(nn_failure){path, error, error_size}, status, why);
}

bool nn_file_lock_check(nn_file_lock *l)
{
    struct stat now;
    if (l->held || !stat_target(l, &now)) return true; /* a missing target cannot be overwritten */
    bool mine = l->there && same_file(&now, &l->known) && now.st_size == l->known.st_size &&
                now.st_mtim.tv_sec == l->known.st_mtim.tv_sec && now.st_mtim.tv_nsec == l->known.st_mtim.tv_nsec;
    l->lost = !mine;
    return mine;
}

void nn_file_lock_replaced(nn_file_lock *l, const struct stat *mine)
{
    l->there = true;
    l->known = *mine;
}

/* Unlinks the file before releasing the lock; otherwise the next owner's file could be removed. */
void nn_file_lock_free(nn_file_lock *l)
{
    if (!l->taken) return;
    if (l->held) unlinkat(l->at.folder, l->name, 0);
    if (l->file >= 0) close(l->file);
    nn_file_place_free(&l->at);
    *l = (nn_file_lock){.file = -1};
}
