/* The usual names of linear layers in attention modules, and the search for them. */
#include "layer/modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct spelling {
    const char *name[NN_LAYER_MODULES]; /* the last one NULL: any of `outs`, or none */
    bool needs_out;                     /* without an output projection it is an incomplete layer of a family */
} spelling;

/* clang-format off */
static const spelling spellings[] = {
    {{"W_q", "W_k", "W_v", NULL}, false},
    {{"W_Q", "W_K", "W_V", NULL}, false},
    {{"w_q", "w_k", "w_v", NULL}, false},
    {{"Wq", "Wk", "Wv", NULL}, false},
    {{"wq", "wk", "wv", NULL}, false},
    {{"WQ", "WK", "WV", NULL}, false},
    {{"w_qs", "w_ks", "w_vs", NULL}, false},
    {{"W_query", "W_key", "W_value", NULL}, false},
    {{"w_query", "w_key", "w_value", NULL}, false},
    {{"query_linear", "key_linear", "value_linear", NULL}, false},
    {{"linear_query", "linear_key", "linear_value", NULL}, false},
    {{"q_linear", "k_linear", "v_linear", NULL}, false},
    {{"linear_q", "linear_k", "linear_v", NULL}, false},
    {{"q_lin", "k_lin", "v_lin", NULL}, false},
    {{"query_proj", "key_proj", "value_proj", NULL}, false},
    {{"query_projection", "key_projection", "value_projection", NULL}, false},
    {{"q_projection", "k_projection", "v_projection", NULL}, false},
    {{"proj_q", "proj_k", "proj_v", NULL}, false},
    {{"q_proj", "k_proj", "v_proj", NULL}, true},
    {{"query_layer", "key_layer", "value_layer", NULL}, false},
    {{"query_dense", "key_dense", "value_dense", NULL}, false},
    {{"query", "key", "value", NULL}, false},
    {{"queries", "keys", "values", NULL}, false},
    {{"fc_q", "fc_k", "fc_v", NULL}, false},
    {{"fc_query", "fc_key", "fc_value", NULL}, false},
    {{"to_q", "to_k", "to_v", NULL}, false},
    {{"to_queries", "to_keys", "to_values", NULL}, false},
    {{"toqueries", "tokeys", "tovalues", NULL}, false},
    {{"to_query", "to_key", "to_value", NULL}, false},
    {{"linears.0", "linears.1", "linears.2", "linears.3"}, false},
    {{"linear_layers.0", "linear_layers.1", "linear_layers.2", NULL}, false},
};
/* clang-format on */

static const char *const outs[] = {"W_o",
                                   "W_O",
                                   "w_o",
                                   "Wo",
                                   "wo",
                                   "WO",
                                   "W_out",
                                   "w_out",
                                   "out_linear",
                                   "output_linear",
                                   "linear_out",
                                   "o_lin",
                                   "out_lin",
                                   "o_linear",
                                   "linear_o",
                                   "final_linear",
                                   "out_proj",
                                   "output_proj",
                                   "o_proj",
                                   "proj_o",
                                   "proj_out",
                                   "out_projection",
                                   "output_projection",
                                   "projection",
                                   "proj",
                                   "fc_out",
                                   "fc_o",
                                   "out_fc",
                                   "fc",
                                   "out",
                                   "output",
                                   "out_layer",
                                   "output_layer",
                                   "to_out",
                                   "to_out.0",
                                   "dense",
                                   "linear",
                                   "unify_heads",
                                   "unifyheads",
                                   "combine_heads",
                                   "c_proj"};

static const char *const lists[] = {"", "heads.{h}.", "attention_heads.{h}.", "attn_heads.{h}.", "attentions.{h}."};

static const char *const masks[] = {"mask", "tril", "triu", "causal_mask", "attn_mask", "attention_mask"};

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const nn_layer_part weights[NN_LAYER_MODULES] = {NN_LAYER_Q_WEIGHT, NN_LAYER_K_WEIGHT, NN_LAYER_V_WEIGHT,
                                                        NN_LAYER_OUT_WEIGHT};
