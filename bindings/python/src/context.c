/* One context for each thread that calls the library. */
#include "module.h"

#include <pthread.h>

static pthread_key_t key; /* its destructor frees the context of a thread that ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local mha_context *mine;
static int processors; /* what 0 threads stand for; 0 before the first context; written with the GIL held */

static void release(void *ctx) { mha_context_free(ctx); }
static void make_key(void) { (void)pthread_key_create(&key, release); }

mha_context *context_get(int threads)
{
    int wanted = threads ? threads : processors;
    if (mine && wanted == mha_context_threads(mine)) return mine;
    pthread_once(&once, make_key);
    mha_context_free(mine);
    mine = NULL;
    pthread_setspecific(key, NULL);
    char line[256] = "";
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = threads, options.error = line, options.error_size = sizeof line;
    if (mha_context_create(&mine, &options)) return PyErr_SetString(PyExc_RuntimeError, line), NULL;
    pthread_setspecific(key, mine);
    if (!threads) processors = mha_context_threads(mine);
    return mine;
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
