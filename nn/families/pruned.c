#include "families/pruned.h"
#include "io/buffer.h"
#include "io/failure.h"
#include "io/safetensors_write.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Which rows and columns go ----------------------------------------------------------------------------------- */

/* A tensor as a matrix (rows,columns) and its lines that go. */
typedef struct cut {
    const nn_safetensors_tensor *tensor;
    int64_t size[2], left[2];
    bool *gone[2]; /* (rows), (columns); NULL: none */
    bool checked;
} cut;

/* The parts that have numbers of each head: along which axis, and whether of those that share keys and values. */
static const struct {
    nn_part_kind kind;
    int axis;
    bool shared;
} of_heads[] = {{NN_Q, 0, false},     {NN_K, 0, true},      {NN_V, 0, true},     {NN_Q_BIAS, 0, false},
                {NN_K_BIAS, 0, true}, {NN_V_BIAS, 0, true}, {NN_PROJ, 1, false}, {NN_SINKS, 0, false}};

static cut *find(cut *cuts, int64_t count, const mha_tensor *view)
{
    for (int64_t n = 0; n < count; n++) {
        const char *begin = cuts[n].tensor->data, *at = view->data;
        if (at >= begin && at < begin + (size_t)cuts[n].tensor->count * mha_type_size(view->type)) return &cuts[n];
    }
    return NULL;
}

/* Marks what line i of a view along an axis is in its tensor: a row or a column. `split`: heads have an axis of their own. */
static bool mark(cut *c, const mha_tensor *view, bool split, int axis, int64_t i)
{
    int64_t step = split ? view->stride[1] : view->stride[axis];
    int64_t first = ((const char *)view->data - (const char *)c->tensor->data) / (int64_t)mha_type_size(view->type);
    int64_t rows = split ? view->size[1] : 1; /* of a run of heads */
    int64_t at = first + (split ? i / rows * view->stride[0] + i % rows * step : i * step);
    int side = step % c->size[1] ? 1 : 0;
    int64_t line = side ? at % c->size[1] : at / c->size[1];
    if (!c->gone[side]) c->gone[side] = calloc((size_t)c->size[side], sizeof(bool));
    if (!c->gone[side]) return false;
    c->left[side] -= !c->gone[side][line];
    return c->gone[side][line] = true;
}

static bool mark_part(cut *cuts, int64_t count, const nn_blocks_config *b, const nn_part *p, const mha_tensor *view,
                      const bool *keep)
{
    int64_t H = nn_blocks_heads(b, p->block), share = H / nn_blocks_kv_heads(b, p->block);
    for (size_t n = 0; n < sizeof of_heads / sizeof *of_heads; n++) {
        if (of_heads[n].kind != p->kind || !view->data) continue;
        cut *c = find(cuts, count, view);
        int64_t step = of_heads[n].shared ? share : 1, heads = H / step;
        int64_t width = (of_heads[n].axis ? p->columns : p->rows) / heads;
        for (int64_t i = 0; i < heads * width; i++)
            if (!keep[i / width * step] &&
                (!c || !mark(c, view, view->rank > (p->columns ? 2 : 1), of_heads[n].axis, i)))
                return false;
    }
    return true;
}

/* ---- Writing ----------------------------------------------------------------------------------------------------- */

/* The lines of a tensor that stay, dense; NULL without memory. */
static void *cut_numbers(const cut *c, size_t size)
{
    char *out = malloc((size_t)(c->left[0] * c->left[1] + 1) * size), *to = out;
    const char *from = c->tensor->data;
    for (int64_t i = 0; out && i < c->size[0]; i++) {
        if (c->gone[0] && c->gone[0][i]) continue;
        for (int64_t k = 0; k < c->size[1]; k++) {
            if (c->gone[1] && c->gone[1][k]) continue;
            memcpy(to, from + (size_t)(i * c->size[1] + k) * size, size);
            to += size;
        }
    }
    return out;
}

static bool make_item(nn_safetensors_item *item, void **memory, const cut *c)
{
    mha_tensor view;
    const nn_safetensors_tensor *t = c->tensor;
    int64_t shape[NN_SAFETENSORS_RANK];
    for (int n = 0; n < t->rank; n++) shape[n] = t->shape[n];
    *item = nn_safetensors_item_dense(t->name, t->dtype, t->rank, shape, t->data);
    if (!c->gone[0] && !c->gone[1]) return true;
    if (t->rank > 2 || !nn_safetensors_view(t, &view)) return false;
    shape[0] = c->left[0];
    if (t->rank > 1) shape[1] = c->left[1];
    *memory = cut_numbers(c, mha_type_size(view.type));
    *item = nn_safetensors_item_dense(t->name, t->dtype, t->rank, shape, *memory);
    return *memory;
}

static void write_list(nn_buffer *out, const nn_blocks_config *b, const bool *keep)
{
    const char *between = "";
    nn_buffer_puts(out, "{");
    for (int64_t l = 0; l < b->depth; l++) {
        const char *comma = "";
        for (int64_t h = 0; h < b->heads; h++) {
            if (keep[l * b->heads + h]) continue;
            if (!*comma) nn_buffer_printf(out, "%s\"%lld\": [", between, (long long)l);
            nn_buffer_printf(out, "%s%lld", comma, (long long)h);
            comma = between = ", ";
        }
        if (*comma) nn_buffer_puts(out, "]");
    }
    nn_buffer_puts(out, "}");
}

