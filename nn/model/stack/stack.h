/* A stack of blocks at work; for the files of this folder.
 *
 * A block is two branches, attention and MLP, or three with cross-attention between them. A stack of K branches has
 * K + 1 stages of the residual stream: branch k reads stage `source` (k, or k - 1 for the MLP of parallel branches), by
 * way of its norm if it has one, and writes where stage k + 1 lies; adding stage k to that is part of the next norm's
 * sweep where there is one. Nothing is copied, and the backward pass finds every stage as the forward pass left it.
 * Without training, a stage shares its memory with the one before the last. */
#ifndef NN_MODEL_STACK_H
#define NN_MODEL_STACK_H

#include "model/model.h"
#include "model/weights.h"

typedef struct nn_experts {
    float *scores;        /* (rows,experts) */
    int32_t *chosen;      /* (rows,used): the experts of a row, best first */
    float *share;         /* (rows,used): and their shares */
    int64_t *row, *slot;  /* (rows): the rows of one expert, and where it stands among their experts */
    float *x, *z, *h, *y; /* (rows,M), (rows,Z), (rows,mlp), (rows,M): those rows on their way */
    uint16_t *half;       /* (rows, the larger of M and mlp) */
    float *sum;           /* (rows,used,M) */
    void *memory;
} nn_experts;

typedef enum nn_branch_kind { NN_BRANCH_SELF, NN_BRANCH_CROSS, NN_BRANCH_MLP } nn_branch_kind;

typedef struct nn_stage {
    float *sum;  /* (rows,M): the branch and what it is added to */
    float *x;    /* (rows,M): what goes on: the norm of the sum, or the sum itself */
    float *kept; /* (rows,2): of that norm */
} nn_stage;

typedef struct nn_branch {
    nn_branch_kind kind;
    int64_t block, source;
    nn_norm norm;           /* before it */
    nn_norm out_norm;       /* behind it, before the sum */
    nn_norm after;          /* behind the sum */
    const nn_weight *scale; /* of what it gives; or NULL */
    bool shares;            /* the norm of the branch before, with which it reads the same rows */
    float *n, *kept;        /* (rows,M) and (rows,2): the norm before it */
    float *raw, *raw_kept;  /* what it gave, before out_norm */
} nn_branch;

typedef struct nn_block {
    const nn_weight *part[NN_PART_KINDS]; /* NULL: not there */
    int64_t number, cross_number;         /* of its attentions among all of the model */
    mha_layer *attention, *cross;
    mha_layer *heads;            /* `attention` without Wo, from the first call that needs it; or NULL */
    mha_tape *tape, *cross_tape; /* for training its own; for statistics one that all share */
    float *z;                    /* (rows,Z) before the activation, then its slope there; Z = mlp, or 2 mlp if gated */
    float *h;                /* (rows,mlp) after it; of blocks in bfloat16 that is in `half_h`, and this is shared */
    uint16_t *half, *half_h; /* (rows,M), (rows,mlp): what the MLP's products read, in bfloat16; or NULL */
} nn_block;

