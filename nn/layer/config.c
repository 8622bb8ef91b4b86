#include "layer/config.h"
#include "families/timm.h"
#include "families/wrapped.h"
#include "program/attention.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

char *nn_layer_config_find(const char *path)
{
    static const char name[] = "config.json";
    struct stat about;
    const char *slash = strrchr(path, '/');
    bool is_folder = stat(path, &about) == 0 && S_ISDIR(about.st_mode);
    size_t folder = is_folder ? strlen(path) : slash ? (size_t)(slash - path) + 1 : 0;
    char *config = malloc(folder + 1 + sizeof name);
    if (!config) return NULL;
    snprintf(config, folder + 1 + sizeof name, "%.*s%s%s", (int)folder, path, is_folder ? "/" : "", name);
    if (access(config, F_OK) != 0) config[0] = 0;
    return config;
}

/* In place of a config that has one for each part of the model, that of the layer's. */
static bool choose_part(nn_config *c, const char *prefix, const nn_failure *to)
{
    bool vision = strstr(prefix, "vision");
    if (!vision && !nn_wrapped_open(c, to)) return false;
    nn_fact part = nn_config_find(c, vision ? "vision_config" : "text_config");
    if (!part.text || *part.text != '{') return true;
    char *text = strndup(part.text, part.size);
    if (!text) return nn_fail(to, "out of memory");
    nn_config_free(c);
    c->text = text, c->size = part.size;
    return true;
}

/* What of the rotary embedding the file says itself. */
static bool says_base(const nn_family *f, const nn_config *c)
{
    const char *const keys[] = {
        "rope_theta|rope_scaling.rope_theta|rope_parameters.rope_theta|"
        "rope_parameters.full_attention.rope_theta|rope_parameters.sliding_attention.rope_theta",
        f->rotary.theta_key, f->rotary.local_key};
    for (int n = 0; n < 3; n++)
        if (keys[n] && nn_config_find(c, keys[n]).text) return true;
    return false;
}

static bool reads_key(const nn_family *f, const char *key)
{
    for (int n = 0; n < NN_FAMILY_LISTS; n++)
        for (const nn_key *k = f->keys[n]; k && (k->name || k->absent); k++)
            if (k->name && strcmp(k->name, key) == 0) return true;
    return false;
}

/* Whether a block is like another one, for a layer that may be either. */
static bool are_alike(const nn_blocks_config *b, int64_t one, int64_t other)
{
    return nn_blocks_attention(b, one) == nn_blocks_attention(b, other) &&
           nn_blocks_heads(b, one) == nn_blocks_heads(b, other) && !nn_blocks_attention(b, one)->scale_by_block;
}

static bool choose_block(int64_t *block, const nn_layer_place *p, const nn_blocks_config *b, const nn_failure *to)
{
    *block = p->block < 0 ? 0 : p->block;
    if (p->block >= b->depth && !p->family->groups)
        return nn_fail(to, "there is no layer %lld; the model has %lld", (long long)p->block, (long long)b->depth);
    for (int64_t l = 1; l < b->depth && p->block < 0 && !p->cross; l++)
        if (!are_alike(b, l, 0))
            return nn_fail(
                to, "its layers differ in their windows, rotary embeddings, heads or scales, and the prefix does "
                    "not say which of them this one is");
    return true;
}

/* What a single layer cannot do; NULL: it can do it all. */
static const char *obstacle(const nn_attention_config *a)
{
    if (a->alibi) return "attention with ALiBi, whose slopes a single layer does not have";
    if (a->relative_buckets) return "attention with a bias by distance, which a single layer does not have";
    return NULL;
}

static bool choose(nn_layer_config *config, const nn_description *d, const nn_config *c, const nn_failure *to)
{
    const nn_layer_place *p = &config->place;
    const nn_blocks_config *b = p->encoder ? &d->encoder.blocks : &d->decoder.blocks;
    mha_layer_options *o = &config->options;
    int64_t l;
    if (!choose_block(&l, p, b, to)) return false;
    const nn_attention_config *a = nn_blocks_attention(b, l);
    bool sized = b->heads > 0 && (b->head_width || b->width), own = l < NN_BLOCKS_MOST && b->block[l].heads;
    nn_blocks_config known = *b;
    if (!known.heads) known.heads = 1;
    const char *problem = p->cross ? NULL : obstacle(a);
    if (problem) return nn_fail(to, "model_type %s has %s", config->type, problem);
    *o = nn_attention_layer_options(d, &known, l, p->cross);
    o->heads = b->heads ? o->heads : 0;
    o->kv_heads = b->kv_heads || own ? o->kv_heads : 0;
    o->head_width = b->head_width || (own && sized) ? o->head_width : 0;
    if (!p->cross) config->attention = *a;
    if (sized && o->rotary_width == nn_blocks_head_width(b)) o->rotary_width = 0; /* all of a head */
    if (sized && o->rotary_width && !p->family->rotary.width_key) config->turned_width = nn_blocks_head_width(b);
    config->causal_said = !p->cross && nn_config_find(c, "is_decoder").text && reads_key(p->family, "is_decoder");
    config->rotary_said = !p->cross && (says_base(p->family, c) || a->rotary.scaling ||
                                        (a->rotary_base == 0 && p->family->rotary.theta > 0));
    return true;
}

