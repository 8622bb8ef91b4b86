/* Runs the layer forward, and backward on request, and writes the results. */
#include "cli/layer/run.h"
#include "cli/common/cli.h"

#include <stdlib.h>
#include <string.h>

enum { ITEMS = NN_LAYER_PARTS + 8, OWNED = 8 };

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
    nn_safetensors_item items[ITEMS];
    size_t item_count;
    void *owned[OWNED];
    int owned_count;
} making;

/* Allocates a tensor to be written under that name; without the batch axis if the input has none. */
static bool make(making *m, mha_tensor *view, const char *name, int rank, const int64_t *size)
{
    *view = layer_zeros(rank, size);
    if (!view->data) {
        cli_error("not enough memory for %s", name);
        return false;
    }
    m->owned[m->owned_count++] = view->data;
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
    const int64_t output[3] = {in->B, in->Tq, o->out_projection ? o->width : o->heads * o->value_head_width};
    const int64_t per_head[4] = {in->B, o->heads, in->Tq, keys}, average[3] = {in->B, in->Tq, keys};
    if (!make(m, &m->output, "output", 3, output)) return false;
    if (weights == WEIGHTS_PER_HEAD) return make(m, &m->extras.weights, "weights", 4, per_head);
    return weights == WEIGHTS_NONE || make(m, &m->extras.weights, "weights", 3, average);
}

/* The axes of the weights, which are ambiguous from the shape: a batch could be layers. For `mha view`. */
static const char *axes_of(const layer_input *in, layer_weights weights)
{
    if (weights == WEIGHTS_PER_HEAD) return in->batched ? "batch,heads,queries,keys" : "heads,queries,keys";
    return in->batched ? "batch,queries,keys" : "queries,keys";
}

/* Gradients of the given inputs, and of the parameters under the names and in the layout of the layer's file. */
static bool make_gradients(making *m, const nn_layer_file *file, nn_layer_items *items)
{
    const mha_layer_inputs *t = &m->in->tensors;
    int64_t count = 0;
    if (!make(m, &m->gradients.query, "grad.query", 3, t->query.size)) return false;
    if (t->key.data && !make(m, &m->gradients.key, "grad.key", 3, t->key.size)) return false;
    if (t->value.data && !make(m, &m->gradients.value, "grad.value", 3, t->value.size)) return false;
    mha_layer_parameter_count(m->ctx, &count,
                              mha_layer_shape(file->layer)); /* cannot fail: the layer was created with these options */
    m->gradients.parameters = layer_zeros(1, &count).data;
    if (!m->gradients.parameters) {
        cli_error("not enough memory for the gradients of %lld parameters", (long long)count);
        return false;
    }
    m->owned[m->owned_count++] = m->gradients.parameters;
    nn_layer_file_items(items, file, m->gradients.parameters, "grad.");
    memcpy(m->items + m->item_count, items->item, items->count * sizeof *items->item);
    m->item_count += items->count;
    return true;
}

static bool compute(making *m, mha_layer *layer, const layer_request *r)
{
    mha_attention_options options = mha_layer_attention(layer);
    mha_tape *tape = NULL;
    if (r->causal) options.causal = r->causal == LAYER_CAUSAL;
    options.dropout = 0; /* deterministic */
    options.bias = m->in->bias;
    mha_status status = r->grad ? mha_tape_create(m->ctx, &tape) : MHA_OK;
    if (!status) status = mha_layer_forward(m->ctx, layer, m->output, &m->extras, &m->in->tensors, &options, tape);
    if (!status && r->grad) status = mha_layer_backward(m->ctx, layer, &m->gradients, m->in->grad_output, tape);
    if (status) cli_error("%s: %s", r->input, mha_context_error(m->ctx));
    mha_tape_free(tape);
    return !status;
}

bool layer_run(mha_context *ctx, const nn_layer_file *file, const layer_input *in, const layer_request *r)
{
    making m = {.ctx = ctx, .in = in};
    nn_layer_items names; /* must outlive the items that point into it */
    char error[400];
    bool ok = make_results(&m, mha_layer_shape(file->layer), r->weights);
    if (ok && r->grad) ok = make_gradients(&m, file, &names);
    ok = ok && compute(&m, file->layer, r);
    const nn_safetensors_pair note = {"weights.axes", axes_of(in, r->weights)};
    if (ok && !nn_safetensors_write(r->output, m.items, m.item_count, &note, r->weights ? 1 : 0, error, sizeof error)) {
        cli_error("%s", error);
        ok = false;
    }
    for (int i = 0; i < m.owned_count; i++) free(m.owned[i]);
    return ok;
}
