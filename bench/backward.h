/* Between the measurement of the backward pass and its check. */
#ifndef BENCH_BACKWARD_H
#define BENCH_BACKWARD_H

#include "bench.h"

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, ARRAYS };

typedef struct backward {
    const bench_setting *set;
    const bench_shape *shape;
    bench_array a[ARRAYS], lse, softmax;
    mha_status status;
} backward;

/* The largest error of the gradients, each as a share of its largest number: of one head in full where the oracle can
 * do that in reasonable time, else of sampled rows of dQ and sampled keys of dK and dV. */
double backward_error(const backward *b);

#endif
