/* Shared by all operators: attributes, the lists of inputs and outputs, views, memory. The comparison is in
 * onnx_compare.c; each operator has its own file.
 *
 * Case files are untrusted: shapes are checked against each other here or by the library, sums and products that
 * determine an allocation are checked for overflow, and allocations are limited. */
#include "tools/conformance/onnx.h"
#include "io/json.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No case needs more; the limit protects against hostile files. */
static const int64_t memory_max = INT64_C(1) << 30;

bool onnx_fail(onnx_case *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->result->why, sizeof c->result->why, format, args);
    va_end(args);
    return false;
}

void *onnx_memory(onnx_case *c, int64_t count, size_t size)
{
    void *memory = NULL;
    if (count > memory_max / (int64_t)size) onnx_fail(c, "%lld elements exceed the limit of a case", (long long)count);
    else if (!(memory = calloc((size_t)count + 1, size)))
        onnx_fail(c, "not enough memory for %lld elements", (long long)count);
    else c->owned[c->owned_count++] = memory;
    return memory;
}

/* ---- Inputs and outputs ----------------------------------------------------------------------------------------- */

/* Parses a list such as "Q,K,V,,,,nonpad_kv_seqlen", whose entries must be the operator's names, in order, or empty. */
static bool bind_list(onnx_case *c, const char *key, const char *prefix, const char *const *names,
                      const nn_safetensors_tensor **slots)
{
    const char *at = nn_safetensors_metadata(c->file, key);
    if (!at) return onnx_fail(c, "metadata \"%s\" is missing", key);
    for (int i = 0;; i++) {
        size_t length = strcspn(at, ",");
        char quoted[64];
        if (length && !names[i]) return onnx_fail(c, "%s: more than %d entries", key, i);
        if (length && (strlen(names[i]) != length || strncmp(at, names[i], length) != 0))
            return onnx_fail(c, "%s: entry %d should be %s or empty in %s", key, i, names[i],
                             nn_json_quote(quoted, sizeof quoted, nn_safetensors_metadata(c->file, key)));
        if (length) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", prefix, names[i]);
            slots[i] = nn_safetensors_find(c->file, name);
            if (!slots[i]) return onnx_fail(c, "tensor \"%s\" is missing", name);
        }
        at += length;
        if (!*at) return true;
        if (!names[i]) return onnx_fail(c, "%s: more than %d entries", key, i);
        at++;
    }
}

bool onnx_bind(onnx_case *c, const char *const *inputs, int required, const char *const *outputs)
{
    c->outputs = outputs;
    if (!bind_list(c, "inputs", "in:", inputs, c->in)) return false;
    if (!bind_list(c, "outputs", "out:", outputs, c->want)) return false;
    for (int i = 0; i < required; i++)
        if (!c->in[i]) return onnx_fail(c, "input %s is missing", inputs[i]);
    if (!c->want[0]) return onnx_fail(c, "output %s is missing", outputs[0]);
    return true;
}

static bool same_shape(const nn_safetensors_tensor *tensor, int rank, const int64_t *shape)
{
    return tensor->rank == rank && memcmp(tensor->shape, shape, (size_t)rank * sizeof *shape) == 0;
}

bool onnx_output(onnx_case *c, int slot, nn_safetensors_dtype dtype, int rank, const int64_t *shape, mha_tensor *view)
{
    const nn_safetensors_tensor *want = c->want[slot];
    nn_safetensors_tensor made = {.dtype = dtype, .rank = rank};
    memcpy(made.shape, shape, (size_t)rank * sizeof *shape);
    if (want->dtype != dtype || !same_shape(want, rank, shape)) {
        char is[100], needs[100];
        return onnx_fail(c, "out:%s is %s, but the inputs make %s", c->outputs[slot],
                         nn_safetensors_describe(is, sizeof is, want),
                         nn_safetensors_describe(needs, sizeof needs, &made));
    }
    made.data = onnx_memory(c, want->count, nn_safetensors_dtype_size(dtype));
    if (!made.data) return false;
    return nn_safetensors_view(&made, view) ||
           onnx_fail(c, "%s is not a supported type", nn_safetensors_dtype_name(dtype));
}

