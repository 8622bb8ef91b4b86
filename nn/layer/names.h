/* How files call the parts of a layer: one table a family of names.
 *
 *     pytorch        nn.MultiheadAttention with in_proj_weight (3M,M)
 *     pytorch-split  the same with q_proj_weight, k_proj_weight, v_proj_weight, which it uses where widths differ; with
 *                    their own shapes they also say what PyTorch's module cannot be: grouped heads, other head widths
 *     gpt2           c_attn, c_proj: weights (in,out), so transposed; causal
 *     bert           self.query, self.key, self.value, output.dense
 *     vit            timm's qkv, proj
 *     llama          q_proj, k_proj, v_proj, o_proj: causal, rotary, grouped heads; gains of Q and K where there are some
 *     bart           q_proj, k_proj, v_proj, out_proj: encoder-decoders (BART, M2M100) and CLIP
 *
 * What makes a family is this table and nothing else: whoever reads or writes files walks over it. */
#ifndef LAYER_NAMES_H
#define LAYER_NAMES_H

#include "io/safetensors.h"

enum { LAYER_PREFIX_MAX = 200 };

/* The parts of mha_layer_parts, in its order. */
typedef enum layer_part {
    LAYER_Q_WEIGHT,
    LAYER_K_WEIGHT,
    LAYER_V_WEIGHT,
    LAYER_Q_BIAS,
    LAYER_K_BIAS,
    LAYER_V_BIAS,
    LAYER_OUT_WEIGHT,
    LAYER_OUT_BIAS,
    LAYER_BIAS_K,
    LAYER_BIAS_V,
    LAYER_Q_NORM,
    LAYER_K_NORM,
    LAYER_SINKS,
    LAYER_GATES,
    LAYER_IN_WEIGHT,
    LAYER_IN_BIAS,
    LAYER_PARTS,
    LAYER_IGNORED, /* lies beside the parameters and is none */
    LAYER_REFUSED  /* says that it is another kind of layer */
} layer_part;

typedef enum layer_layout {
    LAYER_DENSE,      /* as in mha_layer_parts */
    LAYER_TRANSPOSED, /* (in,out) */
    LAYER_LIFTED      /* (1,1,N) */
} layer_layout;

typedef struct layer_name {
    const char *name; /* behind the prefix; NULL ends the list */
    layer_part part;
    layer_layout layout;
    bool optional;
} layer_name;

typedef struct layer_family {
    const char *title;
    bool causal;        /* unless the file says otherwise, as is the next */
    double rotary_base; /* 0: none */
    bool same_biases;   /* Q, K and V have biases if, and only if, the output has one */
    layer_name names[20];
} layer_family;

/* All of them; the title of the one behind the last is NULL. */
extern const layer_family layer_families[];

/* The attention layers of a larger file, by the first name of each family: how many there are, and what the names of the
 * first and of the last begin with, "h.9." being before "h.10.". */
typedef struct layer_prefixes {
    size_t count;
    char first[LAYER_PREFIX_MAX + 1], last[LAYER_PREFIX_MAX + 1];
} layer_prefixes;
layer_prefixes layer_prefixes_find(const safetensors *file);

/* The family in which such a layer is saved: PyTorch's own, fused if its module could be this layer. */
const layer_family *layer_family_to_save(const mha_layer *layer);

/* One part, by number. */
mha_tensor layer_part_of(const mha_layer_parts *parts, layer_part part);

/* How many axes a part has, 1 or 2; its sizes by the options, all sizes of which are filled in. */
int layer_part_rank(layer_part part);
void layer_part_shape(int64_t shape[2], layer_part part, const mha_layer_options *options);

/* What turns a part on: parts of one group are there together. */
typedef enum layer_group {
    LAYER_WEIGHTS,
    LAYER_OUT,
    LAYER_IN_BIASES,
    LAYER_OUT_BIASES,
    LAYER_EXTRA_KEY,
    LAYER_NORMS,
    LAYER_SINK,
    LAYER_GATE,
    LAYER_GROUPS
} layer_group;
layer_group layer_group_of(layer_part part);

#endif
