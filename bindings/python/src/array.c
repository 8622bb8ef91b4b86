#include "array.h"

#include <stdint.h>
#include <string.h>

/* ---- what all of them share ------------------------------------------------------------------------------------- */

static int refuse(PyObject *kind, const char *name, const char *rule)
{
    PyErr_Format(kind, "%s: %s", name, rule);
    return -1;
}

/* The type of an array as its library calls it, for messages: "float64". */
static int refuse_type(const char *name, PyObject *object)
{
    PyErr_Clear();
    PyObject *dtype = PyObject_GetAttrString(object, "dtype");
    if (!dtype) return refuse(PyExc_TypeError, name, "its numbers have a type that mha does not read");
    PyErr_Format(PyExc_TypeError,
                 "%s: is %S; mha reads numbers as float32, bfloat16 or float16, masks as bool, counts as "
                 "int64 or int32",
                 name, dtype);
    Py_DECREF(dtype);
    return -1;
}

static const size_t width[] = {
    [MHA_FLOAT32] = 4, [MHA_BFLOAT16] = 2, [MHA_FLOAT16] = 2, [MHA_BOOL] = 1, [MHA_INT64] = 8, [MHA_INT32] = 4};

/* Sets all but the axes of a tensor. Libraries give arrays without numbers no address; the library wants one. */
static int set_tensor(mha_tensor *t, void *data, mha_type type, int64_t rank, bool empty, const char *name)
{
    static double nothing;
    if (rank > 4) return refuse(PyExc_ValueError, name, "has more than 4 axes");
    if (!data && !empty) return refuse(PyExc_ValueError, name, "has no memory");
    if (empty) data = &nothing;
    if ((uintptr_t)data % width[type]) return refuse(PyExc_ValueError, name, "its memory is not aligned; copy it");
    t->data = data, t->type = type, t->rank = (int)rank;
    return 0;
}

/* ---- the buffer protocol ---------------------------------------------------------------------------------------- */

/* Characters of a buffer's format; an 'l' has the size of the platform. */
static const struct {
    char letter;
    Py_ssize_t size;
    mha_type type;
} formats[] = {{'f', 4, MHA_FLOAT32}, {'e', 2, MHA_FLOAT16}, {'?', 1, MHA_BOOL}, {'l', 8, MHA_INT64},
               {'q', 8, MHA_INT64},   {'i', 4, MHA_INT32},   {'l', 4, MHA_INT32}};

static bool is_little(void)
{
    const uint16_t one = 1;
    unsigned char first;
    memcpy(&first, &one, 1);
    return first == 1;
}

/* 0, or -1 with an exception set. */
static int read_format(const Py_buffer *b, PyObject *object, const char *name, mha_type *type)
{
    const char *letter = b->format ? b->format : "B";
    const char foreign = is_little() ? '>' : '<';
    if (*letter == foreign || (*letter == '!' && foreign == '>'))
        return refuse(PyExc_ValueError, name,
                      "has the byte order of another machine; use .astype(a.dtype.newbyteorder('='))");
    if (*letter && strchr("@=<>!", *letter)) letter++;
    for (size_t n = 0; n < sizeof formats / sizeof *formats; n++)
        if (letter[0] == formats[n].letter && !letter[1] && b->itemsize == formats[n].size) {
            *type = formats[n].type;
            return 0;
        }
    return refuse_type(name, object);
}

static int read_axes(mha_tensor *t, const Py_buffer *b, const char *name)
{
    for (int n = 0; n < t->rank; n++) {
        t->size[n] = b->shape[n];
        t->stride[n] = b->strides[n] / b->itemsize;
        if (b->shape[n] > 1 && b->strides[n] % b->itemsize)
            return refuse(PyExc_ValueError, name, "has a stride that is not a multiple of its numbers; copy it");
    }
    return 0;
}

/* Of a buffer that holds numbers of `type`, or of what its format says if that is NULL. */
static int read_buffer(array *a, PyObject *object, const char *name, bool writable, const mha_type *type)
{
    mha_type found = type ? *type : MHA_FLOAT32;
    if (writable && a->buffer.readonly) return refuse(PyExc_ValueError, name, "is read-only");
    if (!type && read_format(&a->buffer, object, name, &found)) return -1;
    if (set_tensor(&a->tensor, a->buffer.buf, found, a->buffer.ndim, a->buffer.len == 0, name)) return -1;
    return read_axes(&a->tensor, &a->buffer, name);
}

