/* The parameters of a model: one table, in the order in which they lie in a block of float32 numbers.
 *
 *     for (nn_parts w = nn_parts_of(&d); nn_parts_next(&w, &part);) ...
 *
 *     input of the encoder, of the decoder; output; blocks of the encoder and its final norm; those of the decoder
 *
 * The parts of an attention lie as mha_layer_view has them. */
#ifndef NN_MODEL_PARTS_H
#define NN_MODEL_PARTS_H

#include "model/description.h"

typedef enum nn_part_kind {
    /* Input. P = patch * patch * channels, W the width of the tables. */
    NN_PATCH,       /* (M,P) */
    NN_PATCH_BIAS,  /* (M) */
    NN_CLASS_TOKEN, /* (M) */
    NN_DISTILLED_TOKEN,
    NN_CONV1, /* (M,bins*3): bin by bin, its three frames */
    NN_CONV1_BIAS,
    NN_CONV2, /* (M,M*3) */
    NN_CONV2_BIAS,
    NN_TOKENS,     /* (vocabulary,W) */
    NN_POSITIONS,  /* (positions,W); of patches (tokens,M) */
    NN_TYPES,      /* (token_types,W) */
    NN_INPUT_NORM, /* (W) */
    NN_INPUT_NORM_BIAS,
    NN_INPUT_PROJECT, /* (M,W) */
    NN_INPUT_PROJECT_BIAS,

    NN_TRANSFORM, /* (transform,P), P the width of what is pooled: M or 2M */
    NN_TRANSFORM_BIAS,
    NN_TRANSFORM_NORM,
    NN_TRANSFORM_NORM_BIAS,
    NN_OUTPUT,      /* (classes,P), or (classes,transform) */
    NN_OUTPUT_BIAS, /* (classes) */
    NN_SECOND,      /* (classes,M): of the second row of NN_POOL_TWO */
    NN_SECOND_BIAS,

    /* A block. O = H*D, N = G*D. */
    NN_NORM1,
    NN_NORM1_BIAS,
    NN_Q,      /* (O,M) */
    NN_K,      /* (N,M) */
    NN_V,      /* (N,M) */
    NN_Q_BIAS, /* (O) */
    NN_K_BIAS, /* (N) */
    NN_V_BIAS, /* (N) */
    NN_PROJ,   /* (M,O) */
    NN_PROJ_BIAS,
    NN_Q_NORM, /* (D), or (O) and (N) if heads have gains of their own */
    NN_K_NORM,
    NN_SINKS, /* (H) */
    NN_Q_NORM_BIAS,
    NN_K_NORM_BIAS,
    NN_NORM1_OUT, /* the second norm of NN_NORM_BOTH */
    NN_NORM1_OUT_BIAS,
    NN_SCALE1,     /* (M): branch_scale */
    NN_CROSS_NORM, /* cross-attention: as above, keys and values from the encoder's rows, of its width Me */
    NN_CROSS_NORM_BIAS,
    NN_CROSS_Q,
    NN_CROSS_K, /* (N,Me) */
    NN_CROSS_V,
    NN_CROSS_Q_BIAS,
    NN_CROSS_K_BIAS,
    NN_CROSS_V_BIAS,
    NN_CROSS_PROJ,
    NN_CROSS_PROJ_BIAS,
    NN_CROSS_Q_NORM,
    NN_CROSS_K_NORM,
    NN_CROSS_Q_NORM_BIAS,
    NN_CROSS_K_NORM_BIAS,
    NN_CROSS_NORM_OUT,
    NN_CROSS_NORM_OUT_BIAS,
    NN_CROSS_SCALE,
    NN_NORM2,
    NN_NORM2_BIAS,
    NN_ROUTER, /* (experts,M) */
    NN_ROUTER_BIAS,
    NN_GATE, /* (mlp,M), as all of an MLP for each expert */
    NN_GATE_BIAS,
    NN_FC1, /* (mlp,M) */
    NN_FC1_BIAS,
    NN_FC2, /* (M,mlp) */
    NN_FC2_BIAS,
    NN_NORM2_OUT,
    NN_NORM2_OUT_BIAS,
    NN_SCALE2,

    NN_RELATIVE, /* (buckets,H) */
    NN_FINAL_NORM,
    NN_FINAL_NORM_BIAS,
    NN_PART_KINDS
} nn_part_kind;

typedef struct nn_part {
    nn_part_kind kind;
    bool decoder;          /* of which stack; the output is of neither */
    int64_t block;         /* -1: of none */
    int64_t first;         /* where it starts in a block of parameters */
    int64_t expert;        /* of a mixture, whose experts follow one another; -1: of none */
    int64_t rows, columns; /* columns 0: a vector */
    bool is_weight;        /* a matrix of a product, which weight decay is for */
} nn_part;

/* A walk over the parts, in order. */
typedef struct nn_parts {
    const nn_description *d;
    int section, kind;
    bool decoder;
    int64_t block, expert, at;
} nn_parts;
nn_parts nn_parts_of(const nn_description *d);
bool nn_parts_next(nn_parts *walk, nn_part *part); /* false at the end */

/* How many numbers all parts have; and one. */
int64_t nn_parameter_count(const nn_description *d);
static inline int64_t nn_part_numbers(const nn_part *p) { return p->rows * (p->columns ? p->columns : 1); }

/* A name for people and files: "encoder.blocks.0.attn.q.weight". Returns `out`. */
enum { NN_PART_NAME = 64 };
const char *nn_part_name(char out[NN_PART_NAME], const nn_part *part);

/* What a part is for: "input", "norm", "attention", "cross-attention", "mlp", "final norm" or "output". */
const char *nn_part_role(nn_part_kind kind);

/* First values: products uniform within sqrt(6 / (rows + columns)), Q, K and V as one product, what ends a branch
 * within 1 / sqrt(2 * depth) of that; biases 0, gains 1; tables, the class token and positions small and uniform, but
 * for sines and cosines of the row and the column that are added to positions of patches. */
void nn_parts_initialize(const nn_description *d, float *parameters, uint64_t seed);

#endif
