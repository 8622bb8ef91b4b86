/* What the heads of a model attend to: surveys of texts and of images. */
#include "fields.h"
#include "handles.h"

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

#define AT(field) offsetof(mha_survey_head, field)
static field image_head_fields[] = {{"block", FIELD_INT, AT(block), NULL},
                                    {"head", FIELD_INT, AT(head), NULL},
                                    {"words", FIELD_TEXT, AT(words), NULL},
                                    {"importance", FIELD_DOUBLE, AT(importance), NULL},
                                    {"entropy", FIELD_DOUBLE, AT(entropy), NULL},
                                    {"effective", FIELD_DOUBLE, AT(effective), NULL},
                                    {"largest", FIELD_DOUBLE, AT(largest), NULL},
                                    {"distance", FIELD_DOUBLE, AT(distance), NULL},
                                    {"itself", FIELD_DOUBLE, AT(self), NULL},
                                    {"previous", FIELD_DOUBLE, AT(previous), NULL},
                                    {"next", FIELD_DOUBLE, AT(next), NULL},
                                    {"first", FIELD_DOUBLE, AT(first), NULL},
                                    {"place", FIELD_DOUBLE, AT(place), NULL},
                                    {"position", FIELD_DOUBLE, AT(position), NULL},
                                    {"content", FIELD_DOUBLE, AT(content), NULL},
                                    {"nearest", FIELD_INT, AT(nearest), NULL},
                                    {"divergence", FIELD_DOUBLE, AT(divergence), NULL},
                                    {"cosine", FIELD_DOUBLE, AT(cosine), NULL},
                                    {"alike", FIELD_BOOL, AT(alike), NULL},
                                    {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

/* The arguments of a survey of a text, and of ablations. */
typedef struct text_call {
    mha_text_options options;
    mha_tensor tokens, starts, decoder_tokens, decoder_starts, before, after, drawn, off;
} text_call;
#define AT(field) offsetof(text_call, field)
static field text_fields[] = {{"tokens", FIELD_NEEDED, AT(tokens), NULL},
                              {"starts", FIELD_NEEDED, AT(starts), NULL},
                              {"decoder_tokens", FIELD_INPUT, AT(decoder_tokens), NULL},
                              {"decoder_starts", FIELD_INPUT, AT(decoder_starts), NULL},
                              {"before", FIELD_INPUT, AT(before), NULL},
                              {"after", FIELD_INPUT, AT(after), NULL},
                              {"drawn", FIELD_INPUT, AT(drawn), NULL},
                              {"off", FIELD_INPUT, AT(off), NULL},
                              {"window", FIELD_INT, AT(options.window), NULL},
                              {"windows", FIELD_INT, AT(options.windows), NULL},
                              {"repeats", FIELD_INT, AT(options.repeats), NULL},
                              {"repeat_length", FIELD_INT, AT(options.repeat_length), NULL},
                              {"seed", FIELD_UNSIGNED, AT(options.seed), NULL},
                              {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

int survey_start(void)
{
    return fields_start(head_fields) || fields_start(image_head_fields) || fields_start(text_fields) ? -1 : 0;
}

/* ---- Texts ------------------------------------------------------------------------------------------------------ */

static mha_text_survey *survey_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, HANDLE_SURVEY); }
static void release_text(PyObject *capsule) { mha_text_survey_free(survey_of(capsule)); }

/* Checks the arrays and puts them into the options. 0, or -1 with an exception set. */
static int take_text(text_call *c, int64_t vocabulary)
{
    const struct {
        const mha_tensor *tensor;
        mha_type type;
        const char *name;
    } all[] = {{&c->tokens, MHA_INT32, "tokens"},
               {&c->starts, MHA_INT64, "starts"},
               {&c->decoder_tokens, MHA_INT32, "decoder_tokens"},
               {&c->decoder_starts, MHA_INT64, "decoder_starts"},
               {&c->before, MHA_INT32, "before"},
               {&c->after, MHA_INT32, "after"}};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (all[n].tensor->data && handle_check_vector(all[n].tensor, all[n].type, all[n].name)) return -1;
    if (c->drawn.data && handle_check_size(&c->drawn, MHA_BOOL, vocabulary, "drawn")) return -1;
    c->options.before = c->before.data, c->options.before_count = c->before.data ? c->before.size[0] : 0;
    c->options.after = c->after.data, c->options.after_count = c->after.data ? c->after.size[0] : 0;
    c->options.drawn = c->drawn.data;
    return 0;
}

static mha_text text_of(const text_call *c)
{
    return (mha_text){.count = c->starts.size[0] - 1,
                      .tokens = c->tokens.data,
                      .starts = c->starts.data,
                      .decoder_tokens = c->decoder_tokens.data,
                      .decoder_starts = c->decoder_starts.data};
}

/* The model of a call, and its arguments, which must be released. False with an exception set. */
static bool read_text(mha_model **model, fields_held *held, text_call *c, PyObject *const *arguments,
                      Py_ssize_t positional, PyObject *names)
{
    mha_model_info info = {.size = sizeof info};
    if (positional != 1) return PyErr_SetString(PyExc_TypeError, "a model, and arguments by name"), false;
    if (!(*model = handle_model(arguments[0])) ||
        fields_read(held, c, text_fields, text_fields, arguments + 1, 0, names))
        return false;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return false;
    if (mha_model_about(ctx, *model, &info)) return raise_status(ctx, MHA_BAD_ARGUMENT), false;
    return !take_text(c, info.vocabulary);
}

/* (model, named arguments) -> capsule */
static PyObject *make_text(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    text_call c = {.options = MHA_TEXT_DEFAULTS};
    fields_held held = {.count = 0};
    mha_text_survey *survey = NULL;
    mha_model *model;
    mha_status status = MHA_OK;
    (void)module;
    HELD_CONTEXT ctx = read_text(&model, &held, &c, arguments, positional, names) ? handle_context() : NULL;
    if (ctx) {
        mha_text text = text_of(&c);
        Py_BEGIN_ALLOW_THREADS;
        status = mha_text_survey_make(ctx, &survey, model, &text, &c.options);
        Py_END_ALLOW_THREADS;
    }
    fields_release(&held);
    if (!ctx) return NULL;
    if (status) return raise_status(ctx, status);
    PyObject *capsule = PyCapsule_New(survey, HANDLE_SURVEY, release_text);
    if (!capsule) mha_text_survey_free(survey);
    return capsule;
}

/* Adds a struct as a dict. Takes the list, and returns it or NULL with an exception set. */
static PyObject *append(PyObject *list, const void *from, const field *table)
{
    PyObject *dict = fields_dict(from, table);
    if (!dict || PyList_Append(list, dict)) Py_CLEAR(list);
    Py_XDECREF(dict);
    return list;
}

/* capsule -> list of heads */
static PyObject *text_heads(PyObject *module, PyObject *capsule)
{
    const mha_text_survey *survey = survey_of(capsule);
    HELD_CONTEXT ctx = survey ? handle_context() : NULL;
    PyObject *list = ctx ? PyList_New(0) : NULL;
    mha_text_head head = {.size = sizeof head};
    (void)module;
    for (int64_t n = 0; list && !mha_text_head_get(ctx, survey, n, &head); n++) list = append(list, &head, head_fields);
    return list;
}

/* (capsule, head) -> (queries, keys, float32 numbers) */
static PyObject *text_map(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    long long n;
    int64_t queries = 0, keys = 0;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OL:survey_map", &capsule, &n)) return NULL;
    const mha_text_survey *survey = survey_of(capsule);
    if (!survey) return NULL;
    const float *map = mha_text_survey_map(survey, n, &queries, &keys);
    if (!map) return PyErr_Format(PyExc_IndexError, "there is no head %lld", n), NULL;
    return Py_BuildValue("LLy#", (long long)queries, (long long)keys, (const char *)map,
                         (Py_ssize_t)(queries * keys * (int64_t)sizeof *map));
}

/* (model, named arguments with off (cases,heads)) -> list of (count, correct, loss) */
static PyObject *ablate_text(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    text_call c = {.options = MHA_TEXT_DEFAULTS};
    fields_held held = {.count = 0};
    mha_model *model;
    mha_status status = MHA_OK;
    (void)module;
    bool read = read_text(&model, &held, &c, arguments, positional, names);
    int64_t cases = read && c.off.data ? c.off.size[0] : 1;
    if (read && c.off.data) read = !handle_check_size(&c.off, MHA_BOOL, cases * handle_all_heads(model), "off");
    mha_score *scores = read ? PyMem_Calloc((size_t)cases + 1, sizeof *scores) : NULL;
    if (read && !scores) PyErr_NoMemory();
    HELD_CONTEXT ctx = scores ? handle_context() : NULL;
    if (ctx) {
        mha_text text = text_of(&c);
        Py_BEGIN_ALLOW_THREADS;
        status = mha_text_ablate(ctx, model, scores, c.off.data, cases, &text, &c.options);
        Py_END_ALLOW_THREADS;
    }
    fields_release(&held);
    PyObject *list = ctx && !status ? PyList_New(0) : NULL;
    for (int64_t n = 0; list && n < cases; n++) list = handle_append_score(list, &scores[n]);
    PyMem_Free(scores);
    return ctx && status ? raise_status(ctx, status) : list;
}

/* ---- Images ----------------------------------------------------------------------------------------------------- */

static mha_survey *images_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, HANDLE_SURVEY "_of_images"); }
static void release_images(PyObject *capsule) { mha_survey_free(images_of(capsule)); }

