/* The parts of `mha layer`: reading the inputs, and running the layer. */
#ifndef LAYER_RUN_H
#define LAYER_RUN_H

#include "io/safetensors.h"
#include <mha_model.h>

typedef enum layer_weights { WEIGHTS_NONE, WEIGHTS_PER_HEAD, WEIGHTS_AVERAGE } layer_weights;

typedef enum layer_causal { LAYER_AS_IT_IS, LAYER_CAUSAL, LAYER_NOT_CAUSAL } layer_causal;

typedef struct layer_request {
    const char *layer, *input, *output; /* paths */
    mha_layer_file_options load;
    layer_weights weights;
    layer_causal causal;
    bool grad, intermediates;
    int64_t threads;    /* 0 for all */
    const char *device; /* NULL for the CPU */
} layer_request;

/* ---- Inputs ------------------------------------------------------------------------------------------------------ */

enum { LAYER_INPUT_OWNED = 8 };

/* An INPUT file, checked against the layer, converted to float32 with a batch axis. */
typedef struct layer_input {
    bool batched; /* query has a batch axis, and so have the results */
    int64_t B, Tq, Tk;
    mha_layer_inputs tensors;
    mha_tensor bias;        /* both masks combined: -infinity where a key is hidden; or none */
    mha_tensor grad_output; /* or none */
    float *owned[LAYER_INPUT_OWNED];
    int owned_count;
} layer_input;

/* Prints an error and returns false on failure. Must be freed in either case. */
bool layer_input_read(layer_input *in, mha_context *ctx, const mha_layer *layer, const nn_safetensors *file,
                      const layer_request *r);
void layer_input_free(layer_input *in);

/* Whether a file that is not a layer is an INPUT: it has a query, and no tensor that an INPUT cannot have. */
bool layer_input_is(const char *path);

/* A dense float32 tensor of zeros; its data must be freed. No data if out of memory. */
mha_tensor layer_zeros(int rank, const int64_t *size);

/* ---- Results ----------------------------------------------------------------------------------------------------- */

/* Runs the layer on the device of the context and writes the output file. On failure prints an error, returns false and
 * leaves the file unchanged. */
bool layer_run(mha_context *ctx, const mha_layer_file *file, const layer_input *in, const layer_request *r);

#endif