/* The config with the list of heads, in place of an empty one or as its first key. */
static void write_config(nn_buffer *out, const nn_config *c, const nn_blocks_config *b, const bool *keep)
{
    nn_fact old = nn_config_find(c, "pruned_heads");
    const char *begin = old.text ? old.text : strchr(c->text, '{') + 1, *rest = begin + old.size;
    nn_buffer_put(out, c->text, (size_t)(begin - c->text));
    if (!old.text) nn_buffer_puts(out, "\"pruned_heads\": ");
    write_list(out, b, keep);
    if (!old.text) nn_buffer_puts(out, ", ");
    nn_buffer_put(out, rest, c->size - (size_t)(rest - c->text));
    nn_buffer_putc(out, 0);
}

/* What keeps a file from being written; NULL: nothing. */
static const char *problem_of(const nn_description *d, const nn_family *f, const nn_config *c, const bool *keep)
{
    const nn_blocks_config *b = &nn_description_last(d)->blocks;
    const char *problem = NULL;
    if (nn_description_is_pair(d)) return "models with two stacks keep all heads";
    if (nn_fact_count(nn_config_find(c, "pruned_heads")) > 0) return "it has lost heads already; prune the original";
    bool *gone = calloc((size_t)b->heads, sizeof *gone);
    if (!gone) return "out of memory";
    for (int64_t l = 0; !problem && l < b->depth; l++) {
        for (int64_t h = 0; h < b->heads; h++) gone[h] = !keep[l * b->heads + h];
        problem = nn_pruned_obstacle(d, f, l, gone);
    }
    free(gone);
    return problem;
}

static bool save(const char *path, cut *cuts, int64_t count, const nn_buffer *config, nn_failure *to)
{
    char error[600] = "";
    const nn_safetensors_pair notes[] = {{"config", config->bytes}, {"format", "pt"}};
    nn_safetensors_item *items = calloc((size_t)count + 1, sizeof *items);
    void **memory = calloc((size_t)count + 1, sizeof *memory);
    bool good = items && memory && !config->failed;
    for (int64_t n = 0; good && n < count; n++) good = make_item(&items[n], &memory[n], &cuts[n]);
    if (!good) nn_fail(to, "out of memory, or a tensor of heads has more than two axes");
    else if (nn_safetensors_write(path, items, (size_t)count, notes, 2, error, sizeof error)) {
        snprintf(to->error, to->error_size, "%s", error); /* which names the file that is written */
        good = false;
    }
    for (int64_t n = 0; memory && n < count; n++) free(memory[n]);
    free(memory);
    free(items);
    return good;
}

/* Whether all numbers of a tensor that the model reads are finite. A type that is not one of floats has no others. */
static bool is_finite(cut *c)
{
    const nn_safetensors_tensor *t = c->tensor;
    bool wide = t->dtype == NN_SAFETENSORS_F32, brain = t->dtype == NN_SAFETENSORS_BF16;
    bool half = t->dtype == NN_SAFETENSORS_F16, good = true;
    if (c->checked || !(wide || brain || half)) return true;
    c->checked = true;
    for (size_t i = 0; good && i < (size_t)t->count; i++) {
        uint32_t bits = 0, exponent = wide ? 0x7f800000 : brain ? 0x7f80 : 0x7c00;
        memcpy(&bits, (const char *)t->data + i * (wide ? 4 : 2), wide ? 4 : 2);
        good = (bits & exponent) != exponent;
    }
    return good;
}

bool nn_pruned_save(const char *path, const nn_description *d, const nn_family *family, const nn_bound *views,
                    const nn_config *config, const nn_shards *shards, const bool *keep, char *error, size_t error_size)
{
    const nn_blocks_config *b = &nn_description_last(d)->blocks;
    nn_failure to = {config->name, error, error_size};
    nn_buffer text = {0};
    nn_part part;
    int64_t count = nn_shards_tensors(shards), n = 0;
    const char *problem = problem_of(d, family, config, keep);
    if (problem) return nn_fail(&to, "%s", problem);
    cut *cuts = calloc((size_t)count + 1, sizeof *cuts);
    bool good = cuts;
    for (int64_t t = 0; good && t < count; t++) {
        const nn_safetensors_tensor *tensor = nn_shards_get(shards, t);
        int64_t rows = tensor->rank && tensor->shape[0] ? tensor->shape[0] : 1, columns = tensor->count / rows;
        cuts[t] = (cut){tensor, {rows, columns}, {rows, columns}, {NULL, NULL}, false};
    }
    const char *broken = NULL;
    for (nn_parts w = nn_parts_of(d); good && nn_parts_next(&w, &part); n++) {
        cut *c = find(cuts, count, &views->part[n]);
        if (c && !broken && !is_finite(c)) broken = c->tensor->name;
        if (part.block >= 0) good = mark_part(cuts, count, b, &part, &views->part[n], keep + part.block * b->heads);
    }
    if (!good) nn_fail(&to, "out of memory");
    else if (broken) good = nn_fail(&to, "%s contains values that are not finite", broken);
    else {
        write_config(&text, config, b, keep);
        good = save(path, cuts, count, &text, &to);
    }
    nn_buffer_free(&text);
    for (int64_t t = 0; cuts && t < count; t++) free(cuts[t].gone[0]), free(cuts[t].gone[1]);
    free(cuts);
    return good;
}
