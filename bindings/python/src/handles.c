#include "handles.h"
#include "xla.h"

static int threads; /* with the GIL held */

mha_context *handle_context(void) { return context_get(threads); }

PyObject *handle_set_threads(PyObject *module, PyObject *number)
{
    (void)module;
    long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred()) return NULL;
    threads = (int)value;
    xla_set_threads(threads);
    Py_RETURN_NONE;
}

int handle_check_vector(const mha_tensor *t, mha_type type, const char *name)
{
    if (t->rank == 1 && t->type == type && (t->size[0] < 2 || t->stride[0] == 1)) return 0;
    PyErr_Format(PyExc_TypeError, "%s: must be a dense vector of whole numbers", name);
    return -1;
}

int handle_check_size(const mha_tensor *t, mha_type type, int64_t count, const char *name)
{
    int64_t dense = 1;
    bool is = t->type == type;
    for (int axis = t->rank - 1; axis >= 0; axis--) {
        is = is && (t->size[axis] < 2 || t->stride[axis] == dense);
        dense *= t->size[axis];
    }
    if (is && dense == count) return 0;
    PyErr_Format(PyExc_ValueError, "%s: must be a dense array of %lld numbers of its type", name, (long long)count);
    return -1;
}

int64_t handle_all_heads(const mha_model *model)
{
    int64_t heads = 0;
    for (int64_t n = 0; n < mha_model_attention_count(model); n++) heads += mha_model_attention_get(model, n).heads;
    return heads;
}

static void release_model(PyObject *capsule) { mha_model_free(handle_model(capsule)); }

PyObject *handle_wrap_model(mha_model *model)
{
    PyObject *capsule = PyCapsule_New(model, HANDLE_MODEL, release_model);
    if (!capsule) mha_model_free(model);
    return capsule;
}

PyObject *handle_append_score(PyObject *list, const mha_score *score)
{
    PyObject *one = Py_BuildValue("LLd", (long long)score->count, (long long)score->correct, score->loss);
    if (!one || PyList_Append(list, one)) Py_CLEAR(list);
    Py_XDECREF(one);
    return list;
}
