/* Models: open, what they are, run. */
#include "fields.h"
#include "handles.h"

#include <stdlib.h>

#define AT(field) offsetof(mha_model_info, field)
static field about_fields[] = {{"family", FIELD_TEXT, AT(family), NULL},
                               {"parameters", FIELD_INT, AT(parameters), NULL},
                               {"blocks", FIELD_INT, AT(blocks), NULL},
                               {"width", FIELD_INT, AT(width), NULL},
                               {"mlp", FIELD_INT, AT(mlp), NULL},
                               {"heads", FIELD_INT, AT(heads), NULL},
                               {"classes", FIELD_INT, AT(classes), NULL},
                               {"tokens", FIELD_INT, AT(tokens), NULL},
                               {"channels", FIELD_INT, AT(channels), NULL},
                               {"rows", FIELD_INT, AT(rows), NULL},
                               {"columns", FIELD_INT, AT(columns), NULL},
                               {"patch", FIELD_INT, AT(patch), NULL},
                               {"mean", FIELD_FLOAT, AT(mean), NULL},
                               {"deviation", FIELD_FLOAT, AT(deviation), NULL},
                               {"class_token", FIELD_BOOL, AT(class_token), NULL},
                               {"causal", FIELD_BOOL, AT(causal), NULL},
                               {"assumed", FIELD_TEXT, AT(assumed), NULL},
                               {"file_bytes", FIELD_INT, AT(file_bytes), NULL},
                               {"vocabulary", FIELD_INT, AT(vocabulary), NULL},
                               {"encoder_blocks", FIELD_INT, AT(encoder_blocks), NULL},
                               {"encoder_width", FIELD_INT, AT(encoder_width), NULL},
                               {"decoder_only", FIELD_BOOL, AT(decoder_only), NULL},
                               {"pooled", FIELD_BOOL, AT(pooled), NULL},
                               {"head", FIELD_BOOL, AT(head), NULL},
                               {"positions", FIELD_INT, AT(positions), NULL},
                               {"context", FIELD_INT, AT(context), NULL},
                               {"bins", FIELD_INT, AT(bins), NULL},
                               {"frames", FIELD_INT, AT(frames), NULL},
                               {NULL, FIELD_BOOL, 0, NULL}};
#undef AT
#define AT(field) offsetof(mha_model_attention, field)
static field attention_fields[] = {{"block", FIELD_INT, AT(block), NULL},
                                   {"heads", FIELD_INT, AT(heads), NULL},
                                   {"kv_heads", FIELD_INT, AT(kv_heads), NULL},
                                   {"width", FIELD_INT, AT(width), NULL},
                                   {"decoder", FIELD_BOOL, AT(decoder), NULL},
                                   {"cross", FIELD_BOOL, AT(cross), NULL},
                                   {"model_width", FIELD_INT, AT(model_width), NULL},
                                   {"mlp", FIELD_INT, AT(mlp), NULL},
                                   {NULL, FIELD_BOOL, 0, NULL}};
