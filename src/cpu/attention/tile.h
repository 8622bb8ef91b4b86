/* The meeting of a block of query rows with a tile of keys: the step that forward, weights and all later passes share.
 *
 * Rows are lanes. Queries, scores and sums lie with one column per row, MHA_BLOCK columns wide, so that a vector holds
 * the same thing of neighbouring rows: no operation ever works across rows, and what concerns a row alone (its range,
 * its maximum, its slope) is one lane of a vector. */
#ifndef MHA_ATTENTION_TILE_H
#define MHA_ATTENTION_TILE_H

#include "core/arena.h"
#include "cpu/attention/plan.h"

/* The keys that any of the rows of a block may see by position, and those that all of them see; and whether its sums
 * hold anything of the chunk of keys at work. */
typedef struct mha_block {
    mha_range any, all;
    bool begun;
} mha_block;

/* Rows of numbers where they lie: the caller's own, or a copy where those cannot be read as they are. */
typedef struct mha_view {
    const void *data;
    mha_type type;
    int64_t stride; /* numbers from row to row */
} mha_view;

/* The queries, as the product for scores wants them. */
typedef struct mha_queries {
    float *data;   /* (blocks,D,MHA_BLOCK) times scale, 0 in lanes without a row; narrow (rows,D) */
    float largest; /* |data| at most; NaN if there is one */
} mha_queries;

/* A tile of keys that is loaded, and the values that go with them. */
typedef struct mha_keys {
    int64_t first, count; /* keys [first, first + count) */
    float largest;        /* |keys| at most; NaN if there is one */
    mha_view rows;        /* (count,D); float32 unless narrow */
    mha_view values;      /* (count,Em), narrow (count,Ep); likewise */
} mha_keys;

/* Where a tile of keys and its values are copied to. */
typedef struct mha_key_room {
    float *keys;                       /* (D,MHA_KEYS) transposed, 0 in lanes without a key; or (MHA_KEYS,D) */
    float *values;                     /* (MHA_KEYS,Ep) */
    uint16_t *left_keys, *left_values; /* the factors of an engine */
} mha_key_room;

/* The scores of a block against the keys at work. */
typedef struct mha_scores {
    float *lanes;    /* (MHA_KEYS,MHA_BLOCK) */
    float *rows;     /* narrow: (rows,MHA_KEYS), the same row by row */
    float *bias;     /* (MHA_KEYS,MHA_BLOCK) bias and mask: -inf where hidden */
    bool steep;      /* ALiBi may take a score out of float32 */
    bool suspect;    /* a score may have left the range of float32 on the way: see `broken` */
    uint8_t *broken; /* (MHA_KEYS,MHA_BLOCK) a score that was not finite before bias and mask; set if `suspect` */
} mha_scores;

/* The streaming softmax of all rows over the keys so far. */
typedef struct mha_running {
    float *sums;        /* (blocks,Em,MHA_BLOCK) weighted values; narrow (rows,Ep) */
    float *max, *total; /* (blocks,MHA_BLOCK) the largest score and the sum of exponentials */
} mha_running;

/* With an engine: the factors that it multiplies, beside keys and values, which are in mha_key_room. */
typedef struct mha_halves {
    uint16_t *queries;       /* right factors, one block after another; narrow: the rows (rows,D) */
    uint16_t *clean;         /* left factor: mha_tile.clean */
    uint16_t *weights;       /* right factor */
    uint16_t *other_weights; /* weights and scores of one tile while those of another are multiplied */
    float *other_scores;
} mha_halves;

/* One task's scratch and what it holds now. */
typedef struct mha_tile {
    const mha_problem *problem;
    const mha_plan *plan;

    /* The rows: row r is query (first + r) / heads of head first_head + (first + r) % heads, in lane r % MHA_BLOCK of
     * block r / MHA_BLOCK. */
    mha_sequence sequence;
    int64_t first_head, heads, first, rows;
    mha_range seen;    /* what any of the rows may see */
    mha_range *ranges; /* (rows) what each may see by position */
    mha_block *blocks;
    bool narrow;              /* few rows: queries and sums lie row by row, keys and values as the caller has them */
    const mha_engine *engine; /* multiplies instead of the kernels; NULL if they do */
    const mha_engine *dots;   /* with few rows: multiplies queries and keys; NULL if the kernels do */

    mha_queries queries;

    /* Up to plan->span tiles of keys are loaded, each in its part of `rooms`, and one is at work. */
    mha_keys *loaded;
    mha_key_room rooms; /* of the first tile; the others follow */
    mha_keys keys;      /* at work */
    mha_key_room room;  /* where these lie */
    float *clean;       /* (MHA_KEYS,Ep) their values without those that one row does not see */

    mha_scores scores;
    mha_running running; /* over the chunk of keys at work; in the end over all keys */
    mha_running folded;  /* over the chunks before it */
    float *fade;         /* (blocks,MHA_BLOCK) the last rescaling */
    bool *sound;         /* (rows) maximum, sum and all sums of values are finite */

    mha_halves halves;
    float *staged; /* rows on their way through a transposition: plan->staged floats */
    float *mean;   /* (MHA_KEYS,MHA_BLOCK) weights summed over heads */
    double *wide;  /* (E) one row's sums in float64 */
} mha_tile;

