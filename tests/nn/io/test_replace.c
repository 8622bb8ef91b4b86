/* Replacing a file: at no moment is there anything but the old file or the new one under the target's name, and what is
 * not a place for a file is refused.
 *
 * The calls to the system are wrapped (-Wl,--wrap in files.cmake): they are noted, and at any one of them the call can
 * fail or the process can die. */
#include "io/file_lock.h"
#include "io/replace.h"
#include "support/saving.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

/* ---- The system, watched ---------------------------------------------------------------------------------------- */

int __real_flock(int file, int operation);
int __wrap_flock(int file, int operation);
int __real_openat(int folder, const char *path, int flags, ...);
int __real_fchmod(int file, mode_t mode);
ssize_t __real_write(int file, const void *bytes, size_t size);
int __real_fsync(int file);
int __real_close(int file);
int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __real_unlinkat(int folder, const char *path, int flags);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap_fchmod(int file, mode_t mode);
ssize_t __wrap_write(int file, const void *bytes, size_t size);
int __wrap_fsync(int file);
int __wrap_close(int file);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_unlinkat(int folder, const char *path, int flags);

static struct {
    char calls[200]; /* a letter a call; the folder's descriptor in capitals */
    int count, at;   /* calls so far, and the one to fail or die at, counted from 1; 0: none */
    bool die;
    bool stutter; /* writes take few bytes, or are interrupted */
} watch;

