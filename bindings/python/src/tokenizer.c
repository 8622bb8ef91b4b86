/* Tokenizers: open, what they are, text to ids and back. */
#include "fields.h"
#include "handles.h"

#include <stdlib.h>

#define AT(field) offsetof(mha_tokenizer_info, field)
static field about_fields[] = {{"kind", FIELD_TEXT, AT(kind), NULL},
                               {"format", FIELD_TEXT, AT(format), NULL},
                               {"tokens", FIELD_INT, AT(tokens), NULL},
                               {"bos", FIELD_ID, AT(bos), NULL},
                               {"eos", FIELD_ID, AT(eos), NULL},
                               {"unk", FIELD_ID, AT(unk), NULL},
                               {"pad", FIELD_ID, AT(pad), NULL},
                               {"mask", FIELD_ID, AT(mask), NULL},
                               {"cls", FIELD_ID, AT(cls), NULL},
                               {"sep", FIELD_ID, AT(sep), NULL},
                               {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

int tokenizer_start(void) { return fields_start(about_fields); }

static void release(PyObject *capsule) { mha_tokenizer_free(handle_tokenizer(capsule)); }

/* (path, the target's vocabulary, text as it is) -> capsule */
static PyObject *open_tokenizer(PyObject *module, PyObject *arguments)
{
    const char *path;
    int target, cased;
    mha_tokenizer_options options = MHA_TOKENIZER_DEFAULTS;
    mha_tokenizer *tokenizer = NULL;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "spp:tokenizer_open", &path, &target, &cased)) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return NULL;
    options.target = target != 0, options.cased = cased != 0;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_tokenizer_open(ctx, &tokenizer, path, &options);
    Py_END_ALLOW_THREADS;
    if (status) return raise_file_status(ctx, status, path);
    PyObject *capsule = PyCapsule_New(tokenizer, HANDLE_TOKENIZER, release);
    if (!capsule) mha_tokenizer_free(tokenizer);
    return capsule;
}

static PyObject *about(PyObject *module, PyObject *capsule)
{
    const mha_tokenizer *tokenizer = handle_tokenizer(capsule);
    mha_tokenizer_info info = {.size = sizeof info};
    HELD_CONTEXT ctx = tokenizer ? handle_context() : NULL;
    (void)module;
    if (!ctx) return NULL;
    mha_status status = mha_tokenizer_about(ctx, tokenizer, &info);
    return status ? raise_status(ctx, status) : fields_dict(&info, about_fields);
}

/* One token: (id, type, from the text, first byte, byte after the last). */
static PyObject *token_of(mha_token t)
{
    return Py_BuildValue("iiOLL", (int)t.id, (int)t.type, t.text >= 0 ? Py_True : Py_False, (long long)t.start,
                         (long long)t.end);
}

static PyObject *tokens_of(const mha_encoding *encoding)
{
    int64_t count = mha_encoding_count(encoding);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (int64_t n = 0; list && n < count; n++) {
        PyObject *token = token_of(mha_encoding_get(encoding, n));
        if (!token || PyList_SetItem(list, (Py_ssize_t)n, token)) Py_CLEAR(list);
    }
    return list;
}

/* (capsule, text, special, literal) -> list of tokens */
static PyObject *encode(PyObject *module, PyObject *arguments)
{
    const char *text;
    Py_ssize_t length;
    int special, literal;
    PyObject *capsule;
    mha_encoding *encoding = NULL;
    mha_encode_options options = MHA_ENCODE_DEFAULTS;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Os#pp:tokenizer_encode", &capsule, &text, &length, &special, &literal))
        return NULL;
    const mha_tokenizer *tokenizer = handle_tokenizer(capsule);
    HELD_CONTEXT ctx = tokenizer ? handle_context() : NULL;
    if (!ctx) return NULL;
    options.special = special != 0, options.literal = literal != 0;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_encoding_make(ctx, &encoding, tokenizer, text, (size_t)length, NULL, 0, &options);
    Py_END_ALLOW_THREADS;
    if (status) return raise_status(ctx, status);
    PyObject *list = tokens_of(encoding);
    mha_encoding_free(encoding);
    return list;
}

