/* The oracle: attention, its gradients and rotary embedding in float64, as loops that can be checked against the
 * formula by eye.
 *
 * Arrays are dense and row-major, their shapes stand beside them in the letters of DESIGN.md. Nothing is shared with
 * the library: types, visibility, random numbers are written here a second time, on purpose. Batches of sequences of
 * unlike length are arrays of the largest size, with the true lengths in `queries` and `keys`. */
#ifndef REF_H
#define REF_H

#include <stdbool.h>
#include <stdint.h>

typedef enum ref_align { REF_TOP_LEFT, REF_BOTTOM_RIGHT, REF_OFFSET } ref_align;

typedef enum ref_stage { REF_SCALED, REF_CAPPED, REF_MASKED, REF_SOFTMAX, REF_DROPPED, REF_STAGES } ref_stage;

typedef struct ref_attention {
    int64_t B, H, G, Tq, Tk, D, E;
    const double *q; /* (B,H,Tq,D) */
    const double *k; /* (B,G,Tk,D) */
    const double *v; /* (B,G,Tk,E) */

    const int64_t *queries;     /* (B) rows of q that sequence b has; NULL: all */
    const int64_t *keys;        /* (B) rows of k and v that sequence b has; NULL: all */
    const int64_t *key_lengths; /* (B) how many of them may be seen; NULL: all */

    double scale;   /* NAN: 1/sqrt(D) */
    double softcap; /* 0: none */
    bool causal;
    ref_align align;
    const int64_t *offsets;            /* (B) for REF_OFFSET */
    int64_t window_left, window_right; /* negative: no limit */
    const bool *mask;                  /* (B,H,Tq,Tk), true = visible; NULL: all true */
    const double *bias;                /* (B,H,Tq,Tk) or NULL */
    const double *alibi_slopes;        /* (B,H) or NULL */
    const double *sinks;               /* (H) or NULL */

    double dropout;
    uint64_t dropout_seed, dropout_stream;
} ref_attention;

/* Where the results go; NULL: not wanted. */
typedef struct ref_result {
    double *out;               /* (B,H,Tq,E) */
    double *lse;               /* (B,H,Tq) */
    double *stage[REF_STAGES]; /* (B,H,Tq,Tk): scores and weights, one array a stage */
    double *mean;              /* (B,Tq,Tk): mean over the heads of the last stage */
} ref_result;

/* Rows of q past queries[b] give zeros and lse = -infinity, as rows that see no key do. Scores of keys past keys[b] are
 * -infinity before the softmax and 0 after it. */
void ref_attention_forward(const ref_attention *a, const ref_result *result);

/* What comes back to attention, and where the gradients by its inputs go. NULL: not given, not wanted. */
typedef struct ref_gradients {
    const double *dout; /* (B,H,Tq,E) */
    const double *dlse; /* (B,H,Tq) or NULL */
    const double *out;  /* (B,H,Tq,E) or NULL: what forward gave, where that was rounded; dout . out is taken from it */
    const ref_result *forward; /* all that forward gave for the same call, or NULL: it runs again */

    double *dq;      /* (B,H,Tq,D) */
    double *dk;      /* (B,G,Tk,D) */
    double *dv;      /* (B,G,Tk,E) */
    double *dbias;   /* (B,H,Tq,Tk): by the scores that go into the softmax */
    double *dslopes; /* (B,H) */
    double *dsinks;  /* (H); needs sinks */
} ref_gradients;

/* Rows that see no key, rows past queries[b] and keys that no row sees get zeros; dout and dlse of the first two are not
 * looked at. */
void ref_attention_backward(const ref_attention *a, const ref_gradients *gradients);

/* Whether query i of (b,h) sees key j, and where the query stands among the keys. */
bool ref_visible(const ref_attention *a, int64_t b, int64_t h, int64_t i, int64_t j);
int64_t ref_position(const ref_attention *a, int64_t b, int64_t i);

/* What is asked of the weights of a call, and where the answers go; NULL: not wanted. */
typedef struct ref_stats {
    int64_t sets;                 /* S */
    const bool *set;              /* (S,Tk) */
    int64_t columns, first;       /* of a grid; columns 0: tokens stand in a line */
    int64_t heat_rows, heat_cols; /* R, C */

    double *entropy, *effective, *largest, *distance; /* (B,H,Tq) */
    double *mass;                                     /* (B,H,Tq,4+S): own position, before, after, first key, sets */
    double *received;                                 /* (B,H,Tk) */
    double *heatmap;                                  /* (B,H,R,C) */
    double *divergence, *cosine;                      /* (B,H,H) */
} ref_stats;

/* p (B,H,Tq,Tk) is stage REF_SOFTMAX of the same call. */
void ref_attention_stats(const ref_attention *a, const ref_stats *stats, const double *p);

/* How far token j stands from the query at `position`; negative if one of them has no place. */
double ref_distance(const ref_stats *stats, int64_t position, int64_t j);

/* out (rows,D): each row of x (rows,D) with its first w elements turned by cos, sin (rows,w/2). */
void ref_rotary(double *out, const double *x, const double *cosines, const double *sines, int64_t rows, int64_t D,
                int64_t w, bool interleaved, bool inverse);

/* The angle of position p and pair i of w/2: p * base^(-2i/w). */
double ref_rotary_angle(int64_t p, int64_t i, int64_t w, double base);

/* Philox4x32 with ten rounds. */
void ref_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Whether dropout keeps the weight of (b,h,i,j); `stream` already includes b. */
bool ref_keeps(double dropout, uint64_t seed, uint64_t stream, int64_t h, int64_t i, int64_t j);

#endif
