#include "fields.h"

#include <math.h>

int fields_start(field *table)
{
    for (; table->name; table++)
        if (!(table->interned = PyUnicode_InternFromString(table->name))) return -1;
    return 0;
}

/* By the address of the name, or by its letters. */
static const field *find(const field *table, PyObject *name, bool letters)
{
    for (; table->name; table++)
        if (letters ? !PyUnicode_Compare(table->interned, name) : table->interned == name) return table;
    return NULL;
}

/* Names of a call are nearly always interned, so that their addresses suffice. */
static const field *find_any(const field *table, const field *more, PyObject *name)
{
    for (int letters = 0; letters < 2; letters++) {
        const field *f = find(table, name, letters);
        if (!f) f = find(more, name, letters);
        if (f) return f;
    }
    return NULL;
}

/* Replaces an exception of a conversion by one that names the argument. */
static int refuse(const field *f, const char *what, PyObject *value)
{
    bool range = PyErr_ExceptionMatches(PyExc_OverflowError) != 0;
    PyErr_Clear();
    if (range) PyErr_Format(PyExc_ValueError, "%s: %R is out of range", f->name, value);
    else PyErr_Format(PyExc_TypeError, "%s: must be %s, not %R", f->name, what, (PyObject *)Py_TYPE(value));
    return -1;
}

static int add_array(fields_held *held, mha_tensor *to, PyObject *object, const char *name, bool writable)
{
    if (held->count == FIELDS_MOST_ARRAYS) return PyErr_SetString(PyExc_TypeError, "too many arrays"), -1;
    array *a = &held->arrays[held->count];
    int (*read)(array *, PyObject *, const char *, bool) = held->anywhere ? array_read_anywhere : array_read;
    if (read(a, object, name, writable)) return -1;
    held->count++;
    *to = a->tensor;
    return 0;
}

int fields_add(fields_held *held, mha_tensor *to, PyObject *object, const char *name)
{
    return add_array(held, to, object, name, true);
}

static int read_whole(const field *f, void *at, PyObject *value)
{
    PyObject *number = PyNumber_Index(value);
    if (!number) return refuse(f, "a whole number", value);
    if (f->kind == FIELD_UNSIGNED) *(uint64_t *)at = PyLong_AsUnsignedLongLong(number);
    else if (f->kind == FIELD_COUNT) *(int *)at = (int)PyLong_AsLong(number);
    else *(int64_t *)at = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return PyErr_Occurred() ? refuse(f, "a whole number", value) : 0;
}

static int read_value(fields_held *held, const field *f, void *at, PyObject *value)
{
    int truth;
    double number;
    switch (f->kind) {
    case FIELD_INPUT:
    case FIELD_NEEDED:
    case FIELD_OUTPUT:
        return add_array(held, at, value, f->name, f->kind == FIELD_OUTPUT);
    case FIELD_OBJECT:
        *(PyObject **)at = value;
        return 0;
    case FIELD_BOOL:
        if ((truth = PyObject_IsTrue(value)) < 0) return refuse(f, "True or False", value);
        *(bool *)at = truth > 0;
        return 0;
    case FIELD_FLOAT:
        number = PyFloat_AsDouble(value);
        if (PyErr_Occurred()) return refuse(f, "a number", value);
        if (isnan(number))
            return PyErr_Format(PyExc_ValueError, "%s: is NaN", f->name), -1; /* the library's "not given" */
        *(float *)at = (float)number;
        return 0;
    case FIELD_MORE:
    case FIELD_DOUBLE:
    case FIELD_TEXT:
    case FIELD_ID:
        return refuse(f, "a dict", value);
    case FIELD_INT:
    case FIELD_COUNT:
    case FIELD_UNSIGNED:
        break;
    }
    return read_whole(f, at, value);
}

/* All arrays that a call needs have been given. */
static int check_needed(const void *to, const field *table)
{
    for (; table->name; table++)
        if (table->kind == FIELD_NEEDED && !((const mha_tensor *)((const char *)to + table->at))->data) {
            PyErr_Format(PyExc_TypeError, "%s: must be an array, not None", table->name);
            return -1;
        }
    return 0;
}

/* What the arguments of one call go to. */
typedef struct reading {
    fields_held *held;
    void *to;
    const field *table, *more;
} reading;

static int read_named(const reading *r, PyObject *name, PyObject *value);

static int read_dict(const reading *r, PyObject *dict)
{
    Py_ssize_t at = 0;
    PyObject *name, *value;
    while (PyDict_Next(dict, &at, &name, &value))
        if (read_named(r, name, value)) return -1;
    return 0;
}

static int read_named(const reading *r, PyObject *name, PyObject *value)
{
    if (Py_IsNone(value)) return 0;
    const field *f = find_any(r->table, r->more, name);
    if (!f) return PyErr_Format(PyExc_TypeError, "there is no argument %R", name), -1;
    if (f->kind == FIELD_MORE && PyDict_CheckExact(value)) return read_dict(r, value);
    return read_value(r->held, f, (char *)r->to + f->at, value);
}

int fields_read(fields_held *held, void *to, const field *table, const field *more, PyObject *const *arguments,
                Py_ssize_t positional, PyObject *names)
{
    const reading r = {held, to, table, more};
    held->count = 0;
    if (positional) return PyErr_SetString(PyExc_TypeError, "arguments must be given by name"), -1;
    Py_ssize_t count = names ? PyTuple_Size(names) : 0;
    for (Py_ssize_t n = 0; n < count; n++)
        if (read_named(&r, PyTuple_GetItem(names, n), arguments[n])) return -1;
    return check_needed(to, table);
}

static PyObject *value_of(const void *at, field_kind kind)
{
    switch (kind) {
    case FIELD_BOOL:
        return PyBool_FromLong(*(const bool *)at);
    case FIELD_INT:
        return PyLong_FromLongLong(*(const int64_t *)at);
    case FIELD_COUNT:
        return PyLong_FromLong(*(const int *)at);
    case FIELD_ID:
        return PyLong_FromLong(*(const int32_t *)at);
    case FIELD_FLOAT:
        return PyFloat_FromDouble((double)*(const float *)at);
    case FIELD_DOUBLE:
        return PyFloat_FromDouble(*(const double *)at);
    case FIELD_TEXT:
        return Py_BuildValue("z", *(const char *const *)at);
    default:
        return PyErr_SetString(PyExc_SystemError, "a field that is no result"), NULL;
    }
}

PyObject *fields_dict(const void *from, const field *table)
{
    PyObject *dict = PyDict_New();
    for (; dict && table->name; table++) {
        PyObject *value = value_of((const char *)from + table->at, table->kind);
        if (!value || PyDict_SetItem(dict, table->interned, value)) Py_CLEAR(dict);
        Py_XDECREF(value);
    }
    return dict;
}

void fields_release(fields_held *held)
{
    while (held->count > 0) array_release(&held->arrays[--held->count]);
}
