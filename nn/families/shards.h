/* The tensors of a checkpoint, mapped: one file, or the shards that an index names.
 *
 *     nn_shards s;
 *     if (!nn_shards_open(&s, "folder", error, sizeof error)) puts(error);
 *     const nn_safetensors_tensor *t = nn_shards_find(&s, "model.norm.weight");
 *     nn_shards_close(&s);
 */
#ifndef NN_FAMILIES_SHARDS_H
#define NN_FAMILIES_SHARDS_H

#include "io/safetensors.h"

typedef struct nn_shards {
    nn_safetensors **file; /* (count) */
    int64_t count;
} nn_shards;

/* A folder with model.safetensors or model.safetensors.index.json, or a file. Returns false with one line in `error`. */
bool nn_shards_open(nn_shards *s, const char *path, bool folder, char *error, size_t error_size);
void nn_shards_close(nn_shards *s);

/* The tensor of that name, or NULL; how many tensors there are, and number n. */
const nn_safetensors_tensor *nn_shards_find(const nn_shards *s, const char *name);
int64_t nn_shards_tensors(const nn_shards *s);
const nn_safetensors_tensor *nn_shards_get(const nn_shards *s, int64_t n);

#endif
