/* Copies between views, of any float types and strides. */
#ifndef MHA_CPU_COPY_H
#define MHA_CPU_COPY_H

#include "cpu/kernels.h"

/* to = from, or to = to + from if `add`; for two views of the same rank and sizes that do not overlap. Nothing is
 * checked, and nothing done while the context rehearses. */
void mha_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);

#endif
