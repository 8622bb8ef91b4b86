/* The parts of a model found among the tensors of a checkpoint, by the names of its family. */
#ifndef NN_FAMILIES_BIND_H
#define NN_FAMILIES_BIND_H

#include "families/family.h"
#include "families/shards.h"

typedef struct nn_bound {
    mha_tensor *part; /* (count), in the order of nn_parts_of: where it lies, or a copy in `copies` */
    int64_t count;
    float *copies;                        /* vectors, positions and types as dense float32 numbers */
    const nn_safetensors_tensor **source; /* (count): the tensor that it is of, for each head the first; or NULL, */
    mha_tensor *place;                    /* (count): and how it lies there; of heads the first; or NULL, */
    const nn_name **name;                 /* (count): by this name of the family */
} nn_bound;

/* Names of tensors, each with a NUL behind it. */
typedef struct nn_names {
    char **all;
    int64_t count;
} nn_names;
void nn_names_free(nn_names *n); /* a zeroed one is legal */

/* What the tensors of a checkpoint have in common with those of its family. */
typedef struct nn_gaps {
    bool allowed;     /* tensors may be missing, or be no part of the model: the parts have no data then */
    nn_names missing; /* in the order of the parts; empty unless they are allowed */
    nn_names unused;  /* of the checkpoint, in its order: copies, tables that are computed, and what is no part */
} nn_gaps;

/* Returns false with one line in `error`, also if a tensor is no part of the model, unless `gaps` allows it. `name` stands
 * for the checkpoint. */
bool nn_bind(nn_bound *b, mha_context *ctx, const nn_description *d, const nn_family *family, const nn_head *head,
             const nn_config *config, const nn_shards *shards, nn_gaps *gaps, const char *name, char *error,
             size_t error_size);

/* The same without copies: all parts are views of tensors, as the file has them; those that it lacks are none. */
bool nn_bind_views(nn_bound *b, mha_context *ctx, const nn_description *d, const nn_family *family, const nn_head *head,
                   const nn_config *config, const nn_shards *shards, const char *name, char *error, size_t error_size);
void nn_bound_free(nn_bound *b);

#endif
