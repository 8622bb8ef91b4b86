/* A problem with its way back: the gradients that come in, the memory of those that go out, the library's two calls,
 * the oracle's answer, and how far apart they may be. */
#ifndef GRADIENTS_H
#define GRADIENTS_H

#include "support/problem.h"

/* What backward can write, in the order of mha_attention_gradients. */
enum { GRAD_Q, GRAD_K, GRAD_V, GRAD_BIAS, GRAD_SLOPES, GRAD_SINKS, GRAD_WORTH, GRADS, GRAD_ALL = (1 << GRADS) - 1 };

/* The choices that a forward case does not have. */
typedef struct gradient_case {
    attention_case forward;
    mha_type type_dout, type_grad[GRADS]; /* the last four are float32 */
    layout layout_dout, layout_grad[GRADS];
    bool dlse;
    bool anew;       /* backward is not given what forward knows of its softmax */
    unsigned wanted; /* bit n: gradient n, where there is such an input */
} gradient_case;

/* Everything wanted, types as the forward case has them, dense. Extras of the forward pass but lse are dropped. */
gradient_case gradient_plain(attention_case forward);

/* Any combination at all. */
gradient_case gradient_random(rng *r);
gradient_case gradient_random_float32(rng *r); /* of case_random_float32 */

/* As case_describe, on two lines. */
void gradient_describe(const gradient_case *c, char *text, size_t size);

typedef struct gradients {
    gradient_case c;
    problem *p;
    store dout, dlse;       /* inputs */
    store grad[GRADS];      /* outputs; all zero where not wanted */
    double *want[GRADS];    /* (B,H,Tq,D), (B,G,Tk,D), (B,G,Tk,E); the others in the sizes of their views */
    double *allowed[GRADS]; /* the same: how far float32 may be away */
} gradients;

gradients *gradients_make(const gradient_case *c);
void gradients_free(gradients *g);

/* After a test has changed inputs of g->p, dout or dlse by hand. */
void gradients_refresh(gradients *g);

/* Puts the outputs back to what they were, calls forward and then backward; or backward alone, once forward has run. */
mha_status gradients_run(gradients *g, mha_context *ctx);
mha_status gradients_back(gradients *g, mha_context *ctx);
mha_attention_gradients gradients_asked(const gradients *g);

/* The oracle's answer to the last run, whose `out` it takes dout . out from: see gradient_bounds.c. */
void gradients_solve(gradients *g);

/* Compares all outputs with the oracle, and looks for writes where none belong. On false, `why` has one line. */
bool gradients_check(const gradients *g, char *why, size_t size);

/* Element (b,h,n,d) of a store whose rows go with the queries (dout, dlse, dq) or with the keys (dk, dv). */
void *query_element(const problem *p, const store *s, int64_t b, int64_t h, int64_t i, int64_t d);
void *key_element(const problem *p, const store *s, int64_t b, int64_t g, int64_t j, int64_t d);

/* The bytes of all gradients, one after another. */
unsigned char *gradients_bytes(const gradients *g, size_t *size);

#endif
