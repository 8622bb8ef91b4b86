/* Loading a layer: find the family of names, bind its names to tensors, determine the sizes, check every tensor against
 * them, and only then create the layer, so that a file cannot cause an allocation larger than its own size. */
#include "layer/file.h"
#include "io/failure.h"
#include "io/json.h"
#include "layer/notes.h"
#include "io/safetensors_floats.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float usual_epsilon = 1e-6f;

/* The state of loading. */
typedef struct loading {
    mha_context *ctx;
    const nn_safetensors *file;
    const char *prefix;
    nn_failure to;
    nn_layer_file_options caller;  /* with the names for messages filled in */
    const nn_layer_config *config; /* an empty one if there is none */
    const nn_layer_family *family;
    const nn_layer_name *row[NN_LAYER_PARTS];            /* by part; NULL: the family has none */
    const nn_safetensors_tensor *tensor[NN_LAYER_PARTS]; /* by part; NULL: the file has none */
    mha_layer_options options;
    mha_status status; /* of a failure */
    bool own_heads;    /* counted from the shapes */
} loading;

/* Text for messages, of bounded length. */
typedef struct words {
    char text[240];
} words;

__attribute__((format(printf, 1, 2))) static words say(const char *format, ...)
{
    words w;
    va_list args;
    va_start(args, format);
    vsnprintf(w.text, sizeof w.text, format, args);
    va_end(args);
    return w;
}

static words quote(const char *name)
{
    words w;
    nn_json_quote(w.text, 80, name);
    return w;
}

static words shape_words(int rank, const int64_t *shape)
{
    words w = {"("};
    size_t n = 1;
    for (int i = 0; i < rank && n < sizeof w.text; i++)
        n += (size_t)snprintf(w.text + n, sizeof w.text - n, i ? ",%lld" : "%lld", (long long)shape[i]);
    if (n < sizeof w.text) snprintf(w.text + n, sizeof w.text - n, ")");
    return w;
}

/* ---- Names ------------------------------------------------------------------------------------------------------ */

static const nn_safetensors_tensor *find(const loading *l, const char *name)
{
    char full[NN_LAYER_PREFIX_MAX + 56];
    snprintf(full, sizeof full, "%s%s", l->prefix, name);
    return nn_safetensors_find(l->file, full);
}

/* Whether the number of heads is unknown; other errors of the metadata are ignored here. */
static bool lacks_heads(const loading *l)
{
    char why[240];
    mha_layer_options said = MHA_LAYER_DEFAULTS;
    return !l->caller.heads && nn_layer_notes_read(&said, l->file, why, sizeof why) && !said.heads;
}

static void say_no_family(const loading *l)
{
    nn_layer_prefixes inner = nn_layer_prefixes_find(l->file);
    words prefix = quote(l->prefix), first = quote(inner.first), there = say("there is %s", first.text);
    if (inner.count > 1) there = say("there are %zu, from %s to %s", inner.count, first.text, quote(inner.last).text);
    if (!inner.count && !*l->prefix) nn_fail(&l->to, "no tensor has the name of an attention layer's parameter");
    else if (!inner.count) nn_fail(&l->to, "no tensor under the prefix %s belongs to an attention layer", prefix.text);
    else if (*l->prefix)
        nn_fail(&l->to, "no tensor under the prefix %s belongs to an attention layer; %s", prefix.text, there.text);
    else
        nn_fail(&l->to, "a larger model; attention layers: %s; give %s %s%s", there.text, l->caller.prefix_word,
                first.text, lacks_heads(l) ? say(" and %s", l->caller.heads_word).text : "");
}

/* The family that most of the names belong to. */
static bool find_family(loading *l)
{
    int most = 0;
    for (const nn_layer_family *f = nn_layer_families; f->title; f++) {
        int count = 0;
        for (const nn_layer_name *row = f->names; row->name; row++)
            count += row->part < NN_LAYER_PARTS && find(l, row->name);
        if (count <= most) continue;
        most = count;
        l->family = f;
    }
    if (!l->family) say_no_family(l);
    return l->family;
}

/* A tensor with an unknown name is an error, unless the layer is part of a larger file. */
static bool check_strangers(const loading *l)
{
    for (size_t i = 0; i < nn_safetensors_count(l->file) && !*l->prefix; i++) {
        const char *name = nn_safetensors_get(l->file, i)->name;
        const nn_layer_name *row = l->family->names;
        while (row->name && strcmp(row->name, name) != 0) row++;
        if (!row->name)
            return nn_fail(&l->to, "tensor %s does not belong to an attention layer with the names of %s",
                           quote(name).text, l->family->title);
    }
    return true;
}

