/* Attention weights of any model for `mha view`: reading, checking and pooling them, and their tokens. */
#ifndef VIEW_WEIGHTS_H
#define VIEW_WEIGHTS_H

#include "io/buffer.h"
#include "io/safetensors.h"

#include <mha.h>

/* The meaning of the axes of attention weights. */
typedef struct view_axes {
    const char *text; /* such as "layers,heads,queries,keys" */
    int rank;
    const char *outer; /* name of the outermost axis: "layer", "sequence" (of a batch), or NULL if there is none */
    bool heads;        /* whether there is an axis of heads; without one the weights may be averages over heads */
} view_axes;

enum { VIEW_DATA_MOST = 1900000 }; /* bytes of all maps; 2.5 MB in base64, so that a page stays below 3 MB */

/* Attention weights of a file, or of a run of a text model. */
typedef struct view_weights {
    const char *path, *tensor, *token_file, *first_axis; /* the request; all but the first may be NULL */
    const char *name;                                    /* of the selected tensor */
    nn_safetensors *file;
    const view_axes *axes;
    int64_t layers, heads, queries, keys;
    int64_t by_queries, by_keys; /* queries and keys per cell; 1 and 1 without pooling */
    int64_t rows, columns;       /* of cells */
    float *cells;                /* (layers,heads,rows,columns) */
    double *entropy, *effective; /* (layers,heads): mean over the rows with visible keys, before pooling */
    char pooled[400];            /* description of the pooling; "" for none */
    int64_t room;                /* bytes of all maps; 0: VIEW_DATA_MOST */
    const char *const *words;    /* (layers,heads): what each head attends to; or NULL */
    double *sums;                /* (columns): of the cells of the present row */
    int64_t seen;                /* rows of the present map with visible keys */
} view_weights;

/* Reads, checks and pools the weights, and appends them as JSON. Prints an error and returns false on failure. Must be
 * freed in either case. */
bool view_weights_json(nn_buffer *out, mha_context *ctx, view_weights *w);
void view_weights_free(view_weights *w);

/* Whether a file that is not a model contains attention weights, judged by the first row of a candidate tensor. */
bool view_weights_are_in(const char *path, mha_context *ctx);

/* The tokens of the queries and keys; NULL if there are none. */
typedef struct view_tokens {
    char **queries, **keys;
    char **lists[2], *bytes[2]; /* memory to free */
} view_tokens;

/* Weights from memory: after the sizes have been set, all rows in order, then JSON. `open` returns false if out of memory. */
bool view_cells_open(view_weights *w);
void view_cells_add(view_weights *w, const float *x, int64_t row);
void view_cells_json(nn_buffer *out, view_weights *w, const view_tokens *t);

/* The axes that a text begins with, or NULL. */
const view_axes *view_axes_of(int rank, const char *begin);

/* Reads the token file of `w`, or else the metadata of its file. Prints an error and returns false on failure. Must be
 * freed in either case. */
bool view_tokens_read(view_tokens *t, const view_weights *w);
void view_tokens_free(view_tokens *t);

#endif