#undef AT
/* The arguments of a run. */
typedef struct run_call {
    mha_model_inputs in;
    mha_model_outputs out;
    mha_model_inside inside; /* of attention -1: of none */
} run_call;
#define AT(field) offsetof(run_call, field)
static field run_fields[] = {{"images", FIELD_INPUT, AT(in.images), NULL},
                             {"tokens", FIELD_INPUT, AT(in.tokens), NULL},
                             {"types", FIELD_INPUT, AT(in.types), NULL},
                             {"lengths", FIELD_INPUT, AT(in.lengths), NULL},
                             {"features", FIELD_INPUT, AT(in.features), NULL},
                             {"decoder_tokens", FIELD_INPUT, AT(in.decoder_tokens), NULL},
                             {"logits", FIELD_OUTPUT, AT(out.logits), NULL},
                             {"hidden", FIELD_OUTPUT, AT(out.hidden), NULL},
                             {"encoder_hidden", FIELD_OUTPUT, AT(out.encoder_hidden), NULL},
                             {"inside_attention", FIELD_INT, AT(inside.attention), NULL},
                             {"inside_x", FIELD_OUTPUT, AT(inside.x), NULL},
                             {"inside_read", FIELD_OUTPUT, AT(inside.read), NULL},
                             {"inside_q", FIELD_OUTPUT, AT(inside.q), NULL},
                             {"inside_k", FIELD_OUTPUT, AT(inside.k), NULL},
                             {"inside_v", FIELD_OUTPUT, AT(inside.v), NULL},
                             {"inside_scores", FIELD_OUTPUT, AT(inside.scores), NULL},
                             {"inside_heads", FIELD_OUTPUT, AT(inside.heads), NULL},
                             {"inside_attended", FIELD_OUTPUT, AT(inside.attended), NULL},
                             {"inside_middle", FIELD_OUTPUT, AT(inside.middle), NULL},
                             {"inside_mlp_read", FIELD_OUTPUT, AT(inside.mlp_read), NULL},
                             {"inside_hidden", FIELD_OUTPUT, AT(inside.hidden), NULL},
                             {"inside_mlp", FIELD_OUTPUT, AT(inside.mlp), NULL},
                             {"inside_y", FIELD_OUTPUT, AT(inside.y), NULL},
                             {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

int model_start(void)
{
    field *tables[] = {about_fields, attention_fields, run_fields};
    int status = 0;
    for (size_t n = 0; !status && n < sizeof tables / sizeof *tables; n++) status = fields_start(tables[n]);
    return status;
}

/* (path, heads, bfloat16) -> capsule */
static PyObject *open_model(PyObject *module, PyObject *arguments)
{
    const char *path;
    long long heads;
    int half;
    mha_model *model = NULL;
    mha_model_options options = MHA_MODEL_DEFAULTS;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "sLp:model_open", &path, &heads, &half)) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return NULL;
    options.heads = heads, options.compute = half ? MHA_BFLOAT16 : MHA_FLOAT32;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_model_open(ctx, &model, path, &options);
    Py_END_ALLOW_THREADS;
    return status ? raise_file_status(ctx, status, path) : handle_wrap_model(model);
}

static PyObject *about(PyObject *module, PyObject *capsule)
{
    const mha_model *model = handle_model(capsule);
    mha_model_info info = {.size = sizeof info};
    HELD_CONTEXT ctx = model ? handle_context() : NULL;
    (void)module;
    if (!ctx) return NULL;
    mha_status status = mha_model_about(ctx, model, &info);
    return status ? raise_status(ctx, status) : fields_dict(&info, about_fields);
}

static PyObject *describe(PyObject *module, PyObject *capsule)
{
    const mha_model *model = handle_model(capsule);
    (void)module;
    return model ? Py_BuildValue("z", mha_model_describe(model)) : NULL;
}

static PyObject *path(PyObject *module, PyObject *capsule)
{
    const mha_model *model = handle_model(capsule);
    (void)module;
    return model ? Py_BuildValue("z", mha_model_path(model)) : NULL;
}

