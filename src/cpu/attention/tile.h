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

/* A tile of keys that is loaded while another is at work: what mha_tile has of it. */
typedef struct mha_keys {
    int64_t key, count;
    float key_largest;
    const void *key_rows, *values;
    mha_type key_type, value_type;
    int64_t key_stride, value_stride;
} mha_keys;

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
    const mha_engine *engine;  /* multiplies instead of the kernels; NULL if they do */
    bool narrow;               /* few rows: queries and sums lie row by row, keys and values as the caller has them */
    const mha_engine *dots;    /* with few rows: multiplies queries and keys; NULL if the kernels do */
    float *queries;            /* (blocks,D,MHA_BLOCK) times scale, 0 in lanes without a row; narrow (rows,D) */
    float largest;             /* |queries| at most; NaN if there is one */
    bool steep;                /* ALiBi may take a score out of float32 */
    float *sums;               /* (blocks,Em,MHA_BLOCK) weighted values so far; narrow (rows,Ep) */
    float *max, *total, *fade; /* (blocks,MHA_BLOCK) running maximum and sum, and the last rescaling */
    float *all_sums, *all_max, *all_total; /* the same of all chunks of keys so far */

    /* The keys. Up to plan->span tiles of them are loaded, each in its part of these rooms, and one is at work. */
    mha_keys *loaded;
    float *key_room, *value_room;
    uint16_t *left_key_room, *left_value_room;
    int64_t key, count;   /* keys [key, key + count) are at work */
    float *keys;          /* (D,MHA_KEYS) transposed, 0 in lanes without a key; or room for key_rows */
    float key_largest;    /* |keys| at most; NaN if there is one */
    const void *key_rows; /* (count,D), key_stride apart: the caller's own where they can be read as they are */
    mha_type key_type;    /* float32 unless narrow */
    int64_t key_stride;
    const void *values;  /* (count,Em), narrow (count,Ep): likewise */
    mha_type value_type; /* likewise */
    int64_t value_stride;
    float *packed; /* (MHA_KEYS,Ep) values where they cannot */
    float *clean;  /* (MHA_KEYS,Ep) values without those that one row does not see */
    float *staged; /* rows on their way through a transposition: plan->staged floats */

    /* With an engine its factors stand for queries, keys, values and weights. */
    uint16_t *right_queries; /* a block's after the other's; narrow: the rows (rows,D) */
    uint16_t *left_keys, *left_values, *left_clean, *right_weights;
    float *other_scores; /* room beside `scores` and right_weights, for one tile while the other is multiplied */
    uint16_t *other_weights;

    /* Their meeting. */
    bool suspect;      /* a score may have left the range of float32 on the way: see `broken` */
    uint8_t *broken;   /* (MHA_KEYS,MHA_BLOCK) a score that was not finite before bias and mask; set if `suspect` */
    float *scores;     /* (MHA_KEYS,MHA_BLOCK) */
    float *score_rows; /* narrow: (rows,MHA_KEYS), the same as rows */
    float *bias;       /* (MHA_KEYS,MHA_BLOCK) bias and mask: -inf where hidden */
    float *mean;       /* (MHA_KEYS,MHA_BLOCK) weights summed over heads */
    bool *sound;       /* (rows) maximum, sum and all sums of values are finite */
    double *wide;      /* (E) one row's sums in float64 */
} mha_tile;

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
    if (any.high <= t->key || any.low >= t->key + t->count) return 0;
    return any.high - t->key < t->count ? any.high - t->key : t->count;
}

/* The engine's queries of the block that starts at row r. */
static inline uint16_t *mha_tile_right(const mha_tile *t, int64_t r)
{
    return t->right_queries + r / MHA_BLOCK * mha_engine_size(MHA_BLOCK, t->problem->D);
}

/* The sums of the block that starts at row r. */
static inline float *mha_tile_sums(const mha_tile *t, int64_t r) { return t->sums + r * t->plan->Em; }

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

/* The same for a narrow tile, up to MHA_STAGE_MASKED, in score_rows. */
void mha_tile_score_rows(mha_tile *tile, int64_t count);

/* The step of mha_tile_scores from MHA_STAGE_CAPPED to MHA_STAGE_MASKED. */
void mha_tile_mask(mha_tile *tile, int64_t r, int64_t count);

/* 0 where dropout strikes, in a tile that lies as `scores` does; what is kept is not scaled. */
void mha_tile_drop(const mha_tile *tile, float *weights, int64_t r, int64_t count);

/* The distance of each lane's position from the first loaded key. */
void mha_tile_distances(const mha_tile *tile, int64_t r, float distance[MHA_BLOCK]);

#endif
