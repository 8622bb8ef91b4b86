/* Layers whose tensors have names of no family: modules as people write them. Each projection is a linear layer (NAME.weight
 * (out,in), and NAME.bias or none) under one of the usual names, or each head is a module of its own in a list:
 *
 *     W_q, W_k, W_v, W_o                          query_linear, key_linear, value_linear, out_linear
 *     heads.N.W_query, heads.N.W_key, heads.N.W_value, with or without out_proj
 *
 * For other names, the caller says which tensors the projections are. What is found becomes a family of its own, so that
 * the rest of the loader is the same for all files. In its names, "{h}" stands for the number of a head.
 *
 * Buffers that hold a causal mask (mask, tril, ...) make the layer causal; any other mask is an error. */
#ifndef NN_LAYER_MODULES_H
#define NN_LAYER_MODULES_H

#include "io/failure.h"
#include "layer/names.h"

enum { NN_LAYER_MODULE_Q, NN_LAYER_MODULE_K, NN_LAYER_MODULE_V, NN_LAYER_MODULE_OUT, NN_LAYER_MODULES };

/* Names that the caller gives, after the prefix: of a linear layer, or of a weight without a bias. With ".T" behind the name
 * of a weight, it is (in,out). NULL: one of the usual names. */
typedef struct nn_layer_map {
    const char *name[NN_LAYER_MODULES];
    const char *word[NN_LAYER_MODULES]; /* how messages call them */
} nn_layer_map;

bool nn_layer_map_is_given(const nn_layer_map *map);

enum { NN_LAYER_MODULE_NAME = 256 };

typedef struct nn_layer_modules {
    nn_layer_family family; /* its texts are below */
    int64_t heads;          /* in the list; 0: there is no list */
    int rows;
    char title[NN_LAYER_MODULES * NN_LAYER_MODULE_NAME];
    char name[NN_LAYER_NAMES][NN_LAYER_MODULE_NAME];
} nn_layer_modules;

/* Looks for such a layer. Sets *found to it, to be freed with free, or to NULL if there is none. Returns false on error,
 * with a line for `to`. */
bool nn_layer_modules_find(nn_layer_modules **found, const nn_shards *file, const char *prefix, const nn_layer_map *map,
                           const nn_failure *to);

/* The length of the prefix, if a tensor's name is that of the weight of such a layer's queries (of its first head, in a
 * list); otherwise 0. */
size_t nn_layer_modules_prefix(const char *name);

#endif
