#include "families/save.h"
#include "io/buffer.h"
#include "io/failure.h"
#include "io/json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, NAME = 64, TENSOR_NAME = 512 };

typedef struct saving {
    const nn_save *s;
    mha_context *ctx;
    const char *folder;
    const nn_safetensors_tensor **tensor; /* (count): as they were read */
    nn_safetensors_item *item;            /* (count): as they are written */
    void **own;                           /* (count): bytes of a tensor with a part that has changed, or NULL */
    bool *is_part;                        /* (count): it has a part of the model */
    int64_t *shard;                       /* (count): the file of each, from 0 */
    int64_t count, shards;
    int64_t written; /* files of the folder: shards, index and texts, in this order */
    bool made;       /* the folder */
    nn_failure to;
} saving;

/* ---- Tensors ---------------------------------------------------------------------------------------------------- */

static bool list_tensors(saving *w)
{
    w->count = nn_shards_tensors(w->s->shards);
    size_t room = (size_t)w->count + 1;
    w->tensor = calloc(room, sizeof *w->tensor);
    w->item = calloc(room, sizeof *w->item);
    w->own = calloc(room, sizeof *w->own);
    w->is_part = calloc(room, sizeof *w->is_part);
    w->shard = calloc(room, sizeof *w->shard);
    if (!w->tensor || !w->item || !w->own || !w->is_part || !w->shard) return nn_fail(&w->to, "out of memory");
    for (int64_t n = 0; n < w->count; n++) {
        const nn_safetensors_tensor *t = w->tensor[n] = nn_shards_get(w->s->shards, n);
        w->item[n] = nn_safetensors_item_dense(t->name, t->dtype, t->rank, t->shape, t->data);
    }
    return true;
}

static int64_t numbers_of(const mha_tensor *t)
{
    int64_t count = 1;
    for (int axis = 0; axis < t->rank; axis++) count *= t->size[axis];
    return count;
}

/* A copy of a tensor as dense float32 numbers, to be freed, of the sizes of `shape`; NULL without memory. */
static float *dense_copy(mha_context *ctx, mha_tensor from, mha_tensor *to)
{
    float *numbers = malloc((size_t)(numbers_of(&from) + 1) * sizeof *numbers);
    int64_t stride = 1;
    *to = from;
    to->data = numbers, to->type = MHA_FLOAT32;
    for (int axis = from.rank - 1; axis >= 0; axis--) to->stride[axis] = stride, stride *= from.size[axis];
    if (numbers && !mha_tensor_copy(ctx, *to, from)) return numbers;
    free(numbers);
    return NULL;
}

static int64_t find_tensor(const saving *w, const nn_safetensors_tensor *t)
{
    int64_t n = 0;
    while (n < w->count && w->tensor[n] != t) n++;
    return n;
}

static bool same_bits(float a, float b)
{
    uint32_t x, y;
    memcpy(&x, &a, sizeof x), memcpy(&y, &b, sizeof y);
    return x == y;
}

/* The numbers `now`, dense, into their place in a tensor, unless the tensor has them already. */
static bool write_numbers(saving *w, const nn_safetensors_tensor *t, mha_tensor place, const float *now, bool plus_one)
{
    mha_tensor before;
    float *numbers = dense_copy(w->ctx, place, &before);
    int64_t n = find_tensor(w, t);
    size_t bytes = (size_t)(t->end - t->begin), first = (size_t)((char *)place.data - (const char *)t->data);
    bool same = true;
    w->is_part[n] = true;
    if (!numbers) return nn_fail(&w->to, "out of memory");
    for (int64_t i = 0; i < numbers_of(&before); i++) {
        float is = plus_one ? numbers[i] + 1 : numbers[i];
        if (same_bits(is, now[i])) continue;
        numbers[i] = plus_one ? now[i] - 1 : now[i];
        same = false;
    }
    if (!same && !w->own[n] && (w->own[n] = malloc(bytes + 1))) memcpy(w->own[n], t->data, bytes);
    bool ok = same || w->own[n] || nn_fail(&w->to, "out of memory");
    if (ok && !same) {
        w->item[n].data = w->own[n];
        place.data = (char *)w->own[n] + first;
        ok = !mha_tensor_copy(w->ctx, place, before) || nn_fail(&w->to, "%s", mha_context_error(w->ctx));
    }
    free(numbers);
    return ok;
}

