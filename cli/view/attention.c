/* Attention weights of any model, read from a file, as JSON for the page.
 *
 * The weights are read a few rows at a time, checked, and pooled into cells (cells.c). */
#include "cli/common/cli.h"
#include "io/safetensors_floats.h"
#include "cli/view/weights.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS_AT_ONCE = 1 << 16, /* in numbers */
    NAMED = 4,              /* tensors in a message */
    NAME_MOST = 200         /* bytes of a name there */
};

/* ---- The tensor ------------------------------------------------------------------------------------------------- */

static bool could_be(const nn_safetensors_tensor *t)
{
    return (t->rank == 3 || t->rank == 4) && nn_safetensors_is_float(t->dtype);
}

/* Lists up to NAMED candidate tensors and the number of the others. Returns the number of all. */
static int name_candidates(char *out, size_t room, const nn_safetensors *file)
{
    int count = 0, named = 0;
    size_t n = 0;
    out[0] = 0;
    for (size_t i = 0; i < nn_safetensors_count(file); i++) count += could_be(nn_safetensors_get(file, i));
    for (size_t i = 0; named < count && named < NAMED; i++) {
        const nn_safetensors_tensor *t = nn_safetensors_get(file, i);
        if (!could_be(t)) continue;
        const char *before = named == 0 ? "" : named + 1 == count ? " and " : ", ";
        n += (size_t)snprintf(out + n, room - n, "%s%.*s", before, NAME_MOST, t->name);
        named++;
    }
    if (count > named) snprintf(out + n, room - n, " and %d more", count - named);
    return count;
}

/* The tensor given by --tensor, or one with a usual name, or the only candidate. Prints an error and returns NULL
 * otherwise. */
static const nn_safetensors_tensor *choose(const view_weights *w)
{
    const nn_safetensors_tensor *found = NULL;
    char names[NAMED * (NAME_MOST + 8) + 40];
    int count = name_candidates(names, sizeof names, w->file);
    if (w->tensor) {
        if (!(found = nn_safetensors_find(w->file, w->tensor)))
            cli_error("%s: no tensor \"%s\"%s%s", w->path, w->tensor, count ? "; candidates: " : "", names);
        return found;
    }
    if ((found = nn_safetensors_find(w->file, "attention")) || (found = nn_safetensors_find(w->file, "weights")))
        return found;
    for (size_t i = 0; count == 1; i++)
        if (could_be(found = nn_safetensors_get(w->file, i))) return found;
    if (count)
        cli_error("%s: %d tensors could be attention weights: %s; choose one with --tensor NAME", w->path, count,
                  names);
    else
        cli_error("%s: no attention weights: expected a float tensor (heads,queries,keys) or "
                  "(layers,heads,queries,keys)",
                  w->path);
    return NULL;
}

/* ---- Its axes --------------------------------------------------------------------------------------------------- */

/* The first entry of each rank is the default; weights without heads are never a default. */
static const view_axes all_axes[] = {
    {"layers,heads,queries,keys", 4, "layer", true}, {"batch,heads,queries,keys", 4, "sequence", true},
    {"heads,queries,keys", 3, NULL, true},           {"batch,queries,keys", 3, "sequence", false},
    {"layers,queries,keys", 3, "layer", false},      {"queries,keys", 2, NULL, false}};
enum { AXES = sizeof all_axes / sizeof *all_axes };

/* The axes whose text begins with, or equals, that text; NULL if there are none. */
const view_axes *view_axes_of(int rank, const char *begin)
{
    size_t length = strlen(begin);
    for (int i = 0; i < AXES; i++) {
        const char *text = all_axes[i].text;
        bool begins = strncmp(text, begin, length) == 0 && (text[length] == ',' || !text[length]);
        if (all_axes[i].rank == rank && begins) return &all_axes[i];
    }
    return NULL;
}

