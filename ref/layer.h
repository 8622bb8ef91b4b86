/* The oracle's multi-head layer: projections, norm, rotary embedding, extra keys, gates and their gradients in float64,
 * around the attention of ref.h. Written for the formula of a layer, not after the library's way to compute it:
 *
 *     Q = query Wq^T + bq      K = key Wk^T + bk      V = value Wv^T + bv      each cut into heads
 *     Q, K = rotary(norm(Q)), rotary(norm(K))                                  where the layer has them
 *     O_h = gate_h * attention(Q_h, K_g, V_g)                                  g = h / (H/G)
 *     out = concat(O_1 .. O_H) Wo^T + bo */
#ifndef REF_LAYER_H
#define REF_LAYER_H

#include "ref.h"

typedef struct ref_layer {
    int64_t B, Tq, Tk, M, Mk, Mv, H, G, D, E;
    int64_t N; /* width of results; 0: M. Without out_weight they have H*E */

    const double *query; /* (B,Tq,M) */
    const double *key;   /* (B,Tk,Mk) */
    const double *value; /* (B,Tk,Mv) */

    const double *q_weight;    /* (H*D,M) */
    const double *k_weight;    /* (G*D,Mk) */
    const double *v_weight;    /* (G*E,Mv) */
    const double *q_bias;      /* (H*D) or NULL */
    const double *k_bias;      /* (G*D) or NULL */
    const double *v_bias;      /* (G*E) or NULL */
    const double *out_weight;  /* (N,H*E); NULL: none, results are the heads side by side, (B,Tq,H*E) */
    const double *out_bias;    /* (N) or NULL; only with out_weight */
    const double *bias_k;      /* (G*D): one more key, as it is, and its value; NULL: none */
    const double *bias_v;      /* (G*E) */
    bool zero_kv;              /* one more key and value, all zero, behind that of bias_k */
    const double *q_norm;      /* (D), or (H*D) unless norm_span is 0: the gain of the rows of Q; NULL: no norm */
    const double *k_norm;      /* (D) or (G*D): the same for K */
    const double *q_norm_bias; /* of their sizes, or NULL */
    const double *k_norm_bias;
    double norm_epsilon;
    bool norm_centred;  /* the mean is subtracted */
    int norm_span;      /* 0: each head by itself, one gain for all; 1: with gains of its own; 2: all heads together */
    double rotary_base; /* 0: no rotary embedding, or: */
    const double *rotary_frequencies; /* (rotary_width/2): in place of a base; or NULL */
    const double *rotary_cos;         /* (P,rotary_width/2): tables in place of either; or NULL */
    const double *rotary_sin;
    double rotary_multiplier; /* of cosines and sines of a base or frequencies; 0: 1 */
    int64_t rotary_width;     /* 0: D */
    bool rotary_interleaved;
    const int64_t *query_positions; /* (B,Tq); NULL: 0, 1, 2, ... */
    const int64_t *key_positions;   /* (B,Tk); NULL: 0, 1, 2, ... */
    const double *gates;            /* (H) or NULL */

    ref_attention attention; /* how to attend, sinks included; its sizes, q, k and v are not looked at */
} ref_layer;

/* How many extra keys there are: 0, 1 or 2. */
int64_t ref_layer_extra(const ref_layer *l);

/* out (B,Tq,N), or (B,Tq,H*E) without Wo; weights (B,H,Tq,Tk+extra) after dropout, or NULL; mean (B,Tq,Tk+extra) over
 * the heads, or NULL.
 *
 * Every row sees the extra keys, whatever hides the others from it. Scale, softcap and dropout apply to them, bias and
 * ALiBi do not; for dropout they stand behind the last key that exists, key_lengths[b] or else keys[b] or else Tk.
 * Their weights are the last columns. Rows past queries[b] give zeros, without bo. Keys past the last that exists are
 * not looked at. A gate of 0 gives zeros, even of what is not finite. */
void ref_layer_forward(const ref_layer *l, double *out, double *weights, double *mean);

/* The log of each row's denominator, extra keys and the sink included: lse (B,H,Tq), -infinity past queries[b]. */
void ref_layer_lse(const ref_layer *l, double *lse);

