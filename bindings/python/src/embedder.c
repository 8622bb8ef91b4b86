/* Embeddings of texts, and of rows that the caller has. */
#include "handles.h"
#include "array.h"

#include <stdlib.h>
#include <string.h>

/* What both functions begin with: (model, tokenizer or None, folder or None, pool or None, prompt or None, raw, ...). */
typedef struct request {
    PyObject *model, *tokenizer, *last;
    const char *folder;
    mha_embedder_options options;
    mha_embedder *embedder;
    mha_embedder_info about;
} request;

static bool read_request(request *r, PyObject *arguments, const char *format)
{
    int raw;
    *r = (request){.options = MHA_EMBEDDER_DEFAULTS, .about = {.size = sizeof r->about}};
    bool read = PyArg_ParseTuple(arguments, format, &r->model, &r->tokenizer, &r->folder, &r->options.pool,
                                 &r->options.prompt, &raw, &r->last);
    r->options.raw = read && raw;
    return read;
}

/* Makes the embedder. False with an exception set on error. */
static bool make(request *r, mha_context *ctx)
{
    mha_model *model = handle_model(r->model);
    const mha_tokenizer *tokenizer = NULL;
    if (!model || (r->tokenizer != Py_None && !(tokenizer = handle_tokenizer(r->tokenizer)))) return false;
    mha_status status = mha_embedder_create(ctx, &r->embedder, model, tokenizer, r->folder, &r->options);
    if (!status) status = mha_embedder_about(ctx, r->embedder, &r->about);
    return status ? raise_status(ctx, status), false : true;
}

/* The texts of a list, valid as long as it; NULL with an exception set. */
static const char **read_texts(PyObject *list)
{
    Py_ssize_t length, count = PyList_Check(list) ? PyList_Size(list) : -1;
    const char **texts = count >= 0 ? calloc((size_t)count + 1, sizeof *texts) : NULL;
    if (count < 0) PyErr_SetString(PyExc_TypeError, "texts: must be a list");
    else if (!texts) PyErr_NoMemory();
    for (Py_ssize_t n = 0; texts && n < count; n++) {
        texts[n] = PyUnicode_AsUTF8AndSize(PyList_GetItem(list, n), &length);
        if (texts[n] && strlen(texts[n]) == (size_t)length) continue;
        if (texts[n]) PyErr_SetString(PyExc_ValueError, "texts: one contains the character NUL");
        free(texts);
        return NULL;
    }
    return texts;
}

/* (..., list of texts) -> (vectors as bytes, width) */
static PyObject *embed_texts(PyObject *module, PyObject *arguments)
{
    request r;
    (void)module;
    if (!read_request(&r, arguments, "OOzzzpO:embed_texts")) return NULL;
    const char **texts = read_texts(r.last);
    HELD_CONTEXT ctx = texts ? handle_context() : NULL;
    PyObject *bytes = NULL;
    if (ctx && make(&r, ctx)) {
        int64_t count = (int64_t)PyList_Size(r.last), width = r.about.width;
        bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * width * (int64_t)sizeof(float)));
        if (bytes) {
            mha_status status;
            mha_tensor out = mha_tensor_2d(PyBytes_AsString(bytes), MHA_FLOAT32, count, width);
            Py_BEGIN_ALLOW_THREADS;
            status = mha_embedder_run(ctx, r.embedder, out, texts, count, NULL);
            Py_END_ALLOW_THREADS;
            if (status) {
                raise_status(ctx, status);
                Py_CLEAR(bytes);
            }
        }
    }
    free(texts);
    mha_embedder_free(r.embedder);
    return bytes ? Py_BuildValue("NL", bytes, (long long)r.about.width) : NULL;
}

/* (..., rows (T,M)) -> a vector as bytes */
static PyObject *embed_rows(PyObject *module, PyObject *arguments)
{
    request r;
    array rows;
    (void)module;
    if (!read_request(&r, arguments, "OOzzzpO:embed_rows") || array_read(&rows, r.last, "rows", false)) return NULL;
    HELD_CONTEXT ctx = handle_context();
    PyObject *bytes = ctx && make(&r, ctx)
                          ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(r.about.width * (int64_t)sizeof(float)))
                          : NULL;
    if (bytes) {
        mha_tensor out = mha_tensor_1d(PyBytes_AsString(bytes), MHA_FLOAT32, r.about.width);
        mha_status status = mha_embedder_vector(ctx, r.embedder, out, rows.tensor);
        if (status) {
            raise_status(ctx, status);
            Py_CLEAR(bytes);
        }
    }
    array_release(&rows);
    mha_embedder_free(r.embedder);
    return bytes;
}

PyMethodDef embedder_methods[] = {{"embed_texts", embed_texts, METH_VARARGS, "mha_embedder_run"},
                                  {"embed_rows", embed_rows, METH_VARARGS, "mha_embedder_vector"},
                                  {NULL, NULL, 0, NULL}};
