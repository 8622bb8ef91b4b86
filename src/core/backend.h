/* A device, as attention, the layer and the operations around them see it: a table of operations. The public edge checks arguments and calls the
 * table; nothing above it knows where memory lies or how a device computes.
 *
 * Operations that can fail return a status, and do so before they write. While the context rehearses, they check and
 * reserve what they need and compute nothing; those without a status do nothing at all then. */
#ifndef MHA_CORE_BACKEND_H
#define MHA_CORE_BACKEND_H

#include "mha.h"
#include "mha_ops.h"

struct mha_problem;
struct mha_gradient_call;
struct mha_stats_call;
struct mha_rotation;
struct mha_frequencies;
struct mha_extra_keys_call;

/* What a packed b (K,N) is: for an a of which type, and where its bytes lie. */
typedef struct mha_packed_about {
    int64_t K, N;
    mha_type a;
    mha_tensor memory; /* bytes */
} mha_packed_about;

/* How (B,H,T,D) is normalised: mha_norm, mha_norm_span. */
typedef struct mha_norm_about {
    mha_tensor gain, bias; /* (D) or (H*D), float32, dense; bias may be none */
    float epsilon;
    bool centred;   /* MHA_NORM_LAYER */
    bool all_heads; /* MHA_NORM_ALL_HEADS */
} mha_norm_about;

/* Where the gradients of a norm go. */
typedef struct mha_norm_back {
    mha_tensor dx;           /* as x; may be dy */
    bool add;                /* dx is added to; only float32 rows whose numbers lie side by side */
    mha_tensor dgain, dbias; /* as gain; added to; none: not wanted */
} mha_norm_back;