static bool is_folder(int file)
{
    struct stat about;
    return fstat(file, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Notes a call; whether it is to fail. */
static bool strike(char letter)
{
    if ((size_t)watch.count < sizeof watch.calls - 1) watch.calls[watch.count] = letter;
    watch.count++;
    if (watch.count != watch.at) return false;
    if (watch.die) _exit(0);
    errno = EIO;
    return true;
}

static bool no_locks; /* as on a file system without them */

int __wrap_flock(int file, int operation)
{
    if (!no_locks) return __real_flock(file, operation);
    errno = ENOLCK;
    return -1;
}

int __wrap_openat(int folder, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = (mode_t)va_arg(args, int);
    va_end(args);
    return strike('o') ? -1 : __real_openat(folder, path, flags, mode);
}
int __wrap_fchmod(int file, mode_t mode) { return strike('m') ? -1 : __real_fchmod(file, mode); }
int __wrap_fsync(int file) { return strike(is_folder(file) ? 'S' : 's') ? -1 : __real_fsync(file); }
int __wrap_close(int file)
{
    bool fails = strike(is_folder(file) ? 'C' : 'c');
    int result = __real_close(file); /* a close that fails has closed */
    return fails ? -1 : result;
}
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return strike('r') ? -1 : __real_renameat(from_folder, from, to_folder, to);
}
int __wrap_unlinkat(int folder, const char *path, int flags)
{
    return strike('u') ? -1 : __real_unlinkat(folder, path, flags);
}

ssize_t __wrap_write(int file, const void *bytes, size_t size)
{
    if (strike('w')) return -1;
    if (watch.stutter && watch.count % 3 == 0) {
        errno = EINTR;
        return -1;
    }
    return __real_write(file, bytes, watch.stutter && size > 7001 ? 7001 : size);
}

static void watch_from_here(int at, bool die)
{
    memset(&watch, 0, sizeof watch);
    watch.at = at;
    watch.die = die;
}

/* ---- Places ----------------------------------------------------------------------------------------------------- */

static void refuse(const char *path, const char *says)
{
    char error[500] = "";
    expect(!save(path, 1, error, sizeof error), "%s was written", path);
    expect(strncmp(error, path, strlen(path)) == 0 && strcmp(error + strlen(path), says) == 0, "'%s', not '%s%s'",
           error, path, says);
}

TEST(bad_places_are_refused)
{
    if (!saved(in_folder("file"), 1) || !expect(mkdir(in_folder("dir"), 0755) == 0, "no folder")) return;
    refuse(in_folder("no/x"), ": cannot open its folder: No such file or directory");
    refuse(in_folder("file/x"), ": cannot open its folder: Not a directory");
    refuse(in_folder("dir"), ": not a regular file");
    refuse(in_folder("no/"), ": Is a directory");
    refuse("", ": Is a directory");
    if (expect(mkfifo(in_folder("pipe"), 0600) == 0, "no pipe")) refuse(in_folder("pipe"), ": not a regular file");
    expect(leftovers(true) == 0, "temporary files are left");
    rmdir(in_folder("dir"));
    unlink(in_folder("pipe"));
    unlink(in_folder("file"));
}

/* Runs `job` in a process of its own and returns its exit status, or -1. */
static int apart(int (*job)(void))
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(job());
    int status = -1;
    if (child > 0) waitpid(child, &status, 0);
    return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int save_without_rights(void)
{
    char error[400] = "";
    if (geteuid() == 0 && (setgid(65534) || setuid(65534))) return 2;
    if (save(in_folder("new.safetensors"), 1, error, sizeof error)) return 3;
    if (!strstr(error, "new.safetensors: cannot create a file in its folder: Permission denied")) return 4;
    if (save(in_folder("old.safetensors"), 1, error, sizeof error)) return 5;
    return strstr(error, "old.safetensors: Permission denied") ? 0 : 6;
}

TEST(a_folder_without_rights_is_refused)
{
    if (!saved(in_folder("old.safetensors"), 2)) return;
    chmod(in_folder("old.safetensors"), 0444);
    chmod(saving_folder, 0555);
    int status = apart(save_without_rights);
    chmod(saving_folder, 0755); // NOLINT: as it was
    if (status == 2) not_given("this process may not give up its rights");
    else expect(status == 0, "the process without rights ended with %d", status);
    expect(kind_of(in_folder("old.safetensors")) == 2, "the old file was touched");
    unlink(in_folder("old.safetensors"));
}

static int save_too_much(void)
{
    char error[400] = "";
    struct rlimit limit = {NUMBERS, NUMBERS}; /* a quarter of what the file takes */
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 2;
    if (save(in_folder("full.safetensors"), 1, error, sizeof error)) return 3;
    return strstr(error, "full.safetensors: File too large") ? 0 : 4;
}

TEST(a_full_disk_leaves_the_old_file)
{
    if (!saved(in_folder("full.safetensors"), 2)) return;
    int status = apart(save_too_much);
    expect(status == 0, "the process with a limit ended with %d", status);
    expect(kind_of(in_folder("full.safetensors")) == 2, "the old file was touched");
    expect(leftovers(true) == 0, "a temporary file is left");
    unlink(in_folder("full.safetensors"));
}

static int ask_for_room(void)
{
    char error[400] = "";
    struct rlimit limit = {NUMBERS, NUMBERS};
    const char *path = in_folder("room.safetensors");
    signal(SIGXFSZ, SIG_IGN);
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 2;
    if (!nn_replacement_fits(path, NUMBERS + 1, error, sizeof error)) return 3;
    if (!strstr(error, "room.safetensors: no room for its 60001 bytes: File too large")) return 4;
    return !nn_replacement_fits(path, NUMBERS, error, sizeof error) ? 0 : 5;
}

TEST(room_is_known_beforehand)
{
    char error[400] = "";
    const char *path = in_folder("room.safetensors");
    int status = apart(ask_for_room);
    expect(status == 0 && access(path, F_OK) != 0 && leftovers(true) == 0, "the process with a limit ended with %d",
           status);
    if (!saved(path, 2)) return;
    status = apart(ask_for_room);
    expect(status == 0 && kind_of(path) == 2 && leftovers(true) == 0, "with an old file it ended with %d", status);
    expect(nn_replacement_fits(in_folder("no/x"), 1, error, sizeof error) && strstr(error, "cannot open its folder"),
           "%s", error);
    unlink(path);
}

/* ---- Locks ------------------------------------------------------------------------------------------------------ */

static int take_lock(void)
{
    char error[400] = "";
    nn_file_lock lock;
    if (nn_file_lock_take(&lock, in_folder("locked"), error, sizeof error))
        return strstr(error, "locked: another process is writing to it; wait until ") ? 1 : 2;
    bool held = lock.held && nn_file_lock_check(&lock);
    nn_file_lock_free(&lock);
    return held ? 0 : 3;
}

TEST(a_lock_is_for_one_process)
{
    char error[400] = "", name[260];
    nn_file_lock lock = {0};
    nn_file_lock_free(&lock);
    expect(apart(take_lock) == 0, "a free lock is not to be had");
    if (!expect(!nn_file_lock_take(&lock, in_folder("locked"), error, sizeof error), "%s", error)) return;
    expect(apart(take_lock) == 1, "two have it");
    expect(!access(in_folder(".mha-lock-locked"), F_OK), "no lock file");
    expect(saved(in_folder("locked"), 1) && apart(take_lock) == 1, "it was lost when the file was replaced");
    nn_file_lock_free(&lock);
    expect(access(in_folder(".mha-lock-locked"), F_OK) != 0, "the lock file is left");
    expect(apart(take_lock) == 0, "it was not given back");
    memset(name, 'n', 255);
    name[255] = 0;
    expect(!nn_file_lock_take(&lock, in_folder(name), error, sizeof error) && lock.held, "a name of 255 bytes: %s",
           error);
    nn_file_lock_free(&lock);
    expect(nn_file_lock_take(&lock, in_folder("no/x"), error, sizeof error) && !lock.taken &&
               strstr(error, "no/x: cannot open its folder: No such file"),
           "%s", error);
    unlink(in_folder("locked"));
}

static int take_and_die(void)
{
    char error[400];
    nn_file_lock lock;
    if (nn_file_lock_take(&lock, in_folder("locked"), error, sizeof error)) return 1;
    raise(SIGKILL);
    return 2;
}

TEST(a_lock_ends_with_its_process)
{
    expect(apart(take_and_die) == -1 && !access(in_folder(".mha-lock-locked"), F_OK), "it was not killed");
    expect(apart(take_lock) == 0, "a process that is gone has the lock");
    expect(access(in_folder(".mha-lock-locked"), F_OK) != 0, "the lock file is left");
}

static bool save_locked(const char *path, nn_file_lock *lock, float number, char *error, size_t error_size)
{
    nn_safetensors_item item = nn_safetensors_item_view("x", mha_tensor_1d(&number, MHA_FLOAT32, 1));
    return !nn_safetensors_write_locked(path, lock, &item, 1, NULL, 0, error, error_size);
}

/* What another process has written in the meantime stays, whether it is a new file or new bytes in the old one. */
TEST(without_locks_the_file_of_another_stays)
{
    char error[400] = "", path[300], other[300];
    snprintf(path, sizeof path, "%s", in_folder("shared"));
    snprintf(other, sizeof other, "%s", in_folder("other"));
    no_locks = true;
    for (int how = 0; how < 4; how++) {
        nn_file_lock lock;
        bool old = how & 1, in_place = how & 2;
        if (old && !saved(path, 1)) return;
        if (!expect(!nn_file_lock_take(&lock, path, error, sizeof error) && !lock.held, "%s", error)) return;
        expect(access(in_folder(".mha-lock-shared"), F_OK) != 0, "a lock file that is of no use");
        for (int n = 0; n < 3; n++) expect(save_locked(path, &lock, (float)n, error, sizeof error), "%s", error);
        expect(!lock.lost && saved(other, 2), "its own file is another's");
        if (in_place) {
            char line[700];
            snprintf(line, sizeof line, "cat '%s' >'%s'", other, path);
            expect(system(line) == 0, "no copy"); // NOLINT(cert-env33-c)
        } else expect(rename(other, path) == 0, "no rename");
        expect(!save_locked(path, &lock, 7, error, sizeof error) && lock.lost &&
                   strstr(error, "shared: another process has replaced it in the meantime; it is left unchanged"),
               "'%s'", error);
        expect(kind_of(path) == 2 && leftovers(true) == 0, "the other file is gone");
        nn_file_lock_free(&lock);
        unlink(path);
        unlink(other);
    }
    no_locks = false;
}

enum { PROCESSES = 4, TURNS = 300 };

/* Adds 1 to the number in a file, over and over; without the lock some would be lost. */
static int count_turns(void)
{
    char error[400], path[300];
    snprintf(path, sizeof path, "%s", in_folder("turns"));
    for (int n = 0; n < TURNS;) {
        nn_file_lock lock;
        long count = 0;
        if (nn_file_lock_take(&lock, path, error, sizeof error)) continue;
        FILE *file = fopen(path, "r");
        bool read = file && fscanf(file, "%ld", &count) == 1; // NOLINT(cert-err34-c)
        if (file) fclose(file);
        if ((file = fopen(path, "w"))) {
            fprintf(file, "%ld", count + 1);
            fclose(file);
        }
        bool good = lock.held && read && file;
        nn_file_lock_free(&lock);
        if (!good) return 1;
        n++;
    }
    return 0;
}

TEST(processes_take_turns)
{
    pid_t children[PROCESSES];
    char text[20] = "";
    FILE *file = fopen(in_folder("turns"), "w");
    if (!expect(file && fputs("0", file) >= 0 && !fclose(file), "no file")) return;
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++)
        if ((children[i] = fork()) == 0) _exit(count_turns());
    for (int i = 0; i < PROCESSES; i++) {
        int status = 1;
        waitpid(children[i], &status, 0);
        expect(status == 0, "a process ended with %d", status);
    }
    file = fopen(in_folder("turns"), "r");
    expect(file && fgets(text, sizeof text, file) && strtol(text, NULL, 10) == PROCESSES * TURNS, "%s turns", text);
    if (file) fclose(file);
    unlink(in_folder("turns"));
}