static PyObject *attentions(PyObject *module, PyObject *capsule)
{
    const mha_model *model = handle_model(capsule);
    PyObject *list = model ? PyList_New(0) : NULL;
    (void)module;
    for (int64_t n = 0; list && n < mha_model_attention_count(model); n++) {
        mha_model_attention a = mha_model_attention_get(model, n);
        PyObject *dict = fields_dict(&a, attention_fields);
        if (!dict || PyList_Append(list, dict)) Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

/* Arrays for the maps of attentions; none for those that are not wanted. */
typedef struct map_list {
    array *arrays;
    mha_tensor *tensors;
    Py_ssize_t count;
} map_list;

static void release_maps(map_list *maps)
{
    while (maps->count > 0) array_release(&maps->arrays[--maps->count]);
    free(maps->arrays);
    free(maps->tensors);
}

/* 0, or -1 with an exception set; release_maps is called in both cases. */
static int read_maps(map_list *maps, PyObject *list, int64_t wanted)
{
    if (Py_IsNone(list)) return 0;
    if (!PyList_Check(list) || PyList_Size(list) != wanted)
        return PyErr_Format(PyExc_ValueError, "maps: must be a list of %lld arrays", (long long)wanted), -1;
    maps->arrays = calloc((size_t)wanted + 1, sizeof *maps->arrays);
    maps->tensors = calloc((size_t)wanted + 1, sizeof *maps->tensors);
    if (!maps->arrays || !maps->tensors) return PyErr_NoMemory(), -1;
    for (; maps->count < wanted; maps->count++) {
        array *a = &maps->arrays[maps->count];
        PyObject *item = PyList_GetItem(list, maps->count);
        if (Py_IsNone(item)) continue;
        if (array_read(a, item, "maps", true)) return -1;
        maps->tensors[maps->count] = a->tensor;
    }
    return 0;
}

/* (capsule, maps or None, named arrays) */
static PyObject *run(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    run_call c = {.inside.attention = -1};
    fields_held held = {.count = 0};
    map_list maps = {NULL, NULL, 0};
    mha_status status = MHA_OK;
    (void)module;
    if (positional != 2)
        return PyErr_SetString(PyExc_TypeError, "a model, a list of maps or None, and arrays by name"), NULL;
    mha_model *model = handle_model(arguments[0]);
    bool read = model && !read_maps(&maps, arguments[1], mha_model_attention_count(model)) &&
                !fields_read(&held, &c, run_fields, run_fields, arguments + 2, 0, names);
    HELD_CONTEXT ctx = read ? handle_context() : NULL;
    c.out.maps = maps.tensors;
    c.out.inside = c.inside.attention < 0 ? NULL : &c.inside;
    if (ctx) {
        Py_BEGIN_ALLOW_THREADS;
        status = mha_model_run(ctx, model, &c.out, &c.in);
        Py_END_ALLOW_THREADS;
    }
    fields_release(&held);
    release_maps(&maps);
    if (!ctx) return NULL;
    if (status) return raise_status(ctx, status);
    Py_RETURN_NONE;
}

/* (capsule, path, pixels (channels,rows,columns), seen (rows,columns,3)): reads a picture as the model wants it. */
static PyObject *picture(PyObject *module, PyObject *arguments)
{
    PyObject *capsule, *pixels;
    const char *path;
    array image;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OsO:model_picture", &capsule, &path, &pixels)) return NULL;
    const mha_model *model = handle_model(capsule);
    mha_model_info info = {.size = sizeof info};
    if (!model || array_read(&image, pixels, "pixels", true)) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return array_release(&image), NULL;
    status = mha_model_about(ctx, model, &info);
    if (!status && handle_check_size(&image.tensor, MHA_FLOAT32, info.channels * info.rows * info.columns, "pixels"))
        return array_release(&image), NULL;
    if (!status) status = mha_model_picture(ctx, model, image.tensor.data, NULL, path);
    array_release(&image);
    if (status) return raise_status(ctx, status);
    Py_RETURN_NONE;
}

PyMethodDef model_methods[] = {
    {"model_open", open_model, METH_VARARGS, "mha_model_open"},
    {"model_about", about, METH_O, "mha_model_about"},
    {"model_describe", describe, METH_O, "mha_model_describe"},
    {"model_path", path, METH_O, "mha_model_path"},
    {"model_attentions", attentions, METH_O, "mha_model_attention_get"},
    {"model_run", (PyCFunction)(void (*)(void))run, METH_FASTCALL | METH_KEYWORDS, "mha_model_run"},
    {"model_picture", picture, METH_VARARGS, "mha_model_picture"},
    {"set_threads", handle_set_threads, METH_O, "The threads of calls of models and tokenizers."},
    {NULL, NULL, 0, NULL}};