/* NumPy gives no buffer of the bfloat16 of ml_dtypes, but one of the same bits as uint16. */
static int read_bfloat16(array *a, PyObject *object, const char *name, bool writable)
{
    static const mha_type type = MHA_BFLOAT16;
    PyErr_Clear();
    PyObject *dtype = PyObject_GetAttrString(object, "dtype"), *called = dtype ? PyObject_Str(dtype) : NULL;
    bool is = called && !PyUnicode_CompareWithASCIIString(called, "bfloat16");
    Py_XDECREF(dtype);
    Py_XDECREF(called);
    if (!is) return refuse_type(name, object);
    PyObject *bits = PyObject_CallMethod(object, "view", "s", "uint16");
    if (!bits) return -1;
    int status = PyObject_GetBuffer(bits, &a->buffer, PyBUF_RECORDS_RO);
    Py_DECREF(bits); /* the buffer holds it */
    return status ? -1 : read_buffer(a, object, name, writable, &type);
}

static int read_exporter(array *a, PyObject *object, const char *name, bool writable)
{
    if (PyObject_GetBuffer(object, &a->buffer, PyBUF_RECORDS_RO)) return read_bfloat16(a, object, name, writable);
    return read_buffer(a, object, name, writable, NULL);
}

/* ---- NumPy ------------------------------------------------------------------------------------------------------ */

/* What an array's __array_struct__ points to, by NumPy's "array interface protocol". A buffer says the same in twice the time. */
typedef struct array_struct {
    int two, rank;
    char kind;
    int itemsize, flags;
    Py_ssize_t *shape, *strides; /* in bytes */
    void *data;
} array_struct;
enum { STRUCT_NATIVE = 0x200, STRUCT_WRITABLE = 0x400 };

static const struct {
    char kind;
    int size;
    mha_type type;
} struct_types[] = {
    {'f', 4, MHA_FLOAT32}, {'f', 2, MHA_FLOAT16}, {'b', 1, MHA_BOOL}, {'i', 8, MHA_INT64}, {'i', 4, MHA_INT32}};

static PyObject *numpy_array, *array_struct_name;

PyObject *array_know_numpy(PyObject *module, PyObject *type)
{
    (void)module;
    keep(&numpy_array, type);
    Py_RETURN_NONE;
}

/* The tensor of an array whose numbers need no second look; false, without an exception, for any other. */
static bool read_struct(array *a, const array_struct *from, bool writable)
{
    size_t n = 0, types = sizeof struct_types / sizeof *struct_types;
    while (n < types && (struct_types[n].kind != from->kind || struct_types[n].size != from->itemsize)) n++;
    if (n == types || from->two != 2 || from->rank > 4 || !(from->flags & STRUCT_NATIVE)) return false;
    if ((writable && !(from->flags & STRUCT_WRITABLE)) || (uintptr_t)from->data % (size_t)from->itemsize) return false;
    for (int axis = 0; axis < from->rank; axis++) {
        if (from->shape[axis] < 1 || from->strides[axis] % from->itemsize) return false;
        a->tensor.size[axis] = from->shape[axis];
        a->tensor.stride[axis] = from->strides[axis] / from->itemsize;
    }
    a->tensor.data = from->data, a->tensor.type = struct_types[n].type, a->tensor.rank = from->rank;
    return true;
}

/* Arrays of NumPy itself, not of subclasses. The capsule holds the array. */
static bool read_numpy(array *a, PyObject *object, bool writable)
{
    if ((PyObject *)Py_TYPE(object) != numpy_array) return false;
    PyObject *capsule = PyObject_GetAttr(object, array_struct_name);
    const array_struct *from = capsule ? PyCapsule_GetPointer(capsule, NULL) : NULL;
    if (!from) PyErr_Clear();
    bool read = from && read_struct(a, from, writable);
    if (read) a->owner = capsule;
    else Py_XDECREF(capsule);
    return read;
}

/* ---- DLPack ----------------------------------------------------------------------------------------------------- */

/* The structs of DLPack 0.x, which every exporter gives to who asks without a version. */
typedef struct dl_tensor {
    void *data;
    struct {
        int32_t type, id;
    } device;
    int32_t ndim;
    struct {
        uint8_t code, bits;
        uint16_t lanes;
    } dtype;
    int64_t *shape;
    int64_t *strides; /* in elements; NULL: dense */
    uint64_t byte_offset;
} dl_tensor;

enum { DL_CPU = 1, DL_CUDA = 2 };
static const struct {
    uint8_t code, bits;
    mha_type type;
} dl_types[] = {{2, 32, MHA_FLOAT32}, {4, 16, MHA_BFLOAT16}, {2, 16, MHA_FLOAT16},
                {6, 8, MHA_BOOL},     {0, 64, MHA_INT64},    {0, 32, MHA_INT32}};