/* What lies between: q (B,H,Tq,D), k (B,G,Tk,D) and v (B,G,Tk,E) as attention takes them, without the extra keys, and
 * heads (B,H,Tq,E), the result of each head times its gate. Rows past queries[b] and keys past the last that exists are
 * zeros. */
void ref_layer_intermediates(const ref_layer *l, double *q, double *k, double *v, double *heads);

/* How many numbers a result has: N, M or H*E. */
int64_t ref_layer_width(const ref_layer *l);

/* Where the gradients go: shapes as above. NULL: not wanted. They are written, not added to. */
typedef struct ref_layer_gradients {
    double *query, *key, *value;
    double *q_weight, *k_weight, *v_weight;
    double *q_bias, *k_bias, *v_bias;
    double *out_weight, *out_bias;
    double *bias_k, *bias_v;
    double *q_norm, *k_norm;
    double *q_norm_bias, *k_norm_bias;
    double *gates;        /* (H) */
    double *sinks;        /* (H) */
    double *bias;         /* (B,H,Tq,Tk): by the scores that go into the softmax, those of extra keys left out */
    double *alibi_slopes; /* (B,H) */
} ref_layer_gradients;

/* From dout, of the shape of `out`. Parts that the layer does not have get zeros (bias and alibi_slopes are computed
 * all the same), as do rows past queries[b] and keys past the last that exists. A key that exists is multiplied even
 * where no row sees it: the gradients of Wk and Wv are finite only if it is. */
void ref_layer_backward(const ref_layer *l, const double *dout, const ref_layer_gradients *gradients);

/* ---- What the two passes share: one sequence by itself ---------------------------------------------------------- */

/* One of Q, K and V, on its way from the input of a sequence to heads. */
typedef struct ref_projection {
    int64_t heads, width, rows, in;
    const double *x;          /* (rows,in) */
    const double *weight;     /* (heads*width,in) */
    const double *bias;       /* (heads*width) or NULL */
    const double *norm;       /* (width), or (heads*width) unless the layer's norm_span is 0; or NULL */
    const double *norm_bias;  /* the same */
    const int64_t *positions; /* (rows) or NULL */
    bool turns;               /* by rotary embedding, if the layer has it */
} ref_projection;

/* Sequence b as a problem of its own: B is 1, every key exists, and who sees whom is a mask and nothing else. */
typedef struct ref_sequence {
    int64_t b, rows, keys, all; /* queries, ordinary keys, those and the extra ones */
    ref_projection q, k, v;
    ref_attention attention;
    double *heads_q; /* (H,rows,D) */
    double *heads_k; /* (G,all,D) */
    double *heads_v; /* (G,all,E) */
    bool *mask;      /* (H,rows,all) */
    double *bias;    /* (H,rows,all): bias and ALiBi of what is visible */
} ref_sequence;

void ref_sequence_make(ref_sequence *s, const ref_layer *l, int64_t b);
void ref_sequence_free(ref_sequence *s);

/* The attention that the layer describes, with its sizes: for ref_visible and ref_position. */
ref_attention ref_layer_attention(const ref_layer *l);

/* y (width): row `row` of head `head`, before norm and rotary embedding. */
void ref_project(double *y, const ref_projection *p, int64_t head, int64_t row);

/* What is normalised together of x (heads,width), the rows of a position: the numbers of a group, and how many groups
 * there are. */
int64_t ref_norm_group(const ref_layer *l, const ref_projection *p);

/* The gain of number n of (heads,width), and where it lies. */
int64_t ref_norm_place(const ref_layer *l, const ref_projection *p, int64_t n);

/* The mean that is subtracted of a group, or 0, and 1 / sqrt(mean of squares of the rest + epsilon). */
typedef struct ref_moments {
    double mean, factor;
} ref_moments;
ref_moments ref_norm_moments(const ref_layer *l, const double *x, int64_t count);

/* y (width) turned by the position of row `row`, or back. */
void ref_turn(double *y, const ref_layer *l, const ref_projection *p, int64_t row, bool inverse);

/* gate_h * x. */
double ref_gated(const ref_layer *l, int64_t h, double x);

#endif
