/* The parameters of a model; models without some of their heads; files of them. */
#include "fields.h"
#include "handles.h"

/* The sizes or the strides of a tensor. */
static PyObject *axes_of(const int64_t *numbers, int rank)
{
    PyObject *tuple = PyTuple_New(rank);
    for (int n = 0; tuple && n < rank; n++) {
        PyObject *number = PyLong_FromLongLong(numbers[n]);
        if (!number || PyTuple_SetItem(tuple, n, number)) Py_CLEAR(tuple);
    }
    return tuple;
}

/* One parameter: (name, type, shape, strides in elements, address). */
static PyObject *parameter_of(const mha_model *model, int64_t n)
{
    mha_model_parameter p = mha_model_parameter_get(model, n);
    const mha_tensor *t = &p.tensor;
    PyObject *shape = axes_of(t->size, t->rank), *strides = shape ? axes_of(t->stride, t->rank) : NULL;
    PyObject *address = strides ? PyLong_FromVoidPtr(t->data) : NULL;
    if (address) return Py_BuildValue("siNNN", p.name, (int)t->type, shape, strides, address);
    Py_XDECREF(shape);
    Py_XDECREF(strides);
    return NULL;
}

static PyObject *parameters(PyObject *module, PyObject *capsule)
{
    const mha_model *model = handle_model(capsule);
    PyObject *list = model ? PyList_New(0) : NULL;
    (void)module;
    for (int64_t n = 0; list && n < mha_model_parameter_count(model); n++) {
        PyObject *one = parameter_of(model, n);
        if (!one || PyList_Append(list, one)) Py_CLEAR(list);
        Py_XDECREF(one);
    }
    return list;
}

/* A model, and an array with a bool for each of its heads. False with an exception set; then there is no array to release. */
static bool read_heads(mha_model **model, array *heads, PyObject *capsule, PyObject *object, const char *name)
{
    if (!(*model = handle_model(capsule)) || array_read(heads, object, name, false)) return false;
    if (!handle_check_size(&heads->tensor, MHA_BOOL, handle_all_heads(*model), name)) return true;
    array_release(heads);
    return false;
}

/* (model, off): the heads that are off count as zero from now on. */
static PyObject *switch_off(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *object;
    mha_model *model;
    array off;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO:model_switch_off", &capsule, &object)) return NULL;
    if (!read_heads(&model, &off, capsule, object, "off")) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return array_release(&off), NULL;
    mha_status status = mha_model_switch_off(ctx, model, off.tensor.data, off.tensor.size[0]);
    array_release(&off);
    if (status) return raise_status(ctx, status);
    Py_RETURN_NONE;
}

/* (model, keep) -> a model of its own */
static PyObject *prune(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *object;
    mha_model *model, *smaller = NULL;
    array keep;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO:model_prune", &capsule, &object)) return NULL;
    if (!read_heads(&model, &keep, capsule, object, "keep")) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return array_release(&keep), NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_model_prune(ctx, &smaller, model, keep.tensor.data, keep.tensor.size[0]);
    Py_END_ALLOW_THREADS;
    array_release(&keep);
    return status ? raise_status(ctx, status) : handle_wrap_model(smaller);
}

/* (model, path, keep or None) */
static PyObject *save(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *object;
    const char *path;
    mha_model *model;
    array keep = {.owner = NULL};
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OsO:model_save", &capsule, &path, &object)) return NULL;
    bool all = Py_IsNone(object);
    if (all ? !(model = handle_model(capsule)) : !read_heads(&model, &keep, capsule, object, "keep")) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return array_release(&keep), NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = all ? mha_model_save(ctx, model, path, NULL)
                 : mha_model_save_pruned(ctx, model, path, keep.tensor.data, keep.tensor.size[0]);
    Py_END_ALLOW_THREADS;
    array_release(&keep);
    if (status) return raise_status(ctx, status);
    Py_RETURN_NONE;
}

/* (model, images, result) */
static PyObject *contributions(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *from, *to;
    array images, result;
    mha_status status = MHA_OK;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOO:model_contributions", &capsule, &from, &to)) return NULL;
    mha_model *model = handle_model(capsule);
    if (!model || array_read(&images, from, "images", false)) return NULL;
    if (array_read(&result, to, "result", true)) return array_release(&images), NULL;
    mha_model_inputs in = {.images = images.tensor};
    HELD_CONTEXT ctx = handle_context();
    if (ctx) {
        Py_BEGIN_ALLOW_THREADS;
        status = mha_model_contributions(ctx, model, result.tensor, &in);
        Py_END_ALLOW_THREADS;
    }
    array_release(&images);
    array_release(&result);
    if (!ctx) return NULL;
    if (status) return raise_status(ctx, status);
    Py_RETURN_NONE;
}

PyMethodDef parameter_methods[] = {{"model_parameters", parameters, METH_O, "mha_model_parameter_get"},
                                   {"model_switch_off", switch_off, METH_VARARGS, "mha_model_switch_off"},
                                   {"model_prune", prune, METH_VARARGS, "mha_model_prune"},
                                   {"model_save", save, METH_VARARGS, "mha_model_save"},
                                   {"model_contributions", contributions, METH_VARARGS, "mha_model_contributions"},
                                   {NULL, NULL, 0, NULL}};
