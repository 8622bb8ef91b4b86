/* Loading a layer: find the family of names, bind its names to tensors (bind.c), determine the sizes, check every tensor
 * against them, and only then create the layer, so that a file cannot cause an allocation larger than its own size. */
#include "layer/loading.h"
#include "layer/notes.h"
#include "io/safetensors_floats.h"
#include "program/attention.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- Sizes ------------------------------------------------------------------------------------------------------ */

static int file_rank(const nn_layer_name *row) { return row->cut == NN_LIFTED ? 3 : nn_layer_part_rank(row->part); }

/* Rows or columns of a weight in the layer's layout. */
static int64_t size_of(const nn_layer_loading *l, nn_layer_part part, int axis)
{
    int64_t copies = axis == 0 ? nn_layer_copies(l, l->row[part]) : 1;
    return copies * l->tensor[part]->shape[l->row[part]->cut == NN_SWAPPED ? 1 - axis : axis];
}

/* Sets *size = rows / shares if it is still unknown. `each`: the number of equal parts of the rows according to
 * `who`. */
static bool share(const nn_layer_loading *l, int64_t *size, nn_layer_part part, int64_t shares, int each,
                  nn_layer_words who)
{
    int64_t rows = size_of(l, part, 0);
    if (*size) return true;
    if (rows % shares)
        return nn_fail(&l->to, "%s do not divide the %lld %s %s %s %s", who.text, (long long)(rows / each),
                       l->row[part]->cut == NN_SWAPPED ? "columns" : "rows",
                       each > 1 ? "that Q, K and V have each in" : "of", l->tensor[part]->name,
                       nn_layer_shape_words(2, l->tensor[part]->shape).text);
    *size = rows / shares;
    return true;
}

/* The part whose tensor has the rows of queries, keys and values; NN_LAYER_PARTS: each has its own. */
static nn_layer_part packed_part(const nn_layer_loading *l)
{
    const nn_layer_name *row = l->row[NN_LAYER_Q_WEIGHT];
    if (l->tensor[NN_LAYER_IN_WEIGHT]) return NN_LAYER_IN_WEIGHT;
    return row && nn_layer_name_shares(row) ? NN_LAYER_Q_WEIGHT : NN_LAYER_PARTS;
}

/* Sizes that neither the metadata nor the caller give follow from the shapes and the number of heads. */
static bool learn_heads(nn_layer_loading *l)
{
    mha_layer_options *o = &l->options;
    nn_layer_part packed = packed_part(l);
    if (packed < NN_LAYER_PARTS) {
        if (!o->kv_heads) o->kv_heads = o->heads;
        int each = o->kv_heads == o->heads && size_of(l, packed, 0) % 3 == 0 ? 3 : 1;
        nn_layer_words who = each > 1 ? nn_layer_say("%lld heads", (long long)o->heads)
                                      : nn_layer_say("%lld heads of Q and %lld each of K and V", (long long)o->heads,
                                                     (long long)o->kv_heads);
        if (!share(l, &o->head_width, packed, o->heads + 2 * o->kv_heads, each, who)) return false;
        if (!o->value_head_width) o->value_head_width = o->head_width;
        return true;
    }
    return share(l, &o->head_width, NN_LAYER_Q_WEIGHT, o->heads, 1, nn_layer_say("%lld heads", (long long)o->heads)) &&
           share(l, &o->kv_heads, NN_LAYER_K_WEIGHT, o->head_width, 1,
                 nn_layer_say("heads of width %lld", (long long)o->head_width)) &&
           share(l, &o->value_head_width, NN_LAYER_V_WEIGHT, o->kv_heads, 1,
                 nn_layer_say("%lld heads of keys and values", (long long)o->kv_heads));
}

