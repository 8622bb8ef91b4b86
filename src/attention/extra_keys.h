/* Keys that every row sees beside those of the call: the learned one of bias_kv, the zeros of zero_kv. */
#ifndef MHA_ATTENTION_EXTRA_KEYS_H
#define MHA_ATTENTION_EXTRA_KEYS_H

#include "attention/problem.h"

enum { MHA_EXTRA_KEYS = 2 }; /* at most */

/* They are mixed into problem.out, softmax, lse and weights. */
typedef struct mha_extra_keys_call {
    mha_problem problem;       /* of the attention that has gone over the other keys */
    int64_t count;             /* how many there are; the learned one is the first */
    mha_tensor bias_k, bias_v; /* (G*D), (G*E): the learned key and value, float32, dense; or none */
    mha_tensor softmax;        /* (B,H,Tq,2) float32, as attention gave it */
    mha_tensor lse;            /* (B,H,Tq) float32, or none */
    mha_tensor weights;        /* (B,H,Tq,Tk + count), or none */
} mha_extra_keys_call;

#endif
