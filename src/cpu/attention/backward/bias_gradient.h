/* The gradient of the bias. */
#ifndef MHA_CPU_BACKWARD_BIAS_GRADIENT_H
#define MHA_CPU_BACKWARD_BIAS_GRADIENT_H

#include "cpu/attention/backward/span.h"

/* The gradient of the bias, each element by one task. */
int64_t mha_bias_pieces(const mha_backward *call);
void mha_bias_piece(const mha_backward *call, mha_span *span, int64_t piece);

#endif
