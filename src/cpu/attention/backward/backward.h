/* The backward pass of attention. */
#ifndef MHA_CPU_BACKWARD_H
#define MHA_CPU_BACKWARD_H

#include "attention/gradient.h"

/* The operations of the backend. */
mha_status mha_cpu_backward(const mha_gradient_call *call);
mha_status mha_cpu_explain_backward(const mha_gradient_call *call, mha_attention_plan *plan);

#endif
