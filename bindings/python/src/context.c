/* The contexts of each thread that calls the library: one with threads of its own, and one whose loops run on those of PyTorch. */
#include "module.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { OWN, TEAM, KINDS };

/* A context, from when it is made until it is neither the one of its kind nor held. */
typedef struct counted {
    mha_context *ctx;
    int holders;
    bool replaced;
    struct counted *next;
} counted;

typedef struct thread_contexts {
    counted *of[KINDS]; /* those that calls get */
    counted *all;
} thread_contexts;

static pthread_key_t key; /* its destructor frees the contexts of a thread that ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local thread_contexts contexts;
static int processors; /* what 0 threads stand for; 0 before the first context; written with the GIL held */

static void release(void *of)
{
    thread_contexts *mine = of;
    while (mine->all) {
        counted *next = mine->all->next;
        mha_context_free(mine->all->ctx);
        free(mine->all);
        mine->all = next;
    }
    *mine = (thread_contexts){{NULL}, NULL};
}
static void make_key(void) { (void)pthread_key_create(&key, release); }

/* Frees what nobody will use again. */
static void sweep(void)
{
    for (counted **at = &contexts.all; *at;) {
        counted *c = *at;
        if (!c->replaced || c->holders) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        mha_context_free(c->ctx);
        free(c);
    }
}

/* NULL with an exception set. */
static counted *make(int threads, mha_parallel loops)
{
    char line[256] = "";
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    counted *c = calloc(1, sizeof *c);
    if (!c) return PyErr_NoMemory(), NULL;
    options.threads = threads, options.parallel = loops, options.error = line, options.error_size = sizeof line;
    if (mha_context_create(&c->ctx, &options)) return free(c), PyErr_SetString(PyExc_RuntimeError, line), NULL;
    c->next = contexts.all;
    return contexts.all = c;
}

static mha_context *get(int kind, int threads, mha_parallel loops)
{
    counted *mine = contexts.of[kind];
    int wanted = threads ? threads : processors;
    if (!mine || wanted != mha_context_threads(mine->ctx)) {
        if (mine) mine->replaced = true, contexts.of[kind] = NULL;
        sweep();
        pthread_once(&once, make_key);
        if (!(mine = contexts.of[kind] = make(threads, loops))) return NULL;
        pthread_setspecific(key, &contexts);
        if (!threads) processors = mha_context_threads(mine->ctx);
    }
    mine->holders++;
    return mine->ctx;
}

/* Those of GPUs are not counted: they are replaced by no call that runs Python. */
void context_give_back(mha_context *const *ctx)
{
    counted *c = contexts.all;
    while (*ctx && c && c->ctx != *ctx) c = c->next;
    if (!*ctx || !c) return;
    c->holders--;
    if (c->replaced) sweep();
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