/* The text of ids, in memory that the caller frees. */
static mha_status decode_ids(mha_context *ctx, const mha_tokenizer *tokenizer, const mha_tensor *ids, bool special,
                             char **text, size_t *length)
{
    mha_status status = mha_tokenizer_decode(ctx, tokenizer, NULL, 0, length, ids->data, ids->size[0], special);
    if (status) return status;
    *text = malloc(*length + 1);
    if (!*text) return mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the text");
    return mha_tokenizer_decode(ctx, tokenizer, *text, *length + 1, length, ids->data, ids->size[0], special);
}

/* (capsule, ids, special) -> text */
static PyObject *decode(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *object, *result = NULL;
    int special;
    array ids;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOp:tokenizer_decode", &capsule, &object, &special)) return NULL;
    const mha_tokenizer *tokenizer = handle_tokenizer(capsule);
    if (!tokenizer || array_read(&ids, object, "ids", false)) return NULL;
    HELD_CONTEXT ctx = handle_check_vector(&ids.tensor, MHA_INT32, "ids") ? NULL : handle_context();
    if (ctx) {
        char *text = NULL;
        size_t length = 0;
        mha_status status = decode_ids(ctx, tokenizer, &ids.tensor, special != 0, &text, &length);
        if (status) raise_status(ctx, status);
        else result = PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
        free(text);
    }
    array_release(&ids);
    return result;
}

/* (capsule, id) -> piece or None */
static PyObject *piece(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    long long id;
    size_t length = 0;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OL:tokenizer_piece", &capsule, &id)) return NULL;
    const mha_tokenizer *tokenizer = handle_tokenizer(capsule);
    if (!tokenizer) return NULL;
    const char *text = mha_tokenizer_piece(tokenizer, id, &length);
    if (!text) Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");
}

/* (capsule, piece) -> id or -1 */
static PyObject *id_of(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    const char *text;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Os:tokenizer_id", &capsule, &text)) return NULL;
    const mha_tokenizer *tokenizer = handle_tokenizer(capsule);
    return tokenizer ? PyLong_FromLong(mha_tokenizer_id(tokenizer, text)) : NULL;
}

/* (capsule, count) -> a byte for each id below the count: 1 for those that have a piece and are not special, else 0 */
static PyObject *ordinary(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    long long count;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OL:tokenizer_ordinary", &capsule, &count)) return NULL;
    const mha_tokenizer *tokenizer = handle_tokenizer(capsule);
    if (!tokenizer) return NULL;
    PyObject *bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count);
    char *to = bytes ? PyBytes_AsString(bytes) : NULL;
    for (int64_t id = 0; to && id < count; id++)
        to[id] = mha_tokenizer_piece(tokenizer, id, NULL) && !mha_tokenizer_is_special(tokenizer, id) ? 1 : 0;
    return bytes;
}

/* (path, text, tokens, least, special token) -> the number of tokens */
static PyObject *train(PyObject *module, PyObject *arguments)
{
    const char *path, *text;
    Py_ssize_t length;
    long long tokens, least;
    int64_t made = 0;
    mha_tokenizer_train_options options = MHA_TOKENIZER_TRAIN_DEFAULTS;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "ss#LLs:tokenizer_train", &path, &text, &length, &tokens, &least,
                          &options.special))
        return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return NULL;
    options.tokens = tokens, options.least = least;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_tokenizer_train(ctx, path, text, (size_t)length, &options, &made);
    Py_END_ALLOW_THREADS;
    return status ? raise_status(ctx, status) : PyLong_FromLongLong(made);
}

PyMethodDef tokenizer_methods[] = {{"tokenizer_open", open_tokenizer, METH_VARARGS, "mha_tokenizer_open"},
                                   {"tokenizer_about", about, METH_O, "mha_tokenizer_about"},
                                   {"tokenizer_encode", encode, METH_VARARGS, "mha_encoding_make"},
                                   {"tokenizer_decode", decode, METH_VARARGS, "mha_tokenizer_decode"},
                                   {"tokenizer_piece", piece, METH_VARARGS, "mha_tokenizer_piece"},
                                   {"tokenizer_id", id_of, METH_VARARGS, "mha_tokenizer_id"},
                                   {"tokenizer_ordinary", ordinary, METH_VARARGS, "mha_tokenizer_is_special"},
                                   {"tokenizer_train", train, METH_VARARGS, "mha_tokenizer_train"},
                                   {NULL, NULL, 0, NULL}};
