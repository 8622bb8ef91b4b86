/* Attention as custom calls of XLA, through its foreign function interface: what mha.jax compiles into programs of JAX.
 *
 * XLA calls a handler with a frame: buffers that are read, buffers that are written, and attributes. Two attributes, "reads" and
 * "writes", name the buffers in order, such as "q k v bias" and "out softmax"; the others are options. All of these names are those of
 * the tables in attention.c. Handlers run on threads of XLA, without Python's lock. */
#include "attention.h"
#include "xla.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- The structs of the interface, version 0: as much of each as is used ----------------------------------------- */

/* Each begins with its size, and a list of extensions. */
typedef struct xla_extension {
    size_t size;
    int type;
    struct xla_extension *next;
} xla_extension;
enum { XLA_METADATA = 1 };

typedef struct xla_version {
    size_t size;
    xla_extension *extensions;
    int major, minor;
} xla_version;

typedef struct xla_error xla_error; /* XLA's own */
typedef struct xla_new_error {
    size_t size;
    xla_extension *extensions;
    const char *message;
    int code;
} xla_new_error;
enum { XLA_INVALID_ARGUMENT = 3, XLA_RESOURCE_EXHAUSTED = 8, XLA_INTERNAL = 13 };

typedef struct xla_api {
    size_t size;
    xla_extension *extensions;
    xla_version version;
    const void *internal;
    xla_error *(*create_error)(xla_new_error *);
} xla_api;

typedef struct xla_span {
    const char *text;
    size_t length;
} xla_span;

typedef struct xla_buffer {
    size_t size;
    xla_extension *extensions;
    int type;
    void *data;
    int64_t rank;
    int64_t *sizes; /* the array is dense and in row-major order */
} xla_buffer;

typedef struct xla_buffers {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    int *kinds;
    void **items;
} xla_buffers;
enum { XLA_IS_BUFFER = 1 };

typedef struct xla_scalar {
    int type;
    void *value;
} xla_scalar;

typedef struct xla_attributes {
    size_t size;
    xla_extension *extensions;
    int64_t count;
    int *kinds;
    xla_span **names;
    void **items;
} xla_attributes;
enum { XLA_IS_SCALAR = 3, XLA_IS_TEXT = 4 };

typedef struct xla_frame {
    size_t size;
    xla_extension *extensions;
    const xla_api *api;
    void *context;
    int stage;
    xla_buffers reads, writes;
    xla_attributes attributes;
} xla_frame;

/* XLA asks for these before it compiles a call. */
typedef struct xla_metadata {
    size_t size;
    xla_version version;
    uint32_t traits;
} xla_metadata;
typedef struct xla_metadata_extension {
    xla_extension base;
    xla_metadata *metadata;
} xla_metadata_extension;

/* Numbers that stand for types. */
enum { XLA_BOOL = 1, XLA_INT32 = 4, XLA_INT64 = 5, XLA_UINT32 = 8, XLA_UINT64 = 9, XLA_FLOAT32 = 11 };
static const struct {
    int type;
    mha_type ours;
} types[] = {{XLA_FLOAT32, MHA_FLOAT32}, {16, MHA_BFLOAT16},     {10, MHA_FLOAT16},
             {XLA_BOOL, MHA_BOOL},       {XLA_INT64, MHA_INT64}, {XLA_INT32, MHA_INT32}};

/* ---- Contexts ---------------------------------------------------------------------------------------------------- */

/* Contexts that no call is using. They are kept, because a context owns threads; concurrent calls use different contexts. */
enum { MOST_IDLE = 16 };
static mha_context *idle[MOST_IDLE];
static int idle_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int threads; /* as set_num_threads said: 0 is the number of processors */
static atomic_int changes; /* how often that number was set; idle contexts from before the last change are freed */
static int idle_since;     /* the value of `changes` when the idle contexts were made */

void xla_set_threads(int number)
{
    atomic_store(&threads, number);
    atomic_fetch_add(&changes, 1);
}

