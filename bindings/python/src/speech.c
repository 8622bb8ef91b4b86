/* Sound files, features, and what the decoder of a speech model starts with. */
#include "fields.h"
#include "handles.h"

#include <mha_speech.h>

/* (path) -> float32 samples as bytes */
static PyObject *sound(PyObject *module, PyObject *arguments)
{
    const char *path;
    mha_sound *sound = NULL;
    int64_t count = 0;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "s:sound_read", &path)) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return NULL;
    mha_status status = mha_sound_open(ctx, &sound, path);
    if (status) return raise_file_status(ctx, status, path);
    const float *samples = mha_sound_samples(sound, &count);
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)samples, (Py_ssize_t)(count * (int64_t)sizeof *samples));
    mha_sound_free(sound);
    return bytes;
}

/* (samples, features (bins,frames)) */
static PyObject *features(PyObject *module, PyObject *arguments)
{
    PyObject *from, *to;
    array samples, result;
    mha_status status = MHA_OK;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OO:speech_features", &from, &to)) return NULL;
    if (array_read(&samples, from, "samples", false)) return NULL;
    if (array_read(&result, to, "features", true)) return array_release(&samples), NULL;
    HELD_CONTEXT ctx = handle_check_vector(&samples.tensor, MHA_FLOAT32, "samples") ? NULL : handle_context();
    if (ctx) {
        Py_BEGIN_ALLOW_THREADS;
        status = mha_speech_features(ctx, result.tensor, samples.tensor.data, samples.tensor.size[0]);
        Py_END_ALLOW_THREADS;
    }
    array_release(&samples);
    array_release(&result);
    if (!ctx) return NULL;
    if (status) return raise_status(ctx, status);
    Py_RETURN_NONE;
}

/* (model, features, language or None, task or None) -> (tokens, language, task, detected) */
static PyObject *start(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *object;
    array read;
    mha_speech_options options = MHA_SPEECH_DEFAULTS;
    mha_speech_prompt prompt = {.size = sizeof prompt};
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOzz:speech_start", &capsule, &object, &options.language, &options.task))
        return NULL;
    mha_model *model = handle_model(capsule);
    if (!model || array_read(&read, object, "features", false)) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return array_release(&read), NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_speech_start(ctx, &prompt, model, read.tensor, &options);
    Py_END_ALLOW_THREADS;
    array_release(&read);
    if (status) return raise_status(ctx, status);
    PyObject *tokens = PyList_New(0);
    for (int64_t n = 0; tokens && n < prompt.count; n++) {
        PyObject *id = PyLong_FromLong(prompt.tokens[n]);
        if (!id || PyList_Append(tokens, id)) Py_CLEAR(tokens);
        Py_XDECREF(id);
    }
    if (!tokens) return NULL;
    return Py_BuildValue("NssO", tokens, prompt.language, prompt.task, prompt.detected ? Py_True : Py_False);
}

PyMethodDef speech_methods[] = {{"sound_read", sound, METH_VARARGS, "mha_sound_open"},
                                {"speech_features", features, METH_VARARGS, "mha_speech_features"},
                                {"speech_start", start, METH_VARARGS, "mha_speech_start"},
                                {NULL, NULL, 0, NULL}};
