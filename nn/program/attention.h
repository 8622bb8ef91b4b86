/* The attentions of a model: a layer each, over its parameters. */
#ifndef NN_PROGRAM_ATTENTION_H
#define NN_PROGRAM_ATTENTION_H

#include "model/weights.h"

typedef struct nn_attention {
    bool decoder, cross;
    int64_t block;
    int64_t regime;                       /* of its rotary embedding: nn_rotary_regime */
    const nn_weight *part[NN_PART_KINDS]; /* of its block */
    mha_layer *layer;
    mha_layer *heads; /* the same without its last product, from the first call that needs it; or NULL */
    mha_tape *tape;   /* of training; or NULL */
} nn_attention;

typedef struct nn_attentions {
    const nn_description *d;
    nn_attention *attention; /* (count), in the order of nn_description_attention */
    int64_t count;
    bool frozen;                          /* layers may keep packed copies of their weights */
    float *slopes[2][NN_ATTENTION_KINDS]; /* (H) of ALiBi; or NULL */
    mha_tape *tape; /* for statistics without training: all share it; from the first call that needs it */
} nn_attentions;

mha_status nn_attentions_create(nn_attentions *a, mha_context *ctx, const nn_description *d, const nn_weights *weights,
                                bool training);
void nn_attentions_free(nn_attentions *a);

/* Parameters have changed. */
void nn_attentions_changed(nn_attentions *a);

/* The rotary embedding of a side is that of sequences of so many tokens. */
mha_status nn_attentions_set_tokens(nn_attentions *a, mha_context *ctx, bool decoder, int64_t tokens);

/* The layer of an attention without its last product. */
mha_status nn_attention_heads(const nn_attentions *all, nn_attention *a, mha_context *ctx);

/* The options of the layer of block l. Its parameters are those of the model from NN_Q, or NN_CROSS_Q, of the block on. */
mha_layer_options nn_attention_layer_options(const nn_description *d, const nn_blocks_config *c, int64_t l, bool cross);

/* Whether relative positions have a bias for every distance in a sequence of so many tokens (operations/relative.c). */
bool nn_relative_reaches(const nn_attention_config *a, bool both_sides, int64_t tokens);

/* The frequencies of a rotary embedding (w/2) for sequences of so many tokens; returns the multiplier of its cosines and
 * sines. And which frequencies those are: another number, other ones (rotary.c). */
double nn_rotary_frequencies(float *frequencies, const nn_attention_config *a, int64_t width, int64_t tokens);
int64_t nn_rotary_regime(const nn_attention_config *a, int64_t tokens);

#endif
