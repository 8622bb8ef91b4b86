/* The oracle's transformer: any model with an encoder, a decoder or both, forward and backward in float64, as loops
 * around the layer of layer.h.
 *
 * Each of the two stacks turns its input into rows x, one for each token:
 *
 *     tokens     e = scale * tokens[id] + types[type]
 *     patches    e = Wp pixels + bp              pixels by channel, row, column; the class token before them
 *     frames     u = gelu(conv(W1, features) + b1), e = gelu(conv(W2, u) + b2)    over 3 frames, the second in steps of 2
 *     all        e = e + positions[p]            p = first_position + t, where t does not count tokens of padding, which
 *                                                stand before the first position; sinusoidal: sines, then cosines
 *                e = norm(e)
 *                x = Wi e + bi                   or x = e; each of these where the stack has it; with `width_first`,
 *                                                positions are added to x
 *
 * Blocks then apply attention, cross-attention (in a decoder behind an encoder) and MLP in turn, each as f in
 *
 *     before    x = x + r f(n(x))                behind    x = n(x + r f(x))
 *     both      x = x + r n'(f(n(x)))            after     x = x + r n(f(x))
 *     parallel  x = x + r f(n1(x)) + r g(n2(x))  f: attention, g: MLP; n2 is n1 with `one_norm`; no cross-attention
 *
 * where f(y) may be multiplied by a vector, the first norm of the first block may be missing, and with `from_norm` the
 * sum starts from n(x). Dropout multiplies what f gives, before that vector, and the rows before the first block.
 *
 *     mlp(y) = W2 a(W1 y + b1) + b2              or, gated, W2 (a(Wg y + bg) * (W1 y + b1)) + b2
 *     mlp(y) = sum_e p_e mlp_e(y)                p: softmax of the largest few of Wr y + br, 0 for the other experts
 *
 * and the result is read from the last stack, after its final norm:
 *
 *     h = norm(a(Wt h + bt))                     where there are such a product and norm
 *     logits = cap(scale * (Wh h + bh))          cap(z) = softcap * tanh(z / softcap)
 *
 * In the backward pass the experts that a row chooses are constant; gradients flow through the softmax of their scores.
 *
 * Rows at and past the length of a sequence are seen by nobody and counted nowhere. */
#ifndef REF_TRANSFORMER_H
#define REF_TRANSFORMER_H

#include "layer.h"

typedef enum ref_activation {
    REF_LINEAR,
    REF_RELU,
    REF_GELU,
    REF_GELU_TANH,
    REF_SILU,
    REF_TANH,
    REF_QUICK_GELU,
    REF_RELU_SQUARED
} ref_activation;
typedef enum ref_position_kind { REF_NO_POSITIONS, REF_LEARNED, REF_SINUSOIDAL, REF_WAVES } ref_position_kind;
typedef enum ref_place { REF_BEFORE, REF_BEHIND, REF_BOTH, REF_AFTER } ref_place;
typedef enum ref_pool {
    REF_POOL_NONE,
    REF_POOL_FIRST,
    REF_POOL_MEAN,
    REF_POOL_LAST,
    REF_POOL_BOTH,  /* the first row and the mean of the others, side by side */
    REF_POOL_TWO,   /* the mean of the logits of the first row and of the second, which has a product of its own */
    REF_POOL_REST,  /* the mean of all rows but the first */
    REF_POOL_PICKED /* the row that `picked` names for each sequence */
} ref_pool;
typedef enum ref_scaling { REF_AS_IS, REF_LINEAR_SCALING, REF_DYNAMIC, REF_YARN, REF_LLAMA3, REF_LONG } ref_scaling;

/* ---- Where parameters start ------------------------------------------------------------------------------------- */