static const nn_layer_part biases[NN_LAYER_MODULES] = {NN_LAYER_Q_BIAS, NN_LAYER_K_BIAS, NN_LAYER_V_BIAS,
                                                       NN_LAYER_OUT_BIAS};

typedef struct search {
    const nn_shards *file;
    const char *prefix;
    const nn_layer_map *map;
    const nn_failure *to;
    nn_layer_modules *m;
} search;

/* list, name and end, one behind another; the caller knows that they fit, or compares what comes of it. */
static void join(char text[NN_LAYER_MODULE_NAME], const char *list, const char *name, const char *end)
{
    const char *const all[] = {list, name, end};
    size_t used = 0;
    for (int n = 0; n < 3; n++)
        for (const char *c = all[n]; *c && used + 1 < NN_LAYER_MODULE_NAME; c++) text[used++] = *c;
    text[used] = '\0';
}

/* ---- Tensors by name -------------------------------------------------------------------------------------------- */

static const nn_safetensors_tensor *find(const search *s, const char *list, const char *name, const char *end,
                                         int64_t head)
{
    char open[NN_LAYER_MODULE_NAME], full[NN_LAYER_PREFIX_MAX + NN_LAYER_MODULE_NAME + 24];
    if (strlen(list) + strlen(name) + strlen(end) >= sizeof open) return NULL;
    join(open, list, name, end);
    int length = snprintf(full, sizeof full, "%s", s->prefix);
    nn_layer_name_of_head(full + length, sizeof full - (size_t)length, open, head);
    return nn_shards_find(s->file, full);
}

static void add_row(search *s, const char *list, const char *name, const char *end, nn_layer_part part, nn_cut cut)
{
    nn_layer_modules *m = s->m;
    if (m->rows + 1 >= NN_LAYER_NAMES) return; /* the last one ends the list; eight parts and a few masks fit */
    char *text = m->name[m->rows];
    join(text, list, name, end);
    bool weight = part == NN_LAYER_Q_WEIGHT || part == NN_LAYER_K_WEIGHT || part == NN_LAYER_V_WEIGHT;
    m->family.names[m->rows++] = (nn_layer_name){.name = text, .part = part, .cut = cut, .optional = !weight};
}

/* The rows of a linear layer, and its name for the title. A bias that only some projections have is an optional part. */
static void add_module(search *s, const char *list, const char *name, int role)
{
    size_t used = strlen(s->m->title);
    char shown[NN_LAYER_MODULE_NAME];
    join(shown, list, name, "");
    char *open = strstr(shown, "{h}");
    if (open) memmove(open + 1, open + 3, strlen(open + 3) + 1), *open = 'N';
    snprintf(s->m->title + used, sizeof s->m->title - used, "%s%s", used ? ", " : "", shown);
    add_row(s, list, name, ".weight", weights[role], NN_WHOLE);
    add_row(s, list, name, ".bias", biases[role], NN_WHOLE);
}

/* ---- Names of the caller ---------------------------------------------------------------------------------------- */

static bool add_mapped(search *s, int role)
{
    const char *given = s->map->name[role];
    char name[NN_LAYER_MODULE_NAME];
    size_t length = strlen(given);
    if (!length || length + sizeof ".weight" > sizeof name)
        return nn_fail(s->to, "%s: a name must have from 1 to %d bytes", s->map->word[role],
                       (int)(sizeof name - sizeof ".weight"));
    snprintf(name, sizeof name, "%s", given);
    if (find(s, "", name, ".weight", 0)) return add_module(s, "", name, role), true;
    nn_cut cut = NN_WHOLE;
    if (!find(s, "", name, "", 0) && length > 2 && strcmp(name + length - 2, ".T") == 0) {
        name[length - 2] = '\0';
        cut = NN_SWAPPED;
    }
    size_t used = strlen(s->m->title);
    snprintf(s->m->title + used, sizeof s->m->title - used, "%s%s", used ? ", " : "", given);
    if (find(s, "", name, "", 0)) return add_row(s, "", name, "", weights[role], cut), true;
    if (cut == NN_SWAPPED && find(s, "", name, ".weight", 0)) {
        add_row(s, "", name, ".weight", weights[role], cut);
        add_row(s, "", name, ".bias", biases[role], NN_WHOLE);
        return true;
    }
    return nn_fail(s->to, "%s: there is no tensor \"%s%s.weight\" or \"%s%s\"", s->map->word[role], s->prefix, name,
                   s->prefix, name);
}

