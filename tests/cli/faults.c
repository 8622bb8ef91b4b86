/* A library to preload before the mha command (LD_PRELOAD): makes one allocation fail, or the disk full, or locks
 * impossible. It stands in front of the C library's own functions, so an allocation inside the C library, in zlib or in
 * libpng fails as one of ours does. The environment says what fails:
 *
 *     MHA_FAULT_ALLOCATION=N   allocation N, counted from 1, returns NULL
 *     MHA_FAULT_WRITE=N        write N, counted from 1, and all later ones fail with ENOSPC (not those of stdio, which
 *                              the C library binds inside itself)
 *     MHA_FAULT_LOCK=1         flock fails with ENOLCK, as on a file system without locks
 *     MHA_FAULT_REPORT=PATH    at the end: how many allocations were made and how many blocks were not freed; then, if
 *                              nothing was to fail, one line per allocation: where it was asked for, and its bytes
 *
 * fsync does nothing: it would take most of the time, and nobody pulls the plug here.
 *
 * A process that takes more than a minute is killed by SIGALRM: it hangs. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *block);

enum { TRACED = 1 << 18, PATIENCE = 60 }; /* allocations that the report lists; seconds */

static struct {
    long allocation, write;
    bool lock;
    const char *report;
} fault;

static struct {
    const void *caller;
    size_t bytes;
} trace[TRACED];

static atomic_long allocations, blocks, writes;

static long number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

__attribute__((constructor)) static void read_faults(void)
{
    fault.allocation = number_of("MHA_FAULT_ALLOCATION");
    fault.write = number_of("MHA_FAULT_WRITE");
    fault.lock = number_of("MHA_FAULT_LOCK");
    fault.report = getenv("MHA_FAULT_REPORT");
    alarm(PATIENCE);
}

/* Without stdio, which would allocate. */
__attribute__((destructor)) static void report(void)
{
    char line[100];
    long count = atomic_load(&allocations);
    int file = fault.report ? open(fault.report, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (file < 0) return;
    int length = snprintf(line, sizeof line, "%ld %ld\n", count, atomic_load(&blocks));
    for (long n = 0; length > 0 && syscall(SYS_write, file, line, (size_t)length) == length; n++) {
        if (n >= count || n >= TRACED || fault.allocation || fault.write) break;
        length = snprintf(line, sizeof line, "%p %zu\n", trace[n].caller, trace[n].bytes);
    }
    close(file);
}

/* ---- Allocations ------------------------------------------------------------------------------------------------ */

/* Counts an allocation; whether it fails. */
static bool strike(const void *caller, size_t bytes)
{
    long n = atomic_fetch_add(&allocations, 1);
    if (n < TRACED) {
        trace[n].caller = caller;
        trace[n].bytes = bytes;
    }
    if (n + 1 != fault.allocation) return false;
    errno = ENOMEM;
    return true;
}

static void *count(void *block)
{
    if (block) atomic_fetch_add(&blocks, 1);
    return block;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t bytes) { return strike(CALLER, bytes) ? NULL : count(__libc_malloc(bytes)); }

void *calloc(size_t number, size_t bytes)
{
    return strike(CALLER, number * bytes) ? NULL : count(__libc_calloc(number, bytes));
}

void *realloc(void *old, size_t bytes)
{
    if (strike(CALLER, bytes)) return NULL;
    return old ? __libc_realloc(old, bytes) : count(__libc_malloc(bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return strike(CALLER, bytes) ? NULL : count(__libc_memalign(alignment, bytes));
}

int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    void *made = strike(CALLER, bytes) ? NULL : count(__libc_memalign(alignment, bytes));
    if (made) *block = made;
    return made ? 0 : ENOMEM;
}

void free(void *block)
{
    if (block) atomic_fetch_sub(&blocks, 1);
    __libc_free(block);
}

/* ---- The system ------------------------------------------------------------------------------------------------- */

ssize_t write(int file, const void *bytes, size_t size)
{
    if (fault.write && atomic_fetch_add(&writes, 1) + 1 >= fault.write) {
        errno = ENOSPC;
        return -1;
    }
    return syscall(SYS_write, file, bytes, size);
}

int fsync(int file)
{
    (void)file;
    return 0;
}

int flock(int file, int operation)
{
    if (fault.lock) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_flock, file, operation);
}
