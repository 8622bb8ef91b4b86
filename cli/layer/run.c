/* Runs the layer forward, and backward on request, and writes the results. */
#include "cli/layer/run.h"
#include "cli/common/device.h"
#include "io/safetensors_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = 12, OWNED = RESULTS + 3 };

mha_tensor layer_zeros(int rank, const int64_t *size)
{
    mha_tensor view = {.type = MHA_FLOAT32, .rank = rank};
    int64_t count = 1;
    for (int i = rank - 1; i >= 0; i--) {
        view.size[i] = size[i];
        view.stride[i] = count;
        if (__builtin_mul_overflow(count, size[i], &count)) return view;
    }
    if ((uint64_t)count < PTRDIFF_MAX / sizeof(float)) view.data = calloc((size_t)count + 1, sizeof(float));
    return view;
}

/* The tensors to be written, and the memory behind them. */
typedef struct making {
    mha_context *ctx;
    const layer_input *in;
    mha_attention_extras extras;
    mha_layer_gradients gradients;
    mha_tensor output;
    int64_t parameters;         /* how many numbers the layer has */
    nn_safetensors_item *items; /* RESULTS, and one per parameter */
    size_t item_count;
    void *owned[OWNED];
    int owned_count;
} making;

/* Memory that is freed at the end; prints an error and returns NULL if there is none. */
static void *keep_memory(making *m, void *memory, const char *what)
{
    if (memory) m->owned[m->owned_count++] = memory;
    else cli_error("not enough memory for %s", what);
    return memory;
}

/* Allocates a tensor to be written under that name; without the batch axis if the input has none. */
static bool make_output(making *m, mha_tensor *view, const char *name, int rank, const int64_t *size)
{
    *view = layer_zeros(rank, size);
    if (!keep_memory(m, view->data, name)) return false;
    mha_tensor seen = *view;
    if (!m->in->batched) {
        seen.rank--;
        memmove(seen.size, seen.size + 1, 3 * sizeof *seen.size);
        memmove(seen.stride, seen.stride + 1, 3 * sizeof *seen.stride);
    }
    m->items[m->item_count++] = nn_safetensors_item_view(name, seen);
    return true;
}

static bool make_results(making *m, const mha_layer_options *o, layer_weights weights)
{
    const layer_input *in = m->in;
    int64_t keys = in->Tk + o->bias_kv + o->zero_kv;
    const int64_t output[3] = {in->B, in->Tq, o->out_width};
    const int64_t per_head[4] = {in->B, o->heads, in->Tq, keys}, average[3] = {in->B, in->Tq, keys};
    if (!make_output(m, &m->output, "output", 3, output)) return false;
    if (weights == WEIGHTS_PER_HEAD) return make_output(m, &m->extras.weights, "weights", 4, per_head);
    return weights == WEIGHTS_NONE || make_output(m, &m->extras.weights, "weights", 3, average);
}

/* q, k, v and heads, as mha_attention_extras names them. */
static bool make_intermediates(making *m, const mha_layer_options *o)
{
    const layer_input *in = m->in;
    mha_attention_extras *x = &m->extras;
    const int64_t q[4] = {in->B, o->heads, in->Tq, o->head_width}, k[4] = {in->B, o->kv_heads, in->Tk, o->head_width};
    const int64_t v[4] = {in->B, o->kv_heads, in->Tk, o->value_head_width};
    const int64_t heads[4] = {in->B, o->heads, in->Tq, o->value_head_width};
    return make_output(m, &x->q, "q", 4, q) && make_output(m, &x->k, "k", 4, k) && make_output(m, &x->v, "v", 4, v) &&
           make_output(m, &x->heads, "heads", 4, heads);
}

/* The axes of the weights, which are ambiguous from the shape: a batch could be layers. For `mha view`. */
static const char *axes_of(const layer_input *in, layer_weights weights)
{
    if (weights == WEIGHTS_PER_HEAD) return in->batched ? "batch,heads,queries,keys" : "heads,queries,keys";
    return in->batched ? "batch,queries,keys" : "queries,keys";
}

static const char grad[] = "grad.";

/* Lists the gradients of parameters, under the names and in the layout of the layer's file. */
static bool list_parameters(making *m, const mha_layer_file *file)
{
    size_t room = 0;
    int64_t count = mha_layer_file_parameter_count(file);
    for (int64_t n = 0; n < count; n++) room += sizeof grad + strlen(mha_layer_file_parameter_get(file, n, NULL).name);
    char *names = keep_memory(m, malloc(room + 1), "the names of gradients");
    for (int64_t n = 0; names && n < count; n++) {
        mha_layer_file_parameter part = mha_layer_file_parameter_get(file, n, m->gradients.parameters);
        int length = snprintf(names, room, "%s%s", grad, part.name) + 1;
        m->items[m->item_count++] = nn_safetensors_item_view(names, part.tensor);
        names += length, room -= (size_t)length;
    }
    return names;
}

