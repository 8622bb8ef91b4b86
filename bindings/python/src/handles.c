#include "handles.h"

static int threads; /* with the GIL held */

mha_context *handle_context(void) { return context_get(threads); }

PyObject *handle_set_threads(PyObject *module, PyObject *number)
{
    (void)module;
    long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred()) return NULL;
    threads = (int)value;
    Py_RETURN_NONE;
}

int handle_check_vector(const mha_tensor *t, mha_type type, const char *name)
{
    if (t->rank == 1 && t->type == type && (t->size[0] < 2 || t->stride[0] == 1)) return 0;
    PyErr_Format(PyExc_TypeError, "%s: must be a dense vector of whole numbers", name);
    return -1;
}