static bool bind(loading *l)
{
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
    }
    return true;
}

/* Which groups of parts are present: each must be complete, and required ones must exist. */
static bool check_groups(loading *l)
{
    const nn_safetensors_tensor *there[NN_LAYER_GROUPS] = {NULL};
    mha_layer_options *o = &l->options;
    for (int part = 0; part < NN_LAYER_PARTS; part++)
        if (l->tensor[part]) there[nn_layer_group_of((nn_layer_part)part)] = l->tensor[part];
    for (int part = 0; part < NN_LAYER_PARTS; part++) {
        const nn_layer_name *row = l->row[part];
        nn_layer_group group = nn_layer_group_of((nn_layer_part)part);
        if (!row || l->tensor[part] || (group == NN_LAYER_OUT && !o->out_projection)) continue;
        if (!row->optional) return nn_fail(&l->to, "%s%s is missing", l->prefix, row->name);
        if (there[group])
            return nn_fail(&l->to, "%s%s is missing, but %s is present", l->prefix, row->name, there[group]->name);
    }
    if (there[NN_LAYER_OUT] && !o->out_projection)
        return nn_fail(&l->to, "%s is present, but metadata out_projection is false", there[NN_LAYER_OUT]->name);
    const nn_safetensors_tensor *in = there[NN_LAYER_IN_BIASES], *out = there[NN_LAYER_OUT_BIASES];
    if (l->family->same_biases && o->out_projection && !in != !out && !nn_layer_notes_are_ours(l->file))
        return nn_fail(&l->to, "%s%s is missing, but %s is present: nn.MultiheadAttention has both or none", l->prefix,
                       l->row[in ? NN_LAYER_OUT_BIAS : NN_LAYER_IN_BIAS]->name, (in ? in : out)->name);
    o->in_bias = in;
    o->out_bias = out;
    o->bias_kv = there[NN_LAYER_EXTRA_KEY];
    o->sinks = there[NN_LAYER_SINK];
    o->gates = there[NN_LAYER_GATE];
    float epsilon = l->config->norm_epsilon > 0 ? l->config->norm_epsilon : usual_epsilon;
    if (there[NN_LAYER_NORMS] && !nn_safetensors_metadata(l->file, "norm_epsilon")) o->norm_epsilon = epsilon;
    if (there[NN_LAYER_NORMS] && !(o->norm_epsilon > 0))
        return nn_fail(&l->to, "%s is present, but metadata norm_epsilon is not above 0", there[NN_LAYER_NORMS]->name);
    if (!there[NN_LAYER_NORMS] && o->norm_epsilon != 0)
        return nn_fail(&l->to, "metadata norm_epsilon is %g, but there is no q_norm.weight", (double)o->norm_epsilon);
    return true;
}

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

static int file_rank(const nn_layer_name *row)
{
    return row->layout == NN_LAYER_LIFTED ? 3 : nn_layer_part_rank(row->part);
}

/* Rows or columns of a weight in the layer's layout. */
static int64_t size_of(const loading *l, nn_layer_part part, int axis)
{
    return l->tensor[part]->shape[l->row[part]->layout == NN_LAYER_TRANSPOSED ? 1 - axis : axis];
}

/* Sets *size = rows / shares if it is still unknown. `each`: the number of equal parts of the rows according to
 * `who`. */
static bool share(const loading *l, int64_t *size, nn_layer_part part, int64_t shares, int each, words who)
{
    int64_t rows = size_of(l, part, 0);
    if (*size) return true;
    if (rows % shares)
        return nn_fail(&l->to, "%s do not divide the %lld %s %s %s %s", who.text, (long long)(rows / each),
                       l->row[part]->layout == NN_LAYER_TRANSPOSED ? "columns" : "rows",
                       each > 1 ? "that Q, K and V have each in" : "of", l->tensor[part]->name,
                       shape_words(2, l->tensor[part]->shape).text);
    *size = rows / shares;
    return true;
}

