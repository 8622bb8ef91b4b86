/* Memory on both sides: what the tensors of a call span on the host, gaps included, is copied to the GPU, and back. */
#ifndef CUDA_SPANS_H
#define CUDA_SPANS_H

#include "core/tensor.h"

/* Bytes [low, high) of the host, and where they are on the GPU. */
typedef struct span {
    char *low, *high, *device;
} span;

enum { SPANS_TENSORS = 48 };

typedef struct spans {
    mha_tensor *all[SPANS_TENSORS]; /* of a call; their data moves to the GPU */
    int count;
    span spans[SPANS_TENSORS];
    int span_count;
    char *memory; /* of the GPU */
} spans;

/* Adds a tensor, which may be none, to a call that starts from zeros. */
void spans_add(spans *m, mha_tensor *t);

/* From then on the tensors lie on the GPU; and back. Between the two no other thread may be. Ends the program if a kernel wrote behind
 * the memory. */
void spans_to_device(spans *m);
void spans_to_host(spans *m);

#endif
