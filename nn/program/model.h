/* A transformer over its parameters: forward, backward, and token by token with a cache.
 *
 *     float *parameters = malloc(nn_parameter_count(&d) * sizeof(float));
 *     nn_model_options options = {.batch = 8, .training = true};
 *     nn_model *m = nn_model_create(ctx, &d, parameters, &options, error, sizeof error);
 *     nn_model_initialize(m, seed);
 *     const float *logits = nn_model_forward(m, ctx, &batch, &call);
 *     nn_model_backward(m, ctx, dlogits, gradients);
 *     nn_model_free(m);
 *
 * The bits of a sequence's results depend on that sequence alone, not on the batch or the number of threads. */
#ifndef NN_PROGRAM_MODEL_H
#define NN_PROGRAM_MODEL_H

#include "model/parts.h"
#include <mha_model.h>

/* Sequences that go in together. Of a stack that reads patches T is nn_input_tokens. */
typedef struct nn_sequences {
    int64_t T;              /* tokens of each sequence */
    const int32_t *tokens;  /* (B,T): ids, from 0 to below the vocabulary */
    const int32_t *types;   /* (B,T): ids of token types, or NULL: 0 */
    const float *images;    /* (B,channels,rows,columns), normalised */
    const float *features;  /* (B,bins,2*T): of audio frames */
    const int64_t *lengths; /* (B): how many tokens each has, from 1 to T; the rest is padding. NULL: T */
    int64_t first_position; /* of the first token, beside that of the description */

    /* Sequences of unlike length without padding: sequence b is tokens starts[b] to starts[b+1] - 1 of one row, and T is
     * ignored. Not for training. Maps are (1,H,tokens of all sequences,most keys of one). */
    const int64_t *starts; /* (B+1), or NULL */
    const int64_t *past;   /* (B): tokens that each sequence has had before, in a step; set by nn_model_step */
} nn_sequences;

typedef struct nn_batch {
    int64_t B;
    nn_sequences encoder, decoder; /* of the stacks that there are */
} nn_batch;

/* What else a pass does, for each attention in the order of nn_description_attention. */
typedef struct nn_call {
    const mha_tensor *maps; /* (attentions) (B,H,Tq,Tk) each, or none: the weights, left there; or NULL */
    const mha_stats *stats; /* (attentions) what to leave of the heads; or NULL */
    const mha_stats_options *stats_options; /* of all of them; or NULL */
    float *importance; /* attention after attention (B,H), left there by nn_model_backward; or NULL */
    float
        *encoder_hidden; /* (depth+1,B*T,M): the rows before each block and, after the final norm, the last; or NULL */
    float *decoder_hidden;          /* likewise */
    const mha_model_inside *inside; /* what to leave of one block; or NULL */

    /* Of nn_model_forward with one stack, not for training: heads are computed and projected in two steps. */
    const bool *off;       /* attention after attention (H): heads whose output counts as zero; or NULL */
    float *heads;          /* attention after attention (B*T,H*D): the outputs of the heads side by side; or NULL */
    float *added;          /* (2*depth,B*T,M): what attention and MLP of each block add to their input; or NULL */
    const float *from;     /* (B*T,M): the rows before block `first`, where the pass starts; NULL: with the input */
    const float *computed; /* (B*T,H*D): the outputs of the heads of that block, for these rows; or NULL */
    int64_t first;         /* with `from` */
    const int64_t
        *rows; /* (row_count): the rows to compute logits of, at most as many as there are sequences; NULL: all */
    int64_t row_count;
    bool narrow; /* in the last block, compute the class token's row alone where no other row counts, and
                              nothing else is asked for. Results differ by rounding */

    int64_t
        horizon; /* tokens that sequences have once all of their pieces have run, for rotary embeddings that depend on
                        it; at least as many as they have behind this call. 0: so many */

    bool drop;             /* dropout and stochastic depth are at work, as the description says */
    uint64_t seed, stream; /* of what they draw: sequence b has stream + b, below 2^44 */
} nn_call;

/* Lays maps (attentions) for B sequences over a block of numbers, one after another. Returns how many numbers they take;
 * `maps` and `numbers` may be NULL. */
int64_t nn_maps_lay(mha_tensor *maps, float *numbers, const nn_description *d, int64_t B, int64_t encoder_tokens,
                    int64_t decoder_tokens);

typedef struct nn_model_options {
    int64_t batch;                          /* the most sequences of a call */
    int64_t encoder_tokens, decoder_tokens; /* the most tokens of a sequence; 0 where the stack reads patches */
    bool training;                          /* calls can be followed by nn_model_backward */
    int64_t encoder_batch; /* the most sequences of the encoder, where each serves several of the decoder; 0: batch */

    /* Of nn_model_create_over: called with a weight of which products read a copy from now on, so that memory which can be
     * read again, such as that of a mapped file, need not stay. Or NULL. */
    void (*copied)(const void *arg, mha_tensor weight);
    const void *copied_arg;
} nn_model_options;

