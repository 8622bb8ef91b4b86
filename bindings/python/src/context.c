/* The contexts of each thread that calls the library: one with threads of its own, and one whose loops run on those of PyTorch. */
#include "module.h"

#include <errno.h>
#include <pthread.h>
#include <sys/stat.h>

enum { OWN, TEAM, KINDS };
static pthread_key_t keys[KINDS]; /* their destructors free the contexts of a thread that ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local mha_context *contexts[KINDS];
static int processors; /* what 0 threads stand for; 0 before the first context; written with the GIL held */

static void release(void *ctx) { mha_context_free(ctx); }
static void make_keys(void)
{
    for (int kind = 0; kind < KINDS; kind++) (void)pthread_key_create(&keys[kind], release);
}

static mha_context *get(int kind, int threads, mha_parallel loops)
{
    mha_context **mine = &contexts[kind];
    int wanted = threads ? threads : processors;
    if (*mine && wanted == mha_context_threads(*mine)) return *mine;
    pthread_once(&once, make_keys);
    mha_context_free(*mine);
    *mine = NULL;
    pthread_setspecific(keys[kind], NULL);
    char line[256] = "";
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = threads, options.parallel = loops, options.error = line, options.error_size = sizeof line;
    if (mha_context_create(mine, &options)) return PyErr_SetString(PyExc_RuntimeError, line), NULL;
    pthread_setspecific(keys[kind], *mine);
    if (!threads) processors = mha_context_threads(*mine);
    return *mine;
}

mha_context *context_get(int threads) { return get(OWN, threads, (mha_parallel){NULL, NULL}); }

mha_context *context_get_team(int threads)
{
    mha_parallel loops = team_loops();
    return get(loops.run ? TEAM : OWN, threads, loops);
}

PyObject *raise_status(mha_context *ctx, mha_status status)
{
    PyObject *kind = PyExc_ValueError;
    if (status == MHA_BAD_TYPE) kind = PyExc_TypeError;
    else if (status == MHA_NO_MEMORY) kind = PyExc_MemoryError;
    else if (status >= MHA_NO_DEVICE && status != MHA_BAD_FILE) kind = PyExc_RuntimeError;
    PyErr_SetString(kind, mha_context_error(ctx));
    return NULL;
}

PyObject *raise_file_status(mha_context *ctx, mha_status status, const char *path)
{
    struct stat about;
    if (status != MHA_BAD_FILE || !stat(path, &about) || errno != ENOENT) return raise_status(ctx, status);
    PyErr_SetString(PyExc_FileNotFoundError, mha_context_error(ctx));
    return NULL;
}
