/* The names of a layer: which family they are, which tensor is which part, and whether all parts are there. */
#include "layer/loading.h"
#include "families/timm.h"
#include "io/json.h"
#include "io/safetensors_floats.h"
#include "layer/notes.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float usual_epsilon = 1e-6f;

/* ---- Messages --------------------------------------------------------------------------------------------------- */

nn_layer_words nn_layer_say(const char *format, ...)
{
    nn_layer_words w;
    va_list args;
    va_start(args, format);
    vsnprintf(w.text, sizeof w.text, format, args);
    va_end(args);
    return w;
}

nn_layer_words nn_layer_quote(const char *name)
{
    nn_layer_words w;
    nn_json_quote(w.text, 80, name);
    return w;
}

nn_layer_words nn_layer_shape_words(int rank, const int64_t *shape)
{
    nn_layer_words w = {"("};
    size_t n = 1;
    for (int i = 0; i < rank && n < sizeof w.text; i++)
        n += (size_t)snprintf(w.text + n, sizeof w.text - n, i ? ",%lld" : "%lld", (long long)shape[i]);
    if (n < sizeof w.text) snprintf(w.text + n, sizeof w.text - n, ")");
    return w;
}

/* ---- Names ------------------------------------------------------------------------------------------------------ */

const nn_safetensors_tensor *nn_layer_find(const nn_layer_loading *l, const char *name, int64_t head)
{
    char full[NN_LAYER_PREFIX_MAX + NN_LAYER_MODULE_NAME + 24];
    int length = snprintf(full, sizeof full, "%s", l->prefix);
    nn_layer_name_of_head(full + length, sizeof full - (size_t)length, name, head);
    return nn_shards_find(l->file, full);
}

static const nn_safetensors_tensor *find(const nn_layer_loading *l, const char *name)
{
    return nn_layer_find(l, name, 0);
}

int64_t nn_layer_copies(const nn_layer_loading *l, const nn_layer_name *row)
{
    int64_t count = 0;
    if (!nn_layer_name_lists(row->name)) return 1;
    if (nn_layer_is_spelled(l)) return l->modules->heads;
    while (nn_layer_find(l, row->name, count)) count++;
    return count;
}

/* Whether the number of heads is unknown; other errors of the metadata are ignored here. */
static bool lacks_heads(const nn_layer_loading *l)
{
    char why[240];
    mha_layer_options said = MHA_LAYER_DEFAULTS;
    return !l->caller.heads && nn_layer_notes_read(&said, nn_layer_notes_of(l), why, sizeof why) && !said.heads;
}

static void say_no_family(const nn_layer_loading *l)
{
    nn_layer_prefixes inner = nn_layer_prefixes_find(l->file, *l->config->type ? &l->config->place : NULL);
    nn_layer_words prefix = nn_layer_quote(l->prefix), first = nn_layer_quote(inner.first),
                   there = nn_layer_say("there is %s", first.text);
    if (inner.count > 1)
        there = nn_layer_say("there are %zu, from %s to %s", inner.count, first.text, nn_layer_quote(inner.last).text);
    if (!inner.count && !*l->prefix) nn_fail(&l->to, "no tensor has the name of an attention layer's parameter");
    else if (!inner.count) nn_fail(&l->to, "no tensor under the prefix %s belongs to an attention layer", prefix.text);
    else if (*l->prefix)
        nn_fail(&l->to, "no tensor under the prefix %s belongs to an attention layer; %s", prefix.text, there.text);
    else
        nn_fail(&l->to, "a larger model; attention layers: %s; give %s %s%s", there.text, l->caller.prefix_word,
                first.text, lacks_heads(l) ? nn_layer_say(" and %s", l->caller.heads_word).text : "");
}

/* How many parts of a family are there; and whether all that it needs are. */
static int count_parts(const nn_layer_loading *l, const nn_layer_family *f, bool *complete)
{
    int count = 0;
    *complete = true;
    for (const nn_layer_name *row = f->names; row->name; row++) {
        bool there = find(l, row->name);
        count += row->part < NN_LAYER_PARTS && there;
        *complete = *complete && (there || row->optional);
    }
    return count;
}

/* Of the names of attention by itself, those that most of the tensors have; and whether all that they need is there. */
static bool find_bare(nn_layer_loading *l)
{
    nn_layer_family f;
    int most = 0;
    bool complete = false, all;
    for (int n = 0; nn_layer_family_of_bare(&f, n, l->file, l->prefix); n++) {
        int count = count_parts(l, &f, &all);
        if (count <= most) continue;
        most = count;
        complete = all;
        l->modules->family = f;
        l->family = &l->modules->family;
    }
    return complete;
}

