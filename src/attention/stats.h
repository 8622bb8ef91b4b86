/* A checked call for statistics of heads. */
#ifndef MHA_ATTENTION_STATS_H
#define MHA_ATTENTION_STATS_H

#include "attention/problem.h"

typedef struct mha_stats_call {
    mha_problem problem; /* q stands for out, k for v; extras.softmax is that of the forward call, if it was given */
    mha_stats want;      /* a heatmap without elements is none */
    mha_stats_options options;
} mha_stats_call;

/* The results of a call, for a list of arguments. */
/* clang-format off */
#define MHA_STATS_OUTPUTS(w)                                                                                           \
    {"stats.entropy", (w)->entropy, MHA_OUTPUT},                                                                       \
    {"stats.effective", (w)->effective, MHA_OUTPUT},                                                                   \
    {"stats.largest", (w)->largest, MHA_OUTPUT},                                                                       \
    {"stats.distance", (w)->distance, MHA_OUTPUT},                                                                     \
    {"stats.mass", (w)->mass, MHA_OUTPUT},                                                                             \
    {"stats.top_weights", (w)->top_weights, MHA_OUTPUT},                                                               \
    {"stats.top_keys", (w)->top_keys, MHA_OUTPUT},                                                                     \
    {"stats.received", (w)->received, MHA_OUTPUT},                                                                     \
    {"stats.heatmap", (w)->heatmap, MHA_OUTPUT},                                                                       \
    {"stats.divergence", (w)->divergence, MHA_OUTPUT},                                                                 \
    {"stats.cosine", (w)->cosine, MHA_OUTPUT}
/* clang-format on */

#endif
