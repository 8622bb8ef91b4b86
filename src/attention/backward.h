/* The rooms of the backward pass: a checked call, the scratch of a task, and the passes that share them. */
#ifndef MHA_ATTENTION_BACKWARD_H
#define MHA_ATTENTION_BACKWARD_H

#include "attention/softmax.h"

enum {
    MHA_PAIR = 2 * MHA_BLOCK, /* query rows that meet a tile of keys together */
    MHA_TILES = 4             /* tiles of keys that are held at once: a span */
};

/* What may be wrong with the gradients of a key/value head, worst last. */
enum {
    MHA_UNSOUND = 1, /* some are not finite */
    MHA_BROKEN = 2   /* a score left float32 on the way: none can be trusted */
};

/* A checked call, and the scratch that its tasks share. */
typedef struct mha_backward {
    mha_problem problem; /* extras.softmax is that of the forward call, if it was given */
    mha_plan plan;       /* of the tiles */
    mha_attention_gradients gradients;
    mha_tensor dout, dlse;
    mha_tensor dbias; /* gradients.bias with four axes, stride 0 where it broadcasts; rank 0 if not wanted */
    int64_t Dm, Dp;   /* D rounded up to 4, to MHA_PAD */
    int64_t longest;  /* rows of a key/value head in the longest sequence */
    int64_t pieces;   /* of the order list; each stands for G pieces of work */
    int64_t partials; /* rows of partial dQ */
    bool others;      /* keys that this call does not know of have a part in `out` and in the softmax */
    bool anew;        /* the softmax of rows must be computed: it was not given, or belongs to other scores */
    int tasks;
    size_t task_bytes, total_bytes;

    mha_piece
        *order;    /* a chunk of keys each; `first` is its number, `partial` the place of its rows, G heads of them */
    float *dq;     /* (partials,Dm), in blocks (Dm,MHA_BLOCK): dQ from one chunk of keys */
    float *slopes; /* (partials) the sum of ds |p - j| over one chunk */
    float *delta;  /* a row: dout . out - dlse, 0 if it sees no key */
    mha_softmax_rows softmax;
    atomic_uchar *doubts; /* (B,G) what is wrong there */
} mha_backward;

/* mha_attention_backward, also for a caller who has mixed other keys into `out` and the softmax. */
mha_status mha_backward_run(mha_context *ctx, const mha_attention_gradients *gradients, mha_tensor dout,
                            mha_tensor dlse, mha_tensor out, mha_tensor softmax, mha_tensor q, mha_tensor k,
                            mha_tensor v, const mha_attention_options *options, bool others);

/* Chunks of keys: as in the forward pass, they depend on the sequence alone, and dQ is their sum in order. */
mha_chunks mha_backward_chunks(const mha_sequence *sequence);

