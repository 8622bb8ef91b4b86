/* The layer as its own folder sees it. */
#ifndef MHA_LAYER_LAYER_H
#define MHA_LAYER_LAYER_H

#include "attention/rotary.h"
#include "core/tensor.h"

/* The projections of the input, in the order in which their weights lie. */
enum { MHA_Q, MHA_K, MHA_V, MHA_IN };

/* Weights as one instruction set of one device reads them: those of the projections first to last, as one. */
typedef struct mha_packed {
    mha_memory block;
    const mha_backend *backend; /* of the context that packed them; NULL: they are not there */
    const char *isa;            /* likewise */
    mha_tensor matrix;          /* (columns,W), where they are not packed but copied; or none */
} mha_packed;

struct mha_layer {
    mha_memory self;            /* the memory of this struct */
    const mha_backend *backend; /* the device that it was made on */
    mha_layer_options shape;
    mha_layer_parts parts; /* of the parameters */
    int64_t count;         /* of all of them */
    bool borrowed;  /* they are tensors of the caller: weights may be (heads,width,W), any float type and strides */
    mha_memory own; /* the parameters, if the layer brought them */
    bool frozen;    /* the parameters do not change: weights may be packed */
    mha_packed in[MHA_IN][MHA_IN], out;
    mha_memory frequencies; /* of the rotary embedding, float32, if the options gave them */
    mha_memory tables;      /* cos (P,w/2) and sin (P,w/2) of the rotary embedding */
    int64_t positions;      /* P */
    bool tabulated;         /* the tables hold their angles */
};

/* What a caller may hand to a function that takes a layer. */
#define MHA_NEED(ctx, pointer)                                                           \
    do {                                                                                 \
        if (!(pointer)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: is NULL", #pointer); \
    } while (0)

/* Whether a layer's parameters can be read by the device of the context. */
static inline mha_status mha_layer_check_device(mha_context *ctx, const mha_layer *layer)
{
    if (layer->backend == ctx->backend || !(layer->backend->remote || ctx->backend->remote)) return MHA_OK;
    return mha_fail(ctx, MHA_BAD_ARGUMENT, "layer: was made on the device %s, the context is on %s",
                    layer->backend->device, ctx->backend->device);
}

/* ---- parts.c: the parts of the parameters ---------------------------------------------------------------------- */

/* The fields of mha_layer_parts, but for the two that only join others, in their order. */
enum {
    MHA_PART_Q_WEIGHT,
    MHA_PART_K_WEIGHT,
    MHA_PART_V_WEIGHT,
    MHA_PART_Q_BIAS,
    MHA_PART_K_BIAS,
    MHA_PART_V_BIAS,
    MHA_PART_OUT_WEIGHT,
    MHA_PART_OUT_BIAS,
    MHA_PART_BIAS_K,
    MHA_PART_BIAS_V,
    MHA_PART_Q_NORM,
    MHA_PART_K_NORM,
    MHA_PART_SINKS,
    MHA_PART_GATES,
    MHA_PART_Q_NORM_BIAS,
    MHA_PART_K_NORM_BIAS,
    MHA_PARTS
};

const char *mha_part_name(int part);
mha_tensor *mha_part_of(mha_layer_parts *parts, int part);

/* A matrix, or a vector if it has no columns. */
typedef struct mha_part_size {
    bool there;
    int64_t rows, columns;
    int64_t heads; /* that the rows consist of; 0: of none */
} mha_part_size;

mha_part_size mha_part_size_of(const mha_layer_options *shape, int part);

/* Views of a block; returns how many numbers it has. */
int64_t mha_parts_lay(mha_layer_parts *parts, const mha_layer_options *shape, float *block);

/* Rows of the input projections that belong to q, k or v: H*D, G*D or G*E; and the width of what they read. */
int64_t mha_layer_rows(const mha_layer_options *shape, int projection);
int64_t mha_layer_width(const mha_layer_options *shape, int projection);

/* In a block, the weights and biases of the projections first to last, which read the same width, as one. */
mha_tensor mha_layer_in_weight(const mha_layer_parts *parts, int first, int last);
mha_tensor mha_layer_in_bias(const mha_layer_parts *parts, int first, int last);

/* A part, or rows of a weight, as (heads,width,W) or (heads,width). */
mha_tensor mha_part_split(mha_tensor part, int64_t heads);

/* ---- weights.c: parameters that the caller keeps as tensors ----------------------------------------------------- */

/* Takes them for a layer that has no parameters yet. */
mha_status mha_layer_borrow(mha_context *ctx, mha_layer *layer, const mha_layer_weights *weights);

/* Checks that no output of the list shares memory with any other tensor of it, with the parameters, or with the caller's
 * rotary tables. */
mha_status mha_layer_check_apart(mha_context *ctx, const mha_layer *layer, const mha_argument *all, size_t count);

/* The matrices of which weights first to last consist, each as large as strides allow: all in one if they lie one behind
 * another, one for each head if heads do not. Start from a walk of zeros with `part` set to the first. */
typedef struct mha_weight_walk {
    int part;          /* the next one */
    int64_t head;      /* of it */
    mha_tensor matrix; /* (columns,W): what the last step found */
    int64_t column;    /* the first of them, counted from the start of the walk */
} mha_weight_walk;

bool mha_weight_next(mha_weight_walk *walk, const mha_tensor weights[MHA_IN], int last);

/* Whether weights first to last are one matrix; and the type of a copy that is. */
bool mha_weights_are_one(const mha_tensor weights[MHA_IN], int first, int last);
mha_type mha_weights_type(const mha_tensor weights[MHA_IN], int first, int last, mha_type compute);

/* Copies them to `to` (columns,W). */
void mha_weights_gather(mha_context *ctx, mha_tensor to, const mha_tensor weights[MHA_IN], int first, int last);

/* ---- layer.c ---------------------------------------------------------------------------------------------------- */

/* Forgets packed weights: the parameters have changed. */
void mha_layer_unpack(mha_layer *layer);

/* ---- tables.c: angles of the rotary embedding ------------------------------------------------------------------- */

/* Whether the layer has a rotary embedding. */
static inline bool mha_layer_turns(const mha_layer_options *s)
{
    return s->rotary_base > 0 || s->rotary_frequencies.rank || s->rotary_cos.rank;
}

/* Checks what the options say about it, sizes that were left out filled in; and takes a copy of the frequencies. */
mha_status mha_layer_check_rotary(mha_context *ctx, mha_layer_options *shape);
mha_status mha_layer_keep_frequencies(mha_context *ctx, mha_layer *layer);

/* How many positions, from 0 on, the layer's tables may have. They stay small whatever positions a call asks for; angles
 * beyond them are computed by mha_rotary_apply_beyond. */
int64_t mha_layer_near(const mha_layer *layer);

/* Tables for positions up to the given one, which is below mha_layer_near; -1: no position. The caller's own, if the
 * options gave them. And where their angles come from. */
mha_status mha_layer_tables(mha_context *ctx, mha_layer *layer, int64_t position, mha_tensor *cos, mha_tensor *sin);
mha_frequencies mha_layer_frequencies(const mha_layer *layer);

#endif
