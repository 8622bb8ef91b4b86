/* The backward pass of attention. */
#ifndef MHA_CPU_BACKWARD_H
#define MHA_CPU_BACKWARD_H

#include "attention/gradient.h"

/* The operations of the backend. */
mha_op_attention_backward mha_cpu_attention_backward;
mha_op_attention_explain_backward mha_cpu_attention_explain_backward;

#endif
