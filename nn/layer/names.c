/* From the tables of families to the rows of a layer; the search for layers in a larger file; and the position, shape and group
 * of each part. */
#include "layer/modules.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* ---- Places ----------------------------------------------------------------------------------------------------- */

/* What a part of a model is in a layer, of attention and of cross-attention. */
static const struct {
    int self, cross;
    nn_layer_part part;
} roles[] = {
    {NN_Q, NN_CROSS_Q, NN_LAYER_Q_WEIGHT},
    {NN_K, NN_CROSS_K, NN_LAYER_K_WEIGHT},
    {NN_V, NN_CROSS_V, NN_LAYER_V_WEIGHT},
    {NN_Q_BIAS, NN_CROSS_Q_BIAS, NN_LAYER_Q_BIAS},
    {NN_K_BIAS, NN_CROSS_K_BIAS, NN_LAYER_K_BIAS},
    {NN_V_BIAS, NN_CROSS_V_BIAS, NN_LAYER_V_BIAS},
    {NN_PROJ, NN_CROSS_PROJ, NN_LAYER_OUT_WEIGHT},
    {NN_PROJ_BIAS, NN_CROSS_PROJ_BIAS, NN_LAYER_OUT_BIAS},
    {NN_Q_NORM, NN_CROSS_Q_NORM, NN_LAYER_Q_NORM},
    {NN_K_NORM, NN_CROSS_K_NORM, NN_LAYER_K_NORM},
    {NN_Q_NORM_BIAS, NN_CROSS_Q_NORM_BIAS, NN_LAYER_Q_NORM_BIAS},
    {NN_K_NORM_BIAS, NN_CROSS_K_NORM_BIAS, NN_LAYER_K_NORM_BIAS},
    {NN_SINKS, -1, NN_LAYER_SINKS},
    {NN_BARE_KEY, -1, NN_LAYER_BIAS_K},
    {NN_BARE_VALUE, -1, NN_LAYER_BIAS_V},
    {NN_BARE_GATES, -1, NN_LAYER_GATES},
};

/* NN_LAYER_PARTS if it is none of this attention. */
static nn_layer_part part_of(const nn_layer_place *p, const nn_name *name)
{
    for (size_t n = 0; n < sizeof roles / sizeof *roles && name->encoder == p->encoder; n++)
        if ((int)name->part == (p->cross ? roles[n].cross : roles[n].self)) return roles[n].part;
    return NN_LAYER_PARTS;
}

/* A walk over a family's lists of names, one list behind another. */
typedef struct walk {
    const nn_family *family;
    int list;
    const nn_name *next;
} walk;

static walk names_of(const nn_family *f) { return (walk){f, 0, f->names[0]}; }

/* NULL behind the last. */
static const nn_name *next_name(walk *w)
{
    while (w->list < NN_FAMILY_LISTS && !(w->next && w->next->name))
        w->next = ++w->list < NN_FAMILY_LISTS ? w->family->names[w->list] : NULL;
    return w->list < NN_FAMILY_LISTS ? w->next++ : NULL;
}

/* What all names of the attention begin with, up to a dot. Returns false if it has no names. */
static bool find_stem(nn_layer_place *p)
{
    const nn_name *first = NULL, *name;
    for (walk w = names_of(p->family); (name = next_name(&w));) {
        if (part_of(p, name) == NN_LAYER_PARTS) continue;
        if (!first) first = name, p->stem = strlen(name->name);
        size_t same = 0;
        while (same < p->stem && first->name[same] == name->name[same]) same++;
        while (same && first->name[same - 1] != '.') same--;
        p->stem = same;
    }
    return first;
}

static const char *stem_of(const nn_layer_place *p)
{
    const nn_name *name;
    for (walk w = names_of(p->family); (name = next_name(&w));)
        if (part_of(p, name) != NN_LAYER_PARTS) return name->name;
    return "";
}

/* Whether a text is so many bytes of a pattern, whose {l} and other letters stand for numbers. */
static bool matches(const char *text, const char *pattern, size_t length, int64_t *block)
{
    const char *end = pattern + length;
    for (; pattern < end; pattern++) {
        if (*pattern != '{') {
            if (*text++ != *pattern) return false;
            continue;
        }
        size_t digits = strspn(text, "0123456789");
        int64_t number = 0;
        if (!digits || digits > 6) return false;
        for (; digits; digits--) number = 10 * number + (*text++ - '0');
        if (pattern[1] == 'l') *block = number;
        pattern += 2;
    }
    return !*text;
}

