#include "families/timm.h"
#include "io/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
    const nn_shards *shards;
    const nn_config *config; /* or NULL */
    const nn_failure *to;
    char architecture[96];
    nn_pool pool;
    int64_t width, patch, channels, rows, columns, heads, depth, mlp;
} reading;

static bool has(const reading *r, const char *name) { return nn_shards_find(r->shards, name) != NULL; }

static nn_fact said(const reading *r, const char *key)
{
    return r->config ? nn_config_find(r->config, key) : nn_fact_of(NULL, 0);
}

static const nn_safetensors_tensor *find(const reading *r, const char *name, int rank)
{
    char is[80];
    const nn_safetensors_tensor *t = nn_shards_find(r->shards, name);
    if (!t) nn_fail(r->to, "%s is missing", name);
    else if (t->rank != rank || !t->count)
        nn_fail(r->to, "%s is %s, must have %d sizes", name, nn_safetensors_describe(is, sizeof is, t), rank);
    else return t;
    return NULL;
}

static bool learn_patches(reading *r)
{
    const nn_safetensors_tensor *patch = find(r, "patch_embed.proj.weight", 4), *places = find(r, "pos_embed", 3);
    if (!patch || !places) return false;
    r->width = patch->shape[0], r->channels = patch->shape[1], r->patch = patch->shape[2];
    if (patch->shape[3] != r->patch) return nn_fail(r->to, "patch_embed.proj.weight has patches that are not square");
    int64_t count = places->shape[1] - has(r, "cls_token") - has(r, "dist_token");
    int64_t side = (int64_t)sqrt((double)count), rows = 0, columns = 0;
    nn_fact size = said(r, "pretrained_cfg.input_size");
    bool sized = nn_fact_int(nn_fact_item(size, 1), &rows) && nn_fact_int(nn_fact_item(size, 2), &columns);
    if (sized && (rows / r->patch) * (columns / r->patch) == count) {
        r->rows = rows / r->patch * r->patch, r->columns = columns / r->patch * r->patch;
        return true;
    }
    r->rows = r->columns = side * r->patch;
    return side * side == count || nn_fail(r->to,
                                           "pos_embed has %lld patches, which is not a square number, and no "
                                           "config.json says the size in pretrained_cfg.input_size",
                                           (long long)count);
}

static bool learn_heads(reading *r, int64_t given)
{
    static const int64_t sixteen[] = {1152, 1280, 1408, 1664}, by_64[] = {192, 384, 512, 576, 640, 768, 1024};
    const char *note = nn_safetensors_metadata(r->shards->file[0], "heads");
    r->heads = given;
    if (!r->heads && !nn_fact_int(said(r, "model_args.num_heads"), &r->heads))
        r->heads = note ? strtoll(note, NULL, 10) : 0;
    for (size_t n = 0; !r->heads && n < sizeof sixteen / sizeof *sixteen; n++)
        if (r->width == sixteen[n]) r->heads = 16;
    for (size_t n = 0; !r->heads && n < sizeof by_64 / sizeof *by_64; n++)
        if (r->width == by_64[n]) r->heads = r->width / 64;
    return r->heads > 0 ||
           nn_fail(r->to, "the number of heads per block is not in the file; give options.heads, metadata "
                          "\"heads\" or model_args.num_heads in config.json");
}

static bool learn_blocks(reading *r)
{
    char name[64];
    const nn_safetensors_tensor *fc1 = find(r, "blocks.0.mlp.fc1.weight", 2);
    if (!fc1) return false;
    r->mlp = fc1->shape[0];
    do snprintf(name, sizeof name, "blocks.%lld.norm1.weight", (long long)++r->depth);
    while (has(r, name));
    return true;
}

