/* mha_attention_forward, _backward and _stats: arguments by name, as the structs of mha.h call them. Everything else, such as
 * the shapes of results, is the business of the package's Python. */
#include "attention.h"

#include <string.h>

#define AT(field) offsetof(attention_call, field)
/* The usual ones first: names are looked for in this order. */
static field options[] = {{"causal", FIELD_BOOL, AT(options.causal), NULL},
                          {"scale", FIELD_FLOAT, AT(options.scale), NULL},
                          {"threads", FIELD_COUNT, AT(threads), NULL},
                          {"team", FIELD_COUNT, AT(team), NULL},
                          {"empty", FIELD_OBJECT, AT(empty), NULL},
                          {"dtype", FIELD_OBJECT, AT(dtype), NULL},
                          {"dropout", FIELD_FLOAT, AT(options.dropout), NULL},
                          {"seed", FIELD_UNSIGNED, AT(options.dropout_seed), NULL},
                          {"more", FIELD_MORE, 0, NULL},
                          {"mask", FIELD_INPUT, AT(options.mask), NULL},
                          {"bias", FIELD_INPUT, AT(options.bias), NULL},
                          {"softcap", FIELD_FLOAT, AT(options.softcap), NULL},
                          {"align", FIELD_COUNT, AT(align), NULL},
                          {"offsets", FIELD_INPUT, AT(options.offsets), NULL},
                          {"window_left", FIELD_INT, AT(options.window_left), NULL},
                          {"window_right", FIELD_INT, AT(options.window_right), NULL},
                          {"query_lengths", FIELD_INPUT, AT(options.query_lengths), NULL},
                          {"key_lengths", FIELD_INPUT, AT(options.key_lengths), NULL},
                          {"alibi", FIELD_INPUT, AT(options.alibi_slopes), NULL},
                          {"sinks", FIELD_INPUT, AT(options.sinks), NULL},
                          {"query_starts", FIELD_INPUT, AT(options.query_starts), NULL},
                          {"key_starts", FIELD_INPUT, AT(options.key_starts), NULL},
                          {"packed", FIELD_BOOL, AT(packed), NULL},
                          {NULL, FIELD_BOOL, 0, NULL}};

static field forward_fields[] = {{"q", FIELD_NEEDED, AT(q), NULL},
                                 {"k", FIELD_NEEDED, AT(k), NULL},
                                 {"v", FIELD_NEEDED, AT(v), NULL},
                                 {"out", FIELD_OUTPUT, AT(out), NULL},
                                 {"lse", FIELD_OUTPUT, AT(extras.lse), NULL},
                                 {"keep", FIELD_BOOL, AT(keep), NULL},
                                 {"softmax", FIELD_OUTPUT, AT(extras.softmax), NULL},
                                 {"weights", FIELD_OUTPUT, AT(extras.weights), NULL},
                                 {NULL, FIELD_BOOL, 0, NULL}};

static field backward_fields[] = {{"q", FIELD_NEEDED, AT(q), NULL},
                                  {"k", FIELD_NEEDED, AT(k), NULL},
                                  {"v", FIELD_NEEDED, AT(v), NULL},
                                  {"out", FIELD_NEEDED, AT(out), NULL},
                                  {"dout", FIELD_NEEDED, AT(dout), NULL},
                                  {"dlse", FIELD_INPUT, AT(dlse), NULL},
                                  {"kept", FIELD_OBJECT, AT(kept), NULL},
                                  {"softmax", FIELD_INPUT, AT(softmax), NULL},
                                  {"dq", FIELD_OUTPUT, AT(gradients.q), NULL},
                                  {"dk", FIELD_OUTPUT, AT(gradients.k), NULL},
                                  {"dv", FIELD_OUTPUT, AT(gradients.v), NULL},
                                  {"dbias", FIELD_OUTPUT, AT(gradients.bias), NULL},
                                  {"dalibi", FIELD_OUTPUT, AT(gradients.alibi_slopes), NULL},
                                  {"dsinks", FIELD_OUTPUT, AT(gradients.sinks), NULL},
                                  {NULL, FIELD_BOOL, 0, NULL}};