static void learn_widths(nn_layer_loading *l)
{
    mha_layer_options *o = &l->options;
    bool fused = l->tensor[NN_LAYER_IN_WEIGHT];
    if (nn_layer_is_spelled(l) && !o->width) { /* which may give results of another width than that of their queries */
        o->width = size_of(l, NN_LAYER_Q_WEIGHT, 1);
        o->out_width = l->tensor[NN_LAYER_OUT_WEIGHT] ? size_of(l, NN_LAYER_OUT_WEIGHT, 0) : 0;
    }
    if (!o->width)
        o->width = l->tensor[NN_LAYER_OUT_WEIGHT] ? size_of(l, NN_LAYER_OUT_WEIGHT, 0)
                                                  : size_of(l, fused ? NN_LAYER_IN_WEIGHT : NN_LAYER_Q_WEIGHT, 1);
    if (!o->key_width) o->key_width = fused ? o->width : size_of(l, NN_LAYER_K_WEIGHT, 1);
    if (!o->value_width) o->value_width = fused ? o->width : size_of(l, NN_LAYER_V_WEIGHT, 1);
}

static bool check_ranks(const nn_layer_loading *l)
{
    for (const nn_layer_name *row = l->family->names; row->name; row++) {
        const nn_safetensors_tensor *tensor = row->part < NN_LAYER_PARTS ? l->tensor[row->part] : NULL;
        int rank = tensor ? file_rank(row) : 0;
        bool loose = *l->config->type && rank == 1; /* vectors of Cohere's heads are (H,D) */
        if (tensor && tensor->rank != rank && !loose)
            return nn_fail(&l->to, "%s is %s, but should have %d %s", tensor->name,
                           nn_layer_shape_words(tensor->rank, tensor->shape).text, rank, rank > 1 ? "axes" : "axis");
        if (tensor && !tensor->count)
            return nn_fail(&l->to, "%s is %s: it is empty", tensor->name,
                           nn_layer_shape_words(rank, tensor->shape).text);
    }
    return true;
}

/* Limits the sizes, so that no product of them overflows. */
static bool check_sizes(const nn_layer_loading *l)
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

static bool learn_sizes(nn_layer_loading *l)
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

/* The shape of a part in its tensor; of a list, of one head's. */
static nn_shape shape_of(const nn_layer_loading *l, const nn_layer_name *row)
{
    const mha_layer_options *o = &l->options;
    int64_t size[2];
    nn_layer_part_shape(size, row->part, o);
    return nn_cut_shape(row->cut, size[0] / nn_layer_copies(l, row), nn_layer_part_rank(row->part) > 1 ? size[1] : 0,
                        &(nn_cut_sizes){.heads = o->heads, .kv_heads = o->kv_heads, .head_width = o->head_width});
}

/* Checks the shape of each tensor, in the layout of the file. */
static bool check_shapes(const nn_layer_loading *l)
{
    const mha_layer_options *o = &l->options;
    if (o->heads % o->kv_heads)
        return nn_fail(&l->to, "kv_heads: %lld do not divide the %lld heads", (long long)o->kv_heads,
                       (long long)o->heads);
    for (const nn_layer_name *row = l->family->names; row->name; row++) {
        const nn_safetensors_tensor *tensor = row->part < NN_LAYER_PARTS ? l->tensor[row->part] : NULL;
        if (!tensor) continue;
        nn_shape want = shape_of(l, row);
        int64_t copies = nn_layer_copies(l, row), heads = row->part == NN_LAYER_K_NORM ? o->kv_heads : o->heads;
        if (nn_layer_name_lists(row->name) && copies != heads)
            return nn_fail(&l->to, "%s and its like are %lld, for %lld heads", tensor->name, (long long)copies,
                           (long long)heads);
        if (memcmp(tensor->shape, want.whole, (size_t)want.whole_rank * sizeof *want.whole) == 0) continue;
        if (*l->config->type && nn_shape_fits(&want, tensor)) continue;
        nn_layer_words groups = {""};
        if (o->kv_heads != o->heads) groups = nn_layer_say(", %lld for keys and values,", (long long)o->kv_heads);
        return nn_fail(&l->to, "%s is %s, but %lld heads of width %lld%s need %s", tensor->name,
                       nn_layer_shape_words(tensor->rank, tensor->shape).text, (long long)o->heads,
                       (long long)o->head_width, groups.text, nn_layer_shape_words(want.whole_rank, want.whole).text);
    }
    return true;
}

/* ---- The layer -------------------------------------------------------------------------------------------------- */

