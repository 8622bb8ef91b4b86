/* The roles that a head can have on images of digits: one row of a table each. */
#ifndef NN_INSPECT_ROLE_TABLE_H
#define NN_INSPECT_ROLE_TABLE_H

#include "inspect/drawing.h"

/* The patches of an image. */
typedef struct nn_grid {
    int64_t rows, columns, patch; /* patches, and the side of one in pixels */
} nn_grid;
static inline int64_t nn_grid_patches(const nn_grid *g) { return g->rows * g->columns; }

/* What a head with the role attends to. Weights are not negative; only their pattern counts, not their scale. */
typedef struct nn_role {
    const char *key, *name, *about; /* for programs; for tables; what it is, in a few words */

    /* A role by position: the weight of key patch j for query patch i. NULL: a role by content. */
    double (*between)(const nn_grid *g, int64_t i, int64_t j);

    /* A role by content: the weight of each patch of a drawing, whatever the query. NULL: a role by position. */
    void (*on)(float *weights, const nn_grid *g, const nn_drawing *d);
} nn_role;

/* Roles by position come first. */
enum { NN_ROLES_BY_POSITION = 4, NN_ROLES_BY_CONTENT = 12, NN_ROLES = NN_ROLES_BY_POSITION + NN_ROLES_BY_CONTENT };
extern const nn_role nn_roles_table[NN_ROLES];

#endif