typedef struct mha_backend {
    const char *device; /* "cpu", "cuda" */
    bool remote;        /* the host cannot read the memory of tensors: the code that reads numbers in them keeps these
                           within their limits; packing is then NULL */

    /* Releases what the context holds on the device, and tells how many bytes of it are scratch; or NULL. */
    void (*close)(mha_context *ctx);
    size_t (*scratch)(const mha_context *ctx);

    /* Where not all memory is the device's: checks that a tensor lies in it. And what operations without a status ran into
     * since the last such call. Or NULL. */
    mha_status (*check_memory)(mha_context *ctx, mha_tensor t, const char *name);
    mha_status (*finish)(mha_context *ctx);

    /* Whether calls go into a graph, to run later: what they fill is not there yet. Or NULL: they never do. */
    bool (*is_recording)(mha_context *ctx);

    /* Copies of bytes from and to the host, in the order of the stream, finished when they return; and waiting for everything
     * before. NULL where the memory is the host's. */
    mha_status (*write)(mha_context *ctx, void *to, const void *from, size_t bytes);
    mha_status (*read)(mha_context *ctx, void *to, const void *from, size_t bytes);
    mha_status (*wait)(mha_context *ctx);

    /* Attention, of checked calls: attention/problem.h, gradient.h, stats.h. */
    mha_status (*attention_forward)(const struct mha_problem *problem);
    mha_status (*attention_explain)(const struct mha_problem *problem, mha_attention_plan *plan);
    mha_status (*attention_explain_backward)(const struct mha_gradient_call *call, mha_attention_plan *plan);
    mha_status (*attention_explain_stats)(const struct mha_stats_call *call, mha_attention_plan *plan);
    mha_status (*attention_backward)(const struct mha_gradient_call *call);
    mha_status (*attention_stats)(const struct mha_stats_call *call);

    /* Rotary embedding, of a checked call: attention/rotary.h; and its tables (P,w/2). */
    mha_status (*rotate)(const struct mha_rotation *rotation);
    void (*rotary_tables)(mha_context *ctx, mha_tensor cosines, mha_tensor sines,
                          const struct mha_frequencies *frequencies);

    /* The matrix product, of checked arguments. Packed matrices are bytes that the device alone understands:
     * packed_about fails, with a message, if they were not packed for this context. */
    mha_status (*matmul)(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options);
    mha_status (*pack_size)(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a);
    mha_status (*pack)(mha_context *ctx, void *packed, mha_tensor b, mha_type a);
    mha_status (*packed_about)(mha_context *ctx, mha_packed_about *about, const void *packed);
    mha_status (*matmul_packed)(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                                const mha_matmul_options *options);

    /* to = from, or to += from, element by element; any float types. And all of `to` = one value. */
    void (*copy)(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);
    void (*fill)(mha_context *ctx, mha_tensor to, float value);

    /* Bytes of the host's memory to the device's. They are read before it returns. */
    void (*upload)(mha_context *ctx, void *to, const void *from, size_t bytes);

    /* Zeros for rows of x (B,..), which axis `axis` counts, beyond the lengths (B) of their sequences: those of a batch or,
     * with starts (B+1), the stretches of rows of a packed one. On a remote device also for rows of no sequence. Lengths or
     * starts may be none. */
    void (*clear)(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts);

    /* places (B,T), int64: where rows stand. The rows of a sequence end at ends (B), or at their number if that is none;
     * those that would be before 0 stand there. With starts (B+1), places is (1,T) and sequence b has the rows starts[b] to
     * starts[b+1] - 1. */
    void (*places)(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends);

    /* Rows ends[b] - T to ends[b] - 1 of to (B,G,C,D) = from (B,G,T,D). With starts (B+1), from is (1,G,sum,D) and T the
     * number of rows of each sequence. */
    void (*append)(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends);

    /* to = from (B,H,T,D), normalised. residual, if given, is added to `from` first, both float32 rows whose numbers lie
     * side by side; kept (units,2), if given, receives the mean and the inverse root of what is normalised together. And
     * the gradients, from dy and from what was kept or, if that is none, from x again. Rows of zeros in dy stay zeros,
     * whatever x is. */
    void (*normalize)(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                      const mha_norm_about *norm);
    void (*normalize_back)(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                           const mha_norm_about *norm, float *partials);

    /* to[b,h,:,:] = from[b,h,:,:] * gates[h], and 0 where the gate is 0; and its gradients: dgates[h], if given, += the
     * sum of dgated * heads, then dgated = dgated * gates[h] in place. */
    void (*gate)(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates);
    void (*gate_back)(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates);

    /* sum (columns) += the sum of the rows of y. `partials` has room for partial_bytes(rows, columns); in normalize_back
     * for as many columns as gain and bias have numbers. */
    void (*sum_rows)(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials);
    size_t (*partial_bytes)(int64_t rows, int64_t columns);

    /* Whether all numbers of x (rows,columns) are finite, as far as that is known without waiting; and to = x, but for
     * rows of zeros where those of dy are. */
    bool (*finite)(mha_context *ctx, mha_tensor x);
    void (*clean)(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy);

    /* to (B,Tq,Tk) = the mean over heads of maps (B,H,Tq,Tk), float32; maps may be written over. */
    void (*average_heads)(mha_context *ctx, mha_tensor to, mha_tensor maps);

    /* Keys that every row sees, mixed into the results of attention; and their gradients, of which dq, dbias_k and
     * dbias_v are added to, if given: attention/extra_keys.h. `sums` has room for (G,D+E). */
    void (*extra_keys)(const struct mha_extra_keys_call *call);
    void (*extra_keys_back)(const struct mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq,
                            mha_tensor dbias_k, mha_tensor dbias_v, double *sums);

    /* The operations of mha_ops.h, of checked arguments; tensors are float32 and dense. Where ids or labels are outside
     * their range, the call fails before it writes. */
    void (*activate)(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
    void (*activate_back)(mha_context *ctx, mha_tensor dh, mha_tensor slope);
    void (*activate_gated)(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
    void (*activate_gated_back)(mha_context *ctx, mha_tensor slope, mha_tensor dh);
    mha_status (*cross_entropy)(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                mha_tensor labels, float smoothing);
    void (*dropout)(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options);
    mha_status (*embed)(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                        const mha_embedding_options *options);
    mha_status (*embed_back)(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy, mha_tensor ids,
                             float scale);
} mha_backend;

extern const mha_backend mha_backend_cpu;

#endif
