/* Labelled examples, what a model makes of them, and training with them. */
#include "fields.h"
#include "handles.h"

#include <string.h>

#define AT(field) offsetof(mha_data_info, field)
static field about_fields[] = {{"name", FIELD_TEXT, AT(name), NULL},
                               {"about", FIELD_TEXT, AT(about), NULL},
                               {"synthetic", FIELD_BOOL, AT(synthetic), NULL},
                               {"train", FIELD_INT, AT(train), NULL},
                               {"test", FIELD_INT, AT(test), NULL},
                               {"rows", FIELD_INT, AT(rows), NULL},
                               {"columns", FIELD_INT, AT(columns), NULL},
                               {"classes", FIELD_INT, AT(classes), NULL},
                               {NULL, FIELD_BOOL, 0, NULL}};
#undef AT
#define AT(field) offsetof(mha_training_info, field)
static field training_fields[] = {{"parameters", FIELD_INT, AT(parameters), NULL},
                                  {"epochs", FIELD_INT, AT(epochs), NULL},
                                  {"batch", FIELD_INT, AT(batch), NULL},
                                  {"steps_per_epoch", FIELD_INT, AT(steps_per_epoch), NULL},
                                  {"step", FIELD_INT, AT(step), NULL},
                                  {"train", FIELD_INT, AT(train), NULL},
                                  {"held_out", FIELD_INT, AT(held_out), NULL},
                                  {"test", FIELD_INT, AT(test), NULL},
                                  {NULL, FIELD_BOOL, 0, NULL}};
#undef AT
#define AT(field) offsetof(mha_training_report, field)
static field report_fields[] = {{"epoch", FIELD_INT, AT(epoch), NULL},     {"step", FIELD_INT, AT(step), NULL},
                                {"loss", FIELD_DOUBLE, AT(loss), NULL},    {"norm", FIELD_DOUBLE, AT(norm), NULL},
                                {"rate", FIELD_DOUBLE, AT(rate), NULL},    {"examples", FIELD_INT, AT(examples), NULL},
                                {"correct", FIELD_INT, AT(correct), NULL}, {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

int data_start(void)
{
    return fields_start(about_fields) || fields_start(training_fields) || fields_start(report_fields) ? -1 : 0;
}

/* ---- Data ------------------------------------------------------------------------------------------------------- */

static void release_data(PyObject *capsule) { mha_data_free(handle_data(capsule)); }

/* (place) -> capsule */
static PyObject *open_data(PyObject *module, PyObject *arguments)
{
    const char *place;
    mha_data *data = NULL;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "s:data_open", &place)) return NULL;
    HELD_CONTEXT ctx = handle_context();
    if (!ctx) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_data_open(ctx, &data, place, NULL);
    Py_END_ALLOW_THREADS;
    if (status) return raise_file_status(ctx, status, place);
    PyObject *capsule = PyCapsule_New(data, HANDLE_DATA, release_data);
    if (!capsule) mha_data_free(data);
    return capsule;
}

static PyObject *about(PyObject *module, PyObject *capsule)
{
    const mha_data *data = handle_data(capsule);
    mha_data_info info = {.size = sizeof info};
    HELD_CONTEXT ctx = data ? handle_context() : NULL;
    (void)module;
    if (!ctx) return NULL;
    mha_status status = mha_data_about(ctx, data, &info);
    return status ? raise_status(ctx, status) : fields_dict(&info, about_fields);
}

/* (data, test part) -> (images as bytes, labels as bytes) */
static PyObject *examples(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    int test;
    mha_data_info info = {.size = sizeof info};
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Op:data_examples", &capsule, &test)) return NULL;
    const mha_data *data = handle_data(capsule);
    HELD_CONTEXT ctx = data ? handle_context() : NULL;
    if (!ctx) return NULL;
    mha_status status = mha_data_about(ctx, data, &info);
    if (status) return raise_status(ctx, status);
    const mha_data_part part = test ? MHA_DATA_TEST : MHA_DATA_TRAIN;
    int64_t count = test ? info.test : info.train, size = info.rows * info.columns;
    PyObject *images = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * size));
    PyObject *labels = images ? PyBytes_FromStringAndSize(NULL, (Py_ssize_t)count) : NULL;
    if (!labels) return Py_XDECREF(images), NULL;
    char *pixels = PyBytes_AsString(images), *classes = PyBytes_AsString(labels);
    for (int64_t n = 0; n < count; n++) {
        memcpy(pixels + n * size, mha_data_image(data, part, n), (size_t)size);
        classes[n] = (char)mha_data_label(data, part, n);
    }
    return Py_BuildValue("NN", images, labels);
}

/* (model, data, test part) -> (count, correct, loss) */
static PyObject *evaluate(PyObject *module, PyObject *arguments)
{
    PyObject *of, *from;
    int test;
    mha_score score;
    const mha_tensor none = MHA_NO_TENSOR;
    mha_data_info info = {.size = sizeof info};
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OOp:model_evaluate", &of, &from, &test)) return NULL;
    mha_model *model = handle_model(of);
    const mha_data *data = model ? handle_data(from) : NULL;
    HELD_CONTEXT ctx = data ? handle_context() : NULL;
    if (!ctx) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_data_about(ctx, data, &info);
    if (!status)
        status = mha_model_evaluate(ctx, model, none, &score, data, test ? MHA_DATA_TEST : MHA_DATA_TRAIN, 0,
                                    test ? info.test : info.train);
    Py_END_ALLOW_THREADS;
    if (status) return raise_status(ctx, status);
    return Py_BuildValue("LLd", (long long)score.count, (long long)score.correct, score.loss);
}