/* Of a part that has one tensor for each head: the names differ in a number, which is 0 in the first one. */
static bool write_heads(saving *w, const nn_safetensors_tensor *first, mha_tensor place, const nn_name *name,
                        const float *now, int64_t count)
{
    char text[TENSOR_NAME];
    const char *behind = strstr(name->name, "{h}") + 3;
    int before = (int)(strlen(first->name) - strlen(behind)) - 1;
    int64_t D = numbers_of(&place);
    for (int64_t h = 0; h < count / D; h++) {
        snprintf(text, sizeof text, "%.*s%lld%s", before, first->name, (long long)h, behind);
        const nn_safetensors_tensor *t = nn_shards_find(w->s->shards, text);
        mha_tensor here = place;
        if (!t) return nn_fail(&w->to, "%s is missing", nn_json_brief(text).text);
        here.data = (char *)(uintptr_t)t->data;
        if (!write_numbers(w, t, here, now + h * D, name->plus_one)) return false;
    }
    return true;
}

static bool write_parts(saving *w)
{
    const nn_bound *b = w->s->bound;
    for (int64_t n = 0; n < b->count; n++) {
        mha_tensor dense, place = b->place[n];
        if (b->source[n]) w->is_part[find_tensor(w, b->source[n])] = true;
        if (!b->source[n] || w->s->parts[n].data == place.data) continue; /* it lies there */
        float *now = dense_copy(w->ctx, w->s->parts[n], &dense);
        if (!now) return nn_fail(&w->to, "out of memory");
        bool ok = b->name[n]->cut == NN_EACH ? write_heads(w, b->source[n], place, b->name[n], now, numbers_of(&dense))
                                             : write_numbers(w, b->source[n], place, now, b->name[n]->plus_one);
        free(now);
        if (!ok) return false;
    }
    return true;
}

