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

/* ---- The operations: a type for each, by which devices declare their functions ---------------------------------- */

/* Releases what the context holds on the device, and tells how many bytes of it are scratch; or NULL. */
typedef void mha_op_close(mha_context *ctx);
typedef size_t mha_op_scratch(const mha_context *ctx);

/* Where not all memory is the device's: checks that a tensor lies in it. And what operations without a status ran into
 * since the last such call. Or NULL. */
typedef mha_status mha_op_check_memory(mha_context *ctx, mha_tensor t, const char *name);
typedef mha_status mha_op_finish(mha_context *ctx);

/* Whether calls go into a graph, to run later: what they fill is not there yet. Or NULL: they never do. */
typedef bool mha_op_is_recording(mha_context *ctx);

/* Copies of bytes from and to the host, in the order of the stream, finished when they return; and waiting for everything
 * before. NULL where the memory is the host's. */
typedef mha_status mha_op_write(mha_context *ctx, void *to, const void *from, size_t bytes);
typedef mha_status mha_op_read(mha_context *ctx, void *to, const void *from, size_t bytes);
typedef mha_status mha_op_wait(mha_context *ctx);

/* Attention, of checked calls: attention/problem.h, gradient.h, stats.h. */
typedef mha_status mha_op_attention_forward(const struct mha_problem *problem);
typedef mha_status mha_op_attention_explain(const struct mha_problem *problem, mha_attention_plan *plan);
typedef mha_status mha_op_attention_explain_backward(const struct mha_gradient_call *call, mha_attention_plan *plan);
typedef mha_status mha_op_attention_explain_stats(const struct mha_stats_call *call, mha_attention_plan *plan);
typedef mha_status mha_op_attention_backward(const struct mha_gradient_call *call);
typedef mha_status mha_op_attention_stats(const struct mha_stats_call *call);

/* Rotary embedding, of a checked call: attention/rotary.h; and its tables (P,w/2). */
typedef mha_status mha_op_rotate(const struct mha_rotation *rotation);
typedef void mha_op_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines,
                                  const struct mha_frequencies *frequencies);

/* The matrix product, of checked arguments. Packed matrices are bytes that the device alone understands:
 * packed_about fails, with a message, if they were not packed for this context. */
typedef mha_status mha_op_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b,
                                 const mha_matmul_options *options);
typedef mha_status mha_op_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a);
typedef mha_status mha_op_pack(mha_context *ctx, void *packed, mha_tensor b, mha_type a);
typedef mha_status mha_op_packed_about(mha_context *ctx, mha_packed_about *about, const void *packed);
typedef mha_status mha_op_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                                        const mha_matmul_options *options);

/* to = from, or to += from, element by element; any float types. And all of `to` = one value. */
typedef void mha_op_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);
typedef void mha_op_fill(mha_context *ctx, mha_tensor to, float value);

/* Bytes of the host's memory to the device's. They are read before it returns. */
typedef void mha_op_upload(mha_context *ctx, void *to, const void *from, size_t bytes);

/* Zeros for rows of x (B,..), which axis `axis` counts, beyond the lengths (B) of their sequences: those of a batch or,
 * with starts (B+1), the stretches of rows of a packed one. On a remote device also for rows of no sequence. Lengths or
 * starts may be none. */
typedef void mha_op_clear(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts);

/* places (B,T), int64: where rows stand. The rows of a sequence end at ends (B), or at their number if that is none;
 * those that would be before 0 stand there. With starts (B+1), places is (1,T) and sequence b has the rows starts[b] to
 * starts[b+1] - 1. */
typedef void mha_op_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends);

/* Rows ends[b] - T to ends[b] - 1 of to (B,G,C,D) = from (B,G,T,D). With starts (B+1), from is (1,G,sum,D) and T the
 * number of rows of each sequence. */
typedef void mha_op_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends);

/* to = from (B,H,T,D), normalised. residual, if given, is added to `from` first, both float32 rows whose numbers lie
 * side by side; kept (units,2), if given, receives the mean and the inverse root of what is normalised together. And
 * the gradients, from dy and from what was kept or, if that is none, from x again. Rows of zeros in dy stay zeros,
 * whatever x is. */
