/* Parallel loops on the threads of the OpenMP library that PyTorch uses.
 *
 * After a parallel region, the threads of libgomp look for the next one for milliseconds before they sleep. Threads of our
 * own would take turns with them on the same processors. So calls from PyTorch use its threads.
 *
 * The library is found through the one of PyTorch that is linked with it, since a process may have loaded several.
 * GOMP_parallel is what compiled code calls; LLVM's and Intel's libraries have it, too. A region asks for the threads that
 * PyTorch has set, never for fewer: libgomp ends the threads that a smaller team leaves over.
 *
 * A region ends when every thread of the team has been there, also those that came too late to do anything. Where other programs
 * have the processors, that is milliseconds: small calls have no region. */
#include "module.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct {
    void (*parallel)(void (*part)(void *data), void *data, unsigned threads, unsigned flags); /* NULL: not found */
    int (*number)(void); /* of the calling thread in its team */
    int (*count)(void);
} team; /* written with the GIL held, and in a child of fork */

static _Thread_local bool small;

void team_small(bool is_small) { small = is_small; }

typedef struct loop {
    int tasks;
    void (*task)(void *arg, int index);
    void *arg;
} loop;

/* Task n runs on thread n in loop after loop: its scratch is in the caches there. A team may have fewer threads than the loop has
 * tasks, as inside of another region. */
static void run_part(void *data)
{
    const loop *l = data;
    for (int n = team.number(), count = team.count(); n < l->tasks; n += count) l->task(l->arg, n);
}

static void run(void *user, int tasks, void (*task)(void *arg, int index), void *arg)
{
    (void)user;
    for (int n = 0; small && n < tasks; n++) task(arg, n);
    if (!small) team.parallel(run_part, &(loop){tasks, task, arg}, 0, 0);
}

mha_parallel team_loops(void) { return team.parallel ? (mha_parallel){run, NULL} : (mha_parallel){NULL, NULL}; }

/* ---- Pages ------------------------------------------------------------------------------------------------------ */

/* A page in place of 512 others, and bytes from which on such pages are worth while. */
enum { HUGE_PAGE = 2 << 20, LARGE = 2 * HUGE_PAGE };

typedef struct memory {
    uintptr_t first, end;
} memory;

/* The part that lies in the nth of the huge pages. The kernel may refuse: then the first one who writes brings a page. */
static void bring_part(void *arg, int n)
{
    const memory *m = arg;
    uintptr_t from = m->first / HUGE_PAGE * HUGE_PAGE + (uintptr_t)n * HUGE_PAGE, end = from + HUGE_PAGE;
    if (from < m->first) from = m->first;
    if (end > m->end) end = m->end;
#ifdef MADV_POPULATE_WRITE
    (void)madvise((void *)from, end - from, MADV_POPULATE_WRITE);
#endif
}

/* The memory of a tensor without gaps, in whole pages; of any other, and of little memory, none. */
static memory memory_of(mha_tensor t)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)t.data;
    size_t count = 1, span = 1, each = mha_type_size(t.type);
    for (int axis = 0; axis < t.rank; axis++) {
        if (t.size[axis] <= 0 || t.stride[axis] < 0) return (memory){0};
        count *= (size_t)t.size[axis], span += (size_t)(t.size[axis] - 1) * (size_t)t.stride[axis];
    }
    if (!t.rank || span != count || count * each < LARGE) return (memory){0};
    return (memory){first / page * page, (first + count * each + page - 1) / page * page};
}

void team_bring_pages(mha_tensor t)
{
    memory m = memory_of(t);
    if (m.first == m.end) return;
#ifdef MADV_HUGEPAGE
    (void)madvise((void *)m.first, m.end - m.first, MADV_HUGEPAGE);
#endif
    if (team.parallel) run(NULL, (int)((m.end - 1) / HUGE_PAGE - m.first / HUGE_PAGE + 1), bring_part, &m);
}

/* ---- The library of OpenMP -------------------------------------------------------------------------------------- */

/* A child has none of the threads, and libgomp would wait for them. */
static void forget(void) { memset(&team, 0, sizeof team); }
static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, forget); }

/* POSIX lets the address of a function be kept in a void *; ISO C has no cast for it. */
static bool find(void *library, const char *name, void *function, size_t size)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, size);
    return address;
}

PyObject *team_know(PyObject *module, PyObject *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)module;
    PyObject *bytes = PyUnicode_EncodeFSDefault(path);
    if (!bytes) return NULL;
    void *library = dlopen(PyBytes_AsString(bytes), RTLD_LAZY | RTLD_NOLOAD);
    Py_DECREF(bytes);
    pthread_once(&once, watch_forks);
    bool found = library && find(library, "GOMP_parallel", &team.parallel, sizeof team.parallel) &&
                 find(library, "omp_get_thread_num", &team.number, sizeof team.number) &&
                 find(library, "omp_get_num_threads", &team.count, sizeof team.count);
    if (!found) forget();
    if (library) dlclose(library); /* PyTorch keeps it */
    return PyBool_FromLong(found);
}
