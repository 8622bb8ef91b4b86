/* A transformer as data: what goes in, one or two stacks of blocks, what comes out.
 *
 *     nn_description d = NN_DESCRIPTION_DEFAULTS;                 a Vision Transformer for MNIST
 *     d.encoder.blocks.depth = 12, d.encoder.blocks.width = 768;
 *     const char *problem = nn_description_problem(&d, text, sizeof text);
 *
 * A model has an encoder (BERT, ViT), a decoder (GPT, Llama), or both (T5, Whisper). Each of the two turns its input
 * into rows, one for each token, and passes them through its blocks. With n = norm, f = attention, cross-attention (of a
 * decoder that follows an encoder) or MLP, each branch of a block computes
 *
 *     NN_NORM_BEFORE   x = x + r f(n(x))  (pre-norm)    NN_NORM_BEHIND   x = n(x + r f(x))  (post-norm)
 *     NN_NORM_BOTH     x = x + r n'(f(n(x)))            NN_NORM_AFTER    x = x + r n(f(x))
 *
 * and with `parallel`, x = x + r f(n1(x)) + r g(n2(x)) for attention f and MLP g, or n1 for both with `one_norm`.
 *
 *     mlp(y) = a(y W1^T + b1) W2^T + b2             plain
 *     mlp(y) = (a(y Wg^T + bg) * (y W1^T + b1)) W2^T + b2      gated
 *
 * The output is read from the last stack: from all rows, or from one vector per sequence (`pool`).
 *
 *     logits = cap(scale * (h Wh^T + bh))           h: rows after the final norm; Wh may be the table of tokens (`tied`)
 */
#ifndef NN_MODEL_DESCRIPTION_H
#define NN_MODEL_DESCRIPTION_H

#include "ops/linear.h"

/* How many of the first blocks of a stack may differ from the others. */
enum { NN_BLOCKS_MOST = 128 };

/* ---- What goes in ----------------------------------------------------------------------------------------------- */

typedef enum nn_input_kind {
    NN_INPUT_TOKENS, /* ids: rows of a table */
    NN_INPUT_PATCHES /* images (channels,rows,columns), cut into squares, each a product with Wp, plus bp */
} nn_input_kind;

typedef enum nn_position_kind {
    NN_POSITIONS_NONE,      /* none, or those of attention (rotary, ALiBi) */
    NN_POSITIONS_LEARNED,   /* a row of a table is added to each token */
    NN_POSITIONS_SINUSOIDAL /* so is a row of sines, then cosines, of position / 10000^(i/(W/2 - 1)), i < W/2 */
} nn_position_kind;

typedef struct nn_input_config {
    nn_input_kind kind;
    int64_t vocabulary;                     /* of tokens */
    int64_t token_types;                    /* rows of a second table, by type; 0: none */
    int64_t rows, columns, channels, patch; /* of images; patch divides rows and columns */
    float mean, deviation;                  /* a pixel x from 0 to 1 goes in as (x - mean) / deviation */
    bool class_token;                       /* one learned row before those of patches */
    nn_position_kind position_kind;
    int64_t positions;      /* how many rows the table of positions has */
    int64_t first_position; /* of the first token: 0, or 2 in OPT and BART */
    float scale;            /* of the rows of the table of tokens: 1, or sqrt(M) */
    bool norm;              /* of the sum of all of these */
    int64_t width;          /* of the tables and that norm; 0: M. Else a product turns each row into M numbers, */
    bool width_bias;        /* with a bias */
} nn_input_config;

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

typedef struct nn_attention_config {
    int64_t window_left, window_right; /* as in mha_attention_options: MHA_UNLIMITED */
    float scale;                       /* NAN: 1/sqrt(D) */
    float softcap;                     /* 0: none */
    double rotary_base;                /* 0: no rotary embedding */
    int64_t rotary_width;              /* 0: D */
    bool rotary_interleaved;
    float qk_norm; /* epsilon of an RMS norm of each head's queries and keys; 0: none */
    bool in_bias, out_bias;
    bool alibi; /* slopes 2^(-8(h+1)/H) for H a power of two, interleaved between powers otherwise */
    bool sinks;
} nn_attention_config;

typedef enum nn_norm_kind {
    NN_LAYER_NORM, /* MHA_NORM_LAYER */
    NN_RMS_NORM    /* MHA_NORM_RMS */
} nn_norm_kind;

typedef enum nn_norm_place { NN_NORM_BEFORE, NN_NORM_BEHIND, NN_NORM_BOTH, NN_NORM_AFTER } nn_norm_place;

/* Block l: its heads, where they are not those of the others (heads 0: they are), and which attention it has. */
typedef struct nn_block_config {
    int32_t heads, kv_heads;
    int32_t kind;
} nn_block_config;

