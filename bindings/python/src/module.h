/* What the files of the extension share: exceptions, and the context of the calling thread. Only the limited API of CPython
 * 3.11 is used, so that one build serves every later version. */
#ifndef MHA_PYTHON_MODULE_H
#define MHA_PYTHON_MODULE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <mha.h>
#include <stdbool.h>

/* The context of this thread, with so many threads for its loops (0: the number of processors). It is made by the first call,
 * and again when the number changes, and ends with the thread. NULL with an exception set on error.
 *
 * What runs Python may run anything, such as a __float__ or a destructor that changes the number of threads. So contexts are
 * counted: whoever gets one holds it in a HELD_CONTEXT, which gives it back at the end of its block, and one that was replaced
 * in the meantime is freed then. */
mha_context *context_get(int threads);
void context_give_back(mha_context *const *ctx);
#define HELD_CONTEXT __attribute__((cleanup(context_give_back))) mha_context *const

/* The same for a call from PyTorch, whose own threads run the loops where that is possible: another context. */
mha_context *context_get_team(int threads);

/* How loops run on the threads of PyTorch; all NULL where its OpenMP library is not known, and in a child of fork. */
mha_parallel team_loops(void);

/* Whether the next loops of this thread are too small to be worth a region of these threads: the calling thread runs them alone. */
void team_small(bool is_small);

/* Has the kernel bring the memory of a large result that is about to be written, in huge pages where it can, each by one of these
 * threads. PyTorch's memory for large results is new in every call; where heads lie side by side, several threads write to a page, and
 * all of them would wait for it. (NumPy asks for huge pages by itself.) */
void team_bring_pages(mha_tensor t);

/* Tells the extension which library of PyTorch is linked with OpenMP: its path. Whether OpenMP was found. */
PyObject *team_know(PyObject *module, PyObject *path);

/* Sets the exception that belongs to a status, with the context's line as its text. Returns NULL. */
PyObject *raise_status(mha_context *ctx, mha_status status);

/* The same for a call that opens a file: FileNotFoundError if there is none. */
PyObject *raise_file_status(mha_context *ctx, mha_status status, const char *path);

/* Keeps an object in place of another. */
static inline void keep(PyObject **place, PyObject *object)
{
    Py_INCREF(object);
    Py_XDECREF(*place);
    *place = object;
}

/* The functions of each file, for the table of the module. */
extern PyMethodDef attention_methods[], model_methods[], parameter_methods[], survey_methods[], tokenizer_methods[],
    generation_methods[], speech_methods[], data_methods[], embedder_methods[], xla_methods[];

/* Makes what these functions need. 0, or -1 with an exception set. */
int array_start(void);
int attention_start(void);
int model_start(void);
int tokenizer_start(void);
int generation_start(void);
int survey_start(void);
int data_start(void);

/* Tell the extension of the type of NumPy's arrays, and of PyTorch: (Tensor, Parameter, to_dlpack, and a function that tells
 * whether a tensor's class says itself what PyTorch does with it). */
PyObject *array_know_numpy(PyObject *module, PyObject *type);
PyObject *array_know_torch(PyObject *module, PyObject *arguments);

/* Tells the extension how to ask for the stream that a library uses: (array, device) -> address. */
PyObject *gpu_know_streams(PyObject *module, PyObject *function);

#endif
