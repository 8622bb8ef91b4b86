/* What a transformer is made of, for the two files that know: transformer.c lays it out, transformer_pass.c runs it.
 *
 * A stack of `depth` blocks is 2 * depth branches, attention and mlp in turn, between 2 * depth + 1 stages of the
 * residual stream. A stage has an array of its own: branch k reads the norm of stage k and writes where stage k + 1 will
 * lie, and adding stage k to that is part of the next norm's sweep. So nothing is copied, and the backward pass finds
 * every stage as the forward pass left it. The order of norm and branch is only a matter of which norm a nn_stage has, and
 * of what goes on from it:
 *
 *     pre-norm     the stage itself goes on            norm1, norm2, norm1, norm2, ... and the final norm, if any
 *     post-norm    the norm of the stage goes on       none, norm1, norm2, norm1, norm2, ... */
#ifndef NN_MODEL_TRANSFORMER_PARTS_H
#define NN_MODEL_TRANSFORMER_PARTS_H

#include "model/transformer.h"

enum { NN_PARTS = 12 };

/* The parts of a block, in the order in which they lie. The four of attention are the mha_layer's own block. */
enum {
    NN_NORM1,
    NN_NORM1_BIAS,
    NN_QKV,
    NN_QKV_BIAS,
    NN_PROJ,
    NN_PROJ_BIAS,
    NN_NORM2,
    NN_NORM2_BIAS,
    NN_FC1,
    NN_FC1_BIAS,
    NN_FC2,
    NN_FC2_BIAS
};

typedef struct nn_stage {
    int64_t norm; /* where its gain starts in the parameters; -1: it has no norm, and n is x */
    float *x, *n; /* (rows,width) and the norm of that */
    float *kept;  /* (rows,2) what the norm keeps for the backward pass */
} nn_stage;

typedef struct nn_block {
    int64_t at[NN_PARTS]; /* where each part starts in a block of parameters */
    mha_layer *attention;
    mha_tape *tape; /* its own for training; for statistics one that all share, from when the first are asked for */
    float *z;       /* (rows,mlp) before the activation, then its slope there */
    float *h;       /* (rows,mlp) after it; of blocks in bfloat16 that is in `half_h`, and this is everybody's */
    uint16_t *half; /* (rows,width) what the mlp reads, in bfloat16; or NULL */
    uint16_t *half_h;
} nn_block;

struct nn_transformer {
    nn_transformer_config config;
    bool training;
    int64_t rows, count; /* the most rows; parameters */
    float *parameters;
    mha_tape *tape;   /* the shared one, or NULL */
    uint16_t *halves; /* (count) the parameters in bfloat16, if the configuration says so */
    bool fresh;       /* halves are up to date */
    nn_block *blocks;
    nn_stage *stages;
    float *dx, *dn, *ddropped, *dhidden; /* backward: (rows,width) three times, (rows,mlp) */
    uint16_t *half_d, *half_dhidden;     /* the same in bfloat16, as factors */
    int64_t B, T;                        /* of the last forward call */
    nn_transformer_call call;            /* what it was told */
    nn_workspace workspace;
    float *memory;
};

static inline bool nn_transformer_norm_has_bias(const nn_transformer_config *c) { return c->norm == NN_LAYER_NORM; }

#endif