/* An idle context, or NULL. */
static mha_context *take_idle(void)
{
    mha_context *found = NULL, *old[MOST_IDLE];
    int count = 0;
    pthread_mutex_lock(&lock);
    if (idle_since != atomic_load(&changes)) {
        memcpy(old, idle, sizeof *idle * (size_t)idle_count);
        count = idle_count, idle_count = 0, idle_since = atomic_load(&changes);
    }
    if (idle_count) found = idle[--idle_count];
    pthread_mutex_unlock(&lock);
    while (count) mha_context_free(old[--count]);
    return found;
}

static void give_back(mha_context *ctx, int since)
{
    pthread_mutex_lock(&lock);
    if (since == idle_since && idle_count < MOST_IDLE) idle[idle_count++] = ctx, ctx = NULL;
    pthread_mutex_unlock(&lock);
    mha_context_free(ctx);
}

static mha_status take_context(mha_context **ctx, char *line, size_t size)
{
    if ((*ctx = take_idle())) return MHA_OK;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = atomic_load(&threads), options.error = line, options.error_size = size;
    return mha_context_create(ctx, &options);
}

/* ---- A frame as a call ------------------------------------------------------------------------------------------- */

static xla_error *fail(const xla_frame *frame, int code, const char *message)
{
    xla_new_error error = {sizeof error, NULL, message, code};
    return frame->api->create_error(&error);
}

/* A dense array. False for a type that attention does not read. */
static bool set_tensor(mha_tensor *t, const xla_buffer *from)
{
    static double nothing; /* arrays without numbers have no address */
    size_t n = 0, count = sizeof types / sizeof *types;
    while (n < count && types[n].type != from->type) n++;
    if (n == count || from->rank > 4) return false;
    int64_t dense = 1;
    t->data = from->data ? from->data : (void *)&nothing, t->type = types[n].ours, t->rank = (int)from->rank;
    for (int axis = t->rank - 1; axis >= 0; axis--) {
        t->size[axis] = from->sizes[axis], t->stride[axis] = dense;
        dense *= from->sizes[axis];
    }
    return true;
}

/* Seeds may change from call to call, so that they are arrays: two uint32, the upper half first, as keys of JAX are. */
static bool set_seed(uint64_t *seed, const xla_buffer *from)
{
    if (from->type != XLA_UINT32 || from->rank != 1 || from->sizes[0] != 2) return false;
    const uint32_t *halves = from->data;
    *seed = (uint64_t)halves[0] << 32 | halves[1];
    return true;
}

static bool set_buffer(attention_call *c, const field *f, const xla_buffer *from)
{
    void *at = f ? (char *)c + f->at : NULL;
    if (!f) return false;
    if (f->kind == FIELD_UNSIGNED) return set_seed(at, from);
    return (f->kind == FIELD_INPUT || f->kind == FIELD_NEEDED || f->kind == FIELD_OUTPUT) && set_tensor(at, from);
}

static bool set_scalar(attention_call *c, const field *f, const xla_scalar *from)
{
    void *at = f ? (char *)c + f->at : NULL;
    if (!f) return false;
    if (f->kind == FIELD_BOOL && from->type == XLA_BOOL) return memcpy(at, from->value, sizeof(bool)), true;
    if (f->kind == FIELD_FLOAT && from->type == XLA_FLOAT32) return memcpy(at, from->value, sizeof(float)), true;
    if (f->kind == FIELD_INT && from->type == XLA_INT64) return memcpy(at, from->value, sizeof(int64_t)), true;
    if (f->kind == FIELD_COUNT && from->type == XLA_INT32) return memcpy(at, from->value, sizeof(int32_t)), true;
    return false;
}

/* The attribute of a name; NULL if there is none. */
static const void *attribute(const xla_attributes *all, int kind, const char *name)
{
    for (int64_t n = 0; n < all->count; n++)
        if (all->kinds[n] == kind && all->names[n]->length == strlen(name) &&
            !memcmp(all->names[n]->text, name, strlen(name)))
            return all->items[n];
    return NULL;
}