typedef struct nn_stack {
    const nn_description *d;
    const nn_blocks_config *config;
    bool decoder, training;
    int64_t rows;                   /* the most */
    bool half;                      /* factors of products are bfloat16 */
    bool frozen;                    /* layers may keep packed copies of their weights */
    int64_t branches, first_branch; /* first_branch: where the numbers of its branches begin, for dropout: behind
                                       those of the stack before, whose first is its input */
    nn_branch *branch;
    nn_stage *stage;
    nn_block *block;
    nn_norm final_norm;
    int64_t regime[NN_ATTENTION_KINDS];                       /* of the rotary embedding, per kind of attention */
    const nn_weight *relative;                                /* (buckets,H); or NULL */
    float *last, *last_kept;                                  /* (rows,M): what comes out, after the final norm */
    float *slopes[NN_ATTENTION_KINDS];                        /* (H) of ALiBi, per kind of attention; or NULL */
    mha_tape *tape;                                           /* the shared one, or NULL */
    float *dx, *dother, *dn, *ddropped, *dparallel, *dhidden; /* backward: (rows,M) five times, (rows,Z) */
    uint16_t *half_d, *half_dhidden;
    float *memory;
    float *split;         /* (rows,H*D) of the largest H: outputs of heads, from the first call that needs it */
    uint16_t *half_split; /* in bfloat16 */
    nn_experts experts;   /* room for the MLPs of a mixture */
    float *bias;          /* (B,H,Tq,Tk): relative positions, grown by the calls that need it */
    int64_t bias_room;
    mha_tensor bias_now;

    /* Of the last forward call. */
    int64_t B, T; /* T is 1 from the last attention on if the call is narrow */
    int64_t wide; /* T, as it was given */
    bool narrow;
    const int64_t *lengths;
    const int64_t *starts; /* (sequences+1): of sequences of unlike length, which lie one behind another in one of T
                              tokens; or NULL */
    int64_t sequences;
    const nn_call *call;
    float *hidden;
    struct nn_memory {
        const float *rows; /* (B*T,Me): of the encoder; NULL: there is none */
        int64_t T, width;
        const int64_t *lengths, *starts; /* as above */
        float *gradient;                 /* (B*T,Me), added to by the backward pass */
    } memory_rows;
    mha_cache **caches, **cross_caches; /* (depth): attention goes through these; or NULL */
} nn_stack;

/* Lays the stack out and makes its layers. False if there is not enough memory, or with the reason in the context. */
bool nn_stack_create(nn_stack *s, mha_context *ctx, const nn_description *d, bool decoder, const nn_weights *weights,
                     int64_t rows, bool training);
void nn_stack_free(nn_stack *s);
void nn_stack_changed(nn_stack *s);

/* The attention layer of block l of these blocks, the description's encoder or decoder; or its cross-attention. Its
 * parameters are those of the model from NN_Q, or NN_CROSS_Q, of the block on. */
mha_layer_options nn_stack_layer_options(const nn_description *d, const nn_blocks_config *c, int64_t l, bool cross);

/* Where stage 0 is to be written; then its rows, through all blocks. Returns the result, or NULL. */
static inline float *nn_stack_input(nn_stack *s) { return s->stage[0].sum; }
const float *nn_stack_forward(nn_stack *s, mha_context *ctx);

/* From dy, the gradient by the result, to that by the rows of stage 0; parameters' gradients are added to. */
const float *nn_stack_backward(nn_stack *s, mha_context *ctx, const float *dy, float *gradients);

/* ---- What both passes need (stack.c) ---------------------------------------------------------------------------- */

/* A norm of the blocks as mha_ops.h wants it; and where its gradients go. */
static inline mha_norm_options nn_norm_options(const nn_blocks_config *c, nn_norm from)
{
    mha_norm_options norm = MHA_NORM_DEFAULTS;
    norm.kind = c->norm == NN_LAYER_NORM ? MHA_NORM_LAYER : MHA_NORM_RMS;
    norm.epsilon = c->epsilon;
    norm.gain = from.gain->value;
    if (from.bias) norm.bias = from.bias->value;
    return norm;
}
static inline void nn_norm_gradients(mha_norm_gradients *g, nn_norm of, float *gradients)
{
    int64_t width = of.gain->value.size[0];
    g->gain = mha_tensor_1d(gradients + of.gain->first, MHA_FLOAT32, width);
    if (of.bias) g->bias = mha_tensor_1d(gradients + of.bias->first, MHA_FLOAT32, width);
}

/* Of a part that may be missing: its value, or none; and where the gradient of a bias goes, or NULL. */
static inline mha_tensor nn_value(const nn_weight *w)
{
    mha_tensor none = MHA_NO_TENSOR;
    return w ? w->value : none;
}
static inline float *nn_bias_gradient(const nn_weight *w, float *gradients) { return w ? gradients + w->first : NULL; }

/* What dropout and stochastic depth do to branch k, or to the input if k is -1. */
mha_dropout_options nn_stack_drop(const nn_stack *s, int64_t k);
static inline bool nn_drops(mha_dropout_options d) { return d.drop > 0 || d.path > 0; }