typedef struct nn_blocks_config {
    int64_t width, depth; /* M; blocks, 0: this model has no such stack */
    int64_t heads;        /* H */
    int64_t kv_heads;     /* G; 0: H */
    int64_t head_width;   /* D; 0: M/H */
    int64_t mlp;          /* width of the hidden layer */
    bool gated;
    bool mlp_bias;
    mha_activation activation;
    nn_norm_kind norm;
    bool norm_bias; /* LayerNorm with a bias; an RMS norm has none */
    float epsilon;
    nn_norm_place place;
    bool parallel, one_norm;
    bool final_norm; /* after the last block */
    bool causal;
    float residual;                   /* r: 1 */
    nn_attention_config attention[2]; /* blocks alternate between two kinds in some models */
    nn_block_config block[NN_BLOCKS_MOST];
} nn_blocks_config;

typedef struct nn_stack_config {
    nn_input_config input;
    nn_blocks_config blocks;
} nn_stack_config;

/* ---- What comes out --------------------------------------------------------------------------------------------- */

typedef enum nn_pool {
    NN_POOL_NONE,  /* logits of every row */
    NN_POOL_FIRST, /* of the first row of each sequence: the class token */
    NN_POOL_MEAN,  /* of the mean of its rows */
    NN_POOL_LAST   /* of its last row */
} nn_pool;

typedef struct nn_output_config {
    int64_t classes; /* 0: no logits, the rows are the result */
    nn_pool pool;
    bool tied; /* Wh is the table of tokens of the last stack */
    bool bias;
    float scale, softcap; /* 1 and 0: none */
} nn_output_config;

/* ---- All of it -------------------------------------------------------------------------------------------------- */

typedef struct nn_description {
    nn_stack_config encoder, decoder;
    nn_output_config output;

    /* While training: of attention weights; of what a branch adds; of whole branches, a sequence at a time, from none
     * in the first block to this share in the last. */
    float dropout, drop, drop_path;
    bool bfloat16; /* factors of products are rounded to bfloat16; sums and all else stay float32 */
} nn_description;

#define NN_ATTENTION_DEFAULTS                                                                                         \
    {                                                                                                                 \
        .window_left = MHA_UNLIMITED, .window_right = MHA_UNLIMITED, .scale = NAN, .in_bias = true, .out_bias = true, \
    }

/* A stack that is not there: depth 0. */
#define NN_STACK_DEFAULTS                                                        \
    {                                                                            \
        .input = {.scale = 1.0f, .channels = 1, .deviation = 1.0f},              \
        .blocks = {.mlp_bias = true,                                             \
                   .activation = MHA_GELU,                                       \
                   .norm_bias = true,                                            \
                   .epsilon = 1e-6f,                                             \
                   .final_norm = true,                                           \
                   .residual = 1.0f,                                             \
                   .attention = {NN_ATTENTION_DEFAULTS, NN_ATTENTION_DEFAULTS}}, \
    }

/* The Vision Transformer of the demo, without a decoder. */
nn_description nn_description_default(void);

/* What makes no sense, in a few words, which may lie in `text`; NULL if all does. */
const char *nn_description_problem(const nn_description *d, char *text, size_t room);

/* ---- Questions -------------------------------------------------------------------------------------------------- */

/* The stack that the output is read from. */
const nn_stack_config *nn_description_last(const nn_description *d);
static inline bool nn_description_is_pair(const nn_description *d)
{
    return d->encoder.blocks.depth && d->decoder.blocks.depth;
}

/* Rows of a sequence: patches and the class token. 0 of a stack that reads tokens: as many as there are. */
int64_t nn_input_tokens(const nn_input_config *in);

/* Of block l: heads of queries, and of keys and values; and the width of a head of any block. */
int64_t nn_blocks_heads(const nn_blocks_config *b, int64_t l);
int64_t nn_blocks_kv_heads(const nn_blocks_config *b, int64_t l);
int64_t nn_blocks_head_width(const nn_blocks_config *b);
const nn_attention_config *nn_blocks_attention(const nn_blocks_config *b, int64_t l);

/* The attentions of a model, in the order in which results of heads lie: those of the encoder's blocks, those of the
 * decoder's, then the cross-attention of the decoder's blocks, if it follows an encoder. */
typedef struct nn_attention_place {
    bool decoder, cross;
    int64_t block; /* of its stack */
    int64_t heads;
} nn_attention_place;
int64_t nn_description_attentions(const nn_description *d);
nn_attention_place nn_description_attention(const nn_description *d, int64_t n);

/* The heads of the attentions before n; of all. */
int64_t nn_description_heads_before(const nn_description *d, int64_t n);
int64_t nn_description_all_heads(const nn_description *d);

#endif
