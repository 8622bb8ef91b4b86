/* The oracle's transformer (ref/transformer.h) of a description, over a model's parameters. */
#ifndef BENCH_MODEL_ORACLE_H
#define BENCH_MODEL_ORACLE_H

#include "model/parts.h"
#include "transformer.h"

typedef struct bench_oracle {
    ref_transformer ref; /* its batch is the caller's to fill in */
    ref_block *blocks[2];
    double *numbers; /* the parameters */
} bench_oracle;

/* The description must stay. False if there is not enough memory; nothing needs to be freed then. */
bool bench_oracle_make(bench_oracle *o, const nn_description *d, const float *parameters);
void bench_oracle_free(bench_oracle *o);

#endif