/* (model, data, test part, images, images for maps, images for importance) -> capsule */
static PyObject *make_images(PyObject *module, PyObject *arguments)
{
    PyObject *of, *from;
    int test;
    long long images, close_images, importance;
    mha_survey_options options = MHA_SURVEY_DEFAULTS;
    mha_survey *survey = NULL;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOpLLL:image_survey_make", &of, &from, &test, &images, &close_images,
                          &importance))
        return NULL;
    mha_model *model = handle_model(of);
    const mha_data *data = model ? handle_data(from) : NULL;
    HELD_CONTEXT ctx = data ? handle_context() : NULL;
    if (!ctx) return NULL;
    options.images = images, options.close_images = close_images, options.importance_images = importance;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_survey_make(ctx, &survey, model, data, test ? MHA_DATA_TEST : MHA_DATA_TRAIN, &options);
    Py_END_ALLOW_THREADS;
    if (status) return raise_status(ctx, status);
    PyObject *capsule = PyCapsule_New(survey, HANDLE_SURVEY "_of_images", release_images);
    if (!capsule) mha_survey_free(survey);
    return capsule;
}

static PyObject *image_heads(PyObject *module, PyObject *capsule)
{
    const mha_survey *survey = images_of(capsule);
    HELD_CONTEXT ctx = survey ? handle_context() : NULL;
    PyObject *list = ctx ? PyList_New(0) : NULL;
    mha_survey_head head = {.size = sizeof head};
    (void)module;
    for (int64_t n = 0; list && !mha_survey_head_get(ctx, survey, n, &head); n++)
        list = append(list, &head, image_head_fields);
    return list;
}

