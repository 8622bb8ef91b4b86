/* Which roles of role_table.h the heads of a model have, on a sample of images.
 *
 *     nn_roles r;
 *     if (!nn_roles_make(&r, ctx, &d, parameters, &pixels, NULL, error, sizeof error)) puts(error);
 *     int64_t best = nn_roles_best(&r, head, NN_FROM_PATCHES, false);
 *     if (best >= 0) puts(nn_roles_table[best].name);
 *     nn_roles_free(&r);
 *
 * What the numbers mean is said in mha_model.h, at mha_role_score; docs/math.md has the formulas.
 *
 * The work has two parts. Evidence is what is kept of the attention maps: for each image the weight that every patch
 * receives, and the sum of the maps over all images, in integers, so that the order of images does not matter. Judging
 * takes evidence and the roles' weights for the same images, and runs no model: tests plant heads there. */
#ifndef NN_INSPECT_ROLES_H
#define NN_INSPECT_ROLES_H

#include "inspect/role_table.h"
#include "train/image_examples.h"

/* Whose attention: the mean over all patches, or the class token. Roles by position have patches as queries. */
typedef enum nn_role_from { NN_FROM_PATCHES, NN_FROM_CLASS, NN_FROMS } nn_role_from;

typedef struct nn_role_score {
    double score, lift, variation, z, p, p_alone;
    bool named;
} nn_role_score;

typedef struct nn_roles {
    int64_t images, shuffles, heads, blocks;
    int64_t froms; /* 1 for a model without a class token, or NN_FROMS */
    nn_grid grid;
    double level;
    int64_t *block;        /* (heads) of each head, from 0 */
    nn_role_score *scores; /* (heads,NN_FROMS,NN_ROLES); those that do not exist are zeros with a p of 1 */
} nn_roles;

typedef struct nn_roles_options {
    int64_t images;   /* evenly spaced; 0, or more than there are: all */
    int64_t shuffles; /* at least 1 */
    double level;     /* p up to which a role is named */
    uint64_t seed;    /* of the shuffles */
} nn_roles_options;
#define NN_ROLES_DEFAULTS ((nn_roles_options){400, 999, 0.005, 1})

/* A role is named if p is at most `level`, and score and variation are at least these: an effect can be real and too
 * small to matter. */
#define NN_ROLES_LEAST_SCORE     0.15
#define NN_ROLES_LEAST_VARIATION 0.05

/* Runs a model that reads such images. `options` may be NULL. Bitwise identical for any number of threads. Returns false
 * on error, with one line in `error`, of `error_size` bytes; nothing needs to be freed then. */
bool nn_roles_make(nn_roles *r, mha_context *ctx, const nn_description *d, float *parameters, const nn_pixels *pixels,
                   const nn_roles_options *options, char *error, size_t error_size);
void nn_roles_free(nn_roles *r); /* a zeroed one is legal */

static inline const nn_role_score *nn_roles_get(const nn_roles *r, int64_t head, nn_role_from from, int64_t role)
{
    return r->scores + (head * NN_FROMS + (int64_t)from) * NN_ROLES + role;
}

/* The named role with the highest score, of those by position or of those by content; -1 if none is named. */
int64_t nn_roles_best(const nn_roles *r, int64_t head, nn_role_from from, bool position);

/* ---- Evidence --------------------------------------------------------------------------------------------------- */

typedef struct nn_evidence {
    int64_t images, heads, patches;
    bool class_token;
    float *received; /* (heads,NN_FROMS,images,patches) */
    int64_t *maps;   /* (heads,patches,patches) sums over images, in units of 2^-36 */
    float *weights;  /* (NN_ROLES_BY_CONTENT,images,patches) those of the roles */
} nn_evidence;

/* Returns false if out of memory; nothing needs to be freed then. */
bool nn_evidence_create(nn_evidence *e, int64_t images, int64_t heads, const nn_grid *g, bool class_token);
void nn_evidence_free(nn_evidence *e); /* a zeroed one is legal */

/* Adds the map (T,T) of one head on image n; T is the patches, after the class token if there is one. `maps` is e->maps,
 * or another block of that shape that will be added to it. Returns false if a weight is not from 0 to about 1. */
bool nn_evidence_add(const nn_evidence *e, int64_t *maps, int64_t n, int64_t head, const float *map);

/* Sets the roles' weights for image n. */
void nn_evidence_draw(const nn_evidence *e, int64_t n, const nn_grid *g, const nn_drawing *d);

/* Fills in images, shuffles, level and scores; the rest of `r` is given, with room for the scores. Returns false if out
 * of memory. */
bool nn_roles_judge(nn_roles *r, mha_context *ctx, const nn_evidence *e, const nn_roles_options *o);

#endif
