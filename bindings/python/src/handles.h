/* Models, tokenizers and generations of the library as capsules, which free them. */
#ifndef MHA_PYTHON_HANDLES_H
#define MHA_PYTHON_HANDLES_H

#include "module.h"

#include <mha_text.h>

#define HANDLE_MODEL      "mha.model"
#define HANDLE_TOKENIZER  "mha.tokenizer"
#define HANDLE_GENERATION "mha.generation"

static inline mha_model *handle_model(PyObject *capsule) { return PyCapsule_GetPointer(capsule, HANDLE_MODEL); }
static inline mha_tokenizer *handle_tokenizer(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, HANDLE_TOKENIZER);
}

/* The threads that calls of models use: those of set_num_threads, which Python passes on. */
mha_context *handle_context(void);
PyObject *handle_set_threads(PyObject *module, PyObject *threads);

/* A dense vector of numbers of that type. 0, or -1 with an exception set that names the argument. */
int handle_check_vector(const mha_tensor *t, mha_type type, const char *name);

#endif
