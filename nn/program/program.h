/* A model as a program: a flat list of steps over values.
 *
 *     nn_program p;
 *     if (nn_program_compile(&p, &d, weights, NN_TRAINS)) ...                            once
 *     nn_run_forward(&run, first, last);                                               walks steps first to last - 1
 *     nn_run_backward(&run);                                                           walks them all in reverse
 *
 * A value is a matrix: rows that depend on the call (the tokens of a side, its sequences, ...) and columns that do not.
 * A step reads values, writes values, and has one operation (operation.h), which knows how to run and how to
 * differentiate. Everything a caller may want beside the result is a value that is tapped: copied when its step has run.
 *
 * Compiling also plans memory. Time counts steps: step i runs at time i and, in training, is differentiated at time
 * 2 * steps - 1 - i. Every value, and every gradient of one, has a slot: a stretch of time in which it needs its memory.
 * Slots that do not meet in time may share memory (memory.h). */
#ifndef NN_PROGRAM_PROGRAM_H
#define NN_PROGRAM_PROGRAM_H

#include "model/weights.h"

struct nn_operation;

/* How many rows a value has in a call. */
typedef enum nn_extent {
    NN_ROWS,      /* one for each token of its side */
    NN_PATCHES,   /* one for each patch of an image */
    NN_SEQUENCES, /* one for each sequence */
    NN_RESULTS,   /* one for each row whose logits are computed */
    NN_SEQUENCE, /* one for each token of one sequence: scratch memory of an operation that takes sequences one by one */
    NN_PAIRS,    /* one for each pair of a query and a key, of one sequence or of each of them: see nn_bias_size */
    NN_EXTENTS
} nn_extent;

typedef struct nn_value {
    const char *name;
    nn_extent extent;
    bool decoder;  /* the side that its rows belong to */
    bool constant; /* it has no gradient: an input */
    int64_t columns;
    mha_type type; /* a gradient is float32 always */
    int32_t slot;
    int32_t gradient; /* slot of its gradient; -1: none */
} nn_value;

/* One value of memory, in use from time `begin` to time `end`, both included. */
typedef struct nn_slot {
    nn_extent extent;
    bool decoder;
    int64_t columns;
    mha_type type;
    int32_t begin, end;
} nn_slot;

/* A pool of a step beside those of a description: the second row of each sequence. */
enum { NN_POOL_SECOND = NN_POOL_PICKED + 1 };

enum { NN_STEP_READS = 4, NN_STEP_WRITES = 8, NN_STEP_WEIGHTS = 6 };

/* What a step says to its operation beside values and weights. */
typedef struct nn_step_options {
    mha_activation activation;
    int64_t column;       /* of the wider matrix that a product writes, where it begins */
    int64_t width;        /* frames: numbers of one; experts: how many a row uses */
    float scale, softcap; /* 1 and 0: none */
    float drop, path;     /* dropout of numbers and of sequences */
    int64_t stream;       /* of the random numbers of that */
    int64_t attention;    /* its number among all of the model */
    unsigned pool;        /* nn_pool, or NN_POOL_SECOND */
    bool first_query;     /* attention of the first row of each sequence alone */
    bool heads;           /* attention without its last product: the heads side by side */
} nn_step_options;

/* What becomes of a gradient: nothing, since it lies where another one does; it is written; it is added to what is there. */
typedef enum nn_back { NN_BACK_NONE, NN_BACK_WRITE, NN_BACK_ADD } nn_back;

typedef struct nn_step {
    const struct nn_operation *operation;
    bool decoder;
    int32_t block;                 /* -1: of none */
    int32_t read[NN_STEP_READS];   /* values; -1: none */
    int32_t write[NN_STEP_WRITES]; /* likewise. Behind what it gives come what it keeps and its scratch memory */
    const nn_weight *weight[NN_STEP_WEIGHTS]; /* NULL: none */
    nn_step_options options;
    nn_back back[NN_STEP_READS]; /* what its backward pass does with the gradients by what it reads */
    bool sum_has_gradient;       /* backward, of an operation that sums: there is a gradient by write[0] already */
} nn_step;

/* Where the values of a block are that callers ask for; -1: there is none. */
typedef struct nn_block_values {
    int32_t x;                                                 /* the rows that come in */
    int32_t read;                                              /* what attention reads */
    int32_t heads;                                             /* its heads, where it is taken apart */
    int32_t attended;                                          /* what it adds */
    int32_t middle;                                            /* the rows after it */
    int32_t cross_x, cross_read, cross_attended, cross_middle; /* the same of cross-attention */
    int32_t mlp_read;
    int32_t hidden; /* hidden layer of the MLP */
    int32_t mlp;    /* what it adds */
    int32_t y;      /* the rows that go out */
} nn_block_values;

/* Programs of one model differ in what calls ask of them. */
enum {
    NN_TRAINS = 1,  /* it can be differentiated */
    NN_SPLITS = 2,  /* attention and its last product are two steps, with the gates of heads between them */
    NN_NARROWS = 4, /* from the last attention on there is only the first row of each sequence */
    NN_PICKS = 8,   /* logits are those of rows that the call names */
    NN_VARIANTS = 16
};

typedef struct nn_program {
    const nn_description *d;
    unsigned variant;
    nn_value *value;
    nn_step *step;
    nn_slot *slot;
    int32_t values, steps, slots;
    int32_t begin[3];          /* the first step of the encoder, of the decoder and of the output */
    int32_t side_result[2];    /* the rows of a side after its last block and norm */
    nn_block_values *block[2]; /* (depth) */
    int32_t result;
    bool pairs; /* it has values of pairs of a query and a key */
} nn_program;

/* Over weights that live as long. MHA_NO_MEMORY or MHA_OK; a program that was not compiled can be freed. */
mha_status nn_program_compile(nn_program *p, const nn_description *d, const nn_weights *weights, unsigned variant);
void nn_program_free(nn_program *p);

/* ---- While it is compiled --------------------------------------------------------------------------------------- */

/* The place of the compiler: whose side and block the next steps are, and their parts. */
typedef struct nn_compiler {
    nn_program *p;
    const nn_weights *weights;
    const nn_stack_config *stack;
    bool decoder;
    int32_t block;
    const nn_weight *part[NN_PART_KINDS]; /* of the block or, outside blocks, of the side */
} nn_compiler;

int32_t nn_compile_value(nn_compiler *c, const char *name, nn_extent extent, int64_t columns, mha_type type);

/* The next step; `read` is its first value, or -1. It must be filled before the next one. */
nn_step *nn_compile_step(nn_compiler *c, const struct nn_operation *operation, int32_t read);

/* Steps that both ends and blocks have: y = norm(x), if there is a gain; y = activation(x W^T + b); and x as a factor of
 * products. Each returns the value that it writes. */
int32_t nn_compile_norm(nn_compiler *c, int32_t x, const nn_weight *gain, const nn_weight *bias);
int32_t nn_compile_product(nn_compiler *c, const char *name, int32_t x, const nn_weight *weight, const nn_weight *bias,
                           mha_activation activation);
int32_t nn_compile_factor(nn_compiler *c, int32_t x);

/* The rows of the encoder or the decoder (input.c), its blocks (blocks.c), the result (output.c), the plan (plan.c). */
int32_t nn_compile_input(nn_compiler *c);
int32_t nn_compile_blocks(nn_compiler *c, int32_t x, int32_t memory);
int32_t nn_compile_output(nn_compiler *c, int32_t x);
mha_status nn_program_plan(nn_program *p);

#endif
