/* The operations of the naive table, and what they share. core/backend.h says what each of them computes.
 *
 * Numbers go through element_get and element_set, whatever their type. Arrays of float64 are dense, with their shapes
 * beside them. */
#ifndef NAIVE_H
#define NAIVE_H

#include "attention/extra_keys.h"
#include "attention/gradient.h"
#include "attention/rotary.h"
#include "attention/stats.h"
#include "support/numbers.h"

#include <ref.h>

/* ---- Elements --------------------------------------------------------------------------------------------------- */

/* Element (i,j,k,l) of a view; indices of axes that it does not have are 0. */
static inline double naive_get(mha_tensor t, int64_t i, int64_t j, int64_t k, int64_t l)
{
    return element_get(mha_at(t, i, j, k, l), t.type);
}

static inline void naive_set(mha_tensor t, int64_t i, int64_t j, int64_t k, int64_t l, double value)
{
    element_set(mha_at(t, i, j, k, l), t.type, value);
}

/* ---- attention.c: a problem as the oracle wants it -------------------------------------------------------------- */

/* A problem, and the oracle's scores and weights for it. */
typedef struct naive_question {
    const mha_problem *problem;
    ref_attention ref; /* owns its arrays */
    ref_result result; /* all of it */
} naive_question;

void naive_ask(naive_question *question, const mha_problem *problem);
void naive_forget(naive_question *question);

/* The rows of a tensor (B,heads,T,width), or (B,heads,T) with a width of 1, that belong to sequences, as a dense array of
 * its own: rows of queries (B,heads,Tq,width), or of keys (B,heads,Tk,width). */
double *naive_dense(const mha_problem *problem, mha_tensor from, bool of_keys);

/* The other way round: rows that belong to no sequence are left alone. A tensor that is none takes nothing. */
void naive_put(const mha_problem *problem, mha_tensor to, const double *from, bool of_keys);

/* from (B,H) to a tensor (B,H), or its sums over the batch to a tensor (H). */
void naive_put_heads(const mha_problem *problem, mha_tensor to, const double *from);

/* What turns the scores of a row into weights, exp(score - max) / sum: from extras.softmax if the problem has it and
 * float32 could hold it, else from the oracle's scores. A row that sees no key has a sum of 0. */
typedef struct naive_softmax {
    double max, sum;
} naive_softmax;

naive_softmax naive_softmax_of(const naive_question *question, const mha_sequence *sequence, int64_t h, int64_t i);

/* Leaves it in a tensor (B,H,Tq,2), as mha_attention_extras says. */
void naive_put_softmax(mha_tensor to, const mha_sequence *sequence, int64_t h, int64_t i, naive_softmax row);

/* ---- Operations ------------------------------------------------------------------------------------------------- */

mha_status naive_forward(const mha_problem *problem);
mha_status naive_explain(const mha_problem *problem, mha_attention_plan *plan);
mha_status naive_explain_backward(const mha_gradient_call *call, mha_attention_plan *plan);
mha_status naive_explain_stats(const mha_stats_call *call, mha_attention_plan *plan);
mha_status naive_backward(const mha_gradient_call *call);
mha_status naive_stats(const mha_stats_call *call);
mha_status naive_rotate(const mha_rotation *rotation);
void naive_rotary_tables(mha_context *ctx, mha_tensor cosines, mha_tensor sines, const mha_frequencies *frequencies);

mha_status naive_matmul(mha_context *ctx, mha_tensor c, mha_tensor a, mha_tensor b, const mha_matmul_options *options);
mha_status naive_pack_size(mha_context *ctx, size_t *bytes, mha_tensor b, mha_type a);
mha_status naive_pack(mha_context *ctx, void *packed, mha_tensor b, mha_type a);
mha_status naive_packed_about(mha_context *ctx, mha_packed_about *about, const void *packed);
mha_status naive_matmul_packed(mha_context *ctx, mha_tensor c, mha_tensor a, const void *packed,
                               const mha_matmul_options *options);

void naive_copy(mha_context *ctx, mha_tensor to, mha_tensor from, bool add);
void naive_fill(mha_context *ctx, mha_tensor to, float value);
void naive_upload(mha_context *ctx, void *to, const void *from, size_t bytes);
void naive_clear(mha_context *ctx, mha_tensor x, int axis, mha_tensor lengths, mha_tensor starts);
void naive_places(mha_context *ctx, mha_tensor places, mha_tensor starts, mha_tensor ends);
void naive_append(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor starts, mha_tensor ends);
void naive_normalize(mha_context *ctx, mha_tensor to, mha_tensor kept, mha_tensor from, mha_tensor residual,
                     const mha_norm_about *norm);
void naive_normalize_back(mha_context *ctx, const mha_norm_back *to, mha_tensor dy, mha_tensor x, mha_tensor kept,
                          const mha_norm_about *norm, float *partials);
void naive_gate(mha_context *ctx, mha_tensor to, mha_tensor from, mha_tensor gates);
void naive_gate_back(mha_context *ctx, mha_tensor dgated, mha_tensor heads, mha_tensor gates, mha_tensor dgates);
void naive_sum_rows(mha_context *ctx, mha_tensor sum, mha_tensor y, float *partials);
size_t naive_partial_bytes(int64_t rows, int64_t columns);
bool naive_finite(mha_context *ctx, mha_tensor x);
void naive_clean(mha_context *ctx, mha_tensor to, mha_tensor x, mha_tensor dy);
void naive_average_heads(mha_context *ctx, mha_tensor to, mha_tensor maps);
void naive_extra_keys(const mha_extra_keys_call *call);
void naive_extra_keys_back(const mha_extra_keys_call *call, mha_tensor dheads, mha_tensor dq, mha_tensor dbias_k,
                           mha_tensor dbias_v, double *sums);

void naive_activate(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
void naive_activate_back(mha_context *ctx, mha_tensor dh, mha_tensor slope);
void naive_activate_gated(mha_context *ctx, mha_tensor h, mha_tensor slope, mha_tensor z, mha_activation activation);
void naive_activate_gated_back(mha_context *ctx, mha_tensor slope, mha_tensor dh);
mha_status naive_cross_entropy(mha_context *ctx, mha_loss *loss, mha_tensor dlogits, mha_tensor logits,
                               mha_tensor labels, float smoothing);
void naive_dropout(mha_context *ctx, mha_tensor to, mha_tensor from, const mha_dropout_options *options);
mha_status naive_embed(mha_context *ctx, mha_tensor y, mha_tensor table, mha_tensor ids,
                       const mha_embedding_options *options);
mha_status naive_embed_back(mha_context *ctx, mha_tensor dtable, mha_tensor dpositions, mha_tensor dy, mha_tensor ids,
                            float scale);

#endif