/* A table that a file has under several names, such as that of tokens as lm_head.weight, stays one. */
static void write_copies(saving *w)
{
    for (int64_t n = 0; n < w->count; n++) {
        const nn_safetensors_tensor *t = w->tensor[n];
        for (int64_t k = 0; k < w->count && t->rank > 1 && !w->is_part[n]; k++) {
            const nn_safetensors_tensor *of = w->tensor[k];
            bool alike = w->own[k] && t->dtype == of->dtype && t->count == of->count;
            if (alike && memcmp(t->data, of->data, (size_t)(t->end - t->begin)) == 0) w->item[n].data = w->own[k];
        }
    }
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

static int64_t bytes_of(const nn_safetensors_tensor *t) { return t->end - t->begin; }

/* Each shard has tensors that follow one another, as many as there is room for. */
static void choose_shards(saving *w)
{
    int64_t used = 0;
    w->shards = 1;
    for (int64_t n = 0; n < w->count; n++) {
        int64_t bytes = bytes_of(w->tensor[n]);
        if (used && used + bytes > w->s->shard_bytes) w->shards++, used = 0;
        used += bytes;
        w->shard[n] = w->shards - 1;
    }
}

static void name_shard(const saving *w, char name[NAME], int64_t n)
{
    if (w->shards == 1) snprintf(name, NAME, "model.safetensors");
    else snprintf(name, NAME, "model-%05lld-of-%05lld.safetensors", (long long)n + 1, (long long)w->shards);
}

/* The name of file n of the folder; "" if it is an index that is not needed. */
static void name_file(const saving *w, char name[NAME], int64_t n)
{
    if (n < w->shards) name_shard(w, name, n);
    else if (n == w->shards) snprintf(name, NAME, "%s", w->shards > 1 ? "model.safetensors.index.json" : "");
    else snprintf(name, NAME, "%s", w->s->text[n - w->shards - 1].name);
}

static bool write_shard(const saving *w, const char *path, int64_t n, char *error, size_t error_size)
{
    nn_safetensors_item *items = calloc((size_t)w->count + 1, sizeof *items);
    nn_safetensors_pair *pairs = calloc(w->s->note_count + 1, sizeof *pairs);
    size_t count = 0, notes = 0;
    bool ok = items && pairs;
    for (int64_t t = 0; ok && t < w->count; t++)
        if (w->shard[t] == n) items[count++] = w->item[t];
    if (ok) pairs[notes++] = (nn_safetensors_pair){"format", "pt"};
    for (size_t k = 0; ok && k < w->s->note_count; k++) pairs[notes++] = w->s->notes[k];
    if (!ok) nn_fail(&w->to, "out of memory");
    ok = ok && !nn_safetensors_write(path, items, count, pairs, notes, error, error_size);
    free(items);
    free(pairs);
    return ok;
}

static void write_index(const saving *w, nn_buffer *out)
{
    int64_t bytes = 0, numbers = 0;
    for (int64_t n = 0; n < w->count; n++) bytes += bytes_of(w->tensor[n]), numbers += w->tensor[n]->count;
    nn_buffer_printf(out, "{\n  \"metadata\": {\n    \"total_parameters\": %lld,\n    \"total_size\": %lld\n  },\n",
                     (long long)numbers, (long long)bytes);
    nn_buffer_puts(out, "  \"weight_map\": {");
    for (int64_t n = 0; n < w->count; n++) {
        char name[NAME];
        size_t room = 6 * strlen(w->tensor[n]->name) + 16;
        char *quoted = malloc(room);
        name_shard(w, name, w->shard[n]);
        if (quoted) nn_json_quote(quoted, room, w->tensor[n]->name);
        else out->failed = true;
        nn_buffer_printf(out, "%s\n    %s: \"%s\"", n ? "," : "", quoted ? quoted : "", name);
        free(quoted);
    }
    nn_buffer_puts(out, "\n  }\n}\n");
}

static bool write_file(saving *w, const char *path, int64_t n)
{
    char *error = w->to.error;
    size_t room = w->to.error_size;
    nn_buffer out = {0};
    if (n < w->shards) return write_shard(w, path, n, error, room);
    if (n == w->shards) write_index(w, &out);
    else nn_buffer_put(&out, w->s->text[n - w->shards - 1].bytes, w->s->text[n - w->shards - 1].size);
    bool ok = !nn_buffer_save(&out, path, error, room);
    nn_buffer_free(&out);
    return ok;
}

static bool has_file(const saving *w, const char *name)
{
    char path[PATH];
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    return access(path, F_OK) == 0;
}

static bool open_folder(saving *w)
{
    static const char *const others[] = {"config.json", "model.safetensors", "model.safetensors.index.json"};
    if (strlen(w->folder) + NAME + 2 > PATH) return nn_fail(&w->to, "the name is too long");
    w->made = mkdir(w->folder, 0777) == 0;
    if (!w->made && errno != EEXIST) return nn_fail(&w->to, "%s", strerror(errno));
    for (size_t n = 0; n < sizeof others / sizeof *others; n++)
        if (has_file(w, others[n]))
            return nn_fail(&w->to, "has a %s: a model is saved to a folder without another one", others[n]);
    return true;
}

static bool write_all(saving *w)
{
    char name[NAME], path[PATH];
    bool ok = true;
    for (int64_t n = 0; ok && n < w->shards + 1 + (int64_t)w->s->text_count; n++) {
        name_file(w, name, n);
        if (!*name || (n > w->shards && !w->s->text[n - w->shards - 1].bytes)) continue;
        snprintf(path, sizeof path, "%s/%s", w->folder, name);
        ok = write_file(w, path, n);
        w->written = ok ? n + 1 : n;
    }
    return ok;
}

/* Of an error: what has been written goes. */
static void clean_up(const saving *w)
{
    char name[NAME], path[PATH];
    for (int64_t n = 0; n < w->written; n++) {
        name_file(w, name, n);
        snprintf(path, sizeof path, "%s/%s", w->folder, name);
        if (*name && (n <= w->shards || w->s->text[n - w->shards - 1].bytes)) unlink(path);
    }
    if (w->made) rmdir(w->folder);
}

bool nn_family_save(const char *folder, mha_context *ctx, const nn_save *s, char *error, size_t error_size)
{
    saving w = {.s = s, .ctx = ctx, .folder = folder, .to = {folder, error, error_size}};
    bool ok = list_tensors(&w) && write_parts(&w);
    if (ok) write_copies(&w);
    if (ok) choose_shards(&w);
    ok = ok && open_folder(&w) && write_all(&w);
    if (!ok) clean_up(&w);
    for (int64_t n = 0; w.own && n < w.count; n++) free(w.own[n]);
    free((void *)w.tensor);
    free(w.item);
    free(w.own);
    free(w.is_part);
    free(w.shard);
    return ok;
}
