/* One conformance case: a safetensors file that holds the inputs, the attributes and the expected outputs of one ONNX
 * operator. Running it maps the operator onto the library's calls and compares what comes out.
 *
 * The file's tensors are "in:NAME" and "out:NAME"; its metadata are `op`, `opset`, `inputs` and `outputs` (the names in
 * the operator's order, separated by commas, an empty place for an absent one), and "attr:NAME". */
#ifndef ONNX_H
#define ONNX_H

#include "io/safetensors.h"

typedef struct onnx_result {
    bool passed;
    bool compared;     /* false: the case could not be run, and `why` says so */
    double difference; /* the largest |got - want|; infinite where one of them is not a number */
    char why[320];     /* one line when it did not pass, else "" */
} onnx_result;

onnx_result onnx_run(mha_context *ctx, const nn_safetensors *file);

/* ---- For the operators ------------------------------------------------------------------------------------------- */

enum { ONNX_SLOTS = 8, ONNX_OWNED = 16 };

/* A case that is being run. What it allocates it owns, so that an operator may return at any point. */
typedef struct onnx_case {
    mha_context *ctx;
    const nn_safetensors *file;
    onnx_result *result;
    const nn_safetensors_tensor *in[ONNX_SLOTS];   /* by the operator's order; NULL: absent */
    const nn_safetensors_tensor *want[ONNX_SLOTS]; /* the same for the outputs */
    const char *const *outputs;                    /* their names */
    void *owned[ONNX_OWNED];
    int owned_count;
} onnx_case;

/* Notes why the case cannot be run, or has not passed. Returns false. */
__attribute__((format(printf, 2, 3))) bool onnx_fail(onnx_case *c, const char *format, ...);

/* Fills in[] and want[] from the metadata; the names end with NULL, and the first `required` inputs must be there. */
bool onnx_bind(onnx_case *c, const char *const *inputs, int required, const char *const *outputs);

/* Refuses attributes that the operator does not have. `names` ends with NULL. */
bool onnx_attributes(onnx_case *c, const char *const *names);

/* An attribute, which keeps its value if it is absent. */
bool onnx_integer(onnx_case *c, const char *name, int64_t *value, int64_t least, int64_t most);
bool onnx_float(onnx_case *c, const char *name, float *value);

/* The library's view of a tensor as (B,H,T,D): one with four axes as it is, one of three, (B,T,H*D), by its strides. */
bool onnx_heads(onnx_case *c, const nn_safetensors_tensor *tensor, int64_t heads, mha_tensor *view);

/* Memory for count * size bytes that the case owns; NULL after onnx_fail. */
void *onnx_memory(onnx_case *c, int64_t count, size_t size);

/* A dense tensor to be filled for output `slot`. It must have the expected tensor's type and shape, so a case never
 * allocates more for its outputs than its file holds. */
bool onnx_output(onnx_case *c, int slot, nn_safetensors_dtype dtype, int rank, const int64_t *shape, mha_tensor *view);

/* Compares output `slot` with what is expected. */
bool onnx_compare(onnx_case *c, int slot, const void *got);

/* An element as a number, for the types that are numbers or bool here: all but complex and 8-bit floats. */
bool onnx_is_number(nn_safetensors_dtype dtype);
double onnx_value(nn_safetensors_dtype dtype, const void *data, int64_t index);

bool onnx_attention(onnx_case *c);
bool onnx_rotary(onnx_case *c);

#endif
