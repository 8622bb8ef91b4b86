/* Models at random: a description, parameters, a batch, and the oracle's transformer made from them.
 *
 * Parameters are drawn so that rows, scores and logits are of the size of 1 in every block. */
#ifndef DESCRIPTIONS_H
#define DESCRIPTIONS_H

#include "program/model.h"
#include "support/numbers.h"
#include "model_oracle.h"

typedef enum stacks { ENCODER_ONLY, DECODER_ONLY, ENCODER_DECODER, STACKS } stacks;

/* Description n of a generator: the kinds of norms, activations, positions and pools take turns, the rest is drawn. */
nn_description description_random(rng *r, uint64_t n, stacks which);

/* The same with parts that few models have: experts, audio frames, relative positions, other pools, ... */
nn_description description_random_all(rng *r, uint64_t n, stacks which);

/* A small model with one of those parts and little else; `name` says which. Returns false behind the last. */
bool description_with_part(nn_description *d, int64_t n, const char **name);

/* One line about it. Returns `text`. */
const char *description_words(const nn_description *d, char *text, size_t size);

typedef struct model_case {
    nn_description d;
    nn_batch batch;
    int64_t count, part_count;
    nn_part *parts; /* (part_count) */
    float *parameters;

    bench_oracle oracle;

    int32_t *tokens[2], *types[2];
    int64_t *lengths[2];
    float *images[2];  /* or features */
    double *pixels[2]; /* the same for the oracle */
    double *drops[2];  /* the oracle's factors of dropout, if it is at work */
    uint64_t seed, stream;
    int64_t *picked; /* (B): the row of each sequence that NN_POOL_PICKED reads, */
    int64_t *rows;   /* and its place among the rows of all */
} model_case;

/* A batch of B sequences. Of stacks that read tokens they have up to `tokens` tokens, some of them fewer if `padded`. */
model_case *model_case_make(const nn_description *d, rng *r, int64_t B, int64_t tokens, bool padded);
void model_case_free(model_case *c);

/* Draws other parameters until no token has two experts nearly alike, of which rounding could choose the other one: their
 * scores differ by `margin`. */
void model_case_separate(model_case *c, rng *r, double margin);

/* Puts dropout to work, as the description says: the oracle drops what a call with this seed and stream drops. Branches of a model are numbered in their order, the rows
 * before the first block of a stack being one of them, and so are attentions; number n has stream + n * 2^44. */
void model_case_drop(model_case *c, mha_context *ctx, uint64_t seed, uint64_t stream);

/* What a pass over the batch needs beside it. */
nn_call model_case_call(const model_case *c);

/* The options of a model that this case fits into. */
nn_model_options model_case_options(const model_case *c, bool training);

/* Whether row n of the result belongs to a token, and not to padding. */
bool model_case_row_exists(const model_case *c, int64_t n);

#endif