/* ---- Permissions and links -------------------------------------------------------------------------------------- */

static int mode_of(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? (int)(about.st_mode & 07777) : -1;
}

TEST(permissions_are_those_of_any_file)
{
    const char *path = in_folder("mode.safetensors");
    static const mode_t masks[] = {022, 077, 0, 027};
    for (int i = 0; i < 4; i++) {
        mode_t before = umask(masks[i]);
        saved(path, 1);
        expect(mode_of(path) == (int)(0666 & ~masks[i]), "a new file has %o under umask %o", (unsigned)mode_of(path),
               (unsigned)masks[i]);
        chmod(path, 0640);
        saved(path, 2);
        expect(mode_of(path) == 0640 && kind_of(path) == 2, "a file of 640 was replaced by %o",
               (unsigned)mode_of(path));
        umask(before);
        unlink(path);
    }
}

TEST(links_stay_links)
{
    struct stat about;
    mkdir(in_folder("there"), 0755);
    if (!expect(symlink("there/real.safetensors", in_folder("link.safetensors")) == 0, "no link")) return;
    if (!saved(in_folder("there/real.safetensors"), 1)) return;
    saved(in_folder("link.safetensors"), 2);
    expect(lstat(in_folder("link.safetensors"), &about) == 0 && S_ISLNK(about.st_mode), "the link is gone");
    expect(kind_of(in_folder("there/real.safetensors")) == 2, "the file behind the link is the old one");
    unlink(in_folder("link.safetensors"));
    unlink(in_folder("there/real.safetensors"));
    rmdir(in_folder("there"));
}

