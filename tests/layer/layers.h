/* Layers at random: a case, the library's problem and the oracle's made from it, and the comparison of the two.
 *
 * Inputs, parameters and the gradient by the results are of the size of 1, and so are results and gradients, but for
 * sums over rows. Float32 is held to 3e-6 of the largest number of a tensor and of its natural size: rounding in each of
 * a handful of products, and in the exponentials between them. With bfloat16 compute every product takes factors that
 * are off by 2^-9: 4e-2. */
#ifndef LAYERS_H
#define LAYERS_H

#include "support/contexts.h"
#include "layer.h"
#include "layer/layer_weights.h"

typedef enum source {
    SELF,  /* key and value are none */
    SAME,  /* key is the query's memory, given */
    CROSS, /* value is none */
    THREE, /* all three of their own */
    SOURCES
} source;

/* Where the angles of a rotary embedding come from, if the layer has one. */
typedef enum turning { FROM_BASE, FROM_FREQUENCIES, FROM_TABLES, TURNINGS } turning;

/* What lies between the products of a layer. */
enum { BETWEEN_Q, BETWEEN_K, BETWEEN_V, BETWEEN_HEADS, BETWEEN };

typedef struct layer_case {
    mha_layer_options options; /* a rotary_base stands for any rotary embedding */
    turning rotary;
    source inputs;
    int64_t B, Tq, Tk;
    bool ragged, padding, lengths, mask, bias, slopes, positions;
    int averaged;      /* weights: 0 none, 1 per head, 2 their mean */
    layout layouts[4]; /* of query, key, value and their gradients; out and dout */
    mha_type type;     /* of inputs and out */
    mha_align align;
    float dropout;
    bool borrowed; /* the parameters are tensors of any type */
    bool between;  /* q, k, v and heads are asked for */
    int threads;
    uint64_t seed;
} layer_case;

typedef struct layer_problem {
    layer_case c;
    int64_t count;                 /* numbers of a block of parameters */
    float *parameters, *gradients; /* the latter hold 1 before they are added to */
    layer_weights *borrowed;       /* the parameters as tensors; or NULL */
    store query, key, value, out, weights, lse, dout, dquery, dkey, dvalue;
    store mask, bias, slopes, dbias, dslopes, query_positions, key_positions;
    store frequencies, cosines, sines;
    store between[BETWEEN]; /* q, k, v and heads */
    int64_t *query_starts, *key_starts, *key_lengths, *queries, *padded, *keys, *offsets;
    mha_attention_options attend;
    mha_layer_inputs inputs;
    mha_attention_extras extras;

    ref_layer ref;
    double *numbers; /* the parameters, for the oracle */
    double *want_out, *want_weights, *want_mean, *want_lse;
    double *want_between[BETWEEN];
    ref_layer_gradients want;
    double *want_parameters; /* a block */
} layer_problem;

layer_case layer_case_plain(int64_t width, int64_t heads, int64_t B, int64_t T);
layer_case layer_case_random(rng *r);

layer_problem *layer_problem_make(const layer_case *c);
void layer_problem_free(layer_problem *p);

/* Row t of sequence b in a tensor that may be packed. */
static inline double layer_row_at(const store *s, const int64_t *starts, int64_t b, int64_t t, int64_t m)
{
    return starts ? store_get(s, 0, starts[b] + t, m, 0) : store_get(s, b, t, m, 0);
}

/* Whether `between` asks for rows of keys or of queries. */
static inline bool layer_between_keys(int n) { return n == BETWEEN_K || n == BETWEEN_V; }

/* What the oracle says; gradients too, if asked. */
void layer_problem_solve(layer_problem *p, bool gradients);

/* Forward, with a tape and backward if asked, and whether the results are right: `why` says what is not. */
bool layer_problem_run(layer_problem *p, mha_context *ctx, bool gradients, char *why, size_t size);

/* One line about a case. */
void layer_case_print(const layer_case *c, char *text, size_t size);

#endif
