/* Atomic replacement of a file.
 *
 * The order matters: sync the data, rename, sync the folder. If the rename came first, a power failure could leave an
 * empty file under the new name. The temporary file is created by open with O_EXCL and the default mode, not by
 * mkstemp: widening its mode 0600 would need the umask, which cannot be read without changing it for all threads. All
 * calls are relative to one descriptor of the folder, so renaming the folder meanwhile has no effect.
 *
 * A process holds a lock on its temporary file until the rename, so that an unlocked temporary file belongs to a process that was killed.
 * (Its number would not tell: another process may have it by now, or one on another machine.) The lock is taken after the
 * file is created: another process may lock and remove it in between, and the owner then creates another one. */
#include "io/replace.h"
#include "io/failure.h"
#include "io/file_lock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX ".mha-save-"

enum { TRIES = 1000 }; /* names of temporary files; other processes with the same PID may have some */

mha_status nn_replacement_fail(nn_replacement *to, mha_status status, const char *format, ...)
{
    char line[300];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!to->failed) to->failed = nn_error_because(&(nn_failure){to->path, to->error, to->error_size}, status, line);
    return to->failed;
}

static mha_status fail_with(nn_replacement *to, int number)
{
    return nn_replacement_fail(to, nn_status_of(number), "%s", strerror(number));
}

/* Removes a temporary file that no process has locked. */
static void remove_abandoned(int folder, const char *name)
{
    struct stat mine, named;
    int flags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, file = openat(folder, name, O_RDWR | flags);
    if (file < 0 && errno == EACCES) file = openat(folder, name, O_RDONLY | flags);
    if (file < 0) return;
    bool regular = fstat(file, &mine) == 0 && S_ISREG(mine.st_mode) && mine.st_uid == geteuid();
    if (regular && flock(file, LOCK_EX | LOCK_NB) == 0 && fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        named.st_dev == mine.st_dev && named.st_ino == mine.st_ino)
        unlinkat(folder, name, 0);
    close(file);
}

/* Removes what killed processes have left in the folder. What cannot be removed stays. */
static void remove_all_abandoned(int folder)
{
    int copy = fcntl(folder, F_DUPFD_CLOEXEC, 0);
    DIR *list = copy >= 0 ? fdopendir(copy) : NULL;
    if (!list) {
        if (copy >= 0) close(copy);
        return;
    }
    rewinddir(list); /* the copy shares its place with the original */
    for (const struct dirent *entry; (entry = readdir(list));)
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) == 0) remove_abandoned(folder, entry->d_name);
    closedir(list);
}