TEST(a_path_without_a_folder_will_do)
{
    char here[400];
    if (!expect(getcwd(here, sizeof here) && chdir(saving_folder) == 0, "cannot go there")) return;
    saved("plain.safetensors", 1);
    expect(kind_of(in_folder("plain.safetensors")) == 1, "it lies somewhere else");
    unlink("plain.safetensors");
    expect(chdir(here) == 0, "cannot go back");
}

TEST(a_long_name_will_do)
{
    char name[260];
    memset(name, 'n', 255);
    name[255] = 0; /* as long as a name may be: nothing can be added to it */
    saved(in_folder(name), 1);
    expect(kind_of(in_folder(name)) == 1, "a name of 255 bytes is refused");
    unlink(in_folder(name));
}

/* Another process with the same number, in a container for instance, is saving. */
TEST(temporary_files_of_others_are_left_alone)
{
    char names[3][60];
    int files[3];
    for (int i = 0; i < 3; i++) {
        snprintf(names[i], sizeof names[i], ".mha-save-%ld-%d", (long)getpid(), i);
        saved(in_folder("other"), 5 + i);
        expect(rename(in_folder("other"), in_folder(names[i])) == 0, "no rename");
        files[i] = open(in_folder(names[i]), O_RDONLY);
        expect(files[i] >= 0 && flock(files[i], LOCK_EX | LOCK_NB) == 0, "no lock");
    }
    saved(in_folder("way.safetensors"), 1);
    for (int i = 0; i < 3; i++) expect(kind_of(in_folder(names[i])) == 5 + i, "%s was touched", names[i]);
    expect(kind_of(in_folder("way.safetensors")) == 1 && leftovers(false) == 3, "not written beside them");
    for (int i = 0; i < 3; i++) close(files[i]);
    no_locks = true;
    saved(in_folder("way.safetensors"), 2);
    expect(leftovers(false) == 3, "removed without a lock");
    no_locks = false;
    saved(in_folder("way.safetensors"), 3);
    expect(kind_of(in_folder("way.safetensors")) == 3 && leftovers(true) == 0, "left after their locks ended");
    unlink(in_folder("way.safetensors"));
}

