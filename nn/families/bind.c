/* Each part is a view of a tensor: rows or columns of it, every other one, or one of several in front of it. What products
 * read stays where it lies; the rest is copied to float32. */
#include "families/bind.h"
#include "families/cut.h"
#include "families/find.h"
#include "families/wrapped.h"
#include "io/failure.h"
#include "io/json.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 256 };

typedef struct binding {
    nn_bound *to;
    mha_context *ctx;
    const nn_description *d;
    const nn_family *family;
    const nn_head *head;
    const nn_config *config;
    const nn_shards *shards;
    nn_find in;    /* where names are looked up */
    bool *used;    /* (tensors) */
    bool views;    /* nothing is copied */
    nn_gaps *gaps; /* or NULL */
    nn_failure fail;
} binding;

/* ---- Lists ------------------------------------------------------------------------------------------------------ */

static bool add_name(const binding *b, nn_names *to, const char *name)
{
    char **more = realloc(to->all, (size_t)(to->count + 1) * sizeof *more), *copy = strdup(name);
    if (more) to->all = more;
    if (more && copy) return (more[to->count++] = copy);
    free(copy);
    return nn_fail(&b->fail, "out of memory");
}

void nn_names_free(nn_names *n)
{
    for (int64_t i = 0; i < n->count; i++) free(n->all[i]);
    free(n->all);
    *n = (nn_names){0};
}

/* ---- Names ------------------------------------------------------------------------------------------------------ */

/* The group of block l, and its layer of the group. */
static void group_of(const binding *b, int64_t l, int64_t *group, int64_t *layer)
{
    int64_t groups = 1, inner = 1, depth = b->d->encoder.blocks.depth;
    *group = *layer = 0;
    if (!b->family->groups) return;
    nn_fact_int(nn_config_find(b->config, b->family->groups), &groups);
    nn_fact_int(nn_config_find(b->config, "inner_group_num"), &inner);
    int64_t whole = l / inner;
    *group = (int64_t)((double)whole / ((double)depth / (double)inner / (double)groups));
    *layer = l % inner;
}

/* The name with its numbers filled in. */
static void spell(const binding *b, char out[NAME], const char *name, const nn_part *p, int64_t h)
{
    int64_t group, layer;
    group_of(b, p->block, &group, &layer);
    const struct {
        char letter;
        int64_t number;
    } holes[] = {{'l', p->block}, {'e', p->expert}, {'h', h}, {'g', group}, {'i', layer}};
    size_t n = 0;
    while (*name && n + 24 < NAME) {
        if (*name != '{') {
            out[n++] = *name++;
            continue;
        }
        for (size_t k = 0; k < sizeof holes / sizeof *holes; k++)
            if (name[1] == holes[k].letter)
                n += (size_t)snprintf(out + n, NAME - n, "%lld", (long long)holes[k].number);
        name += 3;
    }
    out[n] = 0;
}

static void mark(const binding *b, const nn_safetensors_tensor *t)
{
    for (int64_t n = 0; n < nn_shards_tensors(b->shards); n++)
        if (nn_shards_get(b->shards, n) == t) b->used[n] = true;
}

/* ---- Cuts ------------------------------------------------------------------------------------------------------- */

static nn_shape shape_of(const binding *b, const nn_part *p, nn_cut cut)
{
    const nn_blocks_config *c = p->decoder ? &b->d->decoder.blocks : &b->d->encoder.blocks;
    nn_cut_sizes sizes = {.experts = c->experts, .expert = p->expert};
    if (p->block >= 0)
        sizes.heads = nn_blocks_heads(c, p->block), sizes.kv_heads = nn_blocks_kv_heads(c, p->block),
        sizes.head_width = nn_blocks_head_width(c);
    return nn_cut_shape(cut, p->rows, p->columns, &sizes);
}

static bool wrong_shape(const binding *b, const nn_safetensors_tensor *t, const int64_t *size, int rank)
{
    char has[96], want[96] = "";
    size_t n = 0;
    for (int i = 0; i < rank && n < sizeof want; i++)
        n += (size_t)snprintf(want + n, sizeof want - n, i ? ",%lld" : "%lld", (long long)size[i]);
    return nn_fail(&b->fail, "%s is %s, must be (%s)", nn_json_brief(t->name).text,
                   nn_safetensors_describe(has, sizeof has, t), want);
}