/* Sizes that neither the metadata nor the caller give follow from the shapes and the number of heads. */
static bool learn_heads(loading *l)
{
    mha_layer_options *o = &l->options;
    if (l->tensor[NN_LAYER_IN_WEIGHT]) {
        if (!o->kv_heads) o->kv_heads = o->heads;
        int each = o->kv_heads == o->heads && size_of(l, NN_LAYER_IN_WEIGHT, 0) % 3 == 0 ? 3 : 1;
        words who = each > 1
                        ? say("%lld heads", (long long)o->heads)
                        : say("%lld heads of Q and %lld each of K and V", (long long)o->heads, (long long)o->kv_heads);
        if (!share(l, &o->head_width, NN_LAYER_IN_WEIGHT, o->heads + 2 * o->kv_heads, each, who)) return false;
        if (!o->value_head_width) o->value_head_width = o->head_width;
        return true;
    }
    return share(l, &o->head_width, NN_LAYER_Q_WEIGHT, o->heads, 1, say("%lld heads", (long long)o->heads)) &&
           share(l, &o->kv_heads, NN_LAYER_K_WEIGHT, o->head_width, 1,
                 say("heads of width %lld", (long long)o->head_width)) &&
           share(l, &o->value_head_width, NN_LAYER_V_WEIGHT, o->kv_heads, 1,
                 say("%lld heads of keys and values", (long long)o->kv_heads));
}

static void learn_widths(loading *l)
{
    mha_layer_options *o = &l->options;
    bool fused = l->tensor[NN_LAYER_IN_WEIGHT];
    if (!o->width)
        o->width = l->tensor[NN_LAYER_OUT_WEIGHT] ? size_of(l, NN_LAYER_OUT_WEIGHT, 0)
                                                  : size_of(l, fused ? NN_LAYER_IN_WEIGHT : NN_LAYER_Q_WEIGHT, 1);
    if (!o->key_width) o->key_width = fused ? o->width : size_of(l, NN_LAYER_K_WEIGHT, 1);
    if (!o->value_width) o->value_width = fused ? o->width : size_of(l, NN_LAYER_V_WEIGHT, 1);
}

static bool check_ranks(const loading *l)
{
    for (const nn_layer_name *row = l->family->names; row->name; row++) {
        const nn_safetensors_tensor *tensor = row->part < NN_LAYER_PARTS ? l->tensor[row->part] : NULL;
        int rank = tensor ? file_rank(row) : 0;
        if (tensor && tensor->rank != rank)
            return nn_fail(&l->to, "%s is %s, but should have %d %s", tensor->name,
                           shape_words(tensor->rank, tensor->shape).text, rank, rank > 1 ? "axes" : "axis");
        if (tensor && !tensor->count)
            return nn_fail(&l->to, "%s is %s: it is empty", tensor->name, shape_words(rank, tensor->shape).text);
    }
    return true;
}

/* Limits the sizes, so that no product of them overflows. */
static bool check_sizes(const loading *l)
{
    const mha_layer_options *o = &l->options;
    const struct {
        const char *what;
        int64_t size;
    } sizes[] = {{"heads", o->heads},
                 {"kv_heads", o->kv_heads},
                 {"width", o->width},
                 {"key_width", o->key_width},
                 {"value_width", o->value_width},
                 {"head_width", o->head_width},
                 {"value_head_width", o->value_head_width}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].size < 1 || sizes[i].size > NN_LAYER_SIZE_MAX)
            return nn_fail(&l->to, "%s is %lld, but should be from 1 to %d", sizes[i].what, (long long)sizes[i].size,
                           NN_LAYER_SIZE_MAX);
    return true;
}

static bool learn_sizes(loading *l)
{
    mha_layer_options *o = &l->options;
    if (!o->heads)
        return nn_fail(&l->to, "the number of heads is not in the file; give %s (or metadata \"heads\")",
                       l->caller.heads_word);
    if (o->heads < 1 || o->heads > NN_LAYER_SIZE_MAX || o->kv_heads < 0 || o->kv_heads > NN_LAYER_SIZE_MAX)
        return nn_fail(&l->to, "%lld heads with %lld heads of keys and values are not possible", (long long)o->heads,
                       (long long)o->kv_heads);
    if (!check_ranks(l) || !learn_heads(l)) return false;
    learn_widths(l);
    if (!check_sizes(l)) return false;
    char why[240];
    if (!nn_layer_config_agrees(o, l->config, "the tensors", why, sizeof why)) return nn_fail(&l->to, "%s", why);
    if (l->tensor[NN_LAYER_IN_WEIGHT] && (o->key_width != o->width || o->value_width != o->width))
        return nn_fail(&l->to, "%s is one weight for inputs of widths %lld, %lld and %lld",
                       l->tensor[NN_LAYER_IN_WEIGHT]->name, (long long)o->width, (long long)o->key_width,
                       (long long)o->value_width);
    return true;
}