static int save_and_be_killed(void)
{
    char error[400];
    watch_from_here(5, true); /* while it writes */
    save(in_folder("collect.safetensors"), 2, error, sizeof error);
    return 1;
}

/* A process that is killed leaves its file, the next save removes it; links and what is no such file stay. */
TEST(temporary_files_of_killed_processes_are_removed)
{
    const char *path = in_folder("collect.safetensors");
    if (!saved(path, 1)) return;
    expect(apart(save_and_be_killed) == 0 && leftovers(false) == 1, "%d temporary files of a killed process",
           leftovers(false));
    saved(in_folder(".mha-saved"), 4);
    saved(in_folder("pointed-to"), 5);
    expect(symlink("pointed-to", in_folder(".mha-save-link")) == 0, "no link");
    saved(path, 3);
    expect(kind_of(path) == 3 && leftovers(false) == 1, "%d temporary files and links", leftovers(false));
    expect(kind_of(in_folder(".mha-saved")) == 4 && kind_of(in_folder("pointed-to")) == 5, "another file is gone");
    for (int i = 0; i < 3; i++)
        unlink(in_folder((const char *[]){".mha-saved", "pointed-to", "collect.safetensors"}[i]));
    leftovers(true);
}

/* A handler of a signal that ends the process removes what is not finished. */
TEST(abandoned_replacements_leave_nothing)
{
    char error[300] = "";
    nn_replacement first, second;
    const char *path = in_folder("abandoned.safetensors");
    expect(!nn_replacement_begin(&first, path, error, sizeof error) && !nn_replacement_put(&first, "x", 1), "%s",
           error);
    expect(!nn_replacement_begin(&second, in_folder("other"), error, sizeof error), "%s", error);
    expect(leftovers(false) == 2, "%d temporary files", leftovers(false));
    nn_replacement_abandon();
    expect(leftovers(false) == 0, "%d temporary files are left", leftovers(false));
    expect(nn_replacement_end(&first) && nn_replacement_end(&second) && access(path, F_OK) != 0,
           "something was written");
    saved(path, 1);
    nn_replacement_abandon();
    expect(kind_of(path) == 1, "a file that is finished");
    unlink(path);
}

/* ---- Never half a file ------------------------------------------------------------------------------------------ */

/* Data to the disk before the rename, the folder to the disk after it. */
TEST(the_disk_has_the_data_before_the_name)
{
    const char *path = in_folder("order.safetensors");
    if (!saved(path, 1)) return;
    watch_from_here(0, false);
    saved(path, 2);
    expect(strcmp(watch.calls, "omwwwwscrScC") == 0, "the calls were %s", watch.calls);
    unlink(path);
}