/* Numbers of the file go one behind another to `to`, where the layer has the part. */
static bool fill_part(nn_layer_loading *l, float *to, const nn_layer_name *row, const nn_safetensors_tensor *tensor)
{
    nn_shape shape = shape_of(l, row);
    float *numbers = nn_safetensors_floats(l->ctx, tensor);
    if (!numbers) {
        l->status = MHA_NO_MEMORY;
        return nn_fail(&l->to, "not enough memory for %s", tensor->name);
    }
    mha_tensor from = nn_shape_view(&shape, numbers, MHA_FLOAT32), dense = from;
    int64_t count = 1;
    dense.data = to;
    for (int axis = from.rank - 1; axis >= 0; axis--) dense.stride[axis] = count, count *= from.size[axis];
    mha_status status = mha_tensor_copy(l->ctx, dense, from);
    for (int64_t i = 0; row->plus_one && i < count; i++) to[i] += 1;
    free(numbers);
    return !status || nn_fail(&l->to, "%s: %s", tensor->name, mha_context_error(l->ctx));
}

static bool fill(nn_layer_loading *l, mha_layer *layer)
{
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    for (int part = 0; part < NN_LAYER_PARTS; part++) {
        if (!l->tensor[part]) continue;
        const nn_layer_name *row = l->row[part];
        mha_tensor whole = nn_layer_part_of(&parts, (nn_layer_part)part);
        int64_t copies = nn_layer_copies(l, row), count = whole.size[0] * (whole.rank > 1 ? whole.size[1] : 1) / copies;
        for (int64_t head = 0; head < copies; head++)
            if (!fill_part(l, (float *)whole.data + head * count, row, nn_layer_find(l, row->name, head))) return false;
    }
    return true;
}

/* The caller's number of heads; a different one in the file is an error. */
static bool agree(const nn_layer_loading *l, int64_t *heads, int64_t asked, const char *what)
{
    if (asked && *heads && asked != *heads)
        return nn_fail(&l->to, "%s has %lld %s, but %lld were requested",
                       l->config->options.heads ? "config.json" : "the file", (long long)*heads, what,
                       (long long)asked);
    if (asked) *heads = asked;
    return true;
}

/* In a Vision Transformer whose metadata give the head width, each block has its own number of heads: see vit_notes.h.
 * Errors are left to the later checks. */
static void count_own_heads(nn_layer_loading *l)
{
    mha_layer_options *o = &l->options;
    const char *format = nn_safetensors_metadata(nn_layer_notes_of(l), "format");
    const nn_safetensors_tensor *in = l->tensor[NN_LAYER_IN_WEIGHT], *out = l->tensor[NN_LAYER_OUT_WEIGHT];
    int64_t D = o->head_width;
    if (!format || strcmp(format, "mha.vit") != 0 || D < 1 || !in || !out || in->rank != 2 || out->rank != 2) return;
    if (out->shape[1] % D != 0 || in->shape[0] <= out->shape[1] || (in->shape[0] - out->shape[1]) % (2 * D) != 0)
        return;
    l->own_heads = true;
    o->heads = out->shape[1] / D;
    o->kv_heads = (in->shape[0] - out->shape[1]) / (2 * D);
}

/* A list has as many heads as modules. */
static bool count_list(nn_layer_loading *l)
{
    mha_layer_options *o = &l->options;
    int64_t heads = l->modules->heads;
    if ((o->heads && o->heads != heads) || (o->kv_heads && o->kv_heads != heads))
        return nn_fail(&l->to, "the list has %lld heads, but the metadata have %lld", (long long)heads,
                       (long long)(o->heads && o->heads != heads ? o->heads : o->kv_heads));
    o->heads = o->kv_heads = heads;
    l->own_heads = true;
    return true;
}