/* Of a stack. W: width of the tables, which is M without a projection; P = channels * patch * patch. */
enum {
    REF_PATCH,            /* (M,P) */
    REF_PATCH_BIAS,       /* (M) */
    REF_CLASS_TOKEN,      /* (M) */
    REF_SECOND_TOKEN,     /* (M) */
    REF_CONV1,            /* (M,bins*3) */
    REF_CONV1_BIAS,       /* (M) */
    REF_CONV2,            /* (M,M*3) */
    REF_CONV2_BIAS,       /* (M) */
    REF_TOKENS,           /* (vocabulary,W) */
    REF_POSITIONS,        /* (positions,W) */
    REF_TYPES,            /* (types,W) */
    REF_INPUT_NORM,       /* (W) */
    REF_INPUT_NORM_BIAS,  /* (W) */
    REF_INPUT_PROJECTION, /* (M,W): Wi */
    REF_INPUT_PROJECTION_BIAS,
    REF_RELATIVE,        /* (buckets,H) */
    REF_FINAL_NORM,      /* (M) */
    REF_FINAL_NORM_BIAS, /* (M) */
    REF_STACK_PARTS
};

/* The branches of a block. */
typedef enum ref_branch { REF_SELF, REF_CROSS, REF_MLP, REF_BRANCHES } ref_branch;

/* Of a branch: its norms, then the parts of an attention or of an MLP. */
enum {
    REF_NORM,          /* (M) */
    REF_NORM_BIAS,     /* (M) */
    REF_NORM_OUT,      /* (M): n' */
    REF_NORM_OUT_BIAS, /* (M) */
    REF_SCALE,         /* (M): of what the branch gives */

    REF_Q,          /* (H*D,M) */
    REF_K,          /* (G*D,M); of cross-attention (G*D,Me), Me: width of the encoder */
    REF_V,          /* likewise */
    REF_Q_BIAS,     /* (H*D) */
    REF_K_BIAS,     /* (G*D) */
    REF_V_BIAS,     /* (G*D) */
    REF_PROJECTION, /* (M,H*D) */
    REF_PROJECTION_BIAS,
    REF_Q_NORM, /* (D), or (H*D) */
    REF_K_NORM, /* (D), or (G*D) */
    REF_Q_NORM_BIAS,
    REF_K_NORM_BIAS,
    REF_SINKS, /* (H) */
    REF_BRANCH_PARTS,

    REF_GATE = REF_Q, /* (mlp,M) */
    REF_GATE_BIAS,
    REF_FC1, /* (mlp,M) */
    REF_FC1_BIAS,
    REF_FC2, /* (M,mlp) */
    REF_FC2_BIAS,
    REF_ROUTER, /* (experts,M); the parts above then are those of the first expert, those of the others behind them */
    REF_ROUTER_BIAS
};

/* ---- The model and its input ------------------------------------------------------------------------------------ */

/* Frequencies f_i = base^(-2i/w) of a rotary embedding, and what becomes of them: see ref_rotary_frequencies. */
typedef struct ref_scaled_rotary {
    ref_scaling scaling;
    double factor, slow, fast, trained, multiplier;
    bool truncate;
    const float *divisors[2]; /* (w/2) for sequences up to `trained`, and for longer ones */
} ref_scaled_rotary;

typedef struct ref_heads {
    int64_t heads, kv_heads, head_width; /* H, G, D */
    bool causal;
    int64_t window_left, window_right; /* negative: no limit */
    double scale;                      /* NAN: 1/sqrt(D) */
    double softcap;                    /* 0: none */
    double rotary_base;                /* 0: no rotary embedding */
    int64_t rotary_width;              /* 0: D */
    bool rotary_interleaved;
    ref_scaled_rotary rotary;
    double qk_norm;       /* epsilon; 0: no norm of queries and keys */
    bool qk_norm_centred; /* LayerNorm, */
    bool qk_norm_bias;    /* with a bias */
    int qk_norm_span;     /* as norm_span of a layer */
    bool in_bias, out_bias, sinks;
    bool alibi;        /* slopes: see ref_alibi_slope */
    bool alibi_scaled; /* slopes are multiplied by the scale of scores */
    double dropout;    /* of weights, as in ref_attention */
    uint64_t dropout_seed, dropout_stream;
    double *maps; /* (B,H,Tq,Tk): the weights are left here; or NULL */
} ref_heads;