typedef void mha_op_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                              const mha_norm_about *norm);
typedef void mha_op_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x,
                                   mha_tensor kept, const mha_norm_about *norm, float *partials);

/* to[b,h,:,:] = from[b,h,:,:] * gates[h], and 0 where the gate is 0; and its gradients: dgates[h], if given, += the
 * sum of dgated * heads, then dgated = dgated * gates[h] in place. */
typedef void mha_op_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates);
typedef void mha_op_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates,
                              mha_tensor dgates);

/* sum (columns) += the sum of the rows of y. `partials` has room for partial_bytes(rows, columns); in normalize_back
 * for as many columns as gain and bias have numbers. */
typedef void mha_op_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials);
typedef size_t mha_op_partial_bytes(int64_t rows, int64_t columns);

/* Whether all numbers of x (rows,columns) are finite, as far as that is known without waiting; and to = x, but for
 * rows of zeros where those of dy are. */
typedef bool mha_op_finite(mha_context *ctx, mha_tensor x);
typedef void mha_op_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy);

/* to (B,Tq,Tk) = the mean over heads of maps (B,H,Tq,Tk), float32; maps may be written over. */
typedef void mha_op_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps);

/* Keys that every row sees, mixed into the results of attention; and their gradients, of which dq, dbias_k and
 * dbias_v are added to, if given: attention/extra_keys.h. `sums` has room for (G,D+E). */
typedef void mha_op_extra_keys(const struct mha_extra_keys_call *call);
typedef void mha_op_extra_keys_back(const struct mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq,
                                    mha_tensor dbias_k, mha_tensor dbias_v, double *sums);

/* The operations of mha_ops.h, of checked arguments; tensors are float32 and dense. Where ids or labels are outside
 * their range, the call fails before it writes. */
typedef void mha_op_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
typedef void mha_op_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope);
typedef void mha_op_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z,
                                   mha_activation activation);
typedef void mha_op_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh);
typedef mha_status mha_op_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                                        mha_tensor labels, float smoothing);
typedef void mha_op_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options);
typedef mha_status mha_op_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                                const mha_embedding_options *options);
typedef mha_status mha_op_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy,
                                     mha_tensor ids, float scale);

/* ---- The table -------------------------------------------------------------------------------------------------- */

/* The operations by name, in three groups: those that every device has, those of devices that pack matrices, and those of devices whose memory
 * is not the host's. A device whose functions have one prefix declares them, and fills its table, with a macro OP(name). */
/* clang-format off */
#define MHA_COMMON_OPS(OP)                                                                                             \
    OP(attention_forward) OP(attention_explain) OP(attention_explain_backward) OP(attention_explain_stats)             \
    OP(attention_backward) OP(attention_stats) OP(rotate) OP(rotary_tables) OP(matmul) OP(copy) OP(fill) OP(upload)    \
    OP(clear) OP(places) OP(append) OP(normalize) OP(normalize_back) OP(gate) OP(gate_back) OP(sum_rows)               \
    OP(partial_bytes) OP(finite) OP(clean) OP(average_heads) OP(extra_keys) OP(extra_keys_back) OP(activate)           \
    OP(activate_back) OP(activate_gated) OP(activate_gated_back) OP(cross_entropy) OP(dropout) OP(embed) OP(embed_back)
#define MHA_PACKING_OPS(OP) OP(pack_size) OP(pack) OP(packed_about) OP(matmul_packed)
#define MHA_REMOTE_OPS(OP)                                                                                             \
    OP(close) OP(scratch) OP(check_memory) OP(finish) OP(is_recording) OP(write) OP(read) OP(wait)
/* clang-format on */

typedef struct mha_backend {
    const char *device; /* "cpu", "cuda" */
    bool remote;        /* the host cannot read the memory of tensors: the code that reads numbers in them keeps these
                           within their limits; packing is then NULL */

#define OP(name) mha_op_##name *name;
    MHA_REMOTE_OPS(OP) MHA_PACKING_OPS(OP) MHA_COMMON_OPS(OP)
#undef OP
} mha_backend;

extern const mha_backend mha_backend_cpu;

#endif
