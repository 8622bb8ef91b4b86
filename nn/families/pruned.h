/* Checkpoints without some of their heads: the rows and columns of these are gone from the tensors, and config.json lists
 * them under `pruned_heads`, as transformers does: {"3": [0, 2]} means that layer 3 has lost its first and third head.
 * Keys and values that heads share go with the last head of their group, so groups are removed as a whole. */
#ifndef NN_FAMILIES_PRUNED_H
#define NN_FAMILIES_PRUNED_H

#include "families/bind.h"

/* Why a model cannot be without some heads of block l; NULL if it can. gone (H). */
const char *nn_pruned_obstacle(const nn_description *d, const nn_family *family, int64_t l, const bool *gone);

/* Writes such a checkpoint as one file with the config in its metadata. `views` are those of nn_bind_views; keep (heads),
 * counted through all blocks. Returns false with one line in `error`: also for heads that no file can be without. */
bool nn_pruned_save(const char *path, const nn_description *d, const nn_family *family, const nn_bound *views,
                    const nn_config *config, const nn_shards *shards, const bool *keep, char *error, size_t error_size);

#endif
