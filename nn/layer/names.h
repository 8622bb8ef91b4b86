/* The names of a layer's parts in files. They come from the tables of the families of models (families/family.h), as those of
 * the attention of one of their blocks, or of attention by itself (families/bare.h); or they are those of modules as people
 * write them (modules.h). Reading and writing iterate over the rows that come of it. */
#ifndef NN_LAYER_NAMES_H
#define NN_LAYER_NAMES_H

#include "families/bare.h"
#include "families/cut.h"

enum { NN_LAYER_PREFIX_MAX = 200, NN_LAYER_NAMES = 20 };

/* The parts of mha_layer_parts, in its order. */
typedef enum nn_layer_part {
    NN_LAYER_Q_WEIGHT,
    NN_LAYER_K_WEIGHT,
    NN_LAYER_V_WEIGHT,
    NN_LAYER_Q_BIAS,
    NN_LAYER_K_BIAS,
    NN_LAYER_V_BIAS,
    NN_LAYER_OUT_WEIGHT,
    NN_LAYER_OUT_BIAS,
    NN_LAYER_BIAS_K,
    NN_LAYER_BIAS_V,
    NN_LAYER_Q_NORM,
    NN_LAYER_K_NORM,
    NN_LAYER_SINKS,
    NN_LAYER_GATES,
    NN_LAYER_Q_NORM_BIAS,
    NN_LAYER_K_NORM_BIAS,
    NN_LAYER_IN_WEIGHT,
    NN_LAYER_IN_BIAS,
    NN_LAYER_PARTS,
    NN_LAYER_IGNORED, /* a tensor that is not a parameter */
    NN_LAYER_REFUSED  /* a tensor of another kind of layer: an error */
} nn_layer_part;

typedef struct nn_layer_name {
    const char *name; /* after the prefix; NULL ends the list. With "{h}" in it: one tensor for each head h, from 0 */
    nn_layer_part part;
    nn_cut cut; /* NN_WHOLE, NN_SWAPPED or NN_LIFTED; or the part shares its tensor with others in another way */
    bool optional;
    bool plus_one; /* the file has gains less one */
    bool zeros;    /* without a tensor, the part is zero */
} nn_layer_name;

/* Whether a part lies in its tensor between others, so that the tensor is no one part of the layer. */
static inline bool nn_layer_name_shares(const nn_layer_name *row)
{
    return row->cut >= NN_HEADS_Q && row->cut <= NN_QUARTERS_V;
}

/* Which attention of a model a layer is. */
typedef struct nn_layer_place {
    const nn_family *family;
    bool encoder, cross;
    size_t stem;   /* bytes that all of its names begin with in the family's tables: "model.layers.{l}.self_attn." */
    int64_t block; /* -1: not known */
} nn_layer_place;

typedef struct nn_layer_family {
    const char *title;
    nn_layer_place place; /* family NULL: modules */
    const nn_bare *bare;  /* NULL: the file has a config.json, or the names are those of modules */
    bool causal;          /* default of the family, like the next one */
    double rotary_base;   /* 0: none */
    nn_layer_name names[NN_LAYER_NAMES];
} nn_layer_family;

/* The attention of a family's blocks that a prefix such as "h.3.attn." means: the one whose names end with most of it, or
 * the first. Returns false if the family has none. */
bool nn_layer_place_find(nn_layer_place *place, const nn_family *family, const char *prefix);

/* The rows of a place, of the tensors under a prefix: of names that a family has for the same part, the one that is there.
 * `o` says which parts there are; NULL: any may be missing. */
void nn_layer_family_make(nn_layer_family *to, const nn_layer_place *place, const mha_layer_options *o,
                          const nn_shards *file, const char *prefix);

/* Those of attention by itself, number n of nn_bare_get; false if there is none. `file` NULL: the first name of each part. */
bool nn_layer_family_of_bare(nn_layer_family *to, int n, const nn_shards *file, const char *prefix);

/* Whether a tensor is none of the layer's, but one that its model has no use for, or that is another part of it. */
bool nn_layer_name_is_spare(const nn_layer_family *f, const char *name);

/* Whether a name stands for one tensor per head; and the name of one of them. */
bool nn_layer_name_lists(const char *name);
void nn_layer_name_of_head(char *out, size_t room, const char *name, int64_t head);

/* The attention layers of a larger file, found by the first name of each family, or of the one that is given: their number,
 * and the prefixes of the first and the last in numeric order ("h.9." before "h.10."). */
typedef struct nn_layer_prefixes {
    size_t count;
    char first[NN_LAYER_PREFIX_MAX + 1], last[NN_LAYER_PREFIX_MAX + 1];
} nn_layer_prefixes;
nn_layer_prefixes nn_layer_prefixes_find(const nn_shards *file, const nn_layer_place *place);

/* The family used to save a layer: PyTorch's, with in_proj_weight if nn.MultiheadAttention could be this layer. */
void nn_layer_family_to_save(nn_layer_family *to, const mha_layer *layer);

/* One part, by number. */
mha_tensor nn_layer_part_of(const mha_layer_parts *parts, nn_layer_part part);

/* The number of axes of a part, 1 or 2, and its shape; all sizes in the options must be filled in. */
int nn_layer_part_rank(nn_layer_part part);
void nn_layer_part_shape(int64_t shape[2], nn_layer_part part, const mha_layer_options *options);

/* Parts of one group are present or absent together. */
typedef enum nn_layer_group {
    NN_LAYER_WEIGHTS,
    NN_LAYER_OUT,
    NN_LAYER_IN_BIASES,
    NN_LAYER_OUT_BIASES,
    NN_LAYER_EXTRA_KEY,
    NN_LAYER_NORMS,
    NN_LAYER_SINK,
    NN_LAYER_GATE,
    NN_LAYER_GROUPS
} nn_layer_group;
nn_layer_group nn_layer_group_of(nn_layer_part part);

#endif
