/* The layer as its own folder sees it. */
#ifndef MHA_LAYER_LAYER_H
#define MHA_LAYER_LAYER_H

#include "core/tensor.h"

/* The projections of the input, in the order in which their weights lie. */
enum { MHA_Q, MHA_K, MHA_V, MHA_IN };

/* Weights as one instruction set of one device reads them: those of the projections first to last, as one. */
typedef struct mha_packed {
    mha_memory block;
    const mha_backend *backend; /* of the context that packed them; NULL: they are not there */
    const char *isa;            /* likewise */
} mha_packed;

struct mha_layer {
    mha_memory self; /* the memory of this struct */
    mha_layer_options shape;
    mha_layer_parts parts; /* of the parameters */
    int64_t count;         /* of all of them */
    mha_memory own;        /* the parameters, if the layer brought them */
    bool frozen;           /* the parameters do not change: weights may be packed */
    mha_packed in[MHA_IN][MHA_IN], out;
    mha_memory tables; /* cos (P,w/2) and sin (P,w/2) of the rotary embedding */
    int64_t positions; /* P */
    bool tabulated;    /* the tables hold their angles */
};

/* What a caller may hand to a function that takes a layer. */
#define MHA_NEED(ctx, pointer)                                                           \
    do {                                                                                 \
        if (!(pointer)) return mha_fail(ctx, MHA_BAD_ARGUMENT, "%s: is NULL", #pointer); \
    } while (0)

/* Rows of the input projections that belong to q, k or v: H*D, G*D or G*E; and the width of what they read. */
int64_t mha_layer_rows(const mha_layer_options *shape, int projection);
int64_t mha_layer_width(const mha_layer_options *shape, int projection);

/* The weights and biases of the projections first to last, which read the same width, as one. */
mha_tensor mha_layer_in_weight(const mha_layer_parts *parts, int first, int last);
mha_tensor mha_layer_in_bias(const mha_layer_parts *parts, int first, int last);

/* Forgets packed weights: the parameters have changed. */
void mha_layer_unpack(mha_layer *layer);

/* How many positions, from 0 on, the layer's tables may have. They stay small whatever positions a call asks for; angles
 * beyond them are computed by mha_rotary_apply_beyond. */
int64_t mha_layer_near(const mha_layer *layer);

/* Tables for positions up to the given one, which is below mha_layer_near; -1: no position. */
mha_status mha_layer_tables(mha_context *ctx, mha_layer *layer, int64_t position, mha_tensor *cos, mha_tensor *sin);

#endif
