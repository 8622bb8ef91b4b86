/* The operations of a program: one row each, in the file that runs it. Adding one means writing that file and naming its
 * row here. */
#ifndef NN_PROGRAM_OPERATION_H
#define NN_PROGRAM_OPERATION_H

#include "program/run.h"

/* Sets of values: bit n is read[n] or write[n] of a step. */
typedef struct nn_operation {
    const char *name;
    const char *takes; /* what it reads of the call, where it reads no value; or NULL */
    mha_status (*run)(nn_run *r, const nn_step *s);

    /* The gradients by what the step reads, from those by what it writes; those of its weights are added to. NULL: no
     * more than `passes` says. */
    mha_status (*back)(nn_run *r, const nn_step *s);
    unsigned keeps_reads, keeps_writes; /* what `back` looks at */
    unsigned scratch;                   /* writes that nobody reads: memory for `run`, */
    unsigned back_scratch;              /* and for `back` */
    unsigned passes;                    /* reads whose gradient is that by write[0] */
    bool sums; /* write[0] is a sum, and write[1] its norm: the step itself may be the first to give the sum
                                           a gradient */

    bool in_place; /* write[home_write] may lie where read[home_read] lies, if that is not needed any more */
    int home_write, home_read;
    bool back_in_place; /* the gradient by read[0] may lie where that by write[0] lies, */
    bool back_in_write; /* or lies where write[back_write] lies */
    int back_write;

    /* Multiplications and additions of its products. NULL: it has none, and one for each number that it writes. */
    double (*operations)(const nn_run *r, const nn_step *s);
} nn_operation;

extern const nn_operation nn_op_embed, nn_op_positions, nn_op_cut, nn_op_place, nn_op_convolve, nn_op_norm, nn_op_add,
    nn_op_add_norm, nn_op_product, nn_op_round, nn_op_activate, nn_op_gated, nn_op_scale, nn_op_scale_columns,
    nn_op_dropout, nn_op_relative, nn_op_attention, nn_op_gate, nn_op_choose, nn_op_experts, nn_op_pool, nn_op_pick,
    nn_op_cap;

#endif