bool onnx_heads(onnx_case *c, const nn_safetensors_tensor *tensor, int64_t heads, mha_tensor *view)
{
    char what[100];
    nn_safetensors_describe(what, sizeof what, tensor);
    if (!nn_safetensors_view(tensor, view) || view->type == MHA_BOOL || view->type == MHA_INT64)
        return onnx_fail(c, "%s is %s; expected float32, bfloat16 or float16 with 3 or 4 axes", tensor->name, what);
    if (tensor->rank == 4) {
        if (heads && heads != tensor->shape[1])
            return onnx_fail(c, "%s is %s, but the attribute gives %lld heads", tensor->name, what, (long long)heads);
        return true;
    }
    if (tensor->rank != 3) return onnx_fail(c, "%s is %s; expected 3 or 4 axes", tensor->name, what);
    if (heads < 1) return onnx_fail(c, "%s has 3 axes, but no attribute gives the number of heads", tensor->name);
    if (tensor->shape[2] % heads)
        return onnx_fail(c, "%s is %s, which is not divisible by %lld heads", tensor->name, what, (long long)heads);
    int64_t rows = tensor->shape[1], width = tensor->shape[2] / heads;
    *view = mha_tensor_swap(mha_tensor_4d(view->data, view->type, tensor->shape[0], rows, heads, width), 1, 2);
    return true;
}

/* ---- Attributes ------------------------------------------------------------------------------------------------- */

bool onnx_attributes(onnx_case *c, const char *const *names)
{
    for (size_t i = 0; i < nn_safetensors_metadata_count(c->file); i++) {
        const char *key = nn_safetensors_metadata_key(c->file, i);
        char quoted[64];
        int n = 0;
        if (strncmp(key, "attr:", 5) != 0) continue;
        while (names[n] && strcmp(names[n], key + 5) != 0) n++;
        if (!names[n]) return onnx_fail(c, "unknown attribute %s", nn_json_quote(quoted, sizeof quoted, key + 5));
    }
    return true;
}

static const char *attribute(const onnx_case *c, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "attr:%s", name);
    return nn_safetensors_metadata(c->file, key);
}

static bool whole_number(const char *text, int64_t *value, int64_t least, int64_t most)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    return end != text && !*end && !errno && *value >= least && *value <= most;
}

bool onnx_integer(onnx_case *c, const char *name, int64_t *value, int64_t least, int64_t most)
{
    const char *text = attribute(c, name);
    char quoted[64];
    if (text && !whole_number(text, value, least, most))
        return onnx_fail(c, "attribute %s is %s; expected a whole number from %lld to %lld", name,
                         nn_json_quote(quoted, sizeof quoted, text), (long long)least, (long long)most);
    return true;
}

bool onnx_float(onnx_case *c, const char *name, float *value)
{
    const char *text = attribute(c, name);
    char *end, quoted[64];
    if (!text) return true;
    float number = strtof(text, &end);
    if (end == text || *end || !isfinite(number))
        return onnx_fail(c, "attribute %s is %s; expected a number", name, nn_json_quote(quoted, sizeof quoted, text));
    *value = number;
    return true;
}

/* ---- Running ---------------------------------------------------------------------------------------------------- */

static bool run_operator(onnx_case *c)
{
    const char *op = nn_safetensors_metadata(c->file, "op"), *opset = nn_safetensors_metadata(c->file, "opset");
    int64_t version;
    char quoted[64];
    if (!op || !opset) return onnx_fail(c, "metadata \"%s\" is missing", op ? "opset" : "op");
    if (!whole_number(opset, &version, 23, INT32_MAX))
        return onnx_fail(c, "opset is %s; both operators require 23 or later",
                         nn_json_quote(quoted, sizeof quoted, opset));
    if (strcmp(op, "Attention") == 0) return onnx_attention(c);
    if (strcmp(op, "RotaryEmbedding") == 0) return onnx_rotary(c);
    return onnx_fail(c, "unknown operator %s", nn_json_quote(quoted, sizeof quoted, op));
}

onnx_result onnx_run(mha_context *ctx, const nn_safetensors *file)
{
    onnx_result result = {0};
    onnx_case c = {.ctx = ctx, .file = file, .result = &result};
    result.passed = run_operator(&c);
    for (int i = 0; i < c.owned_count; i++) free(c.owned[i]);
    return result;
}