typedef struct ref_block {
    ref_heads self, cross;
    int64_t at[REF_BRANCHES][REF_BRANCH_PARTS]; /* -1: not there */
    const double *drop[REF_BRANCHES];           /* (B*T,M): factors of what the branch gives; or NULL */
} ref_block;

typedef struct ref_stack {
    int64_t depth, width; /* depth 0: there is no such stack; width: M */

    /* Input. */
    bool patches; /* else tokens */
    int64_t rows, columns, channels, patch;
    bool class_token, second_token;
    int64_t bins; /* of audio frames; 0: none */
    bool types;
    int64_t padding, padding_place; /* a token that is not counted, and its position; -1: none */
    ref_position_kind positions;
    double scale;
    bool input_norm;
    int64_t table_width; /* W; 0: M, without a projection */
    bool table_bias;     /* bi */
    bool width_first;

    /* Blocks. */
    int64_t mlp;
    int64_t experts, experts_used; /* 0: one MLP */
    bool expert_bias;
    double *expert_margin; /* lowered to the least margin between experts that a token chooses and others; or NULL */
    double clamp;          /* of gated experts: a(min(g, clamp)) * (max(min(u, clamp), -clamp) + 1); 0: none */
    int64_t relative_buckets, relative_distance; /* T5's bias; 0: none */
    bool gated, mlp_bias;
    ref_activation activation;
    bool rms, norm_bias; /* RMS norms; LayerNorms with a bias */
    double epsilon;
    ref_place place;
    bool parallel, one_norm, final_norm;
    bool bare_start, from_norm, branch_scale;
    double residual; /* r */
    const ref_block *blocks;
    const double *drop;          /* (B*T,M): factors of the rows before the first block; or NULL */
    int64_t at[REF_STACK_PARTS]; /* -1: not there */

    /* Sequences. */
    int64_t T;
    const int32_t *tokens;  /* (B,T) */
    const int32_t *type;    /* (B,T); NULL: 0 */
    const double *images;   /* (B,channels,rows,columns) */
    const double *features; /* (B,bins,2*T) */
    int64_t longest;        /* tokens of the longest sequence, which some rotary embeddings depend on */
    const int64_t *lengths; /* (B), from 1 to T; NULL: T */
    int64_t first_position;
} ref_stack;

typedef struct ref_transformer {
    int64_t B;
    ref_stack encoder, decoder;

    int64_t classes; /* 0: no logits, the rows are the result */
    ref_pool pool;
    const int64_t *picked; /* (B): of REF_POOL_PICKED, rows counted from the first of each sequence */
    bool tied;             /* Wh is REF_TOKENS of the last stack */
    bool bias;
    double scale, softcap;       /* of logits: 1 and 0 for none */
    int64_t output, bias_at;     /* where Wh (classes,M) and bh (classes) start */
    int64_t second, second_bias; /* those of REF_POOL_TWO */
    int64_t transform;           /* width of the product before; 0: none */
    bool transform_bias, transform_norm;
    ref_activation transform_activation;
    int64_t transform_at, transform_bias_at, transform_norm_at, transform_norm_bias_at;

    const double *parameters; /* (count) */
    int64_t count;
} ref_transformer;

/* The size of a result: rows, B or without a pool B*T; and numbers of each, `classes` or without any M. */
int64_t ref_transformer_rows(const ref_transformer *t);
int64_t ref_transformer_columns(const ref_transformer *t);

/* out (rows,columns); rows of padding are 0. Of each stack, unless NULL: hidden (depth+2,B*T,M), the rows before each
 * block, those after the last block, and those after the final norm. */
void ref_transformer_forward(const ref_transformer *t, double *out, double *encoder_hidden, double *decoder_hidden);

/* gradients (count), written: from dout (rows,columns), which is not looked at in rows of padding. */
void ref_transformer_backward(const ref_transformer *t, const double *dout, double *gradients);