static bool describe(nn_layer_config *config, const nn_config *c, const char *prefix, const nn_failure *to)
{
    nn_description *d = malloc(sizeof *d);
    const nn_family *family = nn_family_find_any(c, to->error, to->error_size);
    nn_layer_place *p = &config->place;
    if (!d) return nn_fail(to, "out of memory");
    nn_fact_string(nn_config_find(c, "model_type"), config->type, sizeof config->type);
    bool ok = family && (nn_layer_place_find(p, family, prefix) || nn_fail(to, "its layers have no names"));
    ok = ok && nn_family_describe_layers(d, family, c, p->block, to->error, to->error_size) && choose(config, d, c, to);
    free(d);
    return ok;
}

bool nn_layer_config_read(nn_layer_config *config, const char *path, const char *prefix, char *error, size_t error_size)
{
    nn_config c;
    nn_failure to = {path, error, error_size};
    *config = (nn_layer_config){.path = path, .options = MHA_LAYER_DEFAULTS};
    if (!nn_config_open(&c, path, error, error_size)) return false;
    bool ok = choose_part(&c, prefix, &to);
    if (ok && nn_config_find(&c, "model_type").text) ok = describe(config, &c, prefix, &to);
    nn_config_free(&c);
    return ok;
}

bool nn_layer_config_of_timm(nn_layer_config *to, const nn_layer_config *config, const nn_shards *file,
                             const char *prefix, int64_t heads, const nn_failure *fail)
{
    char text[NN_TIMM_TEXT];
    nn_config beside = {0}, c;
    *to = (nn_layer_config){.options = MHA_LAYER_DEFAULTS};
    if (config->path && !nn_config_open(&beside, config->path, fail->error, fail->error_size)) return false;
    bool ok = nn_timm_config(text, file, beside.text ? &beside : NULL, heads, fail) &&
              nn_config_text(&c, text, fail->name, fail->error, fail->error_size) && describe(to, &c, prefix, fail);
    nn_config_free(&beside);
    return ok;
}

/* ---- Options ---------------------------------------------------------------------------------------------------- */

/* Sizes that are 0 are not known yet. */
bool nn_layer_config_agrees(const mha_layer_options *o, const nn_layer_config *config, const char *other, char *why,
                            size_t why_size)
{
    const mha_layer_options *c = &config->options;
    bool scaled = config->attention.rotary.scaling != NN_ROTARY_AS_IS;
    const struct {
        const char *what;
        double said, is;
        bool counts;
    } all[] = {
        {"heads", (double)c->heads, (double)o->heads, c->heads && o->heads},
        {"kv_heads", (double)c->kv_heads, (double)o->kv_heads, c->kv_heads && o->kv_heads},
        {"head_width", (double)c->head_width, (double)o->head_width, c->head_width && o->head_width},
        {"head_width", (double)config->turned_width, (double)o->head_width, config->turned_width && o->head_width},
        {"width", (double)c->width, (double)o->width, c->width && o->width},
        {"key_width", (double)c->key_width, (double)o->key_width, c->key_width && o->key_width},
        {"value_width", (double)c->value_width, (double)o->value_width, c->value_width && o->value_width},
        {"rotary_base", c->rotary_base, o->rotary_base, config->rotary_said || scaled},
        {"rotary_width", (double)c->rotary_width, (double)o->rotary_width, c->rotary_width > 0},
        {"scale", (double)c->scale, (double)o->scale, !isnan(c->scale)},
        {"softcap", (double)c->softcap, (double)o->softcap, c->softcap > 0},
        {"causal", c->causal, o->causal, config->causal_said},
        {"window_left", (double)c->window_left, (double)o->window_left, c->window_left >= 0},
        {"window_right", (double)c->window_right, (double)o->window_right, c->window_right >= 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all && *config->type; i++) {
        if (!all[i].counts || all[i].said == all[i].is) continue;
        snprintf(why, why_size, "%s is %.10g in config.json, but %.10g in %s", all[i].what, all[i].said, all[i].is,
                 other);
        return false;
    }
    return true;
}
