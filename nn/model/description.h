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
 *     mlp(y) = sum over the k experts e with the largest y Wr^T + br of softmax of these k numbers * mlp_e(y)
 *
 * The output is read from the last stack: from all rows, or from one vector per sequence (`pool`).
 *
 *     logits = cap(scale * (h Wh^T + bh))           h: rows after the final norm; Wh may be the table of tokens (`tied`)
 *     h = n(a(h Wt^T + bt))                         before that, where there is a `transform`; without one, with
 *                                                   `transform_norm` alone, h = n(h)
 */
#ifndef NN_MODEL_DESCRIPTION_H
#define NN_MODEL_DESCRIPTION_H

#include "ops/linear.h"

/* How many of the first blocks of a stack may differ from the others. */
enum { NN_BLOCKS_MOST = 128 };

/* How many kinds of attention the blocks of a stack may have. */
enum { NN_ATTENTION_KINDS = 4 };

/* ---- What goes in ----------------------------------------------------------------------------------------------- */

typedef enum nn_input_kind {
    NN_INPUT_TOKENS,  /* ids: rows of a table */
    NN_INPUT_PATCHES, /* images (channels,rows,columns), cut into squares, each a product with Wp, plus bp */
    NN_INPUT_FRAMES   /* features (bins,2*positions): two convolutions over three frames, the second in steps of two, a
                         GELU after each */
} nn_input_kind;

typedef enum nn_position_kind {
    NN_POSITIONS_NONE,       /* none, or those of attention (rotary, ALiBi) */
    NN_POSITIONS_LEARNED,    /* a row of a table is added to each token */
    NN_POSITIONS_SINUSOIDAL, /* so is a row of sines, then cosines, of position / 10000^(i/(W/2 - 1)), i < W/2 */
    NN_POSITIONS_WAVES       /* the same with 10000^(i/(W/2)), as in the first transformer */
} nn_position_kind;

typedef struct nn_input_config {
    nn_input_kind kind;
    int64_t vocabulary;                     /* of tokens */
    int64_t token_types;                    /* rows of a second table, by type; 0: none */
    int64_t rows, columns, channels, patch; /* of images; patch divides rows and columns */
    float mean, deviation;                  /* a pixel x from 0 to 1 goes in as (x - mean) / deviation */
    bool class_token;                       /* one learned row before those of patches, */
    bool distilled;                         /* and a second one */
    int64_t bins;                           /* of the features of a frame */
    nn_position_kind position_kind;
    int64_t positions;      /* how many rows the table of positions has */
    int64_t first_position; /* of the first token: 0, or 2 in OPT and BART */
    int64_t padding;        /* tokens with this id stand before the first position and are not counted; -1: none */
    float scale;            /* of the rows of the table of tokens: 1, or sqrt(M) */
    bool norm;              /* of the sum of all of these */
    int64_t width;          /* of the tables and that norm; 0: M. Else a product turns each row into M numbers, */
    bool width_bias;        /* with a bias, */
    bool width_first;       /* before positions are added, which then have width M */
} nn_input_config;

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

/* How the frequencies of a rotary embedding, base^(-2i/w), are changed for contexts longer than those of training. */
typedef enum nn_rotary_scaling {
    NN_ROTARY_AS_IS,
    NN_ROTARY_LINEAR,  /* divided by `factor` */
    NN_ROTARY_DYNAMIC, /* with a larger base in sequences that are longer than `trained` */
    NN_ROTARY_YARN,    /* divided by `factor` where they turn slowly: between `slow` and `fast` turns, in part */
    NN_ROTARY_LLAMA3,  /* the same by wavelength, with `slow` and `fast` as parts of `trained` */
    NN_ROTARY_LONG     /* each divided by a number of its own, one for sequences up to `trained`, one for longer ones */
} nn_rotary_scaling;

enum { NN_ROTARY_MOST = 256 }; /* frequencies with numbers of their own */

typedef struct nn_rotary_config {
    nn_rotary_scaling scaling;
    double factor;
    double slow, fast;
    int64_t trained;   /* tokens of the sequences of training */
    bool truncate;     /* YaRN: the bounds are whole numbers */
    double multiplier; /* of cosines and sines: 1 */
    bool restart;      /* a cache that outgrows `trained` is computed anew, as Phi 3 does; else it keeps its keys */
    float divisors[2][NN_ROTARY_MOST];
} nn_rotary_config;

