/* Heads that config.json says are gone. */
#include "families/pruned.h"
#include "io/failure.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the family keeps its heads in quarters of a tensor. */
static bool has_quarters(const nn_family *f)
{
    for (int n = 0; n < NN_FAMILY_LISTS; n++)
        for (const nn_name *name = f->names[n]; name && name->name; name++)
            if (name->cut == NN_QUARTERS_Q) return true;
    return false;
}

const char *nn_pruned_obstacle(const nn_description *d, const nn_family *f, int64_t l, const bool *gone)
{
    const nn_blocks_config *b = &nn_description_last(d)->blocks;
    const nn_attention_config *a = nn_blocks_attention(b, l);
    int64_t H = b->heads, share = H / (b->kv_heads ? b->kv_heads : H), left = 0;
    for (int64_t h = 0; h < H; h++) left += !gone[h];
    if (left == H) return NULL;
    if (nn_description_is_pair(d)) return "models with two stacks keep all heads";
    if (f->groups) return "layers that share their weights keep all heads";
    if (has_quarters(f)) return "layers whose heads lie in quarters of a tensor keep all of them";
    if (a->alibi) return "layers with ALiBi keep all heads";
    if (a->qk_norm > 0 && a->qk_norm_span == MHA_NORM_ALL_HEADS) return "a norm over all heads needs all of them";
    if (l >= NN_BLOCKS_MOST) return "only the first 128 layers can lose heads";
    if (!left) return "a layer keeps at least one head";
    for (int64_t h = 0; h < H; h++)
        if (gone[h] != gone[h / share * share]) return "heads that share keys and values go together";
    return NULL;
}

static void shrink(nn_blocks_config *b, int64_t l, const bool *gone)
{
    int64_t H = b->heads, G = b->kv_heads ? b->kv_heads : H, left = 0;
    for (int64_t h = 0; h < H; h++) left += !gone[h];
    if (left == H) return;
    b->block[l].heads = (int32_t)left;
    b->block[l].kv_heads = (int32_t)(left / (H / G));
}

bool nn_family_pruned(nn_description *d, const nn_family *f, const nn_config *c, char *error, size_t error_size)
{
    nn_blocks_config *b = d->decoder.blocks.depth ? &d->decoder.blocks : &d->encoder.blocks;
    nn_fact all = nn_config_find(c, "pruned_heads");
    nn_failure to = {c->name, error, error_size};
    int64_t layers = 0, count = all.text && !nn_fact_is_null(all) ? nn_fact_count(all) : 0;
    if (!count) return true;
    if (count < 0 || b->heads < 1 || b->heads > 1 << 20) return nn_fail(&to, "pruned_heads must name lists of heads");
    bool *gone = calloc((size_t)b->heads, sizeof *gone);
    const char *problem = gone ? NULL : "out of memory";
    for (int64_t l = 0; !problem && l < b->depth; l++) {
        char key[24];
        snprintf(key, sizeof key, "%lld", (long long)l);
        nn_fact list = nn_fact_find(all, key);
        if (!list.text) continue;
        layers++;
        memset(gone, 0, (size_t)b->heads * sizeof *gone);
        for (int64_t n = 0, h; !problem && n < nn_fact_count(list); n++) {
            if (nn_fact_int(nn_fact_item(list, n), &h) && h >= 0 && h < b->heads) gone[h] = true;
            else problem = "there is no such head";
        }
        if (!problem) problem = nn_pruned_obstacle(d, f, l, gone);
        if (!problem) shrink(b, l, gone);
    }
    if (!problem && layers != count) problem = "there is no such layer";
    free(gone);
    return !problem || nn_fail(&to, "pruned_heads: %s", problem);
}