/* How many bytes of the stem a prefix ends with, and which block that says. */
static size_t end_of_stem(const nn_layer_place *p, const char *prefix, int64_t *block)
{
    const char *stem = stem_of(p);
    for (size_t from = 0; from < p->stem; from += strcspn(stem + from, ".") + 1)
        for (const char *at = prefix; *at; at += strcspn(at, "."), at += *at == '.') {
            *block = -1;
            if (matches(at, stem + from, p->stem - from, block)) return p->stem - from;
        }
    *block = -1;
    return 0;
}

bool nn_layer_place_find(nn_layer_place *place, const nn_family *family, const char *prefix)
{
    bool found = false;
    size_t most = 0;
    for (int n = 0; n < 3; n++) {
        nn_layer_place p = {.family = family, .encoder = n == 0, .cross = n == 2};
        if (!find_stem(&p)) continue;
        size_t length = end_of_stem(&p, prefix, &p.block);
        if (!found || length > most) *place = p, most = length;
        found = true;
    }
    for (const char *at = prefix; found && !most && *at; at += strcspn(at, "."), at += *at == '.') {
        size_t digits = strspn(at, "0123456789"); /* of another program's names, the last number */
        if (!digits || digits > 6 || at[digits] != '.') continue;
        place->block = 0;
        for (size_t n = 0; n < digits; n++) place->block = 10 * place->block + (at[n] - '0');
    }
    return found;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static bool is_there(const nn_shards *file, const char *prefix, const char *tail)
{
    char open[256], full[NN_LAYER_PREFIX_MAX + 256];
    nn_layer_name_of_head(open, sizeof open, tail, 0);
    snprintf(full, sizeof full, "%s%s", prefix, open);
    return nn_shards_find(file, full);
}

/* Whether a layer has a part, and must have it. */
static bool has_part(const mha_layer_options *o, nn_layer_part part)
{
    switch (nn_layer_group_of(part)) {
    case NN_LAYER_IN_BIASES:
        return o->in_bias;
    case NN_LAYER_OUT_BIASES:
        return o->out_bias;
    case NN_LAYER_NORMS:
        return o->norm_epsilon > 0 && (o->norm_bias || part == NN_LAYER_Q_NORM || part == NN_LAYER_K_NORM);
    case NN_LAYER_SINK:
        return o->sinks;
    default:
        return true;
    }
}

/* Queries, keys and values one behind another are one part. Of these, the row of queries stands for all. */
static bool merge(nn_layer_name *row)
{
    bool first = row->cut == NN_ROWS_Q || row->cut == NN_COLUMNS_Q;
    bool other = row->cut == NN_ROWS_K || row->cut == NN_ROWS_V || row->cut == NN_COLUMNS_K || row->cut == NN_COLUMNS_V;
    if (first) {
        row->part = nn_layer_part_rank(row->part) > 1 ? NN_LAYER_IN_WEIGHT : NN_LAYER_IN_BIAS;
        row->cut = row->cut == NN_COLUMNS_Q && row->part == NN_LAYER_IN_WEIGHT ? NN_SWAPPED : NN_WHOLE;
    }
    return !other;
}

void nn_layer_family_make(nn_layer_family *to, const nn_layer_place *place, const mha_layer_options *o,
                          const nn_shards *file, const char *prefix)
{
    bool done[NN_LAYER_PARTS] = {false};
    int count = 0;
    const nn_name *name, *other;
    *to = (nn_layer_family){.title = place->family->type, .place = *place};
    for (walk w = names_of(place->family); (name = next_name(&w));) {
        nn_layer_part part = part_of(place, name);
        if (part == NN_LAYER_PARTS || done[part] || (o && !has_part(o, part))) continue;
        const nn_name *chosen = name;
        bool there = !file || is_there(file, prefix, name->name + place->stem);
        for (walk rest = w; !there && (other = next_name(&rest));)
            if (part_of(place, other) == part && (there = is_there(file, prefix, other->name + place->stem)))
                chosen = other;
        done[part] = true;
        nn_layer_name row = {.name = chosen->name + place->stem,
                             .part = part,
                             .cut = chosen->cut,
                             .optional = !o && nn_layer_part_rank(part) < 2,
                             .plus_one = chosen->plus_one,
                             .zeros = o && chosen->missing == NN_ZEROS};
        if (merge(&row)) to->names[count++] = row;
    }
}

bool nn_layer_family_of_bare(nn_layer_family *to, int n, const nn_shards *file, const char *prefix)
{
    const nn_bare *bare = nn_bare_get(n);
    nn_layer_place place;
    int count = 0;
    if (!bare || !nn_layer_place_find(&place, bare->family, "")) return false;
    nn_layer_family_make(to, &place, NULL, file, prefix);
    to->title = bare->title, to->bare = bare, to->causal = bare->causal, to->rotary_base = bare->rotary_base;
    for (nn_layer_name *row = to->names; row->name; row++) {
        bool bias = row->part == NN_LAYER_Q_NORM_BIAS || row->part == NN_LAYER_K_NORM_BIAS;
        if (bare->needs_biases) row->optional = false;
        if (!bias) to->names[count++] = *row; /* of which nothing says what kind of norm it belongs to */
    }
    static const char *const others[] = {"q_norm.bias", "k_norm.bias", "norm.weight"};
    for (int k = 0; k < (bare->refuses_norm ? 3 : 2); k++)
        to->names[count++] = (nn_layer_name){.name = others[k], .part = NN_LAYER_REFUSED, .optional = true};
    memset(to->names + count, 0, sizeof *to->names);
    return true;
}

bool nn_layer_name_is_spare(const nn_layer_family *f, const char *name)
{
    char full[512];
    const nn_name *row;
    if (!f->place.family) return false;
    snprintf(full, sizeof full, "%.*s%s", (int)f->place.stem, stem_of(&f->place), name);
    if (nn_family_is_unused(f->place.family, full)) return true;
    for (walk w = names_of(f->place.family); !f->bare && (row = next_name(&w));)
        if (strcmp(row->name, full) == 0 && part_of(&f->place, row) == NN_LAYER_PARTS) return true;
    return false;
}

/* ---- Lists of heads ---------------------------------------------------------------------------------------------- */

static const char of_head[] = "{h}";

bool nn_layer_name_lists(const char *name) { return strstr(name, of_head); }

void nn_layer_name_of_head(char *out, size_t room, const char *name, int64_t head)
{
    const char *at = strstr(name, of_head);
    if (!at) snprintf(out, room, "%s", name);
    else snprintf(out, room, "%.*s%lld%s", (int)(at - name), name, (long long)head, at + sizeof of_head - 1);
}

/* ---- Larger files ------------------------------------------------------------------------------------------------ */

/* The length of the prefix, if the name is that of the weight of an attention layer's queries; otherwise 0. */
static size_t length_before(const char *name, const char *query)
{
    size_t length = strlen(name), tail = strlen(query);
    bool ends = length > tail && length - tail <= NN_LAYER_PREFIX_MAX && strcmp(name + length - tail, query) == 0;
    return ends ? length - tail : 0;
}

static size_t prefix_length(const char *name, const nn_layer_place *place)
{
    nn_layer_family f;
    size_t length = 0;
    if (place) {
        nn_layer_family_make(&f, place, NULL, NULL, "");
        length = length_before(name, f.names[0].name);
        return length && name[length - 1] == '.' ? length : 0;
    }
    for (int n = 0; !length && nn_layer_family_of_bare(&f, n, NULL, ""); n++)
        length = length_before(name, f.names[0].name);
    return length ? length : nn_layer_modules_prefix(name);
}

/* At the first difference of two names, the one with fewer digits is the smaller number. */
static bool is_before(const char *a, const char *b)
{
    while (*a && *a == *b) a++, b++;
    size_t digits = strspn(a, "0123456789"), others = strspn(b, "0123456789");
    return digits != others ? digits < others : strcmp(a, b) < 0;
}

nn_layer_prefixes nn_layer_prefixes_find(const nn_shards *file, const nn_layer_place *place)
{
    nn_layer_prefixes found = {0};
    for (int64_t i = 0; i < nn_shards_tensors(file); i++) {
        char prefix[NN_LAYER_PREFIX_MAX + 1];
        const char *name = nn_shards_get(file, i)->name;
        size_t length = prefix_length(name, place);
        if (!length) continue;
        snprintf(prefix, sizeof prefix, "%.*s", (int)length, name);
        if (!found.count || is_before(prefix, found.first)) memcpy(found.first, prefix, sizeof prefix);
        if (!found.count || is_before(found.last, prefix)) memcpy(found.last, prefix, sizeof prefix);
        found.count++;
    }
    return found;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

_Static_assert(offsetof(mha_layer_parts, gates) == NN_LAYER_GATES * sizeof(mha_tensor) &&
                   sizeof(mha_layer_parts) == NN_LAYER_PARTS * sizeof(mha_tensor),
               "layer_part counts the fields of mha_layer_parts");

mha_tensor nn_layer_part_of(const mha_layer_parts *parts, nn_layer_part part)
{
    mha_tensor tensor;
    memcpy(&tensor, (const char *)parts + (size_t)part * sizeof tensor, sizeof tensor);
    return tensor;
}

void nn_layer_part_shape(int64_t shape[2], nn_layer_part part, const mha_layer_options *o)
{
    int64_t q = o->heads * o->head_width, k = o->kv_heads * o->head_width, v = o->kv_heads * o->value_head_width;
    int64_t out = o->out_width ? o->out_width : o->width;
    bool own = o->norm_span != MHA_NORM_EACH_HEAD;
    int64_t q_norm = own ? q : o->head_width, k_norm = own ? k : o->head_width;
    const int64_t shapes[NN_LAYER_PARTS][2] = {
        [NN_LAYER_Q_WEIGHT] = {q, o->width},
        [NN_LAYER_K_WEIGHT] = {k, o->key_width},
        [NN_LAYER_V_WEIGHT] = {v, o->value_width},
        [NN_LAYER_Q_BIAS] = {q},
        [NN_LAYER_K_BIAS] = {k},
        [NN_LAYER_V_BIAS] = {v},
        [NN_LAYER_OUT_WEIGHT] = {out, o->heads * o->value_head_width},
        [NN_LAYER_OUT_BIAS] = {out},
        [NN_LAYER_BIAS_K] = {k},
        [NN_LAYER_BIAS_V] = {v},
        [NN_LAYER_Q_NORM] = {q_norm},
        [NN_LAYER_K_NORM] = {k_norm},
        [NN_LAYER_SINKS] = {o->heads},
        [NN_LAYER_GATES] = {o->heads},
        [NN_LAYER_Q_NORM_BIAS] = {q_norm},
        [NN_LAYER_K_NORM_BIAS] = {k_norm},
        [NN_LAYER_IN_WEIGHT] = {q + k + v, o->width},
        [NN_LAYER_IN_BIAS] = {q + k + v},
    };
    memcpy(shape, shapes[part], sizeof shapes[part]);
}

nn_layer_group nn_layer_group_of(nn_layer_part part)
{
    static const nn_layer_group groups[NN_LAYER_PARTS] = {
        [NN_LAYER_Q_WEIGHT] = NN_LAYER_WEIGHTS,  [NN_LAYER_K_WEIGHT] = NN_LAYER_WEIGHTS,
        [NN_LAYER_V_WEIGHT] = NN_LAYER_WEIGHTS,  [NN_LAYER_IN_WEIGHT] = NN_LAYER_WEIGHTS,
        [NN_LAYER_OUT_WEIGHT] = NN_LAYER_OUT,    [NN_LAYER_Q_BIAS] = NN_LAYER_IN_BIASES,
        [NN_LAYER_K_BIAS] = NN_LAYER_IN_BIASES,  [NN_LAYER_V_BIAS] = NN_LAYER_IN_BIASES,
        [NN_LAYER_IN_BIAS] = NN_LAYER_IN_BIASES, [NN_LAYER_OUT_BIAS] = NN_LAYER_OUT_BIASES,
        [NN_LAYER_BIAS_K] = NN_LAYER_EXTRA_KEY,  [NN_LAYER_BIAS_V] = NN_LAYER_EXTRA_KEY,
        [NN_LAYER_Q_NORM] = NN_LAYER_NORMS,      [NN_LAYER_K_NORM] = NN_LAYER_NORMS,
        [NN_LAYER_SINKS] = NN_LAYER_SINK,        [NN_LAYER_GATES] = NN_LAYER_GATE,
        [NN_LAYER_Q_NORM_BIAS] = NN_LAYER_NORMS, [NN_LAYER_K_NORM_BIAS] = NN_LAYER_NORMS,
    };
    return groups[part];
}

int nn_layer_part_rank(nn_layer_part part)
{
    nn_layer_group group = nn_layer_group_of(part);
    return group == NN_LAYER_WEIGHTS || group == NN_LAYER_OUT ? 2 : 1;
}

void nn_layer_family_to_save(nn_layer_family *to, const mha_layer *layer)
{
    const mha_layer_options *o = mha_layer_shape(layer);
    bool pytorch = o->key_width == o->width && o->value_width == o->width && o->kv_heads == o->heads &&
                   o->value_head_width == o->head_width && o->heads * o->head_width == o->width;
    nn_layer_family_of_bare(to, pytorch ? 0 : 1, NULL, "");
}