static const char elsewhere[] = "is neither in the memory of the CPU nor on an NVIDIA GPU";

static int read_dl_tensor(array *a, const dl_tensor *dl, PyObject *object, const char *name)
{
    mha_tensor *to = &a->tensor;
    if (dl->device.type == DL_CUDA) a->device = dl->device.id;
    else if (dl->device.type != DL_CPU) return refuse(PyExc_ValueError, name, elsewhere);
    size_t n = 0, types = sizeof dl_types / sizeof *dl_types;
    while (n < types && (dl_types[n].code != dl->dtype.code || dl_types[n].bits != dl->dtype.bits)) n++;
    if (n == types || dl->dtype.lanes != 1) return refuse_type(name, object);
    bool empty = false;
    int64_t dense = 1;
    for (int axis = dl->ndim - 1; axis >= 0; axis--) {
        empty |= dl->shape[axis] == 0;
        if (axis < 4) to->size[axis] = dl->shape[axis], to->stride[axis] = dl->strides ? dl->strides[axis] : dense;
        dense *= dl->shape[axis];
    }
    void *data = dl->data ? (char *)dl->data + dl->byte_offset : NULL;
    return set_tensor(to, data, dl_types[n].type, dl->ndim, empty, name);
}

/* The capsule stays as it is: when it goes, so does what it holds. */
static int read_capsule(array *a, PyObject *object, const char *name)
{
    const dl_tensor *dl = PyCapsule_GetPointer(a->owner, "dltensor");
    return dl ? read_dl_tensor(a, dl, object, name) : -1;
}

/* Replaces an exception of the other library, such as that of a tracer of JAX, which has no memory. */
static int refuse_export(const char *name)
{
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    PyErr_Format(PyExc_TypeError, "%s: does not give its memory by DLPack: %S", name, value ? value : Py_None);
    Py_XDECREF(kind), Py_XDECREF(value), Py_XDECREF(trace);
    return -1;
}

/* The kind of device that an array is on; -1 with an exception set. */
static int device_type(PyObject *object, const char *name)
{
    int type, id;
    PyObject *device = PyObject_CallMethod(object, "__dlpack_device__", NULL);
    bool read = device && PyArg_ParseTuple(device, "ii", &type, &id);
    Py_XDECREF(device);
    return read ? type : refuse_export(name);
}

/* What lies elsewhere is not asked for its memory. Calls run in the stream that the array's library uses now, in which its
 * memory is ready: a stream of -1 asks the exporter not to wait. */
static int read_dlpack(array *a, PyObject *object, const char *name, bool writable)
{
    int type = device_type(object, name);
    if (type < 0) return -1;
    if (type != DL_CPU && type != DL_CUDA) return refuse(PyExc_ValueError, name, elsewhere);
    if (writable && type == DL_CPU)
        return refuse(PyExc_TypeError, name, "must be an array of NumPy or PyTorch to be written to");
    PyObject *method = PyObject_GetAttrString(object, "__dlpack__"), *none = method ? PyTuple_New(0) : NULL;
    PyObject *options = none ? type == DL_CUDA ? Py_BuildValue("{si}", "stream", -1) : PyDict_New() : NULL;
    a->owner = options ? PyObject_Call(method, none, options) : NULL;
    Py_XDECREF(method);
    Py_XDECREF(none);
    Py_XDECREF(options);
    return a->owner ? read_capsule(a, object, name) : refuse_export(name);
}

/* ---- PyTorch ---------------------------------------------------------------------------------------------------- */

/* The functions of `__dlpack_c_exchange_api__`, which PyTorch has since 2.10: a DLPack tensor without a capsule. */
typedef struct exchange_api {
    struct {
        uint32_t major, minor;
    } version;
    struct exchange_api *older;
    void (*allocate)(void), (*from_object)(void), (*to_object)(void); /* not used here */
    int (*view)(void *object, dl_tensor *to);                         /* 0, or -1 with an exception set; may be NULL */
} exchange_api;

/* A tensor's own __dlpack__ is written in Python and takes ten times as long as the function that it ends in, to_dlpack. */
static PyObject *torch_tensor, *torch_parameter, *to_dlpack, *overrides, *is_neg;
static int (*view)(void *object, dl_tensor *to); /* or NULL */

int array_start(void)
{
    is_neg = PyUnicode_InternFromString("is_neg");
    array_struct_name = PyUnicode_InternFromString("__array_struct__");
    return is_neg && array_struct_name ? 0 : -1;
}

