/* Calls on arrays of a GPU: one context for each stream in which a thread calls. */
#include "fields.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST = 32 }; /* contexts of a thread; PyTorch has as many streams for a device */
typedef struct stream_context {
    mha_context *ctx;
    int device;
    void *stream;
} stream_context;

typedef struct thread_contexts {
    stream_context all[MOST];
    int count, next; /* next: the one to give up if there are MOST */
} thread_contexts;

static pthread_key_t key; /* its destructor frees the contexts of a thread that ends */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static PyObject *stream_of; /* (array, device) -> the stream that its library uses now */

static void release(void *of)
{
    thread_contexts *mine = of;
    for (int n = 0; n < mine->count; n++) mha_context_free(mine->all[n].ctx);
    free(mine);
}
static void make_key(void) { (void)pthread_key_create(&key, release); }

PyObject *gpu_know_streams(PyObject *module, PyObject *function)
{
    (void)module;
    keep(&stream_of, function);
    Py_RETURN_NONE;
}

static thread_contexts *contexts_of_thread(void)
{
    pthread_once(&once, make_key);
    thread_contexts *mine = pthread_getspecific(key);
    if (mine) return mine;
    mine = calloc(1, sizeof *mine);
    if (mine && !pthread_setspecific(key, mine)) return mine;
    free(mine);
    PyErr_NoMemory();
    return NULL;
}

static mha_context *create(int device, void *stream)
{
    char line[400] = "", name[32];
    mha_context *ctx = NULL;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    snprintf(name, sizeof name, "cuda:%d", device);
    options.device = name, options.stream = stream, options.error = line, options.error_size = sizeof line;
    mha_status status = mha_context_create(&ctx, &options);
    if (status) PyErr_Format(status == MHA_NO_MEMORY ? PyExc_MemoryError : PyExc_RuntimeError, "%s: %s", name, line);
    return ctx;
}

static mha_context *context_on(int device, void *stream)
{
    thread_contexts *mine = contexts_of_thread();
    if (!mine) return NULL;
    for (int n = 0; n < mine->count; n++)
        if (mine->all[n].device == device && mine->all[n].stream == stream) return mine->all[n].ctx;
    mha_context *ctx = create(device, stream);
    if (!ctx) return NULL;
    int at = mine->count < MOST ? mine->count++ : mine->next++ % MOST;
    mha_context_free(mine->all[at].ctx); /* waits for its calls */
    mine->all[at] = (stream_context){ctx, device, stream};
    return ctx;
}

/* Where an array lies, for messages. */
static const char *place_of(char text[32], int device)
{
    if (device < 0) return "in the memory of the CPU";
    snprintf(text, 32, "on cuda:%d", device);
    return text;
}

static int check_devices(const fields_held *held)
{
    char one[32], other[32];
    const array *first = &held->arrays[0];
    for (int n = 1; n < held->count; n++)
        if (held->arrays[n].device != first->device) {
            PyErr_Format(PyExc_ValueError, "%s: is %s, but %s is %s", held->arrays[n].name,
                         place_of(one, held->arrays[n].device), first->name, place_of(other, first->device));
            return -1;
        }
    return 0;
}

mha_context *fields_context(const fields_held *held, int threads, int team)
{
    if (!held->count || !check_devices(held)) {
        int device = held->count ? held->arrays[0].device : -1;
        if (device < 0) return team ? context_get_team(team) : context_get(threads);
        PyObject *stream = stream_of ? PyObject_CallFunction(stream_of, "Oi", held->arrays[0].object, device) : NULL;
        void *address = stream ? PyLong_AsVoidPtr(stream) : NULL;
        Py_XDECREF(stream);
        if (!PyErr_Occurred() && stream_of) return context_on(device, address);
    }
    return NULL;
}