/* (capsule, head) -> (queries, keys, float64 numbers) */
static PyObject *image_map(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    long long n;
    mha_survey_info info = {.size = sizeof info};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OL:image_survey_map", &capsule, &n)) return NULL;
    const mha_survey *survey = images_of(capsule);
    HELD_CONTEXT ctx = survey ? handle_context() : NULL;
    if (!ctx) return NULL;
    const double *map = mha_survey_map(survey, n);
    if (!map) return PyErr_Format(PyExc_IndexError, "there is no head %lld", n), NULL;
    mha_status status = mha_survey_about(ctx, survey, &info);
    if (status) return raise_status(ctx, status);
    return Py_BuildValue("LLy#", (long long)info.tokens, (long long)info.tokens, (const char *)map,
                         (Py_ssize_t)(info.tokens * info.tokens * (int64_t)sizeof *map));
}

PyMethodDef survey_methods[] = {
    {"survey_make", (PyCFunction)(void (*)(void))make_text, METH_FASTCALL | METH_KEYWORDS, "mha_text_survey_make"},
    {"survey_heads", text_heads, METH_O, "mha_text_head_get"},
    {"survey_map", text_map, METH_VARARGS, "mha_text_survey_map"},
    {"text_ablate", (PyCFunction)(void (*)(void))ablate_text, METH_FASTCALL | METH_KEYWORDS, "mha_text_ablate"},
    {"image_survey_make", make_images, METH_VARARGS, "mha_survey_make"},
    {"image_survey_heads", image_heads, METH_O, "mha_survey_head_get"},
    {"image_survey_map", image_map, METH_VARARGS, "mha_survey_map"},
    {NULL, NULL, 0, NULL}};