bool nn_layer_map_is_given(const nn_layer_map *map)
{
    for (int role = 0; role < NN_LAYER_MODULES; role++)
        if (map->name[role]) return true;
    return false;
}

/* ---- The usual names -------------------------------------------------------------------------------------------- */

/* The output projection: one of the usual names. NULL if there is none; false on error if there are two. */
static bool find_out(const search *s, const spelling *how, const char **name)
{
    *name = NULL;
    if (how && how->name[NN_LAYER_MODULE_OUT]) {
        bool there = find(s, "", how->name[NN_LAYER_MODULE_OUT], ".weight", 0);
        if (there) *name = how->name[NN_LAYER_MODULE_OUT];
        return true;
    }
    for (size_t n = 0; n < COUNT(outs); n++) {
        if (!find(s, "", outs[n], ".weight", 0)) continue;
        if (*name)
            return nn_fail(s->to, "both %s%s.weight and %s%s.weight could be the output projection; give %s", s->prefix,
                           *name, s->prefix, outs[n], s->map->word[NN_LAYER_MODULE_OUT]);
        *name = outs[n];
    }
    return true;
}

/* The spelling and the list that most projections of the inputs have. */
static int find_spelling(const search *s, const spelling **how, const char **list)
{
    int most = 0;
    for (size_t l = 0; l < COUNT(lists); l++)
        for (size_t n = 0; n < COUNT(spellings); n++) {
            int count = 0;
            const char *out = NULL;
            for (int role = 0; role < NN_LAYER_MODULE_OUT; role++)
                count += !s->map->name[role] && find(s, lists[l], spellings[n].name[role], ".weight", 0);
            if (count && spellings[n].needs_out && !s->map->name[NN_LAYER_MODULE_OUT] &&
                (!find_out(s, NULL, &out) || !out || !strcmp(out, "o_proj") || !strcmp(out, "out_proj")))
                continue;
            if (count <= most) continue;
            most = count;
            *how = &spellings[n];
            *list = lists[l];
        }
    return most;
}

/* ---- Masks ------------------------------------------------------------------------------------------------------ */

static bool is_zero(const nn_safetensors_tensor *t, int64_t n)
{
    size_t size = nn_safetensors_dtype_size(t->dtype);
    const unsigned char *at = (const unsigned char *)t->data + (size_t)n * size;
    for (size_t i = 0; i < size; i++)
        if (at[i]) return false;
    return true;
}

/* Whether exactly the keys up to the query are set, or exactly those behind it. */
static bool is_causal(const nn_safetensors_tensor *t)
{
    int64_t T = t->rank >= 2 ? t->shape[t->rank - 1] : 0;
    bool lower = true, upper = true;
    if (t->rank < 2 || t->shape[t->rank - 2] != T || t->count != T * T) return false;
    for (int64_t n = 0; n < T * T; n++) {
        bool seen = n % T <= n / T;
        lower = lower && is_zero(t, n) != seen;
        upper = upper && is_zero(t, n) == seen;
    }
    return lower || upper;
}