TEST(short_and_interrupted_writes_go_on)
{
    const char *path = in_folder("short.safetensors");
    watch_from_here(0, false);
    watch.stutter = true;
    saved(path, 4);
    watch.stutter = false;
    expect(watch.count > 30 && kind_of(path) == 4, "%d calls, kind %d", watch.count, kind_of(path));
    unlink(path);
}

/* Each call to the system fails once. Only when the rename is done there is no way back. */
TEST(a_call_that_fails_leaves_the_old_file)
{
    const char *path = in_folder("fail.safetensors");
    bool done = false;
    int at = 1;
    for (; !done && at < 40; at++) {
        char error[400] = "";
        if (!saved(path, 1)) return;
        watch_from_here(at, false);
        bool ok = save(path, 2, error, sizeof error);
        bool renamed = strchr(watch.calls, 'r') && watch.calls[at - 1] != 'r';
        char letter = watch.calls[at - 1];
        done = watch.count < at;
        watch.at = 0;
        bool over = letter == 'C' || (letter == 'c' && strchr(watch.calls, 'S')); /* nothing is lost with it any more */
        if (!done && over) expect(ok, "closing the file or the folder at the end counts");
        else if (!done) expect(!ok && strstr(error, "Input/output error"), "call %d (%c): %s", at, letter, error);
        expect(kind_of(path) == (renamed ? 2 : 1), "call %d (%c) left a file of kind %d", at, letter, kind_of(path));
        expect(leftovers(true) == 0, "call %d (%c) left a temporary file", at, letter);
    }
    expect(done && at > 10, "%d calls", at);
    unlink(path);
}

static int death;

static int save_and_die(void)
{
    char error[400];
    watch_from_here(death, true);
    save(in_folder("die.safetensors"), 2, error, sizeof error);
    return watch.count < death ? 1 : 0;
}

/* The process dies before each call to the system: what lies there is old or new, never anything else. */
TEST(death_before_any_call_leaves_old_or_new)
{
    const char *path = in_folder("die.safetensors");
    int olds = 0, news = 0, done = 0;
    for (death = 1; death < 40 && !done; death++) {
        if (!saved(path, 1)) return;
        done = apart(save_and_die);
        int kind = kind_of(path);
        olds += kind == 1;
        news += kind == 2;
        expect(kind == 1 || kind == 2, "death before call %d left a file of kind %d", death, kind);
        expect(leftovers(true) <= 1, "more than one temporary file");
    }
    expect(done == 1 && olds >= 8 && news >= 3, "%d times the old file, %d times the new one", olds, news);
    unlink(path);
}

static int save_forever(void)
{
    char error[400];
    for (int kind = 1;; kind = kind % 7 + 1)
        if (!save(in_folder("kill.safetensors"), kind, error, sizeof error)) return 1;
}

/* Two processes save to one path over and over and are killed at moments of chance. */
TEST(sigkill_at_any_moment_leaves_a_whole_file)
{
    const char *path = in_folder("kill.safetensors");
    uint64_t state = 88172645463325252u;
    if (!saved(path, 1)) return;
    fflush(stdout);
    for (int round = 0; round < 40; round++) {
        pid_t children[2];
        for (int i = 0; i < 2; i++) {
            children[i] = fork();
            if (children[i] == 0) _exit(save_forever());
            if (!expect(children[i] > 0, "no process")) return;
        }
        for (int i = 0; i < 2; i++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            struct timespec pause = {0, (long)(state >> 20) % 8000000};
            nanosleep(&pause, NULL);
            int status = 0;
            expect(kind_of(path) > 0, "round %d: not a whole file while they save", round);
            kill(children[i], SIGKILL);
            waitpid(children[i], &status, 0);
            expect(WIFSIGNALED(status), "round %d: a process ended by itself", round);
        }
        expect(kind_of(path) > 0, "round %d: not a whole file", round);
        expect(leftovers(true) <= 2, "round %d: more temporary files than processes", round);
    }
    unlink(path);
}