/* Defaults of the family, overridden by the file, overridden by the caller. */
static bool read_options(nn_layer_loading *l)
{
    char why[240];
    mha_layer_options usual = MHA_LAYER_DEFAULTS;
    usual.causal = l->family->causal;
    usual.rotary_base = l->family->rotary_base;
    l->options = *l->config->type ? l->config->options : usual;
    l->options.width = l->options.key_width = l->options.value_width = 0; /* which the tensors show */
    if (!nn_layer_notes_read(&l->options, nn_layer_notes_of(l), why, sizeof why)) return nn_fail(&l->to, "%s", why);
    if (!nn_layer_config_agrees(&l->options, l->config, "the file's metadata", why, sizeof why))
        return nn_fail(&l->to, "%s", why);
    count_own_heads(l);
    if (l->modules->heads && !count_list(l)) return false;
    if (l->caller.rotary_base != 0) l->options.rotary_base = l->caller.rotary_base;
    if (!nn_layer_config_agrees(&l->options, l->config, "the options", why, sizeof why))
        return nn_fail(&l->to, "%s", why);
    return agree(l, &l->options.heads, l->caller.heads, "heads") &&
           agree(l, &l->options.kv_heads, l->caller.kv_heads, "heads of keys and values");
}

/* Where the options come from; the file's metadata have been read without an error. */
static void name_sources(const nn_layer_loading *l, nn_layer_file *out)
{
    const nn_layer_config *c = l->config;
    bool causal = nn_safetensors_metadata(nn_layer_notes_of(l), "causal"),
         base = nn_safetensors_metadata(nn_layer_notes_of(l), "rotary_base");
    out->heads_from = l->caller.heads    ? MHA_LAYER_FROM_OPTIONS
                      : l->own_heads     ? MHA_LAYER_FROM_TENSORS
                      : c == &l->made    ? MHA_LAYER_FROM_FAMILY
                      : c->options.heads ? MHA_LAYER_FROM_CONFIG
                                         : MHA_LAYER_FROM_METADATA;
    out->causal_from = c->causal_said                                ? MHA_LAYER_FROM_CONFIG
                       : causal                                      ? MHA_LAYER_FROM_METADATA
                       : nn_layer_is_spelled(l) && l->family->causal ? MHA_LAYER_FROM_TENSORS
                                                                     : MHA_LAYER_FROM_FAMILY;
    out->rotary_from = l->caller.rotary_base != 0 ? MHA_LAYER_FROM_OPTIONS
                       : c->rotary_said           ? MHA_LAYER_FROM_CONFIG
                       : base                     ? MHA_LAYER_FROM_METADATA
                                                  : MHA_LAYER_FROM_FAMILY;
}

/* Scaled frequencies in place of the base. Those that depend on the length of a sequence are given as a table of the lengths
 * that have the same ones: a position beyond it is an error. */
static bool scale_rotary(nn_layer_loading *l, nn_layer_file *out, mha_layer_options *o)
{
    const nn_attention_config *a = &l->config->attention;
    float frequencies[NN_ROTARY_MOST];
    const char *problem = *l->config->type ? nn_attention_problem(a, o->head_width) : NULL;
    int64_t w = o->rotary_width ? o->rotary_width : o->head_width, rows = a->rotary.trained;
    if (problem) return nn_fail(&l->to, "config.json: %s", problem);
    if (!(o->rotary_base > 0) || a->rotary.scaling == NN_ROTARY_AS_IS) return true;
    float multiplier = (float)nn_rotary_frequencies(frequencies, a, w, 0);
    bool varies = a->rotary.scaling == NN_ROTARY_DYNAMIC || a->rotary.scaling == NN_ROTARY_LONG;
    mha_tensor scaled = mha_tensor_1d(frequencies, MHA_FLOAT32, w / 2);
    o->rotary_base = 0;
    if (!varies) {
        memcpy(out->frequencies, frequencies, sizeof frequencies);
        o->rotary_frequencies = mha_tensor_1d(out->frequencies, MHA_FLOAT32, w / 2);
        o->rotary_multiplier = multiplier;
        return true;
    }
    if (rows > NN_LAYER_SIZE_MAX / w || !(out->tables = malloc((size_t)(rows * w) * sizeof *out->tables))) {
        l->status = MHA_NO_MEMORY;
        return nn_fail(&l->to, "not enough memory for the angles of %lld positions", (long long)rows);
    }
    o->rotary_cos = mha_tensor_2d(out->tables, MHA_FLOAT32, rows, w / 2);
    o->rotary_sin = mha_tensor_2d(out->tables + rows * (w / 2), MHA_FLOAT32, rows, w / 2);
    return !mha_rotary_tables_from(l->ctx, o->rotary_cos, o->rotary_sin, scaled, (double)multiplier) ||
           nn_fail(&l->to, "%s", mha_context_error(l->ctx));
}

