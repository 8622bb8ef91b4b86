/* The passes of a forward call. */
#ifndef MHA_CPU_ATTENTION_FORWARD_H
#define MHA_CPU_ATTENTION_FORWARD_H

#include "cpu/attention/plan.h"

/* Writes the weights and scores that the call asked for, from the row statistics that the first pass left in `shared`.
 * The scratch of the tasks is free for it. */
void mha_maps_write(const mha_problem *problem, const mha_plan *plan, const mha_shared *shared);

/* The operations of the backend: of a checked call. */
mha_op_attention_forward mha_cpu_attention_forward;
mha_op_attention_explain mha_cpu_attention_explain;

#endif
