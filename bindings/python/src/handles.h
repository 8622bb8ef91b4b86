/* Models, tokenizers, generations, data, surveys and trainings of the library as capsules, which free them. */
#ifndef MHA_PYTHON_HANDLES_H
#define MHA_PYTHON_HANDLES_H

#include "module.h"

#include <mha_text.h>

#define HANDLE_MODEL      "mha.model"
#define HANDLE_TOKENIZER  "mha.tokenizer"
#define HANDLE_GENERATION "mha.generation"
#define HANDLE_DATA       "mha.data"
#define HANDLE_SURVEY     "mha.survey"
#define HANDLE_TRAINING   "mha.training"

static inline mha_model *handle_model(PyObject *capsule) { return PyCapsule_GetPointer(capsule, HANDLE_MODEL); }
static inline mha_tokenizer *handle_tokenizer(PyObject *capsule)
{
    return PyCapsule_GetPointer(capsule, HANDLE_TOKENIZER);
}

static inline mha_data *handle_data(PyObject *capsule) { return PyCapsule_GetPointer(capsule, HANDLE_DATA); }

/* A model that was made, as a capsule; without memory for that it is freed. */
PyObject *handle_wrap_model(mha_model *model);

/* The threads that calls of models use: those of set_num_threads, which Python passes on. */
mha_context *handle_context(void);
PyObject *handle_set_threads(PyObject *module, PyObject *threads);

/* A dense vector of numbers of that type. 0, or -1 with an exception set that names the argument. */
int handle_check_vector(const mha_tensor *t, mha_type type, const char *name);

/* The same for any dense array of `count` numbers. */
int handle_check_size(const mha_tensor *t, mha_type type, int64_t count, const char *name);

/* Adds (count, correct, loss). Takes the list, and returns it or NULL with an exception set. */
PyObject *handle_append_score(PyObject *list, const mha_score *score);

/* How many heads all attentions of a model have together. */
int64_t handle_all_heads(const mha_model *model);

#endif