/* Creates the layer and fills it. */
static bool build(nn_layer_loading *l, nn_layer_file *out)
{
    mha_layer_options options = l->options;
    if (!scale_rotary(l, out, &options)) return false;
    mha_status status = mha_layer_create(l->ctx, &out->layer, &options, NULL);
    if (status == MHA_NO_MEMORY) l->status = status;
    if (status) return nn_fail(&l->to, "%s", mha_context_error(l->ctx));
    out->rotary_base = l->options.rotary_base;
    memcpy(out->type, l->config->type, sizeof out->type);
    snprintf(out->prefix, sizeof out->prefix, "%s", l->prefix);
    name_sources(l, out);
    return fill(l, out->layer);
}

static bool read_shards(nn_layer_file *out, mha_context *ctx, const nn_shards *from, const char *name,
                        const nn_layer_file_options *options, char *error, size_t error_size)
{
    const nn_layer_config none = {.options = MHA_LAYER_DEFAULTS};
    nn_layer_loading l = {.ctx = ctx, .file = from, .to = {name, error, error_size}, .status = MHA_BAD_FILE};
    if (options) l.caller = *options;
    l.config = l.caller.config ? l.caller.config : &none;
    if (!l.caller.heads_word) l.caller.heads_word = "heads";
    if (!l.caller.prefix_word) l.caller.prefix_word = "the prefix";
    static const char *const roles[NN_LAYER_MODULES] = {"the name of q", "the name of k", "the name of v",
                                                        "the name of the output projection"};
    for (int role = 0; role < NN_LAYER_MODULES; role++)
        if (!l.caller.map.word[role]) l.caller.map.word[role] = roles[role];
    l.prefix = l.caller.prefix ? l.caller.prefix : "";
    *out = (nn_layer_file){.status = MHA_BAD_FILE};
    if (strlen(l.prefix) > NN_LAYER_PREFIX_MAX)
        return nn_fail(&l.to, "the prefix is longer than %d bytes", NN_LAYER_PREFIX_MAX);
    bool ok = nn_layer_find_family(&l);
    out->family = l.family;
    out->modules = l.modules;
    ok = ok && nn_layer_bind(&l) && read_options(&l) && nn_layer_check_groups(&l) && learn_sizes(&l) &&
         check_shapes(&l) && build(&l, out);
    out->status = ok ? MHA_OK : l.status;
    if (!ok) nn_layer_file_free(out);
    return ok;
}

bool nn_layer_file_read(nn_layer_file *out, mha_context *ctx, const nn_safetensors *from, const char *name,
                        const nn_layer_file_options *options, char *error, size_t error_size)
{
    nn_safetensors *file = (nn_safetensors *)(uintptr_t)from;
    return read_shards(out, ctx, &(nn_shards){&file, 1}, name, options, error, error_size);
}

bool nn_layer_file_load(nn_layer_file *out, mha_context *ctx, const char *path, const nn_layer_file_options *options,
                        char *error, size_t error_size)
{
    struct stat about;
    *out = (nn_layer_file){.status = MHA_BAD_FILE};
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode)) {
        nn_shards shards;
        if (!nn_shards_open(&shards, path, true, error, error_size)) return false;
        bool ok = read_shards(out, ctx, &shards, path, options, error, error_size);
        nn_shards_close(&shards);
        return ok;
    }
    nn_safetensors *from;
    nn_safetensors_open(&from, path, error, error_size);
    bool ok = from && nn_layer_file_read(out, ctx, from, path, options, error, error_size);
    nn_safetensors_free(from);
    return ok;
}

void nn_layer_file_free(nn_layer_file *file)
{
    mha_layer_free(file->layer);
    file->layer = NULL;
    if (file->modules) file->family = NULL; /* which is part of them */
    free(file->modules);
    file->modules = NULL;
    free(file->tables);
    file->tables = NULL;
}
