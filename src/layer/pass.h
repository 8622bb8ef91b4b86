/* One pass through a layer: what goes in, where everything between lies, and the steps from inputs to results.
 *
 *     input rows --matmul--> y --norm, rotary--> q, k, v --attention--> heads --gates--> gated --matmul--> out
 *
 * Rows: an input (B,T,W) is a matrix of B*T rows. Those of a (B,T,W) array lie sequence by sequence, those of a (T,B,W)
 * array across sequences; either way the rows of y lie as those of the input do, and attention takes heads out of them
 * by strides. Inputs that fit neither, or are not of the compute type bfloat16, are copied first.
 *
 * Projections that read the same rows are one product: all three in self-attention, keys and values where the two are
 * one tensor. */
#ifndef MHA_LAYER_PASS_H
#define MHA_LAYER_PASS_H

#include "attention/extra_keys.h"
#include "core/arena.h"
#include "layer/layer.h"

/* (B,T,W) as (rows,W), which lie sequence by sequence or across them. False if its strides do not allow it. */
bool mha_as_rows(mha_tensor *rows, mha_tensor x, bool across);

/* Columns first to first + heads*width of y, whose rows are B*T, as (B,heads,T,width). */
mha_tensor mha_as_heads(mha_tensor y, bool across, int64_t B, int64_t T, int64_t first, int64_t heads, int64_t width);

/* Rows (B*T,W) as (B,T,W). */
mha_tensor mha_as_input(mha_tensor rows, bool across, int64_t B, int64_t T);

/* Heads side by side (B,T,heads*width) as (B,heads,T,width). */
mha_tensor mha_as_split(mha_tensor x, int64_t heads, int64_t width);

/* Rows first to first + count - 1, of so many. */
typedef struct mha_stretch {
    int64_t first, count, all;
} mha_stretch;

/* Only these rows of a tensor, which are its axis `axis`; none stays none. */
mha_tensor mha_cut(mha_tensor t, int axis, mha_stretch rows);

/* The product that gives projections first to last. */
typedef struct mha_projection {
    int first, last;
    mha_tensor input;          /* (B,T,W) as the caller gave it */
    bool across;               /* how its rows lie */
    bool copied;               /* x is a copy */
    mha_tensor x;              /* (rows,W) */
    mha_tensor y;              /* (rows,columns) */
    mha_tensor weight[MHA_IN]; /* of each of them: (rows,W), or (heads,width,W) */
    mha_tensor gathered;       /* (columns,W): a copy of the parameters that these are parts of; or none */
} mha_projection;

typedef struct mha_pass {
    mha_context *ctx;
    mha_layer *layer;
    mha_layer_inputs inputs;       /* key and value filled in */
    mha_attention_options options; /* complete: with the layer's sinks */
    mha_attention_extras extras;   /* what the caller wants */
    mha_tensor out;
    bool training;
    bool packs;        /* weights that are packed stand for the parameters */
    int64_t B, Tq, Tk; /* of the tensors: B is 1 if ragged */
    mha_tensor query_starts,
        key_starts;                   /* as they were given; with a cache, query_starts packs what is appended, too */
    mha_stretch query_rows, key_rows; /* of the tensors as the caller gave them: what belongs to some sequence */

    bool attends, appends;  /* it projects queries; it projects keys and values. Without a cache it does both */
    const int64_t *lengths; /* (B) of a cache, with what is appended: places end there; or NULL */
    int projections;
    mha_projection projection[MHA_IN];
    mha_tensor q, k, v;      /* (B,H,Tq,D), (B,G,Tk,D), (B,G,Tk,E), as attention reads them */
    mha_tensor raw_q, raw_k; /* before the norm; the same memory if there is none, or no backward call to come */
    mha_tensor query_places; /* int64 (B,T), positions for rotary; none: 0, 1, 2, ... */
    mha_tensor key_places;
    int64_t last_place; /* the largest of them that the layer's tables may have; -1: none */

    bool out_across;         /* how the rows of heads and gated lie: as those of out, if they can */
    bool out_copied;         /* out takes neither order: it gets a copy of `result` */
    mha_tensor head_rows;    /* (B*Tq,H*E): what attention gives */
    mha_tensor gated_rows;   /* the same times gates; the same memory if there are none, or no backward call */
    mha_tensor heads, gated; /* both as (B,H,Tq,E) */
    mha_tensor softmax;      /* (B,H,Tq,2), or none */
    mha_tensor maps;         /* (B,H,Tq,Tk + extra keys): weights of heads whose mean is asked for; or none */
    mha_tensor result;       /* (B*Tq,N) */
    mha_tensor out_weight;   /* (N,H*E): the parameter, or a copy in bfloat16 */
    bool out_rounded;        /* it is a copy */
    mha_layer_parts parts;   /* biases, gains, sinks and gates, dense float32 */
    int64_t extra;           /* keys that the layer adds: bias_kv, zero_kv */
} mha_pass;

/* How many sequences there are. */
static inline int64_t mha_pass_sequences(const mha_pass *p)
{
    const mha_attention_options *o = &p->options;
    return o->query_starts.rank ? o->query_starts.size[0] - 1 : o->key_starts.rank ? o->key_starts.size[0] - 1 : p->B;
}

/* Whether the host can read the starts: those of a cache's rows always. */
static inline bool mha_pass_reads_starts(const mha_pass *p) { return !p->ctx->backend->remote || p->lengths; }

/* Whether there may be rows of queries that belong to no sequence: where the host cannot read the starts, they are not cut
 * off but become zeros. */
