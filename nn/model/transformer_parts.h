/* What a transformer is made of, for the two files that know: transformer.c lays it out, transformer_pass.c runs it.
 *
 * A stack of `depth` blocks is 2 * depth branches, attention and mlp in turn, between 2 * depth + 1 stages of the
 * residual stream. A stage has an array of its own: branch k reads the norm of stage k and writes where stage k + 1 will
 * lie, and adding stage k to that is part of the next norm's sweep. So nothing is copied, and the backward pass finds
 * every stage as the forward pass left it. The order of norm and branch is only a matter of which norm a stage has, and
 * of what goes on from it:
 *
 *     pre-norm     the stage itself goes on            norm1, norm2, norm1, norm2, ... and the final norm, if any
 *     post-norm    the norm of the stage goes on       none, norm1, norm2, norm1, norm2, ... */
#ifndef TRANSFORMER_PARTS_H
#define TRANSFORMER_PARTS_H

#include "model/transformer.h"

enum { PARTS = 12 };

/* The parts of a block, in the order in which they lie. The four of attention are the mha_layer's own block. */
enum { NORM1, NORM1_BIAS, QKV, QKV_BIAS, PROJ, PROJ_BIAS, NORM2, NORM2_BIAS, FC1, FC1_BIAS, FC2, FC2_BIAS };

typedef struct stage {
    int64_t norm; /* where its gain starts in the parameters; -1: it has no norm, and n is x */
    float *x, *n; /* (rows,width) and the norm of that */
    float *kept;  /* (rows,2) what the norm keeps for the backward pass */
} stage;

typedef struct block {
    int64_t at[PARTS]; /* where each part starts in a block of parameters */
    mha_layer *attention;
    mha_tape *tape; /* its own for training; for statistics one that all share, from when the first are asked for */
    float *z;       /* (rows,mlp) before the activation, then its slope there */
    float *h;       /* (rows,mlp) after it; of blocks in bfloat16 that is in `half_h`, and this is everybody's */
    uint16_t *half; /* (rows,width) what the mlp reads, in bfloat16; or NULL */
    uint16_t *half_h;
} block;

struct transformer {
    transformer_config config;
    bool training;
    int64_t rows, count; /* the most rows; parameters */
    float *parameters;
    mha_tape *tape;   /* the shared one, or NULL */
    uint16_t *halves; /* (count) the parameters in bfloat16, if the configuration says so */
    bool fresh;       /* halves are up to date */
    block *blocks;
    stage *stages;
    float *dx, *dn, *ddropped, *dhidden; /* backward: (rows,width) three times, (rows,mlp) */
    uint16_t *half_d, *half_dhidden;     /* the same in bfloat16, as factors */
    int64_t B, T;                        /* of the last forward call */
    transformer_call call;               /* what it was told */
    nn_workspace workspace;
    float *memory;
};

static inline bool transformer_norm_has_bias(const transformer_config *c) { return c->norm == NN_LAYER_NORM; }

#endif
