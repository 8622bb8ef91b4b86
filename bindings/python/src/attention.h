/* Calls of attention whose arguments come by name: from Python (attention.c), or from XLA (xla.c). */
#ifndef MHA_PYTHON_ATTENTION_H
#define MHA_PYTHON_ATTENTION_H

#include "fields.h"

/* The arguments of all operations. */
typedef struct attention_call {
    mha_tensor q, k, v, out;
    mha_attention_extras extras;
    mha_tensor dout, dlse, softmax;
    mha_attention_gradients gradients;
    mha_stats stats;
    mha_stats_options stats_options;
    mha_attention_options options;
    int align, threads, team; /* team: as threads, but those of PyTorch */
    PyObject *empty, *dtype;  /* makes `out` where none is given: empty((B,H,Tq,E), dtype); both borrowed */
    bool keep;      /* forward makes memory for `softmax` and returns it: bytes, which is `kept` in backward */
    PyObject *kept; /* borrowed */
    bool on_gpu;
    bool packed; /* rows are (T,H,D), as ragged batches usually are, and not (1,H,T,D) */
} attention_call;

#define ATTENTION_NO_CALL ((attention_call){.options = MHA_ATTENTION_DEFAULTS, .stats_options = MHA_STATS_DEFAULTS})

typedef struct attention_operation {
    const field *fields; /* its own arguments, beside those that all operations have */
    mha_status (*run)(mha_context *, const attention_call *);
} attention_operation;

extern const attention_operation attention_forward, attention_backward;

/* The argument of that name; NULL if there is none. */
const field *attention_field(const attention_operation *operation, const char *name, size_t length);

/* Needs no lock of Python. */
mha_status attention_run(mha_context *ctx, const attention_operation *operation, attention_call *c);

#endif