static inline bool mha_pass_has_unowned_rows(const mha_pass *p)
{
    return !mha_pass_reads_starts(p) && p->options.query_starts.rank;
}

/* The options as the caller gave them: those of a pass that is settled may have copies of the starts. */
static inline mha_attention_options mha_pass_options(const mha_pass *p)
{
    mha_attention_options o = p->options;
    o.query_starts = p->query_starts;
    o.key_starts = p->key_starts;
    return o;
}

/* What a forward call reads beside the parameters, for a list of arguments. */
/* clang-format off */
#define MHA_PASS_INPUTS(p, o)                                                                                          \
    {"query", (p)->inputs.query, MHA_INPUT},                                                                           \
    {"key", (p)->inputs.key, MHA_INPUT},                                                                               \
    {"value", (p)->inputs.value, MHA_INPUT},                                                                           \
    {"query_positions", (p)->inputs.query_positions, MHA_INPUT},                                                       \
    {"key_positions", (p)->inputs.key_positions, MHA_INPUT},                                                           \
    MHA_OPTION_INPUTS(o)
/* clang-format on */

/* What a forward call writes, likewise. */
/* clang-format off */
#define MHA_PASS_OUTPUTS(p)                                                                                            \
    {"out", (p)->out, MHA_OUTPUT},                                                                                     \
    {"lse", (p)->extras.lse, MHA_OUTPUT},                                                                              \
    {"softmax", (p)->extras.softmax, MHA_OUTPUT},                                                                      \
    {"weights", (p)->extras.weights, MHA_OUTPUT},                                                                      \
    {"scores", (p)->extras.scores, MHA_OUTPUT},                                                                        \
    {"extras.q", (p)->extras.q, MHA_OUTPUT},                                                                           \
    {"extras.k", (p)->extras.k, MHA_OUTPUT},                                                                           \
    {"extras.v", (p)->extras.v, MHA_OUTPUT},                                                                           \
    {"extras.heads", (p)->extras.heads, MHA_OUTPUT}
/* clang-format on */

/* Checks the arguments of a forward call and fills the pass, but for memory. */
mha_status mha_pass_make(mha_pass *pass, mha_context *ctx, mha_layer *layer, mha_tensor out,
                         const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                         const mha_attention_options *options, bool training);

/* The same for a call that appends to a cache of `longest` positions, attends to it, or both. All inputs are given. */
mha_status mha_pass_make_cached(mha_pass *pass, mha_context *ctx, mha_layer *layer, mha_tensor out,
                                const mha_attention_extras *extras, const mha_layer_inputs *inputs,
                                const mha_attention_options *options, bool appends, bool attends,
                                const int64_t *lengths, int64_t longest);

/* Sizes and places of an input and of what is projected from it. */
mha_status mha_pass_check_input(mha_context *ctx, const mha_layer *layer, mha_tensor *x, int projection);

/* Stretches of rows must lie inside the tensor, which has rows->all: fills the rest of `rows` with those that belong to
 * some sequence, since the others are cut off before attention looks. All of them if there are no starts. */
mha_status mha_pass_check_starts(mha_context *ctx, mha_tensor starts, int64_t B, const char *name, mha_stretch *rows);

/* Sizes and strides of all that lies between, without memory; and how many bytes that takes. */
mha_status mha_pass_measure(mha_pass *pass, size_t *bytes);

/* Memory for all that lies between, from `home`; packed weights if the pass is for inference. */
mha_status mha_pass_settle(mha_pass *pass, mha_memory *home);

/* The steps. Each may fail only while the context rehearses. */
mha_status mha_pass_project(mha_pass *pass);
mha_status mha_pass_attend(mha_pass *pass);
mha_status mha_pass_finish(mha_pass *pass);

/* Zeros for the rows of padding of x, which query_lengths leaves out: axis `axis` is Tq, axis 0 the batch. */
void mha_pass_clear_padding(const mha_pass *pass, mha_tensor x, int axis);

/* ---- intermediates.c: q, k, v and heads as extras --------------------------------------------------------------- */

/* Checks those that are asked for; leaves the rows out that belong to no sequence; writes them, once heads are final. */
mha_status mha_pass_check_intermediates(mha_pass *pass);
void mha_pass_cut_intermediates(mha_pass *pass);
void mha_pass_leave_intermediates(const mha_pass *pass);

/* a (rows,W) times the weights of a projection, or of the output if n is MHA_IN, plus their bias. */
mha_status mha_pass_multiply(mha_pass *pass, int n, mha_tensor c, mha_tensor a);

/* Rotary embedding of x (B,heads,T,D) in place, or its inverse; nothing if the layer has none. */
mha_status mha_pass_rotate(const mha_pass *pass, mha_tensor x, mha_tensor places, bool inverse);

/* How queries (MHA_Q) or keys (MHA_K) are normalised. */
mha_norm_about mha_pass_norm(const mha_pass *pass, int projection);

/* Packs what the pass will multiply by, unless it is packed already. */
mha_status mha_pass_pack(mha_pass *pass);

/* Runs a function twice: first in rehearsal, where all that can fail does; then in earnest. */
mha_status mha_rehearsed(mha_context *ctx, mha_status (*run)(void *arg), void *arg);

/* What the attention of a pass is to leave beside the heads: weights without the columns of keys that the layer adds. */
mha_attention_extras mha_pass_extras(const mha_pass *pass);

/* Whether the weights that the pass multiplies by are packed already. */
bool mha_pass_is_packed(const mha_pass *pass);

/* The call for the keys that the layer adds, if it adds any. */
mha_status mha_pass_extra_keys(const mha_pass *pass, mha_tensor weights, mha_extra_keys_call *call);

#endif