typedef struct nn_attention_config {
    int64_t window_left, window_right; /* as in mha_attention_options: MHA_UNLIMITED */
    float scale;                       /* NAN: 1/sqrt(D) */
    bool scale_by_block;               /* divided by the number of the block, from 1 */
    float softcap;                     /* 0: none */
    double rotary_base;                /* 0: no rotary embedding */
    int64_t rotary_width;              /* 0: D */
    bool rotary_interleaved;
    nn_rotary_config rotary;
    float qk_norm; /* epsilon of a norm of queries and keys; 0: none */
    mha_norm qk_norm_kind;
    mha_norm_span qk_norm_span;
    bool qk_norm_bias;
    int64_t relative_buckets;  /* T5: a learned bias for each of so many ranges of distances; 0: none, */
    int64_t relative_distance; /* the largest of which is this */
    bool in_bias, out_bias;
    bool alibi;        /* slopes 2^(-8(h+1)/H) for H a power of two, interleaved between powers otherwise; */
    bool alibi_scaled; /* they are multiplied by the scale of scores */
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
    int64_t width, depth;          /* M; blocks, 0: this model has no such stack */
    int64_t heads;                 /* H */
    int64_t kv_heads;              /* G; 0: H */
    int64_t head_width;            /* D; 0: M/H */
    int64_t mlp;                   /* width of the hidden layer */
    int64_t experts, experts_used; /* MLPs of a block, of which each token uses some; 0: one MLP */
    bool expert_bias;              /* the product that chooses them has a bias */
    bool gated;
    float clamp; /* gated, with these bounds: a(min(g, clamp)) * (max(min(u, clamp), -clamp) + 1); 0: none */
    bool mlp_bias;
    mha_activation activation;
    nn_norm_kind norm;
    bool norm_bias; /* LayerNorm with a bias; an RMS norm has none */
    float epsilon;
    nn_norm_place place;
    bool parallel, one_norm;
    bool bare_start;   /* the first block has no norm before its attention */
    bool from_norm;    /* a branch is added to its norm's output instead of that norm's input */
    bool branch_scale; /* what a branch gives is multiplied by a learned vector */
    bool final_norm;   /* after the last block */
    bool causal;
    float residual;                                    /* r: 1 */
    nn_attention_config attention[NN_ATTENTION_KINDS]; /* blocks may differ in their kind: see block */
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
    NN_POOL_LAST,  /* of its last row */
    NN_POOL_BOTH,  /* of the first row and, beside it, the mean of the others: 2M numbers */
    NN_POOL_TWO,   /* of the first row and of the second, each with a product of its own, and the mean of the two */
    NN_POOL_REST,  /* of the mean of its rows but the first */
    NN_POOL_PICKED /* of the row that the call picks for it: that of its last end token */
} nn_pool;

typedef struct nn_output_config {
    int64_t classes; /* 0: no logits, the rows are the result */
    nn_pool pool;
    bool tied; /* Wh is the table of tokens of the last stack */
    bool bias;
    int64_t transform; /* width of the product before that of the logits; 0: none */
    bool transform_bias, transform_norm;
    mha_activation transform_activation;
    float scale, softcap; /* 1 and 0: none */
    bool named;           /* the classes of rows have names in id2label, as those of pooled rows may */
    bool follows;         /* the decoder reads the tokens of the encoder, each one place later, */
    int64_t start, end;   /* behind token `start`; the end token of NN_POOL_PICKED */
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
        .rotary = {.multiplier = 1, .factor = 1},                                                                     \
    }

/* A stack that is not there: depth 0. */
#define NN_STACK_DEFAULTS                                                                             \
    {                                                                                                 \
        .input = {.scale = 1.0f, .channels = 1, .deviation = 1.0f, .padding = -1},                    \
        .blocks = {.mlp_bias = true,                                                                  \
                   .activation = MHA_GELU,                                                            \
                   .norm_bias = true,                                                                 \
                   .epsilon = 1e-6f,                                                                  \
                   .final_norm = true,                                                                \
                   .residual = 1.0f,                                                                  \
                   .attention = {NN_ATTENTION_DEFAULTS, NN_ATTENTION_DEFAULTS, NN_ATTENTION_DEFAULTS, \
                                 NN_ATTENTION_DEFAULTS}},                                             \
    }

/* The Vision Transformer of the demo, without a decoder. */
nn_description nn_description_default(void);

/* What makes no sense, in a few words, which may lie in `text`; NULL if all does. */
const char *nn_description_problem(const nn_description *d, char *text, size_t room);

/* The same of one kind of attention, with heads of width D. */
const char *nn_attention_problem(const nn_attention_config *a, int64_t D);

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
int64_t nn_blocks_norm_width(const nn_blocks_config *b, int64_t l, int64_t heads); /* of gains of queries or keys */
const nn_attention_config *nn_blocks_attention(const nn_blocks_config *b, int64_t l);

/* Width of the rows that the product of the logits reads; and before the transform, after pooling. */
int64_t nn_output_width(const nn_description *d, bool transformed);

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