static bool find_masks(search *s, const char *list)
{
    for (size_t n = 0; n < COUNT(masks); n++)
        for (int level = 0; level < (*list ? 2 : 1); level++) {
            const char *where = level ? list : "";
            bool seen = false;
            for (int64_t h = 0; h < (level ? s->m->heads : 1); h++) {
                const nn_safetensors_tensor *t = find(s, where, masks[n], "", h);
                if (!t) continue;
                if (!is_causal(t)) return nn_fail(s->to, "%s is not a causal mask, and no other is known", t->name);
                seen = s->m->family.causal = true;
            }
            if (seen) add_row(s, where, masks[n], "", NN_LAYER_IGNORED, NN_WHOLE);
        }
    return true;
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

/* How many heads the list has: a list without a gap, whose first name is that of a query's weight. */
static void count_heads(search *s)
{
    const char *name = s->m->family.names[0].name;
    if (!nn_layer_name_lists(name)) return;
    while (find(s, "", name, "", s->m->heads)) s->m->heads++;
}

/* Weights that are parameters of their own may be (out,in) or (in,out), which their shape need not show. */
static bool refuse_bare(const search *s)
{
    for (size_t l = 0; l < COUNT(lists); l++)
        for (size_t n = 0; n < COUNT(spellings); n++) {
            const char *name = spellings[n].name[NN_LAYER_MODULE_Q];
            const nn_safetensors_tensor *t = find(s, lists[l], name, "", 0);
            if (t && t->rank == 2 && find(s, lists[l], spellings[n].name[NN_LAYER_MODULE_K], "", 0))
                return nn_fail(
                    s->to,
                    "%s is a parameter, not the weight of a linear layer: give %s as %s%s if it is (out,in), "
                    "as %s%s.T if it is (in,out), and so on",
                    t->name, s->map->word[NN_LAYER_MODULE_Q], lists[l], name, lists[l], name);
        }
    return true;
}

static bool search_all(search *s)
{
    const spelling *how = NULL;
    const char *list = "", *out = s->map->name[NN_LAYER_MODULE_OUT];
    int most = find_spelling(s, &how, &list), mapped = 0;
    for (int role = 0; role < NN_LAYER_MODULE_OUT; role++) mapped += s->map->name[role] != NULL;
    if (!most && !nn_layer_map_is_given(s->map)) return refuse_bare(s);
    if (!most && mapped < NN_LAYER_MODULE_OUT) {
        int role = 0;
        while (s->map->name[role]) role++;
        return nn_fail(s->to, "no tensor has a usual name of this projection; give %s", s->map->word[role]);
    }
    for (int role = 0; role < NN_LAYER_MODULE_OUT; role++) {
        if (!s->map->name[role]) add_module(s, list, how->name[role], role);
        else if (!add_mapped(s, role)) return false;
    }
    if (out && !add_mapped(s, NN_LAYER_MODULE_OUT)) return false;
    if (!out && !find_out(s, how, &out)) return false;
    if (out && !s->map->name[NN_LAYER_MODULE_OUT]) add_module(s, "", out, NN_LAYER_MODULE_OUT);
    count_heads(s);
    s->m->family.title = s->m->title;
    return find_masks(s, list);
}

bool nn_layer_modules_find(nn_layer_modules **found, const nn_shards *file, const char *prefix, const nn_layer_map *map,
                           const nn_failure *to)
{
    search s = {.file = file, .prefix = prefix, .map = map, .to = to};
    *found = NULL;
    s.m = calloc(1, sizeof *s.m);
    if (!s.m) return nn_fail(to, "not enough memory for the names of a layer");
    bool ok = search_all(&s);
    if (ok && s.m->rows) *found = s.m;
    else free(s.m);
    return ok;
}

/* Whether the first bytes of a name end with an element of a list of heads, such as "heads.3.". */
static bool ends_in_list(const char *name, size_t length)
{
    size_t digits = 0;
    while (length > digits + 1 && strchr("0123456789", name[length - 2 - digits])) digits++;
    for (size_t l = 1; digits && l < COUNT(lists); l++) {
        size_t stem = strcspn(lists[l], "{"), before = length - 1 - digits;
        if (before >= stem && strncmp(name + before - stem, lists[l], stem) == 0) return true;
    }
    return false;
}

size_t nn_layer_modules_prefix(const char *name)
{
    size_t length = strlen(name);
    for (size_t l = 0; l < COUNT(lists); l++)
        for (size_t n = 0; n < COUNT(spellings); n++) {
            char open[NN_LAYER_MODULE_NAME], tail[NN_LAYER_MODULE_NAME];
            join(open, lists[l], spellings[n].name[NN_LAYER_MODULE_Q], ".weight");
            nn_layer_name_of_head(tail, sizeof tail, open, 0);
            size_t before = length > strlen(tail) ? length - strlen(tail) : 0;
            if (before && before <= NN_LAYER_PREFIX_MAX && strcmp(name + before, tail) == 0 &&
                name[before - 1] == '.' && (*lists[l] || !ends_in_list(name, before)))
                return before;
        }
    return 0;
}