/* In a file of `mha layer`, the shape of the output, (B,T,M) or (T,M), shows whether the weights have a batch axis. */
static const char *axes_beside_output(const view_weights *w, const nn_safetensors_tensor *t)
{
    const nn_safetensors_tensor *output =
        strcmp(t->name, "weights") == 0 ? nn_safetensors_find(w->file, "output") : NULL;
    if (!output || (output->rank != 2 && output->rank != 3)) return NULL;
    int batch = output->rank - 2, queries = t->rank - 2;
    if (queries < batch || t->shape[queries] != output->shape[batch] || (batch && t->shape[0] != output->shape[0]))
        return NULL;
    return batch ? "batch" : t->rank == 2 ? "queries" : NULL;
}

/* Chooses the axes: from --first-axis, the metadata NAME.axes, the output tensor, or the default. Prints an error and
 * returns false if they do not fit the tensor. */
static bool choose_axes(view_weights *w, const nn_safetensors_tensor *t)
{
    char is[200], key[NAME_MOST + 8];
    snprintf(key, sizeof key, "%.*s.axes", NAME_MOST, t->name);
    const char *told = nn_safetensors_metadata(w->file, key);
    const char *begin = w->first_axis ? w->first_axis : told ? told : axes_beside_output(w, t);
    if (!begin) begin = t->rank == 4 ? "layers" : "heads";
    if ((w->axes = view_axes_of(t->rank, begin)) && nn_safetensors_is_float(t->dtype)) return true;
    nn_safetensors_describe(is, sizeof is, t);
    if (w->first_axis && nn_safetensors_is_float(t->dtype))
        cli_error("%s: %s is %s, so its first axis cannot be %s", w->path, t->name, is, w->first_axis);
    else if (told && nn_safetensors_is_float(t->dtype))
        cli_error("%s: metadata \"%s\" is \"%.*s\", which does not fit %s %s; --first-axis overrides it", w->path, key,
                  NAME_MOST, told, t->name, is);
    else
        cli_error("%s: %s is %s, but must be floats of shape (heads,queries,keys) or (layers,heads,queries,keys)",
                  w->path, t->name, is);
    return false;
}

