/* The parts of a model found among the tensors of a checkpoint, by the names of its family. */
#ifndef NN_FAMILIES_BIND_H
#define NN_FAMILIES_BIND_H

#include "families/family.h"
#include "families/shards.h"

typedef struct nn_bound {
    mha_tensor *part; /* (count), in the order of nn_parts_of: where it lies, or a copy in `copies` */
    int64_t count;
    float *copies; /* vectors, positions and types as dense float32 numbers */
} nn_bound;

/* Returns false with one line in `error`, also if a tensor is not used. `name` stands for the checkpoint. */
bool nn_bind(nn_bound *b, mha_context *ctx, const nn_description *d, const nn_family *family, const nn_head *head,
             const nn_config *config, const nn_shards *shards, const char *name, char *error, size_t error_size);

/* The same without copies: all parts are views of tensors, as the file has them; those that it lacks are none. */
bool nn_bind_views(nn_bound *b, mha_context *ctx, const nn_description *d, const nn_family *family, const nn_head *head,
                   const nn_config *config, const nn_shards *shards, const char *name, char *error, size_t error_size);
void nn_bound_free(nn_bound *b);

#endif
