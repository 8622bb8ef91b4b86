/* Keyword arguments of a call as fields of a struct, by a table. */
#ifndef MHA_PYTHON_FIELDS_H
#define MHA_PYTHON_FIELDS_H

#include "array.h"

typedef enum field_kind {
    FIELD_INPUT,  /* an array that is read: mha_tensor */
    FIELD_NEEDED, /* the same; None is an error */
    FIELD_OUTPUT, /* an array that is written: mha_tensor */
    FIELD_FLOAT,
    FIELD_BOOL,
    FIELD_INT,      /* int64_t */
    FIELD_COUNT,    /* int */
    FIELD_UNSIGNED, /* uint64_t */
    FIELD_OBJECT,   /* PyObject *, borrowed */
    FIELD_MORE,     /* a dict of more arguments, which costs less than a call with ** */

    /* Of results alone. */
    FIELD_DOUBLE,
    FIELD_TEXT, /* const char *; NULL is None */
    FIELD_ID    /* int32_t */
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t at;          /* in the struct */
    PyObject *interned; /* the name; set by fields_start */
} field;

/* A table ends with a name of NULL. fields_start is called once for each: 0, or -1 with an exception set. */
int fields_start(field *table);

enum { FIELDS_MOST_ARRAYS = 32 };
typedef struct fields_held { /* the arrays of a call, until it is over */
    array arrays[FIELDS_MOST_ARRAYS];
    int count;
    bool anywhere; /* arrays may be on a GPU */
} fields_held;

/* Fills `to` from the arguments of METH_FASTCALL | METH_KEYWORDS, which must all be keywords of one of the two tables. None
 * leaves a field as it is. 0, or -1 with an exception set; fields_release is called in both cases. */
int fields_read(fields_held *held, void *to, const field *table, const field *more, PyObject *const *arguments,
                Py_ssize_t positional, PyObject *names);
void fields_release(fields_held *held);

/* One more array of the call, which is written: as if it were an argument. 0, or -1 with an exception set. */
int fields_add(fields_held *held, mha_tensor *to, PyObject *object, const char *name);

/* The context for these arrays: this thread's, with so many threads of its own or, unless `team` is 0, of PyTorch; on a GPU
 * the one of the stream that the library of the first array uses now. All of them must be on one device. NULL with an exception
 * set. */
mha_context *fields_context(const fields_held *held, int threads, int team);

/* The fields of a struct as a dict. NULL with an exception set. */
PyObject *fields_dict(const void *from, const field *table);

#endif
