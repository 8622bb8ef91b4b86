/* A program at work: the sizes of a call, the memory of its values, and the walk over its steps. */
#ifndef NN_PROGRAM_RUN_H
#define NN_PROGRAM_RUN_H

#include "io/failure.h"
#include "program/model.h"
#include "program/attention.h"
#include "program/program.h"

/* One side of a call. */
typedef struct nn_run_side {
    nn_sequences from; /* as they came, with what each sequence has had before */
    int64_t B, T;      /* it has B*T rows; B is 1 where sequences lie one behind another */
    int64_t sequences;
    mha_cache **caches, **cross_caches; /* (depth): attention goes through these; or NULL */
    const float *waves;                 /* (positions,W): sinusoidal positions, or NULL */
} nn_run_side;

/* Where a value goes when its step has run. */
typedef struct nn_tap {
    int32_t value;
    mha_tensor to;
} nn_tap;

/* A value that the caller knows: its step copies it instead of computing it. Rows of it lie `step` rows apart. */
typedef struct nn_given {
    int32_t value;
    const float *rows;
    int64_t step;
} nn_given;

/* The memory of all slots, for the sizes of the last call. */
typedef struct nn_memory {
    char *base;
    size_t bytes;
    size_t *offset; /* (slots) */
    int32_t offset_room;
    const nn_program *program; /* whose slots are laid out */
    int64_t rows[2][NN_EXTENTS];
} nn_memory;

typedef struct nn_run {
    mha_context *ctx;
    const nn_program *program;
    const nn_call *call;
    const nn_attentions *attentions;
    nn_run_side side[2];
    nn_memory *memory;
    const nn_tap *tap;
    int32_t taps;
    nn_given given[2];
    int32_t givens;
    float *gradients;   /* of the parameters */
    mha_tensor dresult; /* the gradient by the result, as the caller gave it, or without the rows of padding */
} nn_run;

/* How many rows values have in this call. */
int64_t nn_run_rows(const nn_run *r, nn_extent extent, bool decoder);

/* Queries and keys of the largest sequence, and how many sequences have a bias of their own. */
typedef struct nn_bias_size {
    int64_t B, Tq, Tk;
} nn_bias_size;
nn_bias_size nn_run_bias_size(const nn_run *r, bool decoder);

/* Lays out the slots for the sizes of this call, if they are not those of the call before. */
mha_status nn_memory_lay(nn_memory *memory, nn_run *r);
void nn_memory_free(nn_memory *memory);

/* How many bytes that would be; -1 without the memory to find out. */
int64_t nn_memory_bytes(const nn_run *r);

/* Steps first to last - 1, in order; and all of them in reverse, from the gradient by the result. */
mha_status nn_run_forward(nn_run *r, int32_t first, int32_t last);
mha_status nn_run_backward(nn_run *r, const float *dresult);

/* ---- For operations --------------------------------------------------------------------------------------------- */

/* Value v, and its gradient, as a matrix; none if v is -1. */
mha_tensor nn_run_value(const nn_run *r, int32_t v);
mha_tensor nn_run_gradient(const nn_run *r, int32_t v);

/* Whether a value has a gradient that is wanted. */
static inline bool nn_run_wants(const nn_run *r, int32_t v) { return v >= 0 && r->program->value[v].gradient >= 0; }

/* What the caller gave for a value, or NULL. */
const nn_given *nn_run_given(const nn_run *r, int32_t v);
mha_status nn_run_take(const nn_run *r, const nn_given *given);

/* The side whose rows a step works on; its configuration. */
static inline const nn_run_side *nn_run_side_of(const nn_run *r, const nn_step *s) { return &r->side[s->decoder]; }
static inline const nn_stack_config *nn_run_stack(const nn_run *r, const nn_step *s)
{
    return s->decoder ? &r->program->d->decoder : &r->program->d->encoder;
}

/* A weight, or none; and where its gradient goes. */
static inline mha_tensor nn_run_weight(const nn_step *s, int n) { return nn_weight_value(s->weight[n]); }
mha_tensor nn_run_weight_gradient(const nn_run *r, const nn_weight *w);

/* (rows,columns) as (B,T,columns). */
static inline mha_tensor nn_run_sequences(const nn_run_side *side, mha_tensor rows)
{
    return mha_tensor_3d(rows.data, rows.type, side->B, side->T, rows.size[1]);
}

/* Columns first to first + count - 1 of a matrix. */
static inline mha_tensor nn_columns(mha_tensor x, int64_t first, int64_t count)
{
    x.data = (char *)x.data + (size_t)(first * x.stride[1]) * mha_type_size(x.type);
    x.size[1] = count;
    return x;
}

mha_status nn_zero(mha_context *ctx, mha_tensor x);

/* to = from, or to += from, of equal sizes. */
mha_status nn_write_or_add(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);

#endif
