/* A case: one combination of shapes, layouts, types and options, as plain numbers that can be printed, changed and
 * drawn at random. What memory it needs is problem.h's matter. */
#ifndef CASES_H
#define CASES_H

#include "support/views.h"

/* Which axes of (B,H,Tq,Tk) a mask or bias has, aligned at the last. */
typedef struct broadcast {
    int rank;      /* -1: none is given */
    unsigned full; /* bit a: axis a has its full size, otherwise 1 */
} broadcast;

typedef enum fill { FILL_NORMAL, FILL_PAINTED } fill;

typedef struct attention_case {
    int64_t B, H, G, Tq, Tk, D, E;
    mha_type type_q, type_k, type_v, type_out, type_bias, type_weights, type_scores;
    layout layout_q, layout_k, layout_v, layout_out, layout_maps, layout_rest; /* maps: mask and bias */
    fill fill;

    float scale, softcap;
    bool causal;
    mha_align align;
    int64_t offset; /* MHA_ALIGN_OFFSET: sequence b gets offset + b */
    int64_t window_left, window_right;
    bool lengths; /* random key lengths, 0 and all among them */
    bool padding; /* likewise query lengths */
    broadcast mask, bias;
    bool bias_hides; /* some of the bias is -infinity */
    int alibi;       /* 0 none, 1 (H), 2 (B,H) */
    bool sinks;
    bool ragged_q, ragged_k;
    float dropout;
    uint64_t dropout_seed, dropout_stream;

    bool lse, softmax;
    int weights; /* 0 none, 1 per head, 2 their mean */
    int scores;  /* -1 none, else the stage */

    bool poison; /* NaN and infinity in every key, value, query and bias that no result depends on */
    int threads;
    uint64_t data_seed;
} attention_case;

/* Everything off, float32, dense, lse wanted. */
attention_case case_plain(int64_t B, int64_t H, int64_t G, int64_t Tq, int64_t Tk, int64_t D, int64_t E);

/* Any combination at all, of a size that the oracle does in a millisecond or so. */
attention_case case_random(rng *r);

/* The same in float32, with scores that depend on products and positions alone: GPUs have kernels of their own for these. */
attention_case case_random_float32(rng *r);

/* Sets the type of all inputs and outputs but lse. */
void case_set_type(attention_case *c, mha_type type);

/* All of it on a few lines, with the values that differ from case_plain. */
void case_describe(const attention_case *c, char *text, size_t size);

/* Hides some keys from some rows in one of eight ways, whose name it returns: lengths, masks, positions, ragged rows. */
const char *case_hide(attention_case *c, int way);

#endif