static field stats_fields[] = {{"q", FIELD_NEEDED, AT(q), NULL},
                               {"k", FIELD_NEEDED, AT(k), NULL},
                               {"softmax", FIELD_INPUT, AT(softmax), NULL},
                               {"entropy", FIELD_OUTPUT, AT(stats.entropy), NULL},
                               {"effective", FIELD_OUTPUT, AT(stats.effective), NULL},
                               {"largest", FIELD_OUTPUT, AT(stats.largest), NULL},
                               {"distance", FIELD_OUTPUT, AT(stats.distance), NULL},
                               {"mass", FIELD_OUTPUT, AT(stats.mass), NULL},
                               {"top_weights", FIELD_OUTPUT, AT(stats.top_weights), NULL},
                               {"top_keys", FIELD_OUTPUT, AT(stats.top_keys), NULL},
                               {"received", FIELD_OUTPUT, AT(stats.received), NULL},
                               {"heatmap", FIELD_OUTPUT, AT(stats.heatmap), NULL},
                               {"divergence", FIELD_OUTPUT, AT(stats.divergence), NULL},
                               {"cosine", FIELD_OUTPUT, AT(stats.cosine), NULL},
                               {"sets", FIELD_INPUT, AT(stats_options.sets), NULL},
                               {"grid_columns", FIELD_INT, AT(stats_options.grid_columns), NULL},
                               {"grid_first", FIELD_INT, AT(stats_options.grid_first), NULL},
                               {NULL, FIELD_BOOL, 0, NULL}};
#undef AT

int attention_start(void)
{
    return fields_start(options) || fields_start(forward_fields) || fields_start(backward_fields) ||
                   fields_start(stats_fields)
               ? -1
               : 0;
}

/* (T,H,D) becomes (1,H,T,D). Other ranks are left to the library's checks. */
static void unpack(mha_tensor *t)
{
    if (t->rank != 3) return;
    mha_tensor from = *t;
    t->rank = 4, t->size[0] = 1, t->stride[0] = 0;
    for (int n = 0; n < 3; n++) t->size[n + 1] = from.size[n], t->stride[n + 1] = from.stride[n];
    *t = mha_tensor_swap(*t, 1, 2);
}

static void unpack_all(attention_call *c)
{
    mha_tensor *rows[] = {&c->q, &c->k, &c->v, &c->out, &c->dout, &c->gradients.q, &c->gradients.k, &c->gradients.v};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) unpack(rows[n]);
}

/* A new array for the result. NULL with an exception set. */
static PyObject *make_out(attention_call *c, fields_held *held)
{
    const int64_t *size = c->q.size;
    const char *wrong = c->q.rank != 4 ? "q: has %d axes, must be (B,H,Tq,D)" : "v: has %d axes, must be (B,G,Tk,E)";
    if (c->q.rank != 4 || c->v.rank != 4)
        return PyErr_Format(PyExc_ValueError, wrong, c->q.rank != 4 ? c->q.rank : c->v.rank);
    PyObject *shape =
        Py_BuildValue("LLLL", (long long)size[0], (long long)size[1], (long long)size[2], (long long)c->v.size[3]);
    PyObject *out = shape ? PyObject_CallFunctionObjArgs(c->empty, shape, c->dtype, NULL) : NULL;
    Py_XDECREF(shape);
    if (out && fields_add(held, &c->out, out, "out")) Py_CLEAR(out);
    return out;
}

/* The bytes of float32 (B,H,Tq,2); -1 with an exception set if that is too many. */
static Py_ssize_t softmax_bytes(const mha_tensor *q)
{
    Py_ssize_t bytes = 2 * sizeof(float);
    for (int axis = 0; axis < 3; axis++) {
        if (q->size[axis] > 0 && bytes > PY_SSIZE_T_MAX / q->size[axis]) return PyErr_NoMemory(), -1;
        bytes *= q->size[axis];
    }
    return bytes;
}

