/* Gradients in float64, for what float32 cannot hold. */
#ifndef MHA_CPU_BACKWARD_CAREFUL_H
#define MHA_CPU_BACKWARD_CAREFUL_H

#include "cpu/attention/backward/span.h"

/* In float64: dout . out of row (h,i), with an `out` made anew where the one that was given is beyond float32;
 * statistics (max, sum, delta) of the row; ds of one of its scores, and the sum of ds |p - j| over them;
 * the gradients of a key/value head, all of them or only the rows that are not finite. */
double mha_careful_dot_out(const mha_backward *call, const mha_sequence *sequence, int64_t h, int64_t i, double *wide);
void mha_careful_statistics(const mha_backward *call, const mha_sequence *sequence, int64_t h, int64_t i,
                            double statistics[3], double *wide);
double mha_careful_ds(const mha_backward *call, const mha_sequence *sequence, int64_t h, int64_t i, int64_t j,
                      const double statistics[3]);
double mha_careful_distances(const mha_backward *call, const mha_sequence *sequence, int64_t h, int64_t i,
                             double *wide);
void mha_careful_backward(const mha_backward *call, mha_span *span, const mha_sequence *sequence, int64_t g, bool all);

#endif
