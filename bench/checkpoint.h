/* A checkpoint of a language model in memory: random weights of any float type, laid out as its family's files have
 * them, and the views of them that a model is made of. */
#ifndef BENCH_CHECKPOINT_H
#define BENCH_CHECKPOINT_H

#include "bench.h"
#include "model/parts.h"

enum { BENCH_STORED_NAME = 96 };

/* A tensor of the file, dense. */
typedef struct bench_stored {
    char name[BENCH_STORED_NAME];
    mha_tensor tensor;
    bool typed;          /* of the type that is measured; else float32 */
    float middle, bound; /* its numbers are within `bound` of `middle` */
} bench_stored;

typedef struct bench_checkpoint {
    nn_description d;
    mha_tensor *part; /* (parts), in the order of nn_parts_of */
    bench_stored *stored;
    int64_t parts, count;
    char *memory;        /* of the tensors that products read and of the table of tokens, one behind another */
    float *vectors;      /* of all others */
    const void *weights; /* what a new token reads of `memory`: all but a table that only gives it a row, */
    size_t weight_bytes;
} bench_checkpoint;

/* False on error, with one line in `error`. Free it in any case. */
bool bench_checkpoint_make(bench_checkpoint *c, const bench_setting *set, const bench_language *shape, char error[200]);
void bench_checkpoint_free(bench_checkpoint *c);

#endif
