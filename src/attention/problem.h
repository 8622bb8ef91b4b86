/* One attention call, checked and made regular: what every device computes from. */
#ifndef MHA_ATTENTION_PROBLEM_H
#define MHA_ATTENTION_PROBLEM_H

#include "core/tensor.h"

typedef struct mha_problem {
    mha_context *ctx;
    int64_t B, H, G, Tq, Tk, D, E; /* Tq and Tk of the longest sequence */
    int64_t share;                 /* H/G: query heads that read one key/value head */
    mha_tensor out, q, k, v;
    mha_attention_extras extras; /* what is not asked for is all zero */
    mha_attention_options
        options;          /* scale is a number; windows are limited; mask, bias, slopes and sinks have four axes */
    float kept;           /* what dropout multiplies the weights it keeps by */
    mha_role output_role; /* MHA_OUTPUT, or MHA_SHAPE when the call only asks */
} mha_problem;

/* Checks every argument of a forward call and fills `problem`. Writes nothing else but the context's message. `role`
 * says what `out` and the extras are; MHA_SHAPE leaves the data pointers of all tensors out. */
mha_status mha_problem_make(mha_problem *problem, mha_context *ctx, mha_role role, mha_tensor out,
                            const mha_attention_extras *extras, mha_tensor q, mha_tensor k, mha_tensor v,
                            const mha_attention_options *options);

/* What options point to, for a list of arguments. */
/* clang-format off */
#define MHA_OPTION_INPUTS(o)                                                                                           \
    {"mask", (o)->mask, MHA_INPUT},                                                                                    \
    {"bias", (o)->bias, MHA_INPUT},                                                                                    \
    {"alibi_slopes", (o)->alibi_slopes, MHA_INPUT},                                                                    \
    {"sinks", (o)->sinks, MHA_INPUT},                                                                                  \
    {"offsets", (o)->offsets, MHA_INPUT},                                                                              \
    {"query_lengths", (o)->query_lengths, MHA_INPUT},                                                                  \
    {"key_lengths", (o)->key_lengths, MHA_INPUT},                                                                      \
    {"query_starts", (o)->query_starts, MHA_INPUT},                                                                    \
    {"key_starts", (o)->key_starts, MHA_INPUT}
/* clang-format on */

/* Where sequence b lies, and which part of it exists. */
typedef struct mha_sequence {
    int64_t b;
    int64_t queries;                /* query_lengths[b], or all: the number that decides how it is computed */
    int64_t length;                 /* its first keys that can be visible: key_lengths[b], or all */
    int64_t padded, keys;           /* rows of queries and of keys that it has in the tensors, with padding */
    int64_t query_batch, query_row; /* the batch index and first row of its queries in q, out and lse */
    int64_t key_batch, key_row;     /* the same for its keys and values */
    int64_t offset;                 /* query i stands at position i + offset */
} mha_sequence;

mha_sequence mha_sequence_get(const mha_problem *problem, int64_t b);

/* Queries of the longest sequence, without padding. */
int64_t mha_problem_longest(const mha_problem *problem);

/* Whether sequences lie packed behind each other in q or k. */
static inline bool mha_options_are_ragged(const mha_attention_options *o)
{
    return o->query_starts.rank || o->key_starts.rank;
}

/* Whether all sequences have as many queries and keys as the first. */
static inline bool mha_sequences_are_alike(const mha_attention_options *o)
{
    return !mha_options_are_ragged(o) && !o->query_lengths.rank && !o->key_lengths.rank;
}

/* Checks offsets, lengths or starts: integers, `count` of them, or any number if count is -1. `shape` names it. */
mha_status mha_check_integers(mha_context *ctx, mha_tensor *t, const char *name, int64_t count, const char *shape);

/* The keys [low, high) that query i may see by position: causal, window and length, edges included. The bool mask comes
 * on top. */
typedef struct mha_range {
    int64_t low, high;
} mha_range;

mha_range mha_visible_keys(const mha_problem *problem, const mha_sequence *sequence, int64_t i);

/* Where row (head h, query i) of a sequence stands in an array that holds one number a row. */
static inline int64_t mha_row_index(const mha_problem *p, const mha_sequence *s, int64_t h, int64_t i)
{
    return (s->query_batch * p->H + h) * p->q.size[2] + s->query_row + i;
}

#endif
