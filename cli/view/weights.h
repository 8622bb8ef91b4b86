/* Attention weights of any model for `mha view`: reading, checking and pooling them, and their tokens. */
#ifndef VIEW_WEIGHTS_H
#define VIEW_WEIGHTS_H

#include "io/buffer.h"
#include "io/safetensors.h"

/* The meaning of the axes of attention weights. */
typedef struct view_axes {
    const char *text; /* such as "layers,heads,queries,keys" */
    int rank;
    const char *outer; /* name of the outermost axis: "layer", "sequence" (of a batch), or NULL if there is none */
    bool heads;        /* whether there is an axis of heads; without one the weights may be averages over heads */
} view_axes;

/* Attention weights of a file. */
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

/* Reads the token file of `w`, or else the metadata of its file. Prints an error and returns false on failure. Must be
 * freed in either case. */
bool view_tokens_read(view_tokens *t, const view_weights *w);
void view_tokens_free(view_tokens *t);

#endif
