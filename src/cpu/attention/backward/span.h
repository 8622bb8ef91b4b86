/* A span of keys and the query rows that meet it: the scratch of a task, and what is computed there. */
#ifndef MHA_CPU_BACKWARD_SPAN_H
#define MHA_CPU_BACKWARD_SPAN_H

#include "cpu/attention/backward/call.h"

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

/* One task's scratch: up to MHA_PAIR query rows and MHA_TILES tiles of keys. */
typedef struct mha_span {
    mha_tile tile;
    int64_t key, end;                           /* the keys that are loaded */
    float *keys[MHA_TILES], *values[MHA_TILES]; /* (D,MHA_KEYS), (E,MHA_KEYS) */
    mha_keys loaded[MHA_TILES];                 /* as scores want them */
    mha_rows value_rows[MHA_TILES];             /* (count,E) where kernels take them along */
    mha_rows key_rows[MHA_TILES];   /* (count,Dm) for dQ: the caller's own where they can be read as they are */
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

/* Takes a span's arrays from an arena. */
void mha_span_layout(mha_span *span, mha_arena *arena, const mha_backward *call);

/* Turns to query rows [first, first + rows) of some heads that share a key/value head, MHA_PAIR at most; and loads
 * them. */
void mha_span_place(mha_span *span, const mha_sequence *sequence, int64_t first_head, int64_t heads, int64_t first,
                    int64_t rows);
void mha_span_load(mha_span *span, const mha_backward *call);

/* Loads keys [key, end) of the key/value head that the span has been turned to: MHA_TILES tiles at most. */
void mha_span_keys(mha_span *span, const mha_backward *call, int64_t key, int64_t end);

/* The block at row r against tile n: ds (count,lanes), without the slope of a softcap, and in the tile's scores the
 * weights before dropout. Returns count: how many of the tile's keys any row may see. Sets *broken if a visible score
 * left float32. */
int64_t mha_span_ds(mha_span *span, const mha_backward *call, int64_t r, int64_t n, bool *broken);

/* dK, dV and a part of dQ: one chunk of keys and all query rows of one key/value head. */
void mha_backward_piece(const mha_backward *call, mha_span *span, const mha_piece *work, int64_t g);

#endif