/* Locks a temporary file that was just created. False if another process has locked it. True on a file system without locks. */
static bool lock_temporary(int file)
{
    struct stat mine;
    if (flock(file, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return fstat(file, &mine) != 0 || mine.st_nlink > 0;
}

/* Creates the temporary file, with the permissions of the file that it will replace, if any. */
static mha_status create_temporary(nn_replacement *to)
{
    struct stat old;
    bool there = fstatat(to->at.folder, to->at.name, &old, 0) == 0;
    if (there && !S_ISREG(old.st_mode)) return nn_replacement_fail(to, MHA_BAD_FILE, "not a regular file");
    if (there && faccessat(to->at.folder, to->at.name, W_OK, 0) != 0) return fail_with(to, errno);
    remove_all_abandoned(to->at.folder);
    for (int i = 0; i < TRIES && to->file < 0; i++) {
        snprintf(to->temporary, sizeof to->temporary, PREFIX "%ld-%d", (long)getpid(), i);
        to->file = openat(to->at.folder, to->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, there ? 0600 : 0666);
        if (to->file < 0 && errno != EEXIST) break;
        if (to->file >= 0 && !lock_temporary(to->file)) {
            close(to->file);
            to->file = -1;
        }
    }
    if (to->file < 0)
        return nn_replacement_fail(to, nn_status_of(errno), "cannot create a file in its folder: %s", strerror(errno));
    to->made = true;
    if (there && fchmod(to->file, old.st_mode & 0777) != 0) return fail_with(to, errno);
    return MHA_OK;
}

/* ---- Replacements that are under way ---------------------------------------------------------------------------- */

/* For nn_replacement_abandon, which a handler of a signal may call. More than these at a time are not listed. */
enum { LISTED = 8 };
static _Atomic(nn_replacement *) listed[LISTED];

static void enlist(nn_replacement *to)
{
    for (int n = 0; n < LISTED; n++) {
        nn_replacement *none = NULL;
        if (atomic_compare_exchange_strong(&listed[n], &none, to)) break;
    }
}

static void strike(nn_replacement *to)
{
    for (int n = 0; n < LISTED; n++) {
        nn_replacement *mine = to;
        if (atomic_compare_exchange_strong(&listed[n], &mine, NULL)) break;
    }
}

void nn_replacement_abandon(void)
{
    for (int n = 0; n < LISTED; n++) {
        const nn_replacement *to = atomic_load(&listed[n]);
        if (to && to->made) unlinkat(to->at.folder, to->temporary, 0);
    }
}

mha_status nn_replacement_begin(nn_replacement *to, const char *path, char *error, size_t error_size)
{
    char why[300];
    to->path = path;
    to->error = error;
    to->error_size = error_size;
    to->file = -1;
    to->made = false;
    to->failed = MHA_OK;
    to->lock = NULL;
    to->used = 0;
    mha_status status = nn_file_place_find(&to->at, path, why, sizeof why);
    if (status) return nn_replacement_fail(to, status, "%s", why);
    TRY(create_temporary(to));
    enlist(to);
    return MHA_OK;
}

/* A write may be partial or interrupted. */
static mha_status flush_pending(nn_replacement *to)
{
    for (size_t at = 0; at < to->used;) {
        ssize_t n = write(to->file, to->buffer + at, to->used - at);
        if (n < 0 && errno != EINTR) return fail_with(to, errno);
        if (n > 0) at += (size_t)n;
    }
    to->used = 0;
    return MHA_OK;
}

mha_status nn_replacement_put(nn_replacement *to, const void *bytes, size_t size)
{
    const unsigned char *from = bytes;
    while (size && !to->failed) {
        size_t room = sizeof to->buffer - to->used, part = size < room ? size : room;
        memcpy(to->buffer + to->used, from, part);
        to->used += part;
        from += part;
        size -= part;
        if (to->used == sizeof to->buffer) flush_pending(to);
    }
    return to->failed;
}

static mha_status settle(nn_replacement *to)
{
    struct stat mine;
    TRY(to->failed);
    TRY(flush_pending(to));
    if (fsync(to->file) != 0 || fstat(to->file, &mine) != 0) return fail_with(to, errno);
    /* Some file systems report errors of writing when a descriptor is closed; the lock stays with the other one. */
    int copy = fcntl(to->file, F_DUPFD_CLOEXEC, 0);
    if (copy < 0 || close(copy) != 0) return fail_with(to, errno);
    if (to->lock && !nn_file_lock_check(to->lock))
        return nn_replacement_fail(to, MHA_BAD_FILE,
                                   "another process has replaced it in the meantime; it is left unchanged");
    if (renameat(to->at.folder, to->temporary, to->at.folder, to->at.name) != 0) return fail_with(to, errno);
    to->made = false;
    if (to->lock) nn_file_lock_replaced(to->lock, &mine);
    /* Some file systems cannot sync folders (EINVAL). On other errors the rename may be lost in a power failure, and
     * the old file cannot be restored. */
    if (fsync(to->at.folder) != 0 && errno != EINVAL)
        return nn_replacement_fail(to, nn_status_of(errno), "replaced, but syncing its folder failed: %s",
                                   strerror(errno));
    return MHA_OK;
}

mha_status nn_replacement_end(nn_replacement *to)
{
    settle(to);
    if (to->file >= 0) close(to->file);
    if (to->made) unlinkat(to->at.folder, to->temporary, 0);
    strike(to);
    nn_file_place_free(&to->at);
    to->file = -1;
    to->made = false;
    return to->failed;
}

/* Some file systems cannot reserve space; there the bytes are written. */
static mha_status reserve(nn_replacement *to, int64_t bytes)
{
    static const unsigned char zeros[4096];
    int64_t part = sizeof zeros;
    int why;
    do why = posix_fallocate(to->file, 0, (off_t)bytes);
    while (why == EINTR);
    if (why != EOPNOTSUPP && why != EINVAL && why != ENOSYS)
        return !why ? MHA_OK
                    : nn_replacement_fail(to, nn_status_of(why), "no room for its %" PRId64 " bytes: %s", bytes,
                                          strerror(why));
    for (int64_t left = bytes; left > 0 && !to->failed; left -= part)
        nn_replacement_put(to, zeros, (size_t)(left < part ? left : part));
    TRY(to->failed);
    return flush_pending(to);
}

mha_status nn_replacement_fits(const char *path, int64_t bytes, char *error, size_t error_size)
{
    nn_replacement to;
    mha_status status = nn_replacement_begin(&to, path, error, error_size);
    if (!status) status = reserve(&to, bytes);
    to.failed = MHA_BAD_FILE; /* so that the temporary file is removed */
    nn_replacement_end(&to);
    return status;
}