/* Whether rows lie so far apart that a copy of those which many others meet is worth it. Rows of heads that lie side by side
 * are H * D numbers from each other: few sets of a cache can hold them. */
static inline bool mha_rows_apart(mha_tensor x) { return x.stride[2] >= 256 && x.stride[2] > x.size[3]; }

/* Takes a tile's arrays from an arena. */
void mha_tile_layout(mha_tile *tile, mha_arena *arena, const mha_problem *problem, const mha_plan *plan);

static inline int64_t mha_tile_query(const mha_tile *t, int64_t r) { return (t->first + r) / t->heads; }
static inline int64_t mha_tile_head(const mha_tile *t, int64_t r) { return t->first_head + (t->first + r) % t->heads; }

/* The rows of the block that starts at row r, and its lanes: those rows, rounded up to whole vectors. */
static inline int64_t mha_tile_height(const mha_tile *t, int64_t r)
{
    return t->rows - r < MHA_BLOCK ? t->rows - r : MHA_BLOCK;
}
static inline int64_t mha_tile_lanes(const mha_tile *t, int64_t r)
{
    return mha_whole(t->plan->kernels, mha_tile_height(t, r));
}

/* How many of the keys at work, from the first on, any row of the block that starts at row r may see. */
static inline int64_t mha_tile_seen(const mha_tile *t, int64_t r)
{
    mha_range any = t->blocks[r / MHA_BLOCK].any;
    if (any.high <= t->keys.first || any.low >= t->keys.first + t->keys.count) return 0;
    return any.high - t->keys.first < t->keys.count ? any.high - t->keys.first : t->keys.count;
}

/* The engine's queries of the block that starts at row r. */
static inline uint16_t *mha_tile_right(const mha_tile *t, int64_t r)
{
    return t->halves.queries + r / MHA_BLOCK * mha_engine_size(MHA_BLOCK, t->problem->D);
}

/* The sums of the block that starts at row r. */
static inline float *mha_tile_sums(const mha_tile *t, int64_t r) { return t->running.sums + r * t->plan->Em; }

/* Turns to rows [first, first + rows) of the heads [first_head, first_head + heads), which share a key/value head; and
 * loads their queries. */
void mha_tile_place(mha_tile *tile, const mha_sequence *sequence, int64_t first_head, int64_t heads, int64_t first,
                    int64_t rows);
void mha_tile_load(mha_tile *tile);

/* `rows` rows of bfloat16 numbers, the first at index `row` of the axis before the last: where they lie if they lie
 * evenly, else copied to `room`, with *stride numbers between rows. */
const uint16_t *mha_tile_halves(int64_t *stride, uint16_t *room, mha_tensor x, int64_t batch, int64_t head, int64_t row,
                                int64_t rows);

/* Loads keys [key, key + count), and the values that go with them, over those at work. */
void mha_tile_keys(mha_tile *tile, int64_t key, int64_t count);
void mha_tile_values(mha_tile *tile);

/* Loads keys and values from `key` up to `high`, plan->span tiles at most; returns where the next ones start. */
int64_t mha_tile_span(mha_tile *tile, int64_t key, int64_t high);

/* Puts tile n of the span to work. */
void mha_tile_turn(mha_tile *tile, int64_t n);

/* The engine's product for the scores of the block that starts at row r against the first `count` of the loaded keys.
 * It leaves the scale to the softmax if `raw`. */
mha_product mha_tile_product(const mha_tile *tile, int64_t r, int64_t count, float *scores, bool raw);

/* What mha_tile_scores does after the product. */
void mha_tile_scored(mha_tile *tile, int64_t r, int64_t count, mha_stage stage);

/* scores (count,lanes) of the block that starts at row r against the first `count` of the loaded keys, up to `stage`,
 * which is at most MHA_STAGE_MASKED. There, whatever is not visible is -inf. */
void mha_tile_scores(mha_tile *tile, int64_t r, int64_t count, mha_stage stage);

/* The same for a narrow tile, up to MHA_STAGE_MASKED, in scores.rows. */
void mha_tile_score_rows(mha_tile *tile, int64_t count);

/* The step of mha_tile_scores from MHA_STAGE_CAPPED to MHA_STAGE_MASKED. */
void mha_tile_mask(mha_tile *tile, int64_t r, int64_t count);

/* 0 where dropout strikes, in a tile that lies as `scores` does; what is kept is not scaled. */
void mha_tile_drop(const mha_tile *tile, float *weights, int64_t r, int64_t count);

/* The distance of each lane's position from the first loaded key. */
void mha_tile_distances(const mha_tile *tile, int64_t r, float distance[MHA_BLOCK]);

#endif