/* The softmax of rows in the memory of a bytes object, which is made in a tenth of the time of an array. */
static mha_tensor softmax_in(PyObject *bytes, const mha_tensor *q)
{
    return mha_tensor_4d(PyBytes_AsString(bytes), MHA_FLOAT32, q->size[0], q->size[1], q->size[2], 2);
}

/* NULL with an exception set. */
static PyObject *make_kept(attention_call *c, const fields_held *held)
{
    if (c->q.rank != 4) return PyErr_Format(PyExc_ValueError, "q: has %d axes, must be (B,H,Tq,D)", c->q.rank);
    if (held->arrays[0].device >= 0) return PyErr_Format(PyExc_ValueError, "keep: arrays are on a GPU; give softmax");
    Py_ssize_t bytes = softmax_bytes(&c->q);
    PyObject *kept = bytes < 0 ? NULL : PyBytes_FromStringAndSize(NULL, bytes);
    if (kept) c->extras.softmax = softmax_in(kept, &c->q);
    return kept;
}

/* 0, or -1 with an exception set. */
static int read_kept(attention_call *c)
{
    Py_ssize_t bytes = c->q.rank == 4 ? softmax_bytes(&c->q) : -1;
    if (!PyErr_Occurred() && (bytes < 0 || !PyBytes_Check(c->kept) || PyBytes_Size(c->kept) != bytes))
        PyErr_SetString(PyExc_ValueError, "kept: must be what forward returned for this q");
    if (PyErr_Occurred()) return -1;
    c->softmax = softmax_in(c->kept, &c->q);
    return 0;
}

static mha_status run_forward(mha_context *ctx, const attention_call *c)
{
    if (c->team && !c->on_gpu) team_bring_pages(c->out);
    return mha_attention_forward(ctx, c->out, &c->extras, c->q, c->k, c->v, &c->options);
}

static mha_status run_backward(mha_context *ctx, const attention_call *c)
{
    mha_attention_saved saved = {c->q, c->k, c->v, c->out, c->softmax};
    const mha_tensor written[] = {c->gradients.q, c->gradients.k, c->gradients.v, c->gradients.bias};
    for (size_t n = 0; c->team && !c->on_gpu && n < sizeof written / sizeof *written; n++) team_bring_pages(written[n]);
    return mha_attention_backward(ctx, &c->gradients, &saved, c->dout, c->dlse, &c->options);
}

static mha_status run_stats(mha_context *ctx, const attention_call *c)
{
    return mha_attention_stats(ctx, &c->stats, c->q, c->k, c->softmax, &c->options, &c->stats_options);
}

/* Multiplications of a call below which a second thread gains less than it costs to wake it and to wait for it. */
enum { SMALL = 1 << 18 };

static bool is_small(const attention_call *c)
{
    const double keys = c->k.rank == 4 ? (double)c->k.size[2] : 0, width = (double)(c->q.size[3] + c->v.size[3]);
    double work = keys * width; /* of a row; a backward call has five products in place of two */
    for (int axis = 0; axis < 3 && c->q.rank == 4; axis++) work *= (double)c->q.size[axis];
    return work * (c->dout.rank ? 2.5 : 1) < SMALL;
}

static mha_status run_check(mha_context *ctx, const attention_call *c)
{
    mha_attention_plan plan;
    return mha_attention_explain(ctx, &plan, c->out, &c->extras, c->q, c->k, c->v, &c->options);
}

const attention_operation attention_forward = {forward_fields, run_forward};
const attention_operation attention_backward = {backward_fields, run_backward};
static const attention_operation attention_stats = {stats_fields, run_stats};
static const attention_operation attention_check = {forward_fields, run_check};

const field *attention_field(const attention_operation *operation, const char *name, size_t length)
{
    const field *tables[] = {operation->fields, options};
    for (size_t n = 0; n < sizeof tables / sizeof *tables; n++)
        for (const field *f = tables[n]; f->name; f++)
            if (strlen(f->name) == length && !memcmp(f->name, name, length)) return f;
    return NULL;
}

