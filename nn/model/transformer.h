/* A stack of transformer blocks over rows of tokens, forward and backward:
 *
 *     x = x + drop(attention(norm1(x)))  or, with the norm behind,    x = norm1(x + drop(attention(x)))
 *     x = x + drop(mlp(norm2(x)))                                     x = norm2(x + drop(mlp(x)))
 *
 *     mlp(y) = activation(y W1^T + b1) W2^T + b2
 *
 * and, after the last block, a norm if the configuration asks for one. Its input is dropped from, too. What comes
 * before (embeddings, positions) and after (pooling, a head) is the model's.
 *
 * Parameters are one block of float32 numbers, whoever owns it, and so are their gradients: in the order of
 * nn_transformer_tensor, which names each part. */
#ifndef NN_MODEL_TRANSFORMER_H
#define NN_MODEL_TRANSFORMER_H

#include "ops/ops.h"

/* How many of the first blocks may have numbers of heads of their own. */
enum { NN_TRANSFORMER_BLOCKS = 128 };

/* Of one block: heads of queries, and of keys and values (0: as many). All 0: what the configuration says of all. */
typedef struct nn_transformer_block {
    int32_t heads, kv_heads;
} nn_transformer_block;

typedef struct nn_transformer_config {
    int64_t width, depth, heads;
    int64_t kv_heads; /* 0: heads */
    int64_t mlp;      /* width of the hidden layer */
    nn_norm_kind norm;
    float epsilon;
    bool post_norm;  /* the norm behind, as in BERT */
    bool final_norm; /* not with the norm behind: it ends with one */
    mha_activation activation;
    bool causal;
    float dropout;   /* of attention weights, while training */
    float drop;      /* of what a branch adds to the residual stream, while training */
    float drop_path; /* of whole branches, a sequence at a time: that of the last block; the first has none */
    bool bfloat16;   /* factors of products are rounded to bfloat16; sums and all else stay float32 */

    int64_t head_width; /* 0: width / heads */
    nn_transformer_block
        block[NN_TRANSFORMER_BLOCKS]; /* those that have other numbers of heads than `heads`, `kv_heads` */
} nn_transformer_config;

/* clang-format off */
#define NN_TRANSFORMER_DEFAULTS                                                                                            \
    {64, 6, 4, 0, 128, NN_LAYER_NORM, 1e-6f, false, true, MHA_GELU, false, 0.0f, 0.0f, 0.0f, false, 0, {{0, 0}}}
/* clang-format on */

/* The heads of nn_block l, of queries and of keys and values; of the blocks before nn_block l; of all blocks; and how
 * wide a head of any block is. */
int64_t nn_transformer_heads(const nn_transformer_config *config, int64_t l);
int64_t nn_transformer_kv_heads(const nn_transformer_config *config, int64_t l);
int64_t nn_transformer_heads_before(const nn_transformer_config *config, int64_t l);
int64_t nn_transformer_all_heads(const nn_transformer_config *config);
int64_t nn_transformer_head_width(const nn_transformer_config *config);

/* How many heads a nn_block has, in words: "4 heads", or "1 to 4 heads" where blocks differ. Returns `out`. */
enum { NN_TRANSFORMER_WORDS = 60 };
const char *nn_transformer_heads_words(char out[NN_TRANSFORMER_WORDS], const nn_transformer_config *config);

/* One named part of a block of parameters. */
typedef struct nn_transformer_part {
    char name[64];
    int64_t first;    /* where it starts in the block */
    mha_tensor shape; /* its sizes; no data */
    bool is_weight;   /* a matrix of a product: what weight decay is for */
} nn_transformer_part;

typedef struct nn_transformer nn_transformer;

/* What makes no sense in a configuration, in a few words; NULL if all does. */
const char *nn_transformer_problem(const nn_transformer_config *config);

/* How many numbers a block of parameters has; -1 if the configuration makes no sense. */
int64_t nn_transformer_count(const nn_transformer_config *config);

/* Over the caller's parameters, for up to `rows` rows at a time. Returns NULL on error, with one line in `error`: also
 * if it is for training and has MHA_LINEAR for an activation. `ctx` gives memory to the attention layers. */
nn_transformer *nn_transformer_create(mha_context *ctx, const nn_transformer_config *config, float *parameters,
                                      int64_t rows, bool training, char *error, size_t error_size);
void nn_transformer_free(nn_transformer *t); /* NULL is legal */

/* The parts, from 0 until false, under the names of timm's blocks ("blocks.0.attn.qkv.weight"). */
bool nn_transformer_tensor(const nn_transformer *t, int n, nn_transformer_part *part);

/* The attention of nn_block l, over its part of the parameters: whoever looks at heads one by one asks it. */
const mha_layer *nn_transformer_attention(const nn_transformer *t, int64_t l);

/* First values: products uniform within sqrt(6 / (rows + columns)), as Xavier has it, those that end a branch within
 * 1 / sqrt(2 * depth) of that; biases 0, gains 1. */
void nn_transformer_initialize(nn_transformer *t, uint64_t seed);

/* Parameters have changed since the last call. */
void nn_transformer_changed(nn_transformer *t);

/* Where the first block reads its rows (B*T,width): to be filled before a forward call. */
float *nn_transformer_input(nn_transformer *t);

typedef struct nn_transformer_call {
    float *maps;            /* a block after the other (B,H,T,T), each with its H: the weights, left there; or NULL */
    const mha_stats *stats; /* (depth) what to leave of the heads of each block; or NULL */
    float *importance;      /* likewise (B,H): what each head is worth to each sequence, left there by
                               nn_transformer_backward; or NULL */
    bool drop;              /* dropout and stochastic depth are at work, as the configuration says */
    uint64_t seed, stream;  /* of what they draw: sequence b has stream + b, below 2^44 */
} nn_transformer_call;

/* From the input, B sequences of T tokens, to the output (B*T,width), which is the transformer's and stays until the
 * next call; returns NULL on error, with the reason in the context. `call` NULL for none of it. */
const float *nn_transformer_forward(nn_transformer *t, mha_context *ctx, int64_t B, int64_t T,
                                    const nn_transformer_call *call);

/* After a forward call of a transformer for training: dy (B*T,width) is the gradient by its output, `gradients` a block
 * that is added to. Returns the gradient by the input (B*T,width), or NULL as above. */
const float *nn_transformer_backward(nn_transformer *t, mha_context *ctx, const float *dy, float *gradients);

#endif