/* The slope of head h: 2^(-8(h+1)/H) if H is a power of two. Else the heads up to n, the largest power below H, have
 * the slopes of n heads, and those from n on every other slope of 2n heads, from the first. */
double ref_alibi_slope(int64_t h, int64_t H);

/* ---- What the two passes share ---------------------------------------------------------------------------------- */

/* A stack at work, or one of its blocks. */
typedef struct ref_pass {
    const ref_transformer *t;
    const ref_stack *s;
    const ref_block *block;
    const double *memory; /* (B*T,M) of the encoder: its rows, in a decoder behind one; else NULL */
    double *gradients;    /* backward: of the parameters */
    double *dmemory;      /* and by `memory` */
} ref_pass;

/* The gain and the bias of a norm: where they start, and how many numbers each of them has. */
typedef struct ref_norm {
    int64_t gain, bias, width;
} ref_norm;

/* `count` zeros; and the sum x += factor * y. */
double *ref_zeros(int64_t count);
void ref_add(double *x, double factor, const double *y, int64_t count);

/* The parameters that start at `at`, or NULL if `wanted` is false. Ends the program where a wanted part is missing. */
const double *ref_part(const ref_transformer *t, int64_t at, bool wanted);

/* How many tokens sequence b of a stack has; how many rows a stack has. */
int64_t ref_length(const ref_stack *s, int64_t b);
static inline int64_t ref_rows(const ref_pass *p) { return p->t->B * p->s->T; }

/* y (rows,N) = x (rows,K) w^T + b. */
void ref_linear(double *y, const double *x, const double *w, const double *b, int64_t rows, int64_t N, int64_t K);

/* The mean that a norm subtracts from a row x (width), and the inverse root that it multiplies with; and the norm of rows
 * x (rows,width), where y may be x. */
void ref_norm_numbers(const ref_stack *s, const double *x, int64_t width, double *mean, double *inverse);
void ref_norm_rows(const ref_pass *p, ref_norm norm, double *y, const double *x, int64_t rows);

double ref_activate(ref_activation a, double z);

/* The numbers of patch n of image b: pixels (P). */
void ref_patch(const ref_pass *p, double *pixels, int64_t b, int64_t n);
static inline int64_t ref_pixels(const ref_stack *s) { return s->channels * s->patch * s->patch; }

/* The row of the table of positions that token t of sequence b gets. */
int64_t ref_token_position(const ref_stack *s, int64_t b, int64_t t);

/* e (B*T,W) before the norm of the input; then x (B*T,M). */
int64_t ref_table_width(const ref_stack *s);
void ref_embed(const ref_pass *p, double *e);
void ref_input(const ref_pass *p, double *x, const double *e);

/* The attention of a branch over x (B*T,M), and memory to free after use, each or NULL. */
typedef struct ref_extras {
    double *slopes, *frequencies, *bias;
} ref_extras;
ref_layer ref_attention_of(const ref_pass *p, ref_branch branch, const double *x, ref_extras *extras);
void ref_extras_free(ref_extras *extras);

/* ---- Parts that few models have (transformer_parts.c) ------------------------------------------------------------- */

/* out (w/2) of a sequence of `tokens` tokens:
 *
 *     linear     f_i / factor
 *     dynamic    from tokens > trained on, with a base of base * (factor tokens / trained - (factor - 1))^(w/(w-2))
 *     YaRN       f_i / factor where the pair turns less than `slow` times in `trained` tokens, f_i where it turns more than
 *                `fast` times, in between in proportion to i; `truncate`: the bounds of i are whole numbers
 *     Llama 3    the same, in proportion to how often it turns
 *     long       f_i / divisors[tokens > trained][i] */
void ref_rotary_frequencies(double *out, const ref_heads *h, int64_t w, int64_t tokens);

/* bias (B,H,Tq,Tk): a number for each head and range of distances, as in T5. */
void ref_relative_bias(const ref_pass *p, double *bias, int64_t H);

/* Rows (T,M) of the features of sequence b. */
void ref_frames(const ref_pass *p, double *e, int64_t b);