/* ---- Training --------------------------------------------------------------------------------------------------- */

/* A training stays with the context that it was made with, so that it has one of its own. */
typedef struct training {
    mha_context *ctx;
    mha_training *of;
    PyObject *data; /* the capsule, which must live as long */
} training;

static training *training_of(PyObject *capsule) { return PyCapsule_GetPointer(capsule, HANDLE_TRAINING); }

static void free_training(training *t)
{
    mha_training_free(t->of);
    mha_context_free(t->ctx);
    Py_XDECREF(t->data);
    PyMem_Free(t);
}

static void release_training(PyObject *capsule) { free_training(training_of(capsule)); }

/* The settings: a dict of texts. */
static mha_status set_all(mha_context *ctx, mha_recipe *recipe, PyObject *settings)
{
    Py_ssize_t at = 0;
    PyObject *key, *value;
    mha_status status = MHA_OK;
    while (!status && PyDict_Next(settings, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        const char *text = name ? PyUnicode_AsUTF8AndSize(value, NULL) : NULL;
        status = text ? mha_recipe_set(ctx, recipe, name, text) : MHA_BAD_TYPE;
    }
    return status;
}

static mha_status make_training(training *t, const mha_data *data, const char *preset, PyObject *settings)
{
    mha_recipe *recipe = NULL;
    mha_status status = mha_recipe_create(t->ctx, &recipe, preset);
    if (!status) status = set_all(t->ctx, recipe, settings);
    if (!status) status = mha_training_create(t->ctx, &t->of, recipe, data);
    mha_recipe_free(recipe);
    return status;
}

/* (data, preset or None, settings, threads) -> capsule */
static PyObject *create(PyObject *module, PyObject *arguments)
{
    PyObject *from, *settings;
    const char *preset;
    char line[256] = "";
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "OzOi:training_create", &from, &preset, &settings, &options.threads)) return NULL;
    const mha_data *data = handle_data(from);
    if (!data) return NULL;
    if (!PyDict_Check(settings)) return PyErr_SetString(PyExc_TypeError, "settings: must be a dict of texts"), NULL;
    training *t = PyMem_Calloc(1, sizeof *t);
    if (!t) return PyErr_NoMemory();
    options.error = line, options.error_size = sizeof line;
    if (mha_context_create(&t->ctx, &options)) return PyMem_Free(t), PyErr_SetString(PyExc_RuntimeError, line), NULL;
    mha_status status = make_training(t, data, preset, settings);
    Py_INCREF(from);
    t->data = from;
    PyObject *capsule = NULL;
    if (status && !PyErr_Occurred()) raise_status(t->ctx, status);
    else if (!status) capsule = PyCapsule_New(t, HANDLE_TRAINING, release_training);
    if (!capsule) free_training(t);
    return capsule;
}

static PyObject *training_about(PyObject *module, PyObject *capsule)
{
    const training *t = training_of(capsule);
    mha_training_info info = {.size = sizeof info};
    (void)module;
    if (!t) return NULL;
    mha_status status = mha_training_about(t->ctx, t->of, &info);
    return status ? raise_status(t->ctx, status) : fields_dict(&info, training_fields);
}

/* One step -> what it did, or None at the end. */
static PyObject *step(PyObject *module, PyObject *capsule)
{
    training *t = training_of(capsule);
    mha_training_report report = {.size = sizeof report};
    mha_status status;
    (void)module;
    if (!t) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_training_step(t->ctx, t->of, &report);
    Py_END_ALLOW_THREADS;
    if (status) return raise_status(t->ctx, status);
    if (report.state == MHA_TRAINING_DONE) Py_RETURN_NONE;
    if (report.state == MHA_TRAINING_DIVERGED)
        return PyErr_SetString(PyExc_ArithmeticError, "training: the loss or the gradient is not finite"), NULL;
    return fields_dict(&report, report_fields);
}

/* (training, part) -> (count, correct, loss) */
static PyObject *training_score(PyObject *module, PyObject *arguments)
{
    PyObject *capsule;
    int part;
    mha_score score;
    mha_status status;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Oi:training_evaluate", &capsule, &part)) return NULL;
    training *t = training_of(capsule);
    if (!t) return NULL;
    Py_BEGIN_ALLOW_THREADS;
    status = mha_training_evaluate(t->ctx, t->of, (mha_training_part)part, &score);
    Py_END_ALLOW_THREADS;
    if (status) return raise_status(t->ctx, status);
    return Py_BuildValue("LLd", (long long)score.count, (long long)score.correct, score.loss);
}

static PyObject *training_model(PyObject *module, PyObject *capsule)
{
    const training *t = training_of(capsule);
    mha_model *model = NULL;
    (void)module;
    if (!t) return NULL;
    mha_status status = mha_training_model(t->ctx, &model, t->of);
    return status ? raise_status(t->ctx, status) : handle_wrap_model(model);
}

PyMethodDef data_methods[] = {{"data_open", open_data, METH_VARARGS, "mha_data_open"},
                              {"data_about", about, METH_O, "mha_data_about"},
                              {"data_examples", examples, METH_VARARGS, "mha_data_image and mha_data_label"},
                              {"model_evaluate", evaluate, METH_VARARGS, "mha_model_evaluate"},
                              {"training_create", create, METH_VARARGS, "mha_training_create"},
                              {"training_about", training_about, METH_O, "mha_training_about"},
                              {"training_step", step, METH_O, "mha_training_step"},
                              {"training_evaluate", training_score, METH_VARARGS, "mha_training_evaluate"},
                              {"training_model", training_model, METH_O, "mha_training_model"},
                              {NULL, NULL, 0, NULL}};
