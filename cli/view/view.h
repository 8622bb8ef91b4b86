/* What the files behind `mha view` share, and the page of a model for other commands. */
#ifndef VIEW_H
#define VIEW_H

#include "io/buffer.h"
#include "cli/common/exhibit.h"
#include "inspect/survey.h"
#include "model/vit_model.h"

enum { VIEW_EACH = 2 }; /* images of each digit on a page for which nobody chose others */

/* Writes the page of a model and images, atomically, and its size to *bytes; with statistics of the heads if the images'
 * data set is open. False, having said why. */
bool view_model_write(const char *page, size_t *bytes, mha_context *ctx, nn_vit_model *model, const exhibits *images);

/* What the axes of attention weights are. */
typedef struct view_axes {
    const char *text; /* such as "layers,heads,queries,keys" */
    int rank;
    const char *outer; /* what `layers` counts: "layer", "sequence" (of a batch), or NULL if there is no such axis */
    bool heads;        /* whether there is an axis of heads; without one the weights may be a mean over heads */
} view_axes;

/* Attention weights of a file. */
typedef struct view_weights {
    const char *path, *tensor, *token_file, *first_axis; /* what was asked for; all but the first may be NULL */
    const char *name;                                    /* of the tensor that was found */
    nn_safetensors *file;
    const view_axes *axes;
    int64_t layers, heads, queries, keys;
    int64_t by_queries, by_keys; /* so many go into a cell; 1 and 1: all is shown */
    int64_t rows, columns;       /* of cells */
    float *cells;                /* (layers,heads,rows,columns) */
    double *entropy, *effective; /* (layers,heads): mean over the rows that see something, before pooling */
    char pooled[400];            /* what was done to make them fewer, for people; "": nothing */
} view_weights;

/* Reads, checks and pools the weights, and puts down the object of them. False, having said why. In any case an end
 * is due. */
bool view_weights_json(nn_buffer *out, mha_context *ctx, view_weights *w);
void view_weights_free(view_weights *w);

/* Whether a file that is no model has attention weights, by the first row of a tensor that could be such. */
bool view_weights_are_in(const char *path, mha_context *ctx);

/* Words for the queries and the keys of weights; NULL: there are none, and numbers will do. */
typedef struct view_tokens {
    char **queries, **keys;
    char **lists[2], *bytes[2]; /* what there is to free */
} view_tokens;

/* From w's file of tokens, or else from the metadata of its file. False, having said why; an end is due. */
bool view_tokens_read(view_tokens *t, const view_weights *w);
void view_tokens_free(view_tokens *t);

#endif
