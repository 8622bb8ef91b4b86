/* Generation, step by step: Python looks at sequences between steps. */
#include "fields.h"
#include "handles.h"

#include <stdlib.h>

typedef struct generate_call {
    mha_generation_options options;
    int method;
    mha_tensor tokens, starts, decoder_tokens, decoder_starts, stop_tokens, features;
} generate_call;

#define AT(field) offsetof(generate_call, field)
static field fields[] = {{"tokens", FIELD_INPUT, AT(tokens), NULL},
                         {"starts", FIELD_NEEDED, AT(starts), NULL},
                         {"decoder_tokens", FIELD_INPUT, AT(decoder_tokens), NULL},
                         {"decoder_starts", FIELD_INPUT, AT(decoder_starts), NULL},
                         {"features", FIELD_INPUT, AT(features), NULL},
                         {"method", FIELD_COUNT, AT(method), NULL},
                         {"max_new_tokens", FIELD_INT, AT(options.max_new_tokens), NULL},
                         {"min_new_tokens", FIELD_INT, AT(options.min_new_tokens), NULL},
                         {"temperature", FIELD_FLOAT, AT(options.temperature), NULL},
                         {"top_k", FIELD_INT, AT(options.top_k), NULL},
                         {"top_p", FIELD_FLOAT, AT(options.top_p), NULL},
                         {"min_p", FIELD_FLOAT, AT(options.min_p), NULL},
                         {"repetition_penalty", FIELD_FLOAT, AT(options.repetition_penalty), NULL},
                         {"no_repeat_ngram", FIELD_INT, AT(options.no_repeat_ngram), NULL},
                         {"seed", FIELD_UNSIGNED, AT(options.seed), NULL},
                         {"beams", FIELD_INT, AT(options.beams), NULL},
                         {"length_penalty", FIELD_FLOAT, AT(options.length_penalty), NULL},
                         {"stop_tokens", FIELD_INPUT, AT(stop_tokens), NULL},
                         {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

int generation_start(void) { return fields_start(fields); }

static mha_generation *generation_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, HANDLE_GENERATION); }

/* The capsule's context is what the generation uses: it goes after it. */
static void release(PyObject *capsule)
{
    PyObject *used = PyCapsule_GetContext(capsule);
    mha_generation_free(generation_of(capsule));
    Py_XDECREF(used);
}

static int check_vectors(const generate_call *c)
{
    const struct {
        const mha_tensor *tensor;
        mha_type type;
        const char *name;
    } all[] = {{&c->tokens, MHA_INT32, "tokens"},
               {&c->starts, MHA_INT64, "starts"},
               {&c->decoder_tokens, MHA_INT32, "decoder_tokens"},
               {&c->decoder_starts, MHA_INT64, "decoder_starts"},
               {&c->stop_tokens, MHA_INT32, "stop_tokens"}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (all[n].tensor->data && handle_check_vector(all[n].tensor, all[n].type, all[n].name)) return -1;
    return 0;
}

/* The bytes of strings, which live as long as these; in memory that the caller frees. NULL with an exception set. */
static const char **strings_of(PyObject *strings, int64_t *count)
{
    if (!PyTuple_Check(strings)) return PyErr_SetString(PyExc_TypeError, "stop: must be a tuple of strings"), NULL;
    *count = PyTuple_Size(strings);
    const char **all = calloc((size_t)*count + 1, sizeof *all);
    if (!all) return PyErr_NoMemory(), NULL;
    for (int64_t n = 0; n < *count; n++) {
        all[n] = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(strings, (Py_ssize_t)n), NULL);
        if (!all[n]) return free((void *)all), NULL;
    }
    return all;
}

static mha_status make(mha_context *ctx, mha_generation **g, mha_model *model, const generate_call *c)
{
    mha_generation_inputs in = {.count = c->starts.size[0] - 1,
                                .tokens = c->tokens.data,
                                .starts = c->starts.data,
                                .decoder_tokens = c->decoder_tokens.data,
                                .decoder_starts = c->decoder_starts.data,
                                .features = c->features};
    return mha_generation_create(ctx, g, model, &in, &c->options);
}

