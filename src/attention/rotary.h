/* Rotary embedding with tables that do not have all positions. */
#ifndef MHA_ATTENTION_ROTARY_H
#define MHA_ATTENTION_ROTARY_H

#include "core/tensor.h"

/* mha_rotary_apply with tables (P,w/2) of float32 numbers that mha_rotary_tables made with this base. Positions from P
 * to 2^40 are legal: their angles are computed, to the bits that a longer table would have. */
mha_status mha_rotary_apply_beyond(mha_context *ctx, mha_tensor out, mha_tensor x, mha_tensor cos, mha_tensor sin,
                                   double base, const mha_rotary_options *options);

#endif