/* Checks the shape of each tensor, in the layout of the file. */
static bool check_shapes(const loading *l)
{
    const mha_layer_options *o = &l->options;
    for (const nn_layer_name *row = l->family->names; row->name; row++) {
        const nn_safetensors_tensor *tensor = row->part < NN_LAYER_PARTS ? l->tensor[row->part] : NULL;
        if (!tensor) continue;
        int64_t plain[2];
        int rank = file_rank(row);
        nn_layer_part_shape(plain, row->part, o);
        const int64_t want[3][3] = {[NN_LAYER_DENSE] = {plain[0], plain[1]},
                                    [NN_LAYER_TRANSPOSED] = {plain[1], plain[0]},
                                    [NN_LAYER_LIFTED] = {1, 1, plain[0]}};
        if (memcmp(tensor->shape, want[row->layout], (size_t)rank * sizeof *want[0]) == 0) continue;
        words groups = {""};
        if (o->kv_heads != o->heads) groups = say(", %lld for keys and values,", (long long)o->kv_heads);
        return nn_fail(&l->to, "%s is %s, but %lld heads of width %lld%s need %s", tensor->name,
                       shape_words(tensor->rank, tensor->shape).text, (long long)o->heads, (long long)o->head_width,
                       groups.text, shape_words(rank, want[row->layout]).text);
    }
    return true;
}

/* ---- The layer -------------------------------------------------------------------------------------------------- */

static bool fill(loading *l, mha_layer *layer)
{
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    for (int part = 0; part < NN_LAYER_PARTS; part++) {
        if (!l->tensor[part]) continue;
        mha_tensor to = nn_layer_part_of(&parts, (nn_layer_part)part);
        if (l->row[part]->layout == NN_LAYER_TRANSPOSED) to = mha_tensor_swap(to, 0, 1);
        mha_tensor from = to;
        float *numbers = nn_safetensors_floats(l->ctx, l->tensor[part]);
        if (!numbers) {
            l->status = MHA_NO_MEMORY;
            return nn_fail(&l->to, "not enough memory for %s", l->tensor[part]->name);
        }
        from.data = numbers;
        from.stride[from.rank - 1] = 1;
        if (from.rank == 2) from.stride[0] = from.size[1];
        mha_status status = mha_tensor_copy(l->ctx, to, from);
        free(numbers);
        if (status) return nn_fail(&l->to, "%s: %s", l->tensor[part]->name, mha_context_error(l->ctx));
    }
    return true;
}

/* The caller's number of heads; a different one in the file is an error. */
static bool agree(const loading *l, int64_t *heads, int64_t asked, const char *what)
{
    if (asked && *heads && asked != *heads)
        return nn_fail(&l->to, "%s has %lld %s, but %lld were requested", l->config->heads ? "config.json" : "the file",
                       (long long)*heads, what, (long long)asked);
    if (asked) *heads = asked;
    return true;
}

/* In a Vision Transformer whose metadata give the head width, each block has its own number of heads: see vit_notes.h.
 * Errors are left to the later checks. */
static void count_own_heads(loading *l)
{
    mha_layer_options *o = &l->options;
    const char *format = nn_safetensors_metadata(l->file, "format");
    const nn_safetensors_tensor *in = l->tensor[NN_LAYER_IN_WEIGHT], *out = l->tensor[NN_LAYER_OUT_WEIGHT];
    int64_t D = o->head_width;
    if (!format || strcmp(format, "mha.vit") != 0 || D < 1 || !in || !out || in->rank != 2 || out->rank != 2) return;
    if (out->shape[1] % D != 0 || in->shape[0] <= out->shape[1] || (in->shape[0] - out->shape[1]) % (2 * D) != 0)
        return;
    l->own_heads = true;
    o->heads = out->shape[1] / D;
    o->kv_heads = (in->shape[0] - out->shape[1]) / (2 * D);
}

