/* The operations of mha_ops.h on the CPU. core/backend.h says what each of them computes. */
#ifndef MHA_CPU_OPS_H
#define MHA_CPU_OPS_H

#include "core/context.h"

mha_op_activate mha_cpu_activate;
mha_op_activate_back mha_cpu_activate_back;
mha_op_activate_gated mha_cpu_activate_gated;
mha_op_activate_gated_back mha_cpu_activate_gated_back;
mha_op_cross_entropy mha_cpu_cross_entropy;
mha_op_dropout mha_cpu_dropout;
mha_op_embed mha_cpu_embed;
mha_op_embed_back mha_cpu_embed_back;

#endif