/* What is left of creating: the capsule, with what the generation uses. */
static PyObject *wrap(mha_generation *g, PyObject *model, PyObject *tokenizer)
{
    PyObject *used = PyTuple_Pack(2, model, tokenizer);
    PyObject *capsule = used ? PyCapsule_New(g, HANDLE_GENERATION, release) : NULL;
    if (capsule && !PyCapsule_SetContext(capsule, used)) return capsule;
    if (!capsule) mha_generation_free(g);
    Py_XDECREF(used);
    Py_XDECREF(capsule);
    return NULL;
}

/* (model, tokenizer or None, stop strings, named arguments) -> capsule */
static PyObject *create(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    generate_call c = {.options = MHA_GENERATION_DEFAULTS};
    fields_held held = {.count = 0};
    mha_generation *g = NULL;
    mha_status status = MHA_OK;
    (void)module;
    if (positional != 3)
        return PyErr_SetString(PyExc_TypeError, "model, tokenizer, strings, and arguments by name"), NULL;
    mha_model *model = handle_model(arguments[0]);
    if (!model || (!Py_IsNone(arguments[1]) && !(c.options.tokenizer = handle_tokenizer(arguments[1])))) return NULL;
    const char **strings = strings_of(arguments[2], &c.options.stop_string_count);
    bool read = strings && !fields_read(&held, &c, fields, fields, arguments + 3, 0, names) && !check_vectors(&c);
    HELD_CONTEXT ctx = read ? handle_context() : NULL;
    c.options.method = (mha_generation_method)c.method, c.options.stop_strings = strings;
    c.options.stop_tokens = c.stop_tokens.data,
    c.options.stop_token_count = c.stop_tokens.data ? c.stop_tokens.size[0] : 0;
    if (ctx) {
        Py_BEGIN_ALLOW_THREADS;
        status = make(ctx, &g, model, &c);
        Py_END_ALLOW_THREADS;
    }
    fields_release(&held);
    free((void *)strings);
    if (!ctx) return NULL;
    return status ? raise_status(ctx, status) : wrap(g, arguments[0], arguments[1]);
}

/* One step -> whether all sequences have ended. */
static PyObject *step(PyObject *module, PyObject *capsule)
{
    mha_generation *g = generation_of(capsule);
    HELD_CONTEXT ctx = g ? handle_context() : NULL;
    mha_status status;
    (void)module;
    if (!ctx) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_generation_step(ctx, g);
    Py_END_ALLOW_THREADS;
    if (status) return raise_status(ctx, status);
    return PyBool_FromLong(mha_generation_finished(g));
}

/* (capsule, sequence) -> (tokens, tokens of the prompt, finish, score, text or None) */
static PyObject *get(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    long long n;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OL:generation_get", &capsule, &n)) return NULL;
    const mha_generation *g = generation_of(capsule);
    if (!g) return NULL;
    mha_generated s = mha_generation_get(g, n);
    PyObject *tokens = PyList_New((Py_ssize_t)s.count);
    for (int64_t i = 0; tokens && i < s.count; i++) {
        PyObject *id = PyLong_FromLong(s.tokens[i]);
        if (!id || PyList_SetItem(tokens, (Py_ssize_t)i, id)) Py_CLEAR(tokens);
    }
    if (!tokens) return NULL;
    return Py_BuildValue("NLifz#", tokens, (long long)s.prompt, (int)s.finish, (double)s.score, s.text,
                         (Py_ssize_t)s.length);
}

PyMethodDef generation_methods[] = {
    {"generation_create", (PyCFunction)(void (*)(void))create, METH_FASTCALL | METH_KEYWORDS, "mha_generation_create"},
    {"generation_step", step, METH_O, "mha_generation_step"},
    {"generation_get", get, METH_VARARGS, "mha_generation_get"},
    {NULL, NULL, 0, NULL}};
