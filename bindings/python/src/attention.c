/* mha_attention_forward, _backward and _stats: arguments by name, as the structs of mha.h call them. Everything else, such as
 * the shapes of results, is the business of the package's Python. */
#include "fields.h"

/* The arguments of all three. */
typedef struct call {
    mha_tensor q, k, v, out;
    mha_attention_extras extras;
    mha_tensor dout, dlse, softmax;
    mha_attention_gradients gradients;
    mha_stats stats;
    mha_stats_options stats_options;
    mha_attention_options options;
    int align, threads;
    PyObject *empty, *dtype; /* makes `out` where none is given: empty((B,H,Tq,E), dtype); both borrowed */
    bool alike;              /* do nothing and return False unless q, k and v have the same type, B and H, and E is D */
    bool packed;             /* rows are (T,H,D), as ragged batches usually are, and not (1,H,T,D) */
} call;

#define AT(field) offsetof(call, field)
/* The usual ones first: names are looked for in this order. */
static field options[] = {{"causal", FIELD_BOOL, AT(options.causal), NULL},
                          {"scale", FIELD_FLOAT, AT(options.scale), NULL},
                          {"threads", FIELD_COUNT, AT(threads), NULL},
                          {"empty", FIELD_OBJECT, AT(empty), NULL},
                          {"dtype", FIELD_OBJECT, AT(dtype), NULL},
                          {"alike", FIELD_BOOL, AT(alike), NULL},
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
                                 {"softmax", FIELD_OUTPUT, AT(extras.softmax), NULL},
                                 {"weights", FIELD_OUTPUT, AT(extras.weights), NULL},
                                 {NULL, FIELD_BOOL, 0, NULL}};

static field backward_fields[] = {{"q", FIELD_NEEDED, AT(q), NULL},
                                  {"k", FIELD_NEEDED, AT(k), NULL},
                                  {"v", FIELD_NEEDED, AT(v), NULL},
                                  {"out", FIELD_NEEDED, AT(out), NULL},
                                  {"dout", FIELD_NEEDED, AT(dout), NULL},
                                  {"dlse", FIELD_INPUT, AT(dlse), NULL},
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

static void unpack_all(call *c)
{
    mha_tensor *rows[] = {&c->q, &c->k, &c->v, &c->out, &c->dout, &c->gradients.q, &c->gradients.k, &c->gradients.v};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) unpack(rows[n]);
}

static bool is_alike(const mha_tensor *q, const mha_tensor *k, const mha_tensor *v)
{
    const mha_tensor *all[] = {q, k, v};
    for (int n = 0; n < 3; n++)
        if (all[n]->rank != 4 || all[n]->type != q->type || all[n]->size[0] != q->size[0] ||
            all[n]->size[1] != q->size[1])
            return false;
    return v->size[3] == q->size[3];
}

/* A new array for the result. NULL with an exception set. */
static PyObject *make_out(call *c, fields_held *held)
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

static mha_status run_forward(mha_context *ctx, const call *c)
{
    return mha_attention_forward(ctx, c->out, &c->extras, c->q, c->k, c->v, &c->options);
}

static mha_status run_backward(mha_context *ctx, const call *c)
{
    mha_attention_saved saved = {c->q, c->k, c->v, c->out, c->softmax};
    return mha_attention_backward(ctx, &c->gradients, &saved, c->dout, c->dlse, &c->options);
}

static mha_status run_stats(mha_context *ctx, const call *c)
{
    return mha_attention_stats(ctx, &c->stats, c->q, c->k, c->softmax, &c->options, &c->stats_options);
}

/* The array that was made for the result; otherwise whether anything was computed. */
static PyObject *run(mha_status (*operation)(mha_context *, const call *), const field *table,
                     PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    static const call none = {.options = MHA_ATTENTION_DEFAULTS, .stats_options = MHA_STATS_DEFAULTS};
    call c = none;
    fields_held held;
    PyObject *made = NULL;
    mha_context *ctx = NULL;
    mha_status status = MHA_OK;
    bool skip = false;
    held.anywhere = true;
    if (!fields_read(&held, &c, table, options, arguments, positional, names) &&
        (!c.empty || (made = make_out(&c, &held))) && (ctx = fields_context(&held, c.threads))) {
        c.options.align = (mha_align)c.align;
        if (c.packed) unpack_all(&c);
        skip = c.alike && !is_alike(&c.q, &c.k, &c.v);
    }
    if (ctx && !skip) {
        Py_BEGIN_ALLOW_THREADS;
        status = operation(ctx, &c);
        Py_END_ALLOW_THREADS;
    }
    fields_release(&held);
    if (ctx && !status) return made ? made : PyBool_FromLong(!skip);
    Py_XDECREF(made);
    return ctx ? raise_status(ctx, status) : NULL;
}

static PyObject *forward(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    (void)module;
    return run(run_forward, forward_fields, arguments, positional, names);
}

static PyObject *backward(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    (void)module;
    return run(run_backward, backward_fields, arguments, positional, names);
}

static PyObject *stats(PyObject *module, PyObject *const *arguments, Py_ssize_t positional, PyObject *names)
{
    (void)module;
    return run(run_stats, stats_fields, arguments, positional, names);
}

/* Whether q, k and v have the same type, B and H, and E is D; False also for what is no array. */
static PyObject *alike(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    array arrays[3];
    int read = 0;
    while (read < 3 && read < count && !array_read(&arrays[read], arguments[read], "array", false)) read++;
    PyErr_Clear();
    bool are = read == 3 && is_alike(&arrays[0].tensor, &arrays[1].tensor, &arrays[2].tensor);
    while (read > 0) array_release(&arrays[--read]);
    return PyBool_FromLong(are);
}

PyMethodDef attention_methods[] = {
    {"alike", (PyCFunction)(void (*)(void))alike, METH_FASTCALL, "alike(q, k, v): the same type, B, H and width?"},
    {"forward", (PyCFunction)(void (*)(void))forward, METH_FASTCALL | METH_KEYWORDS, "mha_attention_forward"},
    {"backward", (PyCFunction)(void (*)(void))backward, METH_FASTCALL | METH_KEYWORDS, "mha_attention_backward"},
    {"stats", (PyCFunction)(void (*)(void))stats, METH_FASTCALL | METH_KEYWORDS, "mha_attention_stats"},
    {NULL, NULL, 0, NULL}};