/* The view of a part in its tensor. */
static bool view_of(const binding *b, mha_tensor *view, const nn_safetensors_tensor *t, const nn_shape *s)
{
    nn_safetensors_tensor flat = *t;
    flat.rank = 1, flat.shape[0] = t->count;
    if (!nn_shape_fits(s, t)) return wrong_shape(b, t, s->whole, s->whole_rank);
    if (!nn_safetensors_view(&flat, view) || view->type == MHA_BOOL || view->type == MHA_INT64)
        return nn_fail(&b->fail, "%s is %s; float32, bfloat16 and float16 can be read", nn_json_brief(t->name).text,
                       nn_safetensors_dtype_name(t->dtype));
    *view = nn_shape_view(s, view->data, view->type);
    return true;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------ */

/* Whether a part stays where it lies. */
static bool stays(const nn_part *p) { return p->is_weight || p->kind == NN_TOKENS; }

/* A copy of `view` at `to`, with one more if the file has one less. */
static bool copy(const binding *b, float *to, mha_tensor view, const nn_name *name)
{
    mha_tensor dense = view;
    int64_t stride = 1, count = 1;
    dense.data = to, dense.type = MHA_FLOAT32;
    for (int i = view.rank - 1; i >= 0; i--) dense.stride[i] = stride, stride *= view.size[i], count *= view.size[i];
    if (mha_tensor_copy(b->ctx, dense, view)) return nn_fail(&b->fail, "%s", mha_context_error(b->ctx));
    for (int64_t i = 0; name->plus_one && i < count; i++) to[i] += 1;
    return true;
}

/* One tensor for each head, one behind another. */
static bool gather_heads(binding *b, int64_t n, float *to, const nn_part *p, const nn_name *name, bool *found)
{
    const nn_blocks_config *c = p->decoder ? &b->d->decoder.blocks : &b->d->encoder.blocks;
    int64_t D = nn_blocks_head_width(c);
    for (int64_t h = 0; h < p->rows / D; h++) {
        char text[NAME];
        mha_tensor view = MHA_NO_TENSOR;
        nn_shape s = nn_cut_shape(NN_WHOLE, D, 0, &(nn_cut_sizes){0});
        spell(b, text, name->name, p, h);
        const nn_safetensors_tensor *t = nn_find_name(&b->in, text);
        if (!t) return *found = false, true;
        mark(b, t);
        if (!view_of(b, &view, t, &s) || !copy(b, to + h * D, view, name)) return false;
        if (!h) b->to->source[n] = t, b->to->place[n] = view, b->to->name[n] = name;
    }
    return *found = true;
}

static bool bind_name(binding *b, int64_t n, float *room, const nn_part *p, const nn_name *name, bool *found)
{
    char text[NAME];
    mha_tensor *part = &b->to->part[n];
    mha_tensor copied =
        p->columns ? mha_tensor_2d(room, MHA_FLOAT32, p->rows, p->columns) : mha_tensor_1d(room, MHA_FLOAT32, p->rows);
    *found = false;
    if (name->cut == NN_EACH && b->views) return nn_fail(&b->fail, "its heads lie in tensors of their own");
    if (name->cut == NN_EACH) {
        *part = copied;
        return gather_heads(b, n, room, p, name, found);
    }
    spell(b, text, name->name, p, 0);
    const nn_safetensors_tensor *t = nn_find_name(&b->in, text);
    if (!t) return true;
    nn_shape s = shape_of(b, p, name->cut);
    *found = true;
    mark(b, t);
    if (!view_of(b, part, t, &s)) return false;
    b->to->source[n] = t, b->to->place[n] = *part, b->to->name[n] = name;
    if (stays(p) || b->views) return true;
    if (!copy(b, room, *part, name)) return false;
    *part = copied;
    return true;
}

/* Tries one list of names. */
static bool bind_list(binding *b, int64_t n, float *room, const nn_part *p, const nn_name *list, bool *found,
                      const nn_name **last)
{
    for (; list && list->name && !*found; list++) {
        if (!nn_name_fits(list, p->kind, p->decoder)) continue;
        *last = list;
        if (!bind_name(b, n, room, p, list, found)) return false;
    }
    return true;
}

/* Tries the names of the head, then those of the family. */
static bool bind_names(binding *b, int64_t n, float *room, const nn_part *p, bool *found, const nn_name **last)
{
    if (b->head && !bind_list(b, n, room, p, b->head->names, found, last)) return false;
    for (int k = 0; k < NN_FAMILY_LISTS && !*found; k++)
        if (!bind_list(b, n, room, p, b->family->names[k], found, last)) return false;
    return true;
}

static bool bind_part(binding *b, int64_t number, float *room, const nn_part *p)
{
    mha_tensor *part = &b->to->part[number];
    const nn_name *last = NULL, *other = NULL;
    bool found = false;
    char text[NAME] = "", own[NN_PART_NAME];
    if (!bind_names(b, number, room, p, &found, &last)) return false;
    if (!found && p->kind == NN_TOKENS && b->d->output.tied) { /* of the two that are one, a file may have the head */
        nn_part head = *p;
        head.kind = NN_OUTPUT;
        if (!bind_names(b, number, room, &head, &found, &other)) return false;
    }
    if (found) return true;
    if (last) spell(b, text, last->name, p, 0);
    if (!last || last->missing == NN_REQUIRED || stays(p)) {
        const char *name = last ? text : nn_part_name(own, p);
        *part = p->columns ? mha_tensor_2d(NULL, MHA_FLOAT32, p->rows, p->columns)
                           : mha_tensor_1d(NULL, MHA_FLOAT32, p->rows);
        if (b->gaps && b->gaps->allowed) return add_name(b, &b->gaps->missing, name);
        return nn_fail(&b->fail, "%s is missing", name);
    }
    if (b->views) return true;
    for (int64_t i = 0; i < nn_part_numbers(p); i++) room[i] = last->missing == NN_ONES ? 1 : 0;
    *part =
        p->columns ? mha_tensor_2d(room, MHA_FLOAT32, p->rows, p->columns) : mha_tensor_1d(room, MHA_FLOAT32, p->rows);
    return true;
}

/* ---- What is left over ------------------------------------------------------------------------------------------ */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool nn_family_is_unused(const nn_family *f, const char *name)
{
    static const char *const everywhere[] = {"rotary_emb.inv_freq", "position_ids", ".masked_bias"};
    for (size_t n = 0; n < sizeof everywhere / sizeof *everywhere; n++)
        if (ends_with(name, everywhere[n])) return true;
    for (const char *const *n = f->unused; n && *n; n++)
        if (ends_with(name, *n)) return true;
    return false;
}

static bool check_rest(const binding *b)
{
    int64_t more = 0;
    const char *first = NULL;
    for (int64_t n = 0; n < nn_shards_tensors(b->shards); n++) {
        const char *name = nn_shards_get(b->shards, n)->name;
        if (b->used[n]) continue;
        if (b->gaps && !add_name(b, &b->gaps->unused, name)) return false;
        if (nn_family_is_unused(b->family, name) || (b->gaps && b->gaps->allowed)) continue;
        if (b->in.wrapped && !nn_wrapped_is_text(name)) continue;
        if (nn_find_is_spare_head(&b->in, b->d, nn_shards_get(b->shards, n))) continue;
        if (!first) first = name;
        more++;
    }
    if (!first) return true;
    if (more == 1) return nn_fail(&b->fail, "%s is no part of this model", nn_json_brief(first).text);
    return nn_fail(&b->fail, "%s and %lld more tensors are no part of this model", nn_json_brief(first).text,
                   (long long)more - 1);
}

static bool bind_all(binding b)
{
    nn_bound *to = b.to;
    const nn_description *d = b.d;
    nn_part part;
    int64_t numbers = 0, at = 0;
    *to = (nn_bound){0};
    for (nn_parts w = nn_parts_of(d); nn_parts_next(&w, &part); to->count++)
        if (!stays(&part)) numbers += nn_part_numbers(&part);
    to->part = calloc((size_t)to->count + 1, sizeof *to->part);
    to->copies = malloc((size_t)(b.views ? 1 : numbers + 1) * sizeof *to->copies);
    to->source = calloc((size_t)to->count + 1, sizeof *to->source);
    to->place = calloc((size_t)to->count + 1, sizeof *to->place);
    to->name = calloc((size_t)to->count + 1, sizeof *to->name);
    b.used = calloc((size_t)nn_shards_tensors(b.shards) + 1, sizeof *b.used);
    bool ok = to->part && to->copies && to->source && to->place && to->name && b.used;
    if (!ok) nn_fail(&b.fail, "out of memory");
    nn_parts w = nn_parts_of(d);
    for (int64_t n = 0; ok && n < to->count; n++) {
        nn_parts_next(&w, &part);
        ok = bind_part(&b, n, to->copies + at, &part);
        if (!stays(&part) && !b.views) at += nn_part_numbers(&part);
    }
    ok = ok && check_rest(&b);
    free(b.used);
    if (!ok) nn_bound_free(to);
    return ok;
}

bool nn_bind(nn_bound *to, mha_context *ctx, const nn_description *d, const nn_family *family, const nn_head *head,
             const nn_config *config, const nn_shards *shards, nn_gaps *gaps, const char *name, char *error,
             size_t error_size)
{
    nn_find in = nn_find_in(shards, family, head, config);
    return bind_all(
        (binding){to, ctx, d, family, head, config, shards, in, NULL, false, gaps, {name, error, error_size}});
}

bool nn_bind_views(nn_bound *to, mha_context *ctx, const nn_description *d, const nn_family *family,
                   const nn_head *head, const nn_config *config, const nn_shards *shards, const char *name, char *error,
                   size_t error_size)
{
    nn_find in = nn_find_in(shards, family, head, config);
    return bind_all(
        (binding){to, ctx, d, family, head, config, shards, in, NULL, true, NULL, {name, error, error_size}});
}

void nn_bound_free(nn_bound *b)
{
    free(b->part);
    free(b->copies);
    free((void *)b->source);
    free(b->place);
    free((void *)b->name);
    *b = (nn_bound){0};
}