/* Defaults of the family, overridden by the file, overridden by the caller. */
static bool read_options(loading *l)
{
    char why[240];
    mha_layer_options usual = MHA_LAYER_DEFAULTS;
    l->options = usual;
    l->options.causal = l->family->causal;
    l->options.rotary_base = l->family->rotary_base;
    if (!nn_layer_config_apply(&l->options, l->config, l->family, why, sizeof why)) return nn_fail(&l->to, "%s", why);
    if (!nn_layer_notes_read(&l->options, l->file, why, sizeof why)) return nn_fail(&l->to, "%s", why);
    if (!nn_layer_config_agrees(&l->options, l->config, "the file's metadata", why, sizeof why))
        return nn_fail(&l->to, "%s", why);
    count_own_heads(l);
    if (l->caller.rotary_base != 0) l->options.rotary_base = l->caller.rotary_base;
    if (!nn_layer_config_agrees(&l->options, l->config, "the options", why, sizeof why))
        return nn_fail(&l->to, "%s", why);
    return agree(l, &l->options.heads, l->caller.heads, "heads") &&
           agree(l, &l->options.kv_heads, l->caller.kv_heads, "heads of keys and values");
}

/* Where the options come from; the file's metadata have been read without an error. */
static void name_sources(const loading *l, nn_layer_file *out)
{
    const nn_layer_config *c = l->config;
    bool causal = nn_safetensors_metadata(l->file, "causal"), base = nn_safetensors_metadata(l->file, "rotary_base");
    out->heads_from = l->caller.heads ? MHA_LAYER_FROM_OPTIONS
                      : l->own_heads  ? MHA_LAYER_FROM_TENSORS
                      : c->heads      ? MHA_LAYER_FROM_CONFIG
                                      : MHA_LAYER_FROM_METADATA;
    out->causal_from = c->causal_said ? MHA_LAYER_FROM_CONFIG
                       : causal       ? MHA_LAYER_FROM_METADATA
                                      : MHA_LAYER_FROM_FAMILY;
    out->rotary_from = l->caller.rotary_base != 0 ? MHA_LAYER_FROM_OPTIONS
                       : c->rotary_said           ? MHA_LAYER_FROM_CONFIG
                       : base                     ? MHA_LAYER_FROM_METADATA
                                                  : MHA_LAYER_FROM_FAMILY;
}

/* Creates the layer and fills it. */
static bool build(loading *l, nn_layer_file *out)
{
    mha_status status = mha_layer_create(l->ctx, &out->layer, &l->options, NULL);
    if (status == MHA_NO_MEMORY) l->status = status;
    if (status) return nn_fail(&l->to, "%s", mha_context_error(l->ctx));
    snprintf(out->prefix, sizeof out->prefix, "%s", l->prefix);
    name_sources(l, out);
    if (fill(l, out->layer)) return true;
    nn_layer_file_free(out);
    return false;
}

bool nn_layer_file_read(nn_layer_file *out, mha_context *ctx, const nn_safetensors *from, const char *name,
                        const nn_layer_file_options *options, char *error, size_t error_size)
{
    const nn_layer_config none = {.scale = NAN};
    loading l = {.ctx = ctx, .file = from, .to = {name, error, error_size}, .status = MHA_BAD_FILE};
    if (options) l.caller = *options;
    l.config = l.caller.config ? l.caller.config : &none;
    if (!l.caller.heads_word) l.caller.heads_word = "heads";
    if (!l.caller.prefix_word) l.caller.prefix_word = "the prefix";
    l.prefix = l.caller.prefix ? l.caller.prefix : "";
    *out = (nn_layer_file){.status = MHA_BAD_FILE};
    if (strlen(l.prefix) > NN_LAYER_PREFIX_MAX)
        return nn_fail(&l.to, "the prefix is longer than %d bytes", NN_LAYER_PREFIX_MAX);
    if (!find_family(&l)) return false;
    out->family = l.family;
    bool ok = check_strangers(&l) && bind(&l) && read_options(&l) && check_groups(&l) && learn_sizes(&l) &&
              check_shapes(&l) && build(&l, out);
    out->status = ok ? MHA_OK : l.status;
    return ok;
}

bool nn_layer_file_load(nn_layer_file *out, mha_context *ctx, const char *path, const nn_layer_file_options *options,
                        char *error, size_t error_size)
{
    *out = (nn_layer_file){.status = MHA_BAD_FILE};
    nn_safetensors *from = nn_safetensors_open(path, error, error_size);
    bool ok = from && nn_layer_file_read(out, ctx, from, path, options, error, error_size);
    nn_safetensors_free(from);
    return ok;
}

void nn_layer_file_free(nn_layer_file *file)
{
    mha_layer_free(file->layer);
    file->layer = NULL;
}