typedef struct nn_model nn_model;

/* How many numbers a block of parameters has; -1, with one line in `error`, if the description makes no sense. */
int64_t nn_model_count(const nn_description *d, char *error, size_t error_size);

/* Over the caller's parameters, nn_parameter_count of them. Returns NULL on error, with one line in `error`: also if it
 * is for training and has MHA_LINEAR for an activation. `ctx` gives memory to the attention layers. */
nn_model *nn_model_create(mha_context *ctx, const nn_description *d, float *parameters, const nn_model_options *options,
                          char *error, size_t error_size);

/* Over one tensor for each part, in the order of nn_parts_of: they stay where they lie. Weights of products and tables of
 * tokens have any float type and strides; those of an attention's heads may have an axis of their own, as in
 * mha_layer_weights. All else is dense float32. Not for training. */
nn_model *nn_model_create_over(mha_context *ctx, const nn_description *d, const mha_tensor *parts,
                               const nn_model_options *options, char *error, size_t error_size);
void nn_model_free(nn_model *m); /* NULL is legal */

const nn_description *nn_model_description(const nn_model *m);
float *nn_model_parameters(const nn_model *m); /* NULL if they are not one block */

/* First values, as nn_parts_initialize. */
void nn_model_initialize(nn_model *m, uint64_t seed);

/* Parameters have changed since the last call. */
void nn_model_changed(nn_model *m);

/* Which of the rotary embeddings that depend on the length of a sequence is that of so many tokens: sequences with different
 * numbers must not run in one call. 0 for all lengths, unless the model has such an embedding. */
int64_t nn_model_regime(const nn_model *m, int64_t tokens);

/* The logits, or without any the rows after the final norm: (B,classes), or (B*T,classes) without a pool. Rows past the
 * length of a sequence hold anything. They stay until the next call. `call` NULL: nothing else. Returns NULL on error,
 * with the reason in the context. */
const float *nn_model_forward(nn_model *m, mha_context *ctx, const nn_batch *batch, const nn_call *call);

/* After a forward call for training: from the gradient by its result, of which rows of padding do not count, onto the
 * block `gradients`. The batch must still be there. Returns false on error, with the reason in the context. */
bool nn_model_backward(nn_model *m, mha_context *ctx, const float *dlogits, float *gradients);

/* ---- Token by token --------------------------------------------------------------------------------------------- */

/* The keys and values of the decoder's blocks for `batch` sequences of up to `capacity` tokens, and of an encoder's rows
 * for cross-attention. */
typedef struct nn_model_cache nn_model_cache;
/* Returns NULL on error, with the reason in the context: only causal decoders of tokens have steps. */
nn_model_cache *nn_model_cache_create(nn_model *m, mha_context *ctx, int64_t batch, int64_t capacity, mha_type type);
void nn_model_cache_free(nn_model_cache *c);                         /* NULL is legal */
int64_t nn_model_cache_length(const nn_model_cache *c, int64_t row); /* tokens that a sequence has had */

/* As mha_cache_reorder and mha_cache_truncate, for the caches of all blocks. */
bool nn_model_cache_reorder(nn_model_cache *c, mha_context *ctx, const int64_t *from);
bool nn_model_cache_truncate(nn_model_cache *c, mha_context *ctx, int64_t row, int64_t length);

/* Runs the encoder and keeps what cross-attention needs of its rows: before the first step of a model with both
 * stacks. The cache then holds no tokens of the decoder. Of B sequences, each serves batch / B rows of the cache, one
 * behind another, such as the beams of a search. */
bool nn_model_encode(nn_model *m, mha_context *ctx, nn_model_cache *c, const nn_batch *batch);

/* The next T tokens of each sequence (decoder.tokens), or with decoder.starts as many as each has, also none, behind
 * those that the cache holds; logits as nn_model_forward.
 * Maps have as many keys as the cache then holds. */
const float *nn_model_step(nn_model *m, mha_context *ctx, nn_model_cache *c, const nn_batch *batch,
                           const nn_call *call);

/* nn_model_forward of B images (B,channels,rows,columns), normalised. */
const float *nn_model_forward_images(nn_model *m, mha_context *ctx, const float *images, int64_t B,
                                     const nn_call *call);

/* y (rows,M): what head h of block l adds to the residual stream, its columns of Wo times its output, without the bias.
 * heads (rows,H*D), in steps of `step` rows: as nn_call.heads leaves them. Of models with one stack. Returns false on
 * error, with the reason in the context. */
bool nn_model_project_head(nn_model *m, mha_context *ctx, float *y, const float *heads, int64_t rows, int64_t step,
                           int64_t l, int64_t h);

/* How many of `count` rows of logits have one that is not finite; and the words for it. */
int64_t nn_model_not_finite(const float *logits, int64_t count, int64_t classes);
extern const char nn_model_overflow[];

#endif