/* Which rows the head reads: config.json's global_pool, else as timm has it for these tensors. */
static bool learn_pool(reading *r)
{
    char name[32] = "";
    bool first = has(r, "cls_token"), mean = !first || has(r, "fc_norm.weight");
    nn_fact given = said(r, "global_pool");
    if (given.text && nn_fact_string(given, name, sizeof name) && *name) mean = strcmp(name, "avg") == 0;
    if (*name && ((!mean && strcmp(name, "token") != 0) || (!mean && !first)))
        return nn_fail(r->to, "global_pool is %s, which is not supported; token and avg are", nn_json_brief(name).text);
    if (mean && has(r, "dist_token")) return nn_fail(r->to, "dist_token: a mean of patches beside it is not supported");
    r->pool = mean && first ? NN_POOL_REST : mean ? NN_POOL_MEAN : has(r, "dist_token") ? NN_POOL_TWO : NN_POOL_FIRST;
    return true;
}

/* What files may have and the model of this family has not. */
static bool refuse(const reading *r)
{
    static const struct {
        const char *name, *what;
    } others[] = {{"reg_token", "register tokens"},
                  {"blocks.0.mlp.fc1_g.weight", "gated MLPs"},
                  {"blocks.0.mlp.norm.weight", "norms inside MLPs"},
                  {"blocks.0.attn.norm.weight", "norms inside attention"},
                  {"attn_pool.latent", "attention pools"}};
    for (size_t n = 0; n < sizeof others / sizeof *others; n++)
        if (has(r, others[n].name)) return nn_fail(r->to, "%s: %s are not supported", others[n].name, others[n].what);
    return true;
}

bool nn_timm_is(const nn_shards *shards)
{
    return nn_shards_find(shards, "patch_embed.proj.weight") && nn_shards_find(shards, "blocks.0.attn.qkv.weight");
}

static const char *word(bool truth) { return truth ? "true" : "false"; }

bool nn_timm_config(char text[NN_TIMM_TEXT], const nn_shards *shards, const nn_config *config, int64_t heads,
                    const nn_failure *to)
{
    reading r = {.shards = shards, .config = config, .to = to};
    if (!refuse(&r) || !learn_patches(&r) || !learn_heads(&r, heads) || !learn_blocks(&r) || !learn_pool(&r))
        return false;
    if (!nn_fact_string(said(&r, "architecture"), r.architecture, sizeof r.architecture)) r.architecture[0] = 0;
    const nn_safetensors_tensor *head = nn_shards_find(shards, "head.weight");
    snprintf(
        text, NN_TIMM_TEXT,
        "{\"model_type\": \"timm_vit\", \"architectures\": [\"%s\"], \"hidden_size\": %lld, \"num_hidden_layers\": "
        "%lld,"
        " \"num_attention_heads\": %lld, \"intermediate_size\": %lld, \"hidden_act\": \"%s\", \"layer_norm_eps\": %s,"
        " \"image_size\": [%lld, %lld], \"patch_size\": %lld, \"num_channels\": %lld, \"qkv_bias\": %s,"
        " \"proj_bias\": %s, \"class_token\": %s, \"distilled\": %s, \"norm_pre\": %s, \"layer_scale\": %s,"
        " \"qk_norm\": %s, \"final_norm\": %s, \"fc_norm\": %s, \"num_classes\": %lld, \"pool\": %d}",
        head ? "TimmForImageClassification" : "TimmModel", (long long)r.width, (long long)r.depth, (long long)r.heads,
        (long long)r.mlp, strstr(r.architecture, "quickgelu") ? "quick_gelu" : "gelu",
        has(&r, "norm_pre.weight") ? "1e-5" : "1e-6", (long long)r.rows, (long long)r.columns, (long long)r.patch,
        (long long)r.channels, word(has(&r, "blocks.0.attn.qkv.bias")), word(has(&r, "blocks.0.attn.proj.bias")),
        word(has(&r, "cls_token")), word(has(&r, "dist_token")), word(has(&r, "norm_pre.weight")),
        word(has(&r, "blocks.0.ls1.gamma")), word(has(&r, "blocks.0.attn.q_norm.weight")), word(has(&r, "norm.weight")),
        word(has(&r, "fc_norm.weight")), (long long)(head && head->rank ? head->shape[0] : 0), (int)r.pool);
    return true;
}