/* The one layer of a file whose names all begin with the same prefix. */
static void take_common_prefix(nn_layer_loading *l)
{
    nn_layer_prefixes inner = nn_layer_prefixes_find(l->file, NULL);
    if (*l->prefix || inner.count != 1 || *l->config->type) return; /* what a config.json says depends on the prefix */
    for (int64_t i = 0; i < nn_shards_tensors(l->file); i++)
        if (strncmp(nn_shards_get(l->file, i)->name, inner.first, strlen(inner.first)) != 0) return;
    memcpy(l->common, inner.first, sizeof l->common);
    l->prefix = l->common;
}

/* The names of the family that config.json says. If attention by itself has the same ones, they are called like that. */
static bool find_configured(nn_layer_loading *l)
{
    bool all, bare = find_bare(l);
    nn_layer_family *f = &l->modules->family, other = *f;
    const char *title = bare ? other.title : NULL;
    nn_layer_family_make(f, &l->config->place, &l->config->options, l->file, l->prefix);
    l->family = f;
    if (count_parts(l, f, &all)) return f->title = title && all ? title : f->title, true;
    l->family = NULL;
    if (title)
        return nn_fail(&l->to, "config.json has model_type %s, whose layers have %s, but the file has the names of %s",
                       l->config->type, f->names[0].name, title);
    say_no_family(l);
    return false;
}

/* The family of the names: that of config.json, or attention by itself, or modules under other names. */
bool nn_layer_find_family(nn_layer_loading *l)
{
    bool mapped = nn_layer_map_is_given(&l->caller.map);
    if (mapped && *l->config->type)
        return nn_fail(&l->to,
                       "config.json has model_type %s, whose layers have names of their own, not those that were given",
                       l->config->type);
    l->modules = calloc(1, sizeof *l->modules);
    if (!l->modules) return nn_fail(&l->to, "not enough memory for the names of a layer");
    /* A whole model of timm says what a layer of it alone does not. */
    if (!*l->config->type && !mapped && nn_timm_is(l->file) && find(l, "qkv.weight") &&
        (lacks_heads(l) || find(l, "q_norm.bias"))) {
        if (!nn_layer_config_of_timm(&l->made, l->config, l->file, l->prefix, l->caller.heads, &l->to)) return false;
        l->config = &l->made;
    }
    if (*l->config->type) return find_configured(l);
    if (!mapped && find_bare(l)) return true;
    if (!l->family && !mapped) take_common_prefix(l);
    if (l->prefix == l->common && find_bare(l)) return true;
    nn_layer_modules *spelled;
    if (!nn_layer_modules_find(&spelled, l->file, l->prefix, &l->caller.map, &l->to)) return false;
    if (spelled) {
        free(l->modules);
        l->modules = spelled, l->family = &spelled->family;
    }
    if (!l->family) say_no_family(l);
    return l->family;
}

static bool is_known(const nn_layer_loading *l, const nn_safetensors_tensor *tensor)
{
    for (const nn_layer_name *row = l->family->names; row->name; row++)
        for (int64_t head = 0; head < nn_layer_copies(l, row); head++)
            if (nn_layer_find(l, row->name, head) == tensor) return true;
    return nn_layer_name_is_spare(l->family, tensor->name + strlen(l->prefix));
}

/* A tensor with an unknown name is an error, unless the layer is part of a larger file that does not say what it is. A module
 * that was recognized by its names alone may have nothing else: it would compute something else. */
static bool check_strangers(const nn_layer_loading *l)
{
    for (const nn_layer_name *row = l->family->names; nn_layer_is_spelled(l) && row->name; row++)
        if (!row->optional && !nn_layer_find(l, row->name, 0))
            return nn_fail(&l->to, "%s%s is missing; if it has another name, give %s", l->prefix, row->name,
                           l->caller.map.word[row->part - NN_LAYER_Q_WEIGHT]);
    bool strict = !*l->prefix || *l->config->type || (nn_layer_is_spelled(l) && !nn_layer_map_is_given(&l->caller.map));
    for (int64_t i = 0; i < nn_shards_tensors(l->file) && strict; i++) {
        const nn_safetensors_tensor *tensor = nn_shards_get(l->file, i);
        if (strncmp(tensor->name, l->prefix, strlen(l->prefix)) == 0 && !is_known(l, tensor))
            return nn_fail(&l->to, "tensor %s does not belong to an attention layer with the names of %s",
                           nn_layer_quote(tensor->name).text, l->family->title);
    }
    return true;
}