/* y (B*T,M): a mixture of experts. */
void ref_experts(const ref_pass *p, double *y, const double *x);

/* Their gradients: of the table of relative positions, from dbias (B,H,T,T); of the convolutions, from de (T,M) of
 * sequence b; and of experts, dx (B*T,M) from dy (B*T,M). */
void ref_relative_back(const ref_pass *p, const double *dbias, int64_t H);
void ref_frames_back(const ref_pass *p, const double *de, int64_t b);
void ref_experts_back(const ref_pass *p, double *dx, const double *dy, const double *x);

/* ---- Branches and norms (transformer.c) --------------------------------------------------------------------------- */

/* y (B*T,M) = f(x) for a branch of the block. */
void ref_apply(const ref_pass *p, ref_branch branch, double *y, const double *x);

/* What a clamp makes of a gate, and of what that multiplies. */
void ref_clamp(double clamp, double *gate, double *times);

/* y (rows,M): the MLP of an expert, 0 of a block without experts, for x (rows,M). On its way, g (rows,mlp) = Wg x + bg,
 * z (rows,mlp) = W1 x + b1, both before the clamp, and h (rows,mlp), which W2 multiplies. */
void ref_mlp(const ref_pass *p, int64_t expert, int64_t rows, double *y, const double *x);
void ref_hidden(const ref_pass *p, int64_t expert, int64_t rows, double *g, double *z, double *h, const double *x);

/* Whether branches have a norm before f, after f, and behind the sum; the norm that places other than REF_BOTH have,
 * and the one after f. */
bool ref_norm_before(const ref_pass *p, ref_branch branch);
bool ref_norm_after(const ref_stack *s);
bool ref_norm_behind(const ref_stack *s);
ref_norm ref_norm_first_of(const ref_pass *p, ref_branch branch);
ref_norm ref_norm_after_of(const ref_pass *p, ref_branch branch);

/* The sum of a branch (B*T,M): x, or a with `from_norm`, plus r times c, times the vector of the branch if it has one. */
void ref_step_sum(const ref_pass *p, ref_branch branch, double *sum, const double *x, const double *a, const double *c);

/* One branch of a block, with norms and sum: to, from (B*T,M). */
void ref_step(const ref_pass *p, ref_branch branch, double *to, const double *from);

/* In a parallel block, the norm that the MLP reads from. */
ref_norm ref_norm_of_mlp(const ref_pass *p);

/* The norm of the input, and the final one. */
ref_norm ref_input_norm(const ref_stack *s);
ref_norm ref_final_norm(const ref_stack *s);

/* hidden (depth+2,B*T,M) of a stack. */
void ref_stack_forward(const ref_pass *p, double *hidden);

/* The result, of the stack's final rows x (B*T,M); and dx (B*T,M) from dout (rows,columns). */
void ref_output(const ref_pass *p, double *out, const double *x);
void ref_output_back(const ref_pass *p, double *dx, const double *dout, const double *x);

/* The stack that the result is read from. */
const ref_stack *ref_last(const ref_transformer *t);

/* ---- Operations backward (transformer_backward.c): gradients are added to ------------------------------------------ */

/* Where the gradient of a part goes, or NULL if the model does not have it. */
double *ref_gradient(const ref_pass *p, int64_t at, bool wanted);

/* Of y = x w^T + b, with w at `w` and b at `b`, -1 for none: dx (rows,K), unless NULL, from dy (rows,N). */
void ref_linear_back(const ref_pass *p, double *dx, const double *dy, const double *x, int64_t w, int64_t b,
                     int64_t rows, int64_t N, int64_t K);

/* Of a norm of x (rows,width): dx from dy. */
void ref_norm_back(const ref_pass *p, ref_norm norm, double *dx, const double *dy, const double *x, int64_t rows);

/* The derivative of an activation. */
double ref_slope(ref_activation a, double z);

/* Of the MLP of an expert: dx (rows,M) from dy (rows,M). */
void ref_mlp_back(const ref_pass *p, int64_t expert, int64_t rows, double *dx, const double *dy, const double *x);

#endif