/* Rows of a key/value head in a sequence, rounded up to whole blocks. */
static inline int64_t mha_backward_padded(const mha_backward *call, const mha_sequence *s)
{
    return (call->problem.share * s->queries + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK;
}

/* Notes a doubt, unless there is a worse one. */
static inline void mha_backward_doubt(const mha_backward *call, int64_t b, int64_t g, unsigned char doubt)
{
    atomic_fetch_or(&call->doubts[b * call->problem.G + g], doubt);
}

/* The factors of an engine, and the rows that they are made of. Those of tiles and of blocks come one after another. */
typedef struct mha_span_halves {
    uint16_t *queries, *douts;                       /* (MHA_PAIR,D), (MHA_PAIR,E) rows as they are */
    uint16_t *left_keys, *left_values, *left_across; /* a tile's: K and V for S and dP; K for dQ */
    uint16_t *right_douts;                           /* a block's, for dP */
    uint16_t *right_queries_down, *right_douts_down; /* a block's, summed over rows, for dK and dV */
    uint16_t *right_ds, *left_rows;                  /* dS for dQ; P or dS for dV and dK */
} mha_span_halves;

/* Rows of float32 numbers. */
typedef struct mha_rows {
    const float *data;
    int64_t stride;
} mha_rows;

/* A tile's keys as its scores want them: what mha_tile has of them. */
typedef struct mha_score_keys {
    const void *rows;
    mha_type type;
    int64_t stride;
} mha_score_keys;

/* One task's scratch: up to MHA_PAIR query rows and MHA_TILES tiles of keys. */
typedef struct mha_span {
    mha_tile tile;
    int64_t key, end;                           /* the keys that are loaded */
    float *keys[MHA_TILES], *values[MHA_TILES]; /* (D,MHA_KEYS), (E,MHA_KEYS) */
    mha_score_keys score_keys[MHA_TILES];
    mha_rows value_rows[MHA_TILES]; /* (count,E) where kernels take them along */
    mha_rows key_rows[MHA_TILES];   /* (count,Dm) for dQ: the caller's own where they can be read as they are */
    float key_largest[MHA_TILES];
    float *packed;                  /* (MHA_TILES,MHA_KEYS,Dp) key rows where they cannot */
    float *dk, *dv;                 /* (MHA_TILES,MHA_KEYS,Dp), (MHA_TILES,MHA_KEYS,Ep) */
    float *query_room, *dout_room;  /* (MHA_PAIR,Dp), (MHA_PAIR,Ep) */
    mha_rows query_rows, dout_rows; /* there, or the caller's own where they can be read as they are */
    float *douts;                   /* (2,E,MHA_BLOCK) */
    float *weight_rows, *ds_rows;   /* (MHA_PAIR,MHA_KEYS) */
    float *dp, *ds, *capped;        /* (MHA_KEYS,MHA_BLOCK) */
    mha_span_halves halves;         /* with an engine */
    float *ones;                    /* as many as anything is wide */
    float *max, *factor, *delta;    /* (MHA_PAIR); a max of +inf makes every weight 0 */
    bool clean;                     /* wipe what is not finite out of rows */
    bool *lost;                     /* (MHA_PAIR) something was wiped out of this row of dout */
    double *wide;                   /* (D + E) */
    double *statistics;             /* (longest,3) the rows of a head in float64 */
    double *bias_sums;              /* (MHA_PAIR,MHA_TILES*MHA_KEYS) of the gradient of the bias */
} mha_span;

/* Places a span's arrays at `memory` and returns how many bytes they take; with NULLs it only counts. */
size_t mha_span_layout(mha_span *span, char *memory, const mha_backward *call);

/* Turns to query rows [first, first + rows) of some heads that share a key/value head, MHA_PAIR at most; and loads
 * them. */
void mha_span_place(mha_span *span, const mha_sequence *sequence, int64_t first_head, int64_t heads, int64_t first,
                    int64_t rows);
void mha_span_load(mha_span *span, const mha_backward *call);

/* Loads keys [key, end) of the key/value head that the span has been turned to: MHA_TILES tiles at most. */
void mha_span_keys(mha_span *span, const mha_backward *call, int64_t key, int64_t end);

/* The same with an engine, called by the two above: rows, and tile n of the keys. */
void mha_span_engine_layout(mha_span *span, char *memory, const mha_backward *call, size_t *bytes);
void mha_span_engine_load(mha_span *span, const mha_backward *call);
void mha_span_engine_keys(mha_span *span, const mha_backward *call, int64_t n);

/* With an engine: dp (count,lanes) of the block at row r against tile n; its part of dq (D,MHA_BLOCK); and its parts of
 * dK and dV, from ds and from the weights in the tile's scores. */
void mha_span_engine_dp(mha_span *span, const mha_backward *call, int64_t r, int64_t n, int64_t count);
void mha_span_engine_dq(mha_span *span, const mha_backward *call, int64_t r, int64_t n, int64_t count, float *dq);
void mha_span_engine_dkv(mha_span *span, const mha_backward *call, int64_t r, int64_t n, int64_t count);

/* The block at row r against tile n: ds (count,lanes), without the slope of a softcap, and in the tile's scores the
 * weights before dropout. Returns count: how many of the tile's keys any row may see. Sets *broken if a visible score
 * left float32. */
int64_t mha_span_ds(mha_span *span, const mha_backward *call, int64_t r, int64_t n, bool *broken);

/* dK, dV and a part of dQ: one chunk of keys and all query rows of one key/value head. */
void mha_backward_piece(const mha_backward *call, mha_span *span, const mha_piece *work, int64_t g);

/* Fills in softmax and delta of the rows of one head of one sequence, and its importance: piece b * H + h. */
void mha_backward_rows(mha_backward *call, mha_span *span, int64_t piece);

/* In float64: dout . out of row (h,i), with an `out` made anew where the one that was given is beyond float32;
 * statistics (max, sum, delta) of the row; ds of one of its scores, and the sum of ds |p - j| over them;
 * the gradients of a key/value head, all of them or only the rows that are not finite. */
double mha_careful_dot_out(const mha_backward *call, const mha_sequence *sequence, int64_t h, int64_t i, double *wide);
void mha_careful_statistics(const mha_backward *call, const mha_sequence *sequence, int64_t h, int64_t i,
                            double statistics[3], double *wide);
double mha_careful_ds(const mha_backward *call, const mha_sequence *sequence, int64_t h, int64_t i, int64_t j,
                      const double statistics[3]);
double mha_careful_distances(const mha_backward *call, const mha_sequence *sequence, int64_t h, int64_t i,
                             double *wide);
void mha_careful_backward(const mha_backward *call, mha_span *span, const mha_sequence *sequence, int64_t g, bool all);

/* The gradient of the bias, each element by one task. */
int64_t mha_bias_pieces(const mha_backward *call);
void mha_bias_piece(const mha_backward *call, mha_span *span, int64_t piece);

#endif