static void find_view(PyObject *tensor)
{
    PyObject *capsule = PyObject_GetAttrString(tensor, "__dlpack_c_exchange_api__");
    const exchange_api *api = capsule ? PyCapsule_GetPointer(capsule, "dlpack_exchange_api") : NULL;
    if (!api) PyErr_Clear();
    while (api && api->version.major > 1) api = api->older;
    view = api && api->version.major == 1 ? api->view : NULL;
    Py_XDECREF(capsule);
}

PyObject *array_know_torch(PyObject *module, PyObject *arguments)
{
    PyObject *tensor, *parameter, *function, *test;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOOO:know_torch", &tensor, &parameter, &function, &test)) return NULL;
    keep(&torch_tensor, tensor), keep(&torch_parameter, parameter), keep(&to_dlpack, function), keep(&overrides, test);
    find_view(tensor);
    Py_RETURN_NONE;
}

static bool is_torch(PyObject *object)
{
    PyObject *type = (PyObject *)Py_TYPE(object);
    return torch_tensor && (type == torch_tensor || type == torch_parameter);
}

/* Views whose numbers are the negated ones of their memory: DLPack does not know them. */
static int check_sign(PyObject *object, const char *name)
{
    PyObject *value = PyObject_CallMethodObjArgs(object, is_neg, NULL);
    int negated = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    return negated > 0 ? refuse(PyExc_ValueError, name, "is a negated view; use .resolve_neg()") : negated;
}

static const char no_memory[] = "is a tensor without dense memory on the CPU or an NVIDIA GPU, or of an unknown type";

static int read_view(array *a, PyObject *object, const char *name)
{
    dl_tensor dl;
    if (view(object, &dl)) return PyErr_Clear(), refuse(PyExc_ValueError, name, no_memory);
    Py_INCREF(object);
    a->owner = object;
    return read_dl_tensor(a, &dl, object, name);
}

static int read_torch(array *a, PyObject *object, const char *name)
{
    if (check_sign(object, name)) return -1;
    if (view) return read_view(a, object, name);
    a->owner = PyObject_CallFunctionObjArgs(to_dlpack, object, NULL);
    if (a->owner) return read_capsule(a, object, name);
    PyErr_Clear();
    return refuse(PyExc_ValueError, name, no_memory);
}

/* Tensors of a class that says itself what PyTorch does with them: their memory need not hold their numbers, and may not even be
 * written. 0, or -1 with an exception set. */
static int check_class(PyObject *object, const char *name)
{
    int tensor = torch_tensor ? PyObject_IsInstance(object, torch_tensor) : 0;
    if (tensor <= 0) return tensor;
    PyObject *value = PyObject_CallFunctionObjArgs(overrides, object, NULL);
    int overridden = value ? PyObject_IsTrue(value) : -1;
    Py_XDECREF(value);
    if (overridden <= 0) return overridden;
    PyErr_Format(PyExc_TypeError, "%s: is a %R, a class of tensors whose memory need not hold their numbers", name,
                 (PyObject *)Py_TYPE(object));
    return -1;
}

/* ---- any of them ------------------------------------------------------------------------------------------------ */

static int read_any(array *a, PyObject *object, const char *name, bool writable)
{
    if (read_numpy(a, object, writable)) return 0;
    if (is_torch(object)) return read_torch(a, object, name);
    if (check_class(object, name)) return -1;
    if (PyObject_CheckBuffer(object)) return read_exporter(a, object, name, writable);
    if (PyObject_HasAttrString(object, "__dlpack__")) return read_dlpack(a, object, name, writable);
    PyErr_Format(PyExc_TypeError, "%s: must be an array, not %R", name, (PyObject *)Py_TYPE(object));
    return -1;
}

int array_read_anywhere(array *a, PyObject *object, const char *name, bool writable)
{
    memset(a, 0, sizeof *a);
    a->object = object, a->name = name, a->device = -1;
    if (!read_any(a, object, name, writable)) return 0;
    array_release(a);
    return -1;
}

int array_read(array *a, PyObject *object, const char *name, bool writable)
{
    if (array_read_anywhere(a, object, name, writable)) return -1;
    if (a->device < 0) return 0;
    array_release(a);
    return refuse(PyExc_ValueError, name, "is on a GPU, must be in the memory of the CPU");
}

void array_release(array *a)
{
    if (a->buffer.obj) PyBuffer_Release(&a->buffer);
    Py_CLEAR(a->owner);
}
