/* Calls of attention on a GPU: random inputs on the device and on the host, results of the device beside the oracle's. */
#ifndef CUDA_CALLS_H
#define CUDA_CALLS_H

#include "support/numbers.h"
#include <mha.h>

typedef enum layout { BHTD, BTHD } layout;

typedef struct shape {
    int64_t B, H, G, Tq, Tk, D, E; /* E 0: as D */
    mha_type type;
    bool causal;
    mha_align align;
    layout layout;
    float scale; /* 0: the default */
} shape;

/* The tensors of a call; the names are indices. */
enum { Q, K, V, DOUT, OUT, DQ, DK, DV, TENSORS, INPUTS = OUT };

typedef struct call {
    shape shape;
    int64_t count[TENSORS];
    void *device[TENSORS];    /* 16-bit numbers in the order of the layout */
    mha_tensor view[TENSORS]; /* (B,H,T,D) or (B,H,T,E) of them */
    double *exact[TENSORS];   /* (B,H,T,D): inputs, and what the oracle makes of them */
    double *lse_exact;        /* (B,H,Tq) */
    float *lse, *softmax;     /* device */
    mha_tensor lse_view, softmax_view;
    mha_attention_options options;
} call;

/* Random inputs; results are poisoned. The oracle has not run. */
call call_make(shape s, rng *r);
void call_free(call *c);

/* Fresh inputs, and poisoned results. */
void call_refill(call *c, rng *r);
void call_poison(call *c);

/* The library's calls. Backward gets the softmax if `softmax`. */
mha_status call_forward(mha_context *ctx, const call *c);
mha_status call_backward(mha_context *ctx, const call *c, bool softmax);

/* Fills exact[] and lse_exact. */
void call_solve(call *c);

/* All results, as bytes, dense in the layout's order: for comparisons of bits. Free it. */
void *call_bits(const call *c, size_t *bytes);

/* One line about a shape. Static. */
const char *shape_text(shape s);

#endif
