/* Which layers attend to a window alone. Kinds of attention: bit 0 says that it slides, bit 1 that it does not rotate. */
#include "families/family.h"
#include "io/failure.h"
#include <string.h>

/* Layer l of GPT-Neo's list of pairs, of which each has names of layers and how often they come; NULL: there is none. */
static nn_fact local_type(nn_fact list, int64_t l)
{
    for (int64_t n = 0; n < nn_fact_count(list); n++) {
        nn_fact names = nn_fact_item(nn_fact_item(list, n), 0);
        int64_t count = nn_fact_count(names), times = 0;
        nn_fact_int(nn_fact_item(nn_fact_item(list, n), 1), &times);
        if (count < 1 || times < 0 || times > NN_BLOCKS_MOST) break;
        if (l < count * times) return nn_fact_item(names, l % count);
        l -= count * times;
    }
    return nn_fact_of(NULL, 0);
}

static bool check_local(nn_fact list, int64_t depth, const nn_failure *to)
{
    for (int64_t l = 0; l <= depth; l++) {
        nn_fact t = local_type(list, l);
        if (l == depth ? t.text != NULL : !nn_fact_is(t, "global") && !nn_fact_is(t, "local"))
            return nn_fail(to, "attention_types must have \"global\" or \"local\" for each of the %lld layers",
                           (long long)depth);
    }
    return true;
}

static bool slides(const nn_blocks_config *b, const nn_window_keys *w, nn_fact types, int64_t number, int64_t l)
{
    if (w->layers == NN_SLIDES_LOCAL) return nn_fact_is(local_type(types, l), "local");
    if (w->layers == NN_SLIDES_ALWAYS) return true;
    if (types.text && !nn_fact_is_null(types)) return nn_fact_is(nn_fact_item(types, l), "sliding_attention");
    switch (w->layers) {
    case NN_SLIDES_ALL:
        return true;
    case NN_SLIDES_EVEN:
        return l % 2 == 0;
    case NN_SLIDES_FROM:
        return l >= number;
    case NN_SLIDES_BUT_EVERY:
        return (l + 1) % number != 0;
    case NN_SLIDES_BUT_FIRST_OF:
        return l % number != 0;
    case NN_SLIDES_UNTURNED:
        return b->block[l].kind & 2;
    default:
        return false;
    }
}

static bool check_types(nn_fact types, int64_t depth, const nn_failure *to)
{
    if (!types.text || nn_fact_is_null(types)) return true;
    if (nn_fact_count(types) != depth) return nn_fail(to, "layer_types must have one for each layer");
    for (int64_t l = 0; l < depth; l++) {
        nn_fact t = nn_fact_item(types, l);
        if (!nn_fact_is(t, "full_attention") && !nn_fact_is(t, "sliding_attention"))
            return nn_fail(to, "layer_types has %.*s, which is not supported", (int)(t.size < 60 ? t.size : 60),
                           t.text);
    }
    return true;
}

static nn_fact find(const nn_config *c, const char *key, const char *absent)
{
    nn_fact f = key ? nn_config_find(c, key) : nn_fact_of(NULL, 0);
    return !f.text && absent ? nn_fact_of(absent, strlen(absent)) : f;
}

bool nn_family_windows(nn_blocks_config *b, const nn_family *f, const nn_config *c, char *error, size_t error_size)
{
    const nn_window_keys *w = &f->window;
    nn_failure to = {c->name, error, error_size};
    bool local = w->layers == NN_SLIDES_LOCAL;
    nn_fact types =
        local ? find(c, "attention_types", "[[[\"global\",\"local\"],12]]") : nn_config_find(c, "layer_types");
    nn_fact window = find(c, w->key, w->absent);
    int64_t number = 1, size = 0;
    bool there = true, any = false;
    if (w->layers == NN_SLIDES_NEVER) return true;
    if (w->when) nn_fact_truth(find(c, w->when, "false"), &there);
    bool listed = types.text && !nn_fact_is_null(types) && w->layers != NN_SLIDES_ALWAYS;
    if (w->number_absent && !listed && !nn_fact_int(find(c, w->number, w->number_absent), &number))
        return nn_fail(&to, "%s must be a whole number", w->number);
    if (number < 0 || (number < 1 && w->layers != NN_SLIDES_FROM)) return nn_fail(&to, "%s is too small", w->number);
    if (!there || !window.text || nn_fact_is_null(window)) window = nn_fact_of("null", 4);
    if (w->needed && nn_fact_is_null(window)) return nn_fail(&to, "%s must be a number in this family", w->key);
    if (w->layers != NN_SLIDES_ALWAYS && !(local ? check_local : check_types)(types, b->depth, &to)) return false;
    for (int64_t l = 0; l < b->depth; l++) {
        bool here = slides(b, w, types, number, l) && (listed || !nn_fact_is_null(window));
        if (here) b->block[l].kind |= 1;
        any |= here;
    }
    for (int64_t l = 0; w->turns && !nn_fact_is_null(window) && l < b->depth; l++)
        if (!(b->block[l].kind & 1)) b->block[l].kind |= 2;
    if (!any) return true;
    if (!nn_fact_int(window, &size) || size < 1) return nn_fail(&to, "sliding attention needs a %s above 0", w->key);
    for (int n = 1; n < NN_ATTENTION_KINDS; n += 2) {
        b->attention[n].window_left = w->half ? size / 2 : size - 1;
        if (w->half) b->attention[n].window_right = size / 2;
    }
    return true;
}