static bool take_shape(view_weights *w, const nn_safetensors_tensor *t)
{
    char is[200];
    w->name = t->name;
    if (!choose_axes(w, t)) return false;
    if (!t->count)
        return cli_error("%s: %s is %s and contains no weights", w->path, t->name,
                         nn_safetensors_describe(is, sizeof is, t));
    const int64_t *at = t->shape;
    w->layers = w->axes->outer ? *at++ : 1;
    w->heads = w->axes->heads ? *at++ : 1;
    w->queries = at[0], w->keys = at[1];
    return true;
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

/* How far the sum of a row may be from 1: the rounding of its weights; float32 weights may have been converted from a
 * narrower type. */
static double tolerance(nn_safetensors_dtype dtype, int64_t keys)
{
    if (dtype == NN_SAFETENSORS_BF16) return 0x1p-8;
    if (dtype == NN_SAFETENSORS_F16) return 0x1p-10 + (double)keys * 0x1p-25; /* subnormals lose digits */
    return 1e-3;
}

/* Describes the position of a row, counted over all maps. */
static void describe_row(char *out, size_t room, const view_weights *w, int64_t row)
{
    int64_t map = row / w->queries;
    char outer[40] = "", head[40] = "";
    if (w->axes->outer) snprintf(outer, sizeof outer, "%s %" PRId64 ", ", w->axes->outer, map / w->heads);
    if (w->axes->heads) snprintf(head, sizeof head, "head %" PRId64 ", ", map % w->heads);
    snprintf(out, room, "%s: %s: %s%srow %" PRId64 " (counted from 0)", w->path, w->name, outer, head,
             row % w->queries);
}

/* Whether it is a valid row of weights; prints an error if not. */
static bool check_row(const view_weights *w, const float *x, int64_t row, double within)
{
    char where[700];
    double sum = 0;
    for (int64_t j = 0; j < w->keys; j++) {
        sum += (double)x[j];
        if (isfinite(x[j]) && x[j] >= 0) continue;
        describe_row(where, sizeof where, w, row);
        return cli_error("%s has %g for key %" PRId64 "; weights must be finite and not negative", where, (double)x[j],
                         j);
    }
    if (sum == 0 || fabs(sum - 1) <= within) return true;
    describe_row(where, sizeof where, w, row);
    return cli_error("%s sums to %.6g; rows must sum to 1, or be all 0 if no key is visible", where, sum);
}

/* Elements of a tensor as floats, to be freed; NULL if out of memory. */
static float *floats_of(mha_context *ctx, const nn_safetensors_tensor *t, int64_t first, int64_t count)
{
    nn_safetensors_tensor part = *t;
    part.count = count;
    part.data = (const char *)t->data + (size_t)first * nn_safetensors_dtype_size(t->dtype);
    return nn_safetensors_floats(ctx, &part);
}

/* Prints an error and returns false on failure. */
static bool pool(view_weights *w, mha_context *ctx, const nn_safetensors_tensor *t)
{
    int64_t rows = w->layers * w->heads * w->queries;
    int64_t at_once = w->keys < ROWS_AT_ONCE ? ROWS_AT_ONCE / w->keys : 1;
    double within = tolerance(t->dtype, w->keys);
    bool memory = view_cells_open(w), ok = true;
    for (int64_t first = 0; memory && ok && first < rows; first += at_once) {
        int64_t count = rows - first < at_once ? rows - first : at_once;
        float *x = floats_of(ctx, t, first * w->keys, count * w->keys);
        memory = x;
        for (int64_t i = 0; memory && ok && i < count; i++) {
            ok = check_row(w, x + i * w->keys, first + i, within);
            if (ok) view_cells_add(w, x + i * w->keys, first + i);
        }
        free(x);
    }
    if (!memory) cli_error("%s: not enough memory for %s", w->path, w->name);
    return memory && ok;
}

bool view_weights_json(nn_buffer *out, mha_context *ctx, view_weights *w)
{
    char error[600];
    view_tokens tokens = {0};
    const nn_safetensors_tensor *tensor = NULL;
    nn_safetensors_open(&w->file, w->path, error, sizeof error);
    if (!w->file) cli_error("%s", error);
    bool ok = w->file && (tensor = choose(w)) && take_shape(w, tensor) && view_tokens_read(&tokens, w);
    ok = ok && pool(w, ctx, tensor);
    if (ok) view_cells_json(out, w, &tokens);
    view_tokens_free(&tokens);
    return ok;
}

void view_weights_free(view_weights *w)
{
    nn_safetensors_free(w->file);
    free(w->cells);
    free(w->sums);
    free(w->entropy);
    free(w->effective);
    w->file = NULL;
    w->cells = NULL;
    w->sums = NULL;
    w->entropy = w->effective = NULL;
}

/* ---- Weights given as a model ----------------------------------------------------------------------------------- */

static bool begins_as_weights(mha_context *ctx, const nn_safetensors_tensor *t)
{
    int64_t keys = t->shape[t->rank - 1];
    float *x = t->count ? floats_of(ctx, t, 0, keys) : NULL;
    bool good = x;
    double sum = 0;
    for (int64_t j = 0; good && j < keys; j++) {
        good = isfinite(x[j]) && x[j] >= 0;
        sum += (double)x[j];
    }
    free(x);
    return good && fabs(sum - 1) <= tolerance(t->dtype, keys);
}

bool view_weights_are_in(const char *path, mha_context *ctx)
{
    char error[600];
    bool found = false;
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!file) return false;
    bool model = nn_safetensors_find(file, "patch_embed.proj.weight");
    for (size_t i = 0; !model && !found && i < nn_safetensors_count(file); i++) {
        const nn_safetensors_tensor *t = nn_safetensors_get(file, i);
        found = could_be(t) && begins_as_weights(ctx, t);
    }
    nn_safetensors_free(file);
    return found;
}