/* Gradients of the given inputs, and of the parameters. */
static bool make_gradients(making *m, const mha_layer_file *file)
{
    const mha_layer_inputs *t = &m->in->tensors;
    if (!make_output(m, &m->gradients.query, "grad.query", 3, t->query.size)) return false;
    if (t->key.data && !make_output(m, &m->gradients.key, "grad.key", 3, t->key.size)) return false;
    if (t->value.data && !make_output(m, &m->gradients.value, "grad.value", 3, t->value.size)) return false;
    m->gradients.parameters = keep_memory(m, layer_zeros(1, &m->parameters).data, "the gradients of parameters");
    return m->gradients.parameters && list_parameters(m, file);
}

/* ---- Computing --------------------------------------------------------------------------------------------------- */

/* A call with everything in memory of the device. */
typedef struct calling {
    mha_layer *layer;
    mha_tensor output, grad_output;
    mha_attention_extras extras;
    mha_layer_inputs inputs;
    mha_attention_options options;
    mha_layer_gradients gradients;
} calling;

static mha_status call_layer(mha_context *ctx, const calling *c, bool backward)
{
    mha_tape *tape = NULL;
    mha_status status = backward ? mha_tape_create(ctx, &tape) : MHA_OK;
    if (!status) status = mha_layer_forward(ctx, c->layer, c->output, &c->extras, &c->inputs, &c->options, tape);
    if (!status && backward) status = mha_layer_backward(ctx, c->layer, &c->gradients, c->grad_output, tape);
    mha_tape_free(tape);
    return status;
}

/* Puts the tensors of a call on the device of the context: inputs, then results. */
static void give_all(device_copies *there, calling *c, int64_t parameters)
{
    mha_tensor block = mha_tensor_1d(c->gradients.parameters, MHA_FLOAT32, parameters);
    mha_tensor *const given[] = {&c->inputs.query, &c->inputs.key, &c->inputs.value, &c->options.bias, &c->grad_output};
    mha_tensor *const results[] = {&c->output,        &c->extras.weights, &c->extras.q, &c->extras.k,
                                   &c->extras.v,      &c->extras.heads,   &block,       &c->gradients.query,
                                   &c->gradients.key, &c->gradients.value};
    for (size_t n = 0; n < sizeof given / sizeof *given; n++) device_give(there, given[n]);
    for (size_t n = 0; n < sizeof results / sizeof *results; n++) device_give_result(there, results[n]);
    c->gradients.parameters = block.data;
}

/* A layer with the parameters of one of the host, in memory of the context's device. */
static mha_status copy_layer(mha_context *ctx, mha_layer **copy, const mha_layer *layer, int64_t parameters)
{
    mha_status status = mha_layer_create(ctx, copy, mha_layer_shape(layer), NULL);
    if (status) return status;
    void *to = mha_layer_view(*copy, NULL).q_weight.data;
    return mha_device_write(ctx, to, mha_layer_view(layer, NULL).q_weight.data, (size_t)parameters * sizeof(float));
}

static bool run_on_device(making *m, mha_layer *layer, const layer_request *r)
{
    calling c = {layer,       m->output, m->in->grad_output, m->extras, m->in->tensors, mha_layer_attention(layer),
                 m->gradients};
    device_copies there = {.ctx = m->ctx};
    mha_layer *copy = NULL;
    if (r->causal) c.options.causal = r->causal == LAYER_CAUSAL;
    c.options.dropout = 0; /* deterministic */
    c.options.bias = m->in->bias;
    if (device_is_gpu(mha_context_device(m->ctx))) {
        there.status = copy_layer(m->ctx, &copy, layer, m->parameters);
        c.layer = copy;
    }
    give_all(&there, &c, m->parameters);
    if (!there.status) there.status = call_layer(m->ctx, &c, r->grad);
    bool done = device_end(&there) || cli_error("%s: %s", r->input, cli_reason(m->ctx));
    mha_layer_free(copy);
    return done;
}

bool layer_run(mha_context *ctx, const mha_layer_file *file, const layer_input *in, const layer_request *r)
{
    mha_layer *layer = mha_layer_file_layer(file);
    char error[400];
    int64_t parameters = 0;
    /* cannot fail: the layer was created with these options */
    mha_layer_parameter_count(ctx, &parameters, mha_layer_shape(layer));
    making m = {.ctx = ctx, .in = in, .parameters = parameters};
    m.items =
        keep_memory(&m, calloc(RESULTS + (size_t)mha_layer_file_parameter_count(file), sizeof *m.items), "the results");
    bool ok = m.items && make_results(&m, mha_layer_shape(layer), r->weights);
    if (ok && r->intermediates) ok = make_intermediates(&m, mha_layer_shape(layer));
    if (ok && r->grad) ok = make_gradients(&m, file);
    ok = ok && run_on_device(&m, layer, r);
    const nn_safetensors_pair note = {"weights.axes", axes_of(in, r->weights)};
    if (ok && nn_safetensors_write(r->output, m.items, m.item_count, &note, r->weights ? 1 : 0, error, sizeof error))
        ok = cli_error("%s", error);
    for (int i = 0; i < m.owned_count; i++) free(m.owned[i]);
    return ok;
}
