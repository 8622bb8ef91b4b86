/* Models: open, what they are, run, what their heads attend to. */
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
                               {"causal", FIELD_BOOL, AT(causal), NULL},
                               {"assumed", FIELD_TEXT, AT(assumed), NULL},
                               {"vocabulary", FIELD_INT, AT(vocabulary), NULL},
                               {"encoder_blocks", FIELD_INT, AT(encoder_blocks), NULL},
                               {"encoder_width", FIELD_INT, AT(encoder_width), NULL},
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
                                   {NULL, FIELD_BOOL, 0, NULL}};
#undef AT
#define AT(field) offsetof(mha_text_head, field)
static field head_fields[] = {{"attention", FIELD_INT, AT(attention), NULL},
                              {"block", FIELD_INT, AT(block), NULL},
                              {"head", FIELD_INT, AT(head), NULL},
                              {"decoder", FIELD_BOOL, AT(decoder), NULL},
                              {"cross", FIELD_BOOL, AT(cross), NULL},
                              {"words", FIELD_TEXT, AT(words), NULL},
                              {"entropy", FIELD_DOUBLE, AT(entropy), NULL},
                              {"uniform", FIELD_DOUBLE, AT(uniform), NULL},
                              {"effective", FIELD_DOUBLE, AT(effective), NULL},
                              {"largest", FIELD_DOUBLE, AT(largest), NULL},
                              {"distance", FIELD_DOUBLE, AT(distance), NULL},
                              {"itself", FIELD_DOUBLE, AT(self), NULL},
                              {"previous", FIELD_DOUBLE, AT(previous), NULL},
                              {"next", FIELD_DOUBLE, AT(next), NULL},
                              {"first", FIELD_DOUBLE, AT(first), NULL},
                              {"last", FIELD_DOUBLE, AT(last), NULL},
                              {"duplicate", FIELD_DOUBLE, AT(duplicate), NULL},
                              {"induction", FIELD_DOUBLE, AT(induction), NULL},
                              {"chance", FIELD_DOUBLE, AT(chance), NULL},
                              {"position", FIELD_DOUBLE, AT(position), NULL},
                              {"content", FIELD_DOUBLE, AT(content), NULL},
                              {"monotone", FIELD_DOUBLE, AT(monotone), NULL},
                              {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

/* The arguments of a run. */
typedef struct run_call {
    mha_model_inputs in;
    mha_model_outputs out;
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
                             {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

/* The arguments of a survey of heads. */
typedef struct survey_call {
    mha_text_options options;
    mha_tensor tokens, starts, decoder_tokens, decoder_starts;
} survey_call;
#define AT(field) offsetof(survey_call, field)
static field survey_fields[] = {{"tokens", FIELD_NEEDED, AT(tokens), NULL},
                                {"starts", FIELD_NEEDED, AT(starts), NULL},
                                {"decoder_tokens", FIELD_INPUT, AT(decoder_tokens), NULL},
                                {"decoder_starts", FIELD_INPUT, AT(decoder_starts), NULL},
                                {"window", FIELD_INT, AT(options.window), NULL},
                                {"windows", FIELD_INT, AT(options.windows), NULL},
                                {"repeats", FIELD_INT, AT(options.repeats), NULL},
                                {"seed", FIELD_UNSIGNED, AT(options.seed), NULL},
                                {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

int model_start(void)
{
    field *tables[] = {about_fields, attention_fields, head_fields, run_fields, survey_fields};
    int status = 0;
    for (size_t n = 0; !status && n < sizeof tables / sizeof *tables; n++) status = fields_start(tables[n]);
    return status;
}

static void release(PyObject *capsule) { mha_model_free(handle_model(capsule)); }

/* (path, heads, bfloat16) -> capsule */
static PyObject *open_model(PyObject *module, PyObject *arguments)
{
    const char *path;
    long long heads;
    int half;
    mha_model *model = NULL;
    mha_model_options options = MHA_MODEL_DEFAULTS;
    mha_status status;
    mha_context *ctx = handle_context();
    (void)module;
    if (!ctx || !PyArg_ParseTuple(arguments, "sLp:model_open", &path, &heads, &half)) return NULL;
    options.heads = heads, options.compute = half ? MHA_BFLOAT16 : MHA_FLOAT32;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_model_open(ctx, &model, path, &options);
    Py_END_ALLOW_THREADS;
    if (status) return raise_status(ctx, status);
    PyObject *capsule = PyCapsule_New(model, HANDLE_MODEL, release);
    if (!capsule) mha_model_free(model);
    return capsule;
}

static PyObject *about(PyObject *module, PyObject *capsule)
{
    const mha_model *model = handle_model(capsule);
    mha_model_info info = {.size = sizeof info};
    mha_context *ctx = model ? handle_context() : NULL;
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

/* Arrays for the maps of all attentions. */
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
        if (array_read(a, PyList_GetItem(list, maps->count), "maps", true)) return -1;
        maps->tensors[maps->count] = a->tensor;
    }
    return 0;
}

/* (capsule, maps or None, named arrays) */
static PyObject *run(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    run_call c = {.in = {.images = MHA_NO_TENSOR}};
    fields_held held = {.count = 0};
    map_list maps = {NULL, NULL, 0};
    mha_status status = MHA_OK;
    (void)module;
    if (positional != 2)
        return PyErr_SetString(PyExc_TypeError, "a model, a list of maps or None, and arrays by name"), NULL;
    mha_model *model = handle_model(arguments[0]);
    mha_context *ctx = model ? handle_context() : NULL;
    if (ctx && (read_maps(&maps, arguments[1], mha_model_attention_count(model)) ||
                fields_read(&held, &c, run_fields, run_fields, arguments + 2, 0, names)))
        ctx = NULL;
    c.out.maps = maps.tensors;
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

static PyObject *heads_of(mha_context *ctx, const mha_text_survey *survey)
{
    PyObject *list = PyList_New(0);
    mha_text_head head = {.size = sizeof head};
    for (int64_t n = 0; list && !mha_text_head_get(ctx, survey, n, &head); n++) {
        PyObject *dict = fields_dict(&head, head_fields);
        if (!dict || PyList_Append(list, dict)) Py_CLEAR(list);
        Py_XDECREF(dict);
    }
    return list;
}

static int check_text(const survey_call *c)
{
    bool pair = c->decoder_tokens.data != NULL;
    if (handle_check_vector(&c->tokens, MHA_INT32, "tokens") || handle_check_vector(&c->starts, MHA_INT64, "starts"))
        return -1;
    if (pair && (handle_check_vector(&c->decoder_tokens, MHA_INT32, "decoder_tokens") ||
                 handle_check_vector(&c->decoder_starts, MHA_INT64, "decoder_starts")))
        return -1;
    return 0;
}

static mha_status survey_text(mha_context *ctx, mha_text_survey **survey, mha_model *model, const survey_call *c)
{
    mha_text text = {.count = c->starts.size[0] - 1,
                     .tokens = c->tokens.data,
                     .starts = c->starts.data,
                     .decoder_tokens = c->decoder_tokens.data,
                     .decoder_starts = c->decoder_starts.data};
    return mha_text_survey_make(ctx, survey, model, &text, &c->options);
}

/* (capsule, named arguments) -> list of heads */
static PyObject *heads(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    survey_call c = {.options = MHA_TEXT_DEFAULTS};
    fields_held held = {.count = 0};
    mha_text_survey *survey = NULL;
    mha_status status = MHA_OK;
    (void)module;
    if (positional != 1) return PyErr_SetString(PyExc_TypeError, "a model, and arguments by name"), NULL;
    mha_model *model = handle_model(arguments[0]);
    mha_context *ctx = model ? handle_context() : NULL;
    if (ctx && (fields_read(&held, &c, survey_fields, survey_fields, arguments + 1, 0, names) || check_text(&c)))
        ctx = NULL;
    if (ctx) {
        Py_BEGIN_ALLOW_THREADS;
        status = survey_text(ctx, &survey, model, &c);
        Py_END_ALLOW_THREADS;
    }
    fields_release(&held);
    if (!ctx) return NULL;
    if (status) return raise_status(ctx, status);
    PyObject *list = heads_of(ctx, survey);
    mha_text_survey_free(survey);
    return list;
}

PyMethodDef model_methods[] = {
    {"model_open", open_model, METH_VARARGS, "mha_model_open"},
    {"model_about", about, METH_O, "mha_model_about"},
    {"model_describe", describe, METH_O, "mha_model_describe"},
    {"model_attentions", attentions, METH_O, "mha_model_attention_get"},
    {"model_run", (PyCFunction)(void (*)(void))run, METH_FASTCALL | METH_KEYWORDS, "mha_model_run"},
    {"model_heads", (PyCFunction)(void (*)(void))heads, METH_FASTCALL | METH_KEYWORDS, "mha_text_survey_make"},
    {"set_threads", handle_set_threads, METH_O, "The threads of calls of models and tokenizers."},
    {NULL, NULL, 0, NULL}};