/* The tensors of the other heads of a list are there, and of the first one's shape. */
static bool check_list(const nn_layer_loading *l, const nn_layer_name *row, const nn_safetensors_tensor *first)
{
    for (int64_t head = 1; first && head < nn_layer_copies(l, row); head++) {
        const nn_safetensors_tensor *other = nn_layer_find(l, row->name, head);
        char name[NN_LAYER_MODULE_NAME + 24];
        nn_layer_name_of_head(name, sizeof name, row->name, head);
        if (!other) return nn_fail(&l->to, "%s%s is missing, but %s is present", l->prefix, name, first->name);
        if (!nn_safetensors_is_float(other->dtype))
            return nn_fail(&l->to, "%s is %s, but should be float16, bfloat16, float32 or float64", other->name,
                           nn_safetensors_dtype_name(other->dtype));
        if (other->rank != first->rank || memcmp(other->shape, first->shape, sizeof first->shape) != 0)
            return nn_fail(&l->to, "%s is %s, but %s is %s: all heads must have the same shape", other->name,
                           nn_layer_shape_words(other->rank, other->shape).text, first->name,
                           nn_layer_shape_words(first->rank, first->shape).text);
    }
    return true;
}

bool nn_layer_bind(nn_layer_loading *l)
{
    if (!check_strangers(l)) return false;
    for (const nn_layer_name *row = l->family->names; row->name; row++) {
        const nn_safetensors_tensor *tensor = find(l, row->name);
        if (row->part == NN_LAYER_REFUSED && tensor)
            return nn_fail(&l->to, "%s%s belongs to another kind of layer, which is not supported", l->prefix,
                           row->name);
        if (row->part >= NN_LAYER_PARTS) continue;
        l->row[row->part] = row;
        l->tensor[row->part] = tensor;
        if (tensor && !nn_safetensors_is_float(tensor->dtype))
            return nn_fail(&l->to, "%s is %s, but should be float16, bfloat16, float32 or float64", tensor->name,
                           nn_safetensors_dtype_name(tensor->dtype));
        if (!check_list(l, row, tensor)) return false;
    }
    return true;
}

/* Which groups of parts are present: each must be complete, and required ones must exist. */
bool nn_layer_check_groups(nn_layer_loading *l)
{
    const nn_safetensors_tensor *there[NN_LAYER_GROUPS] = {NULL};
    mha_layer_options *o = &l->options;
    for (int part = 0; part < NN_LAYER_PARTS; part++)
        if (l->tensor[part]) there[nn_layer_group_of((nn_layer_part)part)] = l->tensor[part];
    for (int part = 0; part < NN_LAYER_PARTS; part++) {
        const nn_layer_name *row = l->row[part];
        nn_layer_group group = nn_layer_group_of((nn_layer_part)part);
        if (!row || l->tensor[part] || (group == NN_LAYER_OUT && !o->out_projection)) continue;
        if (row->zeros) continue;
        if (!row->optional) return nn_fail(&l->to, "%s%s is missing", l->prefix, row->name);
        if (there[group])
            return nn_fail(&l->to, "%s%s is missing, but %s is present", l->prefix, row->name, there[group]->name);
    }
    if (nn_layer_is_spelled(l) && !there[NN_LAYER_OUT]) o->out_projection = false;
    if (there[NN_LAYER_OUT] && !o->out_projection)
        return nn_fail(&l->to, "%s is present, but metadata out_projection is false", there[NN_LAYER_OUT]->name);
    const nn_safetensors_tensor *in = there[NN_LAYER_IN_BIASES], *out = there[NN_LAYER_OUT_BIASES];
    bool same = l->family->bare && l->family->bare->same_biases;
    if (same && o->out_projection && !in != !out && !nn_layer_notes_are_ours(nn_layer_notes_of(l)))
        return nn_fail(&l->to, "%s%s is missing, but %s is present: nn.MultiheadAttention has both or none", l->prefix,
                       l->row[in ? NN_LAYER_OUT_BIAS : NN_LAYER_IN_BIAS]->name, (in ? in : out)->name);
    o->in_bias = in;
    o->out_bias = out;
    o->bias_kv = there[NN_LAYER_EXTRA_KEY];
    o->sinks = there[NN_LAYER_SINK];
    o->gates = there[NN_LAYER_GATE];
    bool said = *l->config->type || nn_safetensors_metadata(nn_layer_notes_of(l), "norm_epsilon");
    if (there[NN_LAYER_NORMS] && !said) o->norm_epsilon = usual_epsilon;
    if (there[NN_LAYER_NORMS] && !(o->norm_epsilon > 0))
        return nn_fail(&l->to, "%s is present, but metadata norm_epsilon is not above 0", there[NN_LAYER_NORMS]->name);
    if (!there[NN_LAYER_NORMS] && o->norm_epsilon != 0)
        return nn_fail(&l->to, "metadata norm_epsilon is %g, but there is no q_norm.weight", (double)o->norm_epsilon);
    return true;
}
