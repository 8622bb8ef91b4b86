/* Attention by itself: the names that files of a single layer have, without a config.json or the rest of a model. Most are
 * those of a family, whose tables name them. */
#ifndef NN_FAMILIES_BARE_H
#define NN_FAMILIES_BARE_H

#include "families/family.h"

/* Parts that only layers have: the key and the value that every row sees as well, and multipliers of heads. */
enum { NN_BARE_KEY = NN_PART_KINDS, NN_BARE_VALUE, NN_BARE_GATES };

typedef struct nn_bare {
    const char *title;
    const nn_family *family; /* which has the names */
    bool causal;             /* unless the file says otherwise */
    double rotary_base;      /* likewise; 0: no rotary embedding */
    bool needs_biases;       /* it has all biases that have names */
    bool same_biases;        /* queries, keys and values have biases if and only if the output has one */
    bool refuses_norm;       /* a norm of the heads' outputs, norm.weight, makes it another kind of layer */
} nn_bare;

/* Number n, or NULL. The first two are PyTorch's: with one weight for queries, keys and values, and with three. */
const nn_bare *nn_bare_get(int n);

#endif