/* x (rows,columns) as a factor of products: itself, or a copy in bfloat16 at `home`. */
mha_tensor nn_stack_factor(const nn_stack *s, mha_context *ctx, uint16_t *home, const float *x, int64_t columns);

static inline mha_tensor nn_matrix(const float *data, int64_t rows, int64_t columns)
{
    return mha_tensor_2d(data, MHA_FLOAT32, rows, columns);
}

/* The rows of the residual stream (rows,M), their sequences (B,T,M), and what a norm of them keeps (rows,2). */
static inline mha_tensor nn_stack_rows(const nn_stack *s, const float *x)
{
    return nn_matrix(x, s->B * s->T, s->config->width);
}
static inline mha_tensor nn_stack_sequences(const nn_stack *s, const float *x)
{
    return mha_tensor_3d(x, MHA_FLOAT32, s->B, s->T, s->config->width);
}
static inline mha_tensor nn_stack_kept(const nn_stack *s, const float *kept) { return nn_matrix(kept, s->B * s->T, 2); }

/* Heads one by one, and rows that count (heads.c). Whether this call needs the outputs of the heads of block l; the layer that gives
 * them, and where it puts them, or NULL with the reason in the context; and from them to y (rows,M), without the heads
 * that are off. */
bool nn_stack_splits(const nn_stack *s, int64_t l);
mha_layer *nn_stack_heads(nn_stack *s, mha_context *ctx, int64_t l);
bool nn_stack_project(nn_stack *s, mha_context *ctx, int64_t l, float *y);

/* As nn_model_project_head. */
bool nn_stack_project_head(nn_stack *s, mha_context *ctx, float *y, const float *heads, int64_t rows, int64_t step,
                           int64_t l, int64_t h);

/* Whether the last block needs the class token's row alone; and from here on the stream has that row alone. */
bool nn_stack_can_narrow(const nn_stack *s);
void nn_stack_narrow(nn_stack *s);

/* What the call wants of the inside of a block (inside.c). Rows (B*T,M) of branch k at a moment of its pass; the MLP's
 * hidden layer h (B*T,mlp), as its second product reads it; and what attention of the block leaves beside its result. */
typedef enum nn_moment { NN_COMES, NN_READS, NN_ADDS, NN_LEAVES, NN_MOMENTS } nn_moment;
bool nn_inside_rows(const nn_stack *s, mha_context *ctx, int64_t k, nn_moment moment, const float *rows);
bool nn_inside_hidden(const nn_stack *s, mha_context *ctx, const nn_block *b, mha_tensor h);
void nn_inside_extras(const nn_stack *s, int64_t number, mha_attention_extras *extras); /* of that attention */

/* The MLP of a block (mlp.c): from x (rows,M) to y (rows,M); and from dy to s->dn. */
bool nn_mlp_forward(nn_stack *s, mha_context *ctx, const nn_block *b, float *y, const float *x);
bool nn_mlp_backward(nn_stack *s, mha_context *ctx, const nn_block *b, const float *x, const float *dy,
                     float *gradients);

/* A mixture of them (experts.c): as nn_mlp_forward. */
bool nn_experts_create(nn_stack *s);
void nn_experts_free(nn_experts *e);
bool nn_experts_forward(nn_stack *s, mha_context *ctx, const nn_block *b, float *y, const float *x);

/* Whether relative positions have a bias for every distance in a sequence of so many tokens (relative.c). */
bool nn_relative_reaches(const nn_attention_config *a, bool both_sides, int64_t tokens);

/* The bias of relative positions for the call at hand (relative.c), left in s->bias_now. */
bool nn_relative_make(nn_stack *s, mha_context *ctx);

/* The frequencies of a rotary embedding (w/2) for sequences of so many tokens; returns the multiplier of its cosines and
 * sines (rotary.c). */
double nn_rotary_frequencies(float *frequencies, const nn_attention_config *a, int64_t width, int64_t tokens);

/* Which frequencies sequences of so many tokens have: another number, other ones. Makes the layers of the stack anew if
 * the call at hand has others than the one before. */
int64_t nn_rotary_regime(const nn_attention_config *a, int64_t tokens);
bool nn_stack_turn(nn_stack *s, mha_context *ctx, int64_t tokens);

#endif
