/* The names of a layer's parts in files: one table per family of names.
 *
 *     pytorch        nn.MultiheadAttention with in_proj_weight (3M,M)
 *     pytorch-split  the same with q_proj_weight, k_proj_weight, v_proj_weight, which it uses if widths differ; also
 *                    for layers beyond PyTorch's module: grouped heads, other head widths
 *     gpt2           c_attn, c_proj: transposed weights (in,out); causal
 *     bert           self.query, self.key, self.value, output.dense
 *     vit            timm's qkv, proj
 *     llama          q_proj, k_proj, v_proj, o_proj: causal, rotary, grouped heads, optional norms of Q and K
 *     bart           q_proj, k_proj, v_proj, out_proj: encoder-decoders (BART, M2M100) and CLIP
 *
 * A family is defined by its table alone; reading and writing iterate over it. Layers with other names get a table of
 * their own: modules.h. */
#ifndef NN_LAYER_NAMES_H
#define NN_LAYER_NAMES_H

#include "io/safetensors.h"

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

typedef enum nn_layer_layout {
    NN_LAYER_DENSE,      /* as in mha_layer_parts */
    NN_LAYER_TRANSPOSED, /* (in,out) */
    NN_LAYER_LIFTED      /* (1,1,N) */
} nn_layer_layout;

typedef struct nn_layer_name {
    const char *name; /* after the prefix; NULL ends the list. With "{h}" in it: one tensor for each head h, from 0 */
    nn_layer_part part;
    nn_layer_layout layout;
    bool optional;
} nn_layer_name;

typedef struct nn_layer_family {
    const char *title;
    bool causal;        /* default of the family, like the next one */
    double rotary_base; /* 0: none */
    bool same_biases;   /* Q, K and V have biases if and only if the output has one */
    nn_layer_name names[NN_LAYER_NAMES];
} nn_layer_family;

/* All families, ended by one whose title is NULL. */
extern const nn_layer_family nn_layer_families[];

/* Whether a name stands for one tensor per head; and the name of one of them. */
bool nn_layer_name_lists(const char *name);
void nn_layer_name_of_head(char *out, size_t room, const char *name, int64_t head);

/* The attention layers of a larger file, found by the first name of each family: their number, and the prefixes of the
 * first and the last in numeric order ("h.9." before "h.10."). */
typedef struct nn_layer_prefixes {
    size_t count;
    char first[NN_LAYER_PREFIX_MAX + 1], last[NN_LAYER_PREFIX_MAX + 1];
} nn_layer_prefixes;
nn_layer_prefixes nn_layer_prefixes_find(const nn_safetensors *file);

/* The family used to save a layer: PyTorch's, with in_proj_weight if nn.MultiheadAttention could be this layer. */
const nn_layer_family *nn_layer_family_to_save(const mha_layer *layer);

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