mha_status attention_run(mha_context *ctx, const attention_operation *operation, attention_call *c)
{
    c->options.align = (mha_align)c->align;
    if (c->packed) unpack_all(c);
    return operation->run(ctx, c);
}

/* Completes a call whose arguments were read, and makes what it shall return: an array for the result, or the memory to keep;
 * NULL if it makes none. 0, or -1 with an exception set. */
static int prepare(attention_call *c, fields_held *held, PyObject **made)
{
    if (c->empty) *made = make_out(c, held);
    else if (c->keep) *made = make_kept(c, held);
    if ((c->empty || c->keep) && !*made) return -1;
    if (c->kept && read_kept(c)) return -1;
    c->on_gpu = held->count && held->arrays[0].device >= 0;
    return 0;
}

/* What was made for the call, otherwise True. With a `fits` that rejects its arrays, or arguments that cannot be read, False:
 * nothing has been done. */
static PyObject *run_if(bool (*fits)(const attention_call *), const attention_operation *operation,
                        PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    attention_call c = ATTENTION_NO_CALL;
    fields_held held;
    PyObject *made = NULL;
    mha_status status = MHA_OK;
    held.anywhere = true;
    bool read = !fields_read(&held, &c, operation->fields, options, arguments, positional, names);
    if (fits && (!read || !fits(&c))) {
        PyErr_Clear();
        fields_release(&held);
        Py_RETURN_FALSE;
    }
    HELD_CONTEXT ctx = read && !prepare(&c, &held, &made) ? fields_context(&held, c.threads, c.team) : NULL;
    if (ctx) {
        Py_BEGIN_ALLOW_THREADS;
        team_small(is_small(&c));
        status = attention_run(ctx, operation, &c);
        team_small(false);
        Py_END_ALLOW_THREADS;
    }
    fields_release(&held);
    if (ctx && !status) return made ? made : PyBool_FromLong(1);
    Py_XDECREF(made);
    return ctx ? raise_status(ctx, status) : NULL;
}

/* Whether q, k and v have the same type, B and H, and E is D. */
static bool is_alike(const attention_call *c)
{
    const mha_tensor *all[] = {&c->q, &c->k, &c->v};
    for (int n = 0; n < 3; n++)
        if (all[n]->rank != 4 || all[n]->type != c->q.type || all[n]->size[0] != c->q.size[0] ||
            all[n]->size[1] != c->q.size[1])
            return false;
    return c->v.size[3] == c->q.size[3];
}

static PyObject *forward(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    (void)module;
    return run_if(NULL, &attention_forward, arguments, positional, names);
}

static PyObject *forward_alike(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    (void)module;
    return run_if(is_alike, &attention_forward, arguments, positional, names);
}

static PyObject *backward(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    (void)module;
    return run_if(NULL, &attention_backward, arguments, positional, names);
}

static PyObject *stats(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    (void)module;
    return run_if(NULL, &attention_stats, arguments, positional, names);
}

static PyObject *check(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    (void)module;
    return run_if(NULL, &attention_check, arguments, positional, names);
}

PyMethodDef attention_methods[] = {
    {"forward", (PyCFunction)(void (*)(void))forward, METH_FASTCALL | METH_KEYWORDS, "mha_attention_forward"},
    {"forward_alike", (PyCFunction)(void (*)(void))forward_alike, METH_FASTCALL | METH_KEYWORDS,
     "mha_attention_forward if q, k and v have the same type, B, H and width; False, with nothing done, otherwise"},
    {"backward", (PyCFunction)(void (*)(void))backward, METH_FASTCALL | METH_KEYWORDS, "mha_attention_backward"},
    {"check", (PyCFunction)(void (*)(void))check, METH_FASTCALL | METH_KEYWORDS,
     "What mha_attention_forward would refuse, without computing anything"},
    {"stats", (PyCFunction)(void (*)(void))stats, METH_FASTCALL | METH_KEYWORDS, "mha_attention_stats"},
    {NULL, NULL, 0, NULL}};
