/* Arrays of the caller as tensors: views of their memory, never copies. */
#ifndef MHA_PYTHON_ARRAY_H
#define MHA_PYTHON_ARRAY_H

#include "module.h"

typedef struct array {
    mha_tensor tensor;
    Py_buffer buffer; /* without an obj: none */
    PyObject *owner;  /* a capsule or tensor that holds the memory; or NULL */
    PyObject *object; /* what was read, and as which argument: the caller's */
    const char *name;
    int device; /* the GPU that the memory is on; -1: none */
} array;

/* Reads an array: something with the buffer protocol (NumPy), a tensor of PyTorch, or something with __dlpack__. `name` is the
 * argument that an exception talks about. With `writable`, memory that is read-only is refused.
 * 0, or -1 with an exception set; then there is nothing to release. */
int array_read(array *a, PyObject *object, const char *name, bool writable);

/* The same, also for memory of a GPU. */
int array_read_anywhere(array *a, PyObject *object, const char *name, bool writable);
void array_release(array *a);

#endif