/* Buffers in the order of their names, which blanks separate. */
static bool set_buffers(attention_call *c, const attention_operation *operation, const xla_buffers *buffers,
                        const xla_span *names)
{
    const char *at = names ? names->text : NULL, *end = at ? at + names->length : NULL;
    for (int64_t n = 0; n < buffers->count; n++) {
        if (!at || at >= end || buffers->kinds[n] != XLA_IS_BUFFER) return false;
        const char *blank = memchr(at, ' ', (size_t)(end - at)), *stop = blank ? blank : end;
        if (!set_buffer(c, attention_field(operation, at, (size_t)(stop - at)), buffers->items[n])) return false;
        at = stop + 1;
    }
    return true;
}

static bool set_call(attention_call *c, const attention_operation *operation, const xla_frame *frame)
{
    const xla_attributes *all = &frame->attributes;
    for (int64_t n = 0; n < all->count; n++)
        if (all->kinds[n] == XLA_IS_SCALAR &&
            !set_scalar(c, attention_field(operation, all->names[n]->text, all->names[n]->length), all->items[n]))
            return false;
    return set_buffers(c, operation, &frame->reads, attribute(all, XLA_IS_TEXT, "reads")) &&
           set_buffers(c, operation, &frame->writes, attribute(all, XLA_IS_TEXT, "writes"));
}

/* ---- Handlers ---------------------------------------------------------------------------------------------------- */

/* The structs above are those of every version 0 of the interface. */
static xla_error *describe(const xla_frame *frame)
{
    xla_metadata *to = ((xla_metadata_extension *)frame->extensions)->metadata;
    to->version.major = 0, to->version.minor = frame->api->version.minor;
    to->traits = 0;
    return NULL;
}

static xla_error *handle(const xla_frame *frame, const attention_operation *operation)
{
    char line[256] = "";
    mha_context *ctx = NULL;
    attention_call c = ATTENTION_NO_CALL;
    if (frame->extensions && frame->extensions->type == XLA_METADATA) return describe(frame);
    if (!set_call(&c, operation, frame))
        return fail(frame, XLA_INTERNAL, "mha: this custom call has arguments that mha.jax does not pass");
    int since = atomic_load(&changes);
    mha_status status = take_context(&ctx, line, sizeof line);
    if (status) return fail(frame, XLA_RESOURCE_EXHAUSTED, line);
    status = attention_run(ctx, operation, &c);
    xla_error *error = NULL;
    if (status)
        error = fail(frame, status == MHA_NO_MEMORY ? XLA_RESOURCE_EXHAUSTED : XLA_INVALID_ARGUMENT,
                     mha_context_error(ctx));
    give_back(ctx, since);
    return error;
}

static xla_error *forward(xla_frame *frame) { return handle(frame, &attention_forward); }
static xla_error *backward(xla_frame *frame) { return handle(frame, &attention_backward); }

/* -> {name: capsule}, as jax.ffi.register_ffi_target takes them */
static PyObject *handlers(PyObject *module, PyObject *none)
{
    static const struct {
        const char *name;
        xla_error *(*handler)(xla_frame *);
    } all[] = {{"mha_attention_forward", forward}, {"mha_attention_backward", backward}};
    PyObject *dict = PyDict_New();
    (void)module, (void)none;
    for (size_t n = 0; dict && n < sizeof all / sizeof *all; n++) {
        void *address;
        memcpy(&address, &all[n].handler, sizeof address);
        PyObject *capsule = PyCapsule_New(address, NULL, NULL);
        if (!capsule || PyDict_SetItemString(dict, all[n].name, capsule)) Py_CLEAR(dict);
        Py_XDECREF(capsule);
    }
    return dict;
}

PyMethodDef xla_methods[] = {{"xla_handlers", handlers, METH_NOARGS, "Attention as custom calls of XLA, by name."},
                             {NULL, NULL, 0, NULL}};
