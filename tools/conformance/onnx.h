/* One conformance case: a safetensors file with the inputs, the attributes and the expected outputs of one ONNX
 * operator. Running it maps the operator to calls of the library and compares the results.
 *
 * The file's tensors are "in:NAME" and "out:NAME"; its metadata are `op`, `opset`, `inputs` and `outputs` (names in the
 * operator's order, separated by commas, empty if absent), and "attr:NAME". */
#ifndef ONNX_H
#define ONNX_H

#include "io/safetensors.h"

typedef struct onnx_result {
    bool passed;
    bool compared;     /* false: the case could not be run; see `why` */
    double difference; /* the largest |got - want|; infinite if one of them is NaN */
    char why[320];     /* one line if it failed, otherwise "" */
} onnx_result;

onnx_result onnx_run(mha_context *ctx, const nn_safetensors *file);

/* ---- For the operators ------------------------------------------------------------------------------------------- */

enum { ONNX_SLOTS = 8, ONNX_OWNED = 16 };

/* A case that is being run. It owns its allocations, so an operator may return at any point. */
typedef struct onnx_case {
    mha_context *ctx;
    const nn_safetensors *file;
    onnx_result *result;
    const nn_safetensors_tensor *in[ONNX_SLOTS];   /* in the operator's order; NULL: absent */
    const nn_safetensors_tensor *want[ONNX_SLOTS]; /* the same for the outputs */
    const char *const *outputs;                    /* their names */
    void *owned[ONNX_OWNED];
    int owned_count;
} onnx_case;

/* Records why the case cannot be run or has failed. Returns false. */
__attribute__((format(printf, 2, 3))) bool onnx_fail(onnx_case *c, const char *format, ...);

/* Fills in[] and want[] from the metadata; the names end with NULL, and the first `required` inputs must be present. */
bool onnx_bind(onnx_case *c, const char *const *inputs, int required, const char *const *outputs);

/* Refuses attributes that the operator does not have. `names` ends with NULL. */
bool onnx_attributes(onnx_case *c, const char *const *names);

/* Reads an attribute; the value is unchanged if it is absent. */
bool onnx_integer(onnx_case *c, const char *name, int64_t *value, int64_t least, int64_t most);
bool onnx_float(onnx_case *c, const char *name, float *value);

/* A view of a tensor as (B,H,T,D): a tensor with four axes unchanged, one with three, (B,T,H*D), by strides. */
bool onnx_heads(onnx_case *c, const nn_safetensors_tensor *tensor, int64_t heads, mha_tensor *view);

/* Memory for count * size bytes that the case owns; NULL after onnx_fail. */
void *onnx_memory(onnx_case *c, int64_t count, size_t size);

/* A dense tensor to be filled for output `slot`. It must have the expected tensor's type and shape, so a case never
 * allocates more for its outputs than its file holds. */
bool onnx_output(onnx_case *c, int slot, nn_safetensors_dtype dtype, int rank, const int64_t *shape, mha_tensor *view);

/* Compares output `slot` with the expected one. */
bool onnx_compare(onnx_case *c, int slot, const void *got);

/* An element as a number, for all types except complex numbers and 8-bit floats. */
bool onnx_is_number(nn_safetensors_dtype dtype);
double onnx_value(nn_safetensors_dtype dtype, const void *data, int64_t index);

bool onnx_attention(onnx_case *c);
bool onnx_rotary(onnx_case *c);

#endif
