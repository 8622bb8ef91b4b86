/* The writer of safetensors files: items are checked and sorted, the header is built in memory, then the file is
 * replaced atomically (replace.h). */
#include "io/safetensors_write.h"
#include "io/buffer.h"
#include "io/failure.h"
#include "io/json.h"
#include "io/replace.h"
#include "io/safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

nn_safetensors_item nn_safetensors_item_dense(const char *name, nn_safetensors_dtype dtype, int rank,
                                              const int64_t *shape, const void *data)
{
    nn_safetensors_item item = {.name = name, .dtype = dtype, .rank = rank, .data = data};
    int64_t stride = 1;
    for (int i = rank - 1; i >= 0 && rank <= NN_SAFETENSORS_RANK; i--) {
        item.shape[i] = shape[i];
        item.stride[i] = stride;
        if (__builtin_mul_overflow(stride, shape[i], &stride)) stride = INT64_MAX; /* refused by the writer */
    }
    return item;
}

nn_safetensors_item nn_safetensors_item_view(const char *name, mha_tensor view)
{
    static const nn_safetensors_dtype dtypes[] = {[MHA_FLOAT32] = NN_SAFETENSORS_F32,
                                                  [MHA_BFLOAT16] = NN_SAFETENSORS_BF16,
                                                  [MHA_FLOAT16] = NN_SAFETENSORS_F16,
                                                  [MHA_BOOL] = NN_SAFETENSORS_BOOL,
                                                  [MHA_INT64] = NN_SAFETENSORS_I64};
    nn_safetensors_item item = {.name = name, .dtype = dtypes[view.type], .rank = view.rank, .data = view.data};
    memcpy(item.shape, view.size, sizeof view.size);
    memcpy(item.stride, view.stride, sizeof view.stride);
    return item;
}

/* ---- Checking and sorting --------------------------------------------------------------------------------------- */

/* The size of an item in bytes, or -1 with a message if it is invalid. As in the reader, sizes of 0 cannot hide an
 * absurd size. */
static int64_t measure(nn_replacement *to, const nn_safetensors_item *item)
{
    int64_t bytes = (int64_t)nn_safetensors_dtype_size(item->dtype);
    bool empty = false;
    if (item->rank < 0 || item->rank > NN_SAFETENSORS_RANK) {
        nn_replacement_fail(to, MHA_BAD_ARGUMENT, "tensor %s has %d axes, more than %d", nn_json_brief(item->name).text,
                            item->rank, NN_SAFETENSORS_RANK);
        return -1;
    }
    for (int i = 0; i < item->rank; i++) {
        int64_t size = item->shape[i];
        empty = empty || size == 0;
        if (size < 0 || (size && __builtin_mul_overflow(bytes, size, &bytes))) {
            nn_replacement_fail(to, MHA_BAD_ARGUMENT, "tensor %s has an invalid size", nn_json_brief(item->name).text);
            return -1;
        }
    }
    if (!empty && !item->data) {
        nn_replacement_fail(to, MHA_BAD_ARGUMENT, "tensor %s has no data", nn_json_brief(item->name).text);
        return -1;
    }
    return empty ? 0 : bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const nn_safetensors_item *)a)->name, ((const nn_safetensors_item *)b)->name);
}

static int by_place(const void *a, const void *b)
{
    size_t x = nn_safetensors_dtype_size(((const nn_safetensors_item *)a)->dtype);
    size_t y = nn_safetensors_dtype_size(((const nn_safetensors_item *)b)->dtype);
    return x != y ? (x > y ? -1 : 1) : by_name(a, b);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const nn_safetensors_pair *)a)->key, ((const nn_safetensors_pair *)b)->key);
}

/* Sorts both lists into the order of the file; duplicates are errors. */
static mha_status sort(nn_replacement *to, nn_safetensors_item *items, size_t item_count, nn_safetensors_pair *pairs,
                       size_t pair_count)
{
    if (item_count) qsort(items, item_count, sizeof *items, by_name);
    if (pair_count) qsort(pairs, pair_count, sizeof *pairs, by_key);
    for (size_t i = 1; i < item_count; i++)
        if (by_name(&items[i - 1], &items[i]) == 0)
            return nn_replacement_fail(to, MHA_BAD_ARGUMENT, "tensor %s occurs twice",
                                       nn_json_brief(items[i].name).text);
    for (size_t i = 1; i < pair_count; i++)
        if (by_key(&pairs[i - 1], &pairs[i]) == 0)
            return nn_replacement_fail(to, MHA_BAD_ARGUMENT, "metadata %s occurs twice",
                                       nn_json_brief(pairs[i].key).text);
    if (item_count) qsort(items, item_count, sizeof *items, by_place);
    return MHA_OK;
}

/* ---- The header ------------------------------------------------------------------------------------------------- */

/* A JSON string. Quoting replaces invalid UTF-8, so a text that does not decode to itself was invalid. */
static mha_status put_string(nn_replacement *to, nn_buffer *out, const char *text)
{
    size_t room = 6 * strlen(text) + 8; /* \u00xx is the longest escape of a byte */
    char *quoted_text = malloc(2 * room);
    if (!quoted_text) return nn_replacement_fail(to, MHA_NO_MEMORY, "not enough memory for a header");
    char *back = quoted_text + room;
    nn_json_quote(quoted_text, room, text);
    nn_json j = nn_json_open(quoted_text, strlen(quoted_text));
    bool same = nn_json_string(&j, back, NULL) && strcmp(back, text) == 0;
    if (same) nn_buffer_puts(out, quoted_text);
    free(quoted_text);
    return same ? MHA_OK : nn_replacement_fail(to, MHA_BAD_ARGUMENT, "%s is not UTF-8", nn_json_brief(text).text);
}

static mha_status put_metadata(nn_replacement *to, nn_buffer *out, const nn_safetensors_pair *pairs, size_t count)
{
    nn_buffer_puts(out, "\"__metadata__\":");
    for (size_t i = 0; i < count; i++) {
        nn_buffer_putc(out, i ? ',' : '{');
        TRY(put_string(to, out, pairs[i].key));
        nn_buffer_putc(out, ':');
        TRY(put_string(to, out, pairs[i].value));
    }
    nn_buffer_putc(out, '}');
    return MHA_OK;
}

static mha_status put_record(nn_replacement *to, nn_buffer *out, const nn_safetensors_item *item, int64_t *at)
{
    int64_t bytes = measure(to, item), begin = *at;
    if (bytes < 0) return to->failed;
    if (__builtin_add_overflow(*at, bytes, at))
        return nn_replacement_fail(to, MHA_BAD_ARGUMENT, "the tensors do not fit 63 bits");
    if (strcmp(item->name, "__metadata__") == 0)
        return nn_replacement_fail(to, MHA_BAD_ARGUMENT, "a tensor must not be named \"__metadata__\"");
    TRY(put_string(to, out, item->name));
    nn_buffer_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", nn_safetensors_dtype_word(item->dtype));
    for (int i = 0; i < item->rank; i++) nn_buffer_printf(out, i ? ",%lld" : "%lld", (long long)item->shape[i]);
    nn_buffer_printf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)begin, (long long)*at);
    return MHA_OK;
}

static mha_status put_header(nn_replacement *to, nn_buffer *out, const nn_safetensors_item *items, size_t item_count,
                             const nn_safetensors_pair *pairs, size_t pair_count)
{
    int64_t at = 0;
    nn_buffer_putc(out, '{');
    if (pair_count) TRY(put_metadata(to, out, pairs, pair_count));
    for (size_t i = 0; i < item_count; i++) {
        if (i || pair_count) nn_buffer_putc(out, ',');
        TRY(put_record(to, out, &items[i], &at));
    }
    nn_buffer_putc(out, '}');
    while (!out->failed && out->size % 8) nn_buffer_putc(out, ' ');
    return MHA_OK;
}

/* Builds the header in memory. */
static mha_status make_header(nn_replacement *to, nn_buffer *out, const nn_safetensors_item *items, size_t item_count,
                              const nn_safetensors_pair *pairs, size_t pair_count)
{
    TRY(put_header(to, out, items, item_count, pairs, pair_count));
    if (out->failed) return nn_replacement_fail(to, MHA_NO_MEMORY, "not enough memory for a header");
    if (out->size > NN_SAFETENSORS_HEADER_MAX)
        return nn_replacement_fail(to, MHA_BAD_ARGUMENT, "a header of %zu bytes is more than the %d allowed", out->size,
                                   NN_SAFETENSORS_HEADER_MAX);
    return MHA_OK;
}

/* ---- The data --------------------------------------------------------------------------------------------------- */

/* The trailing dense axes are one run of bytes; the others are iterated, the last one fastest. */
static void put_data(nn_replacement *to, const nn_safetensors_item *item)
{
    int64_t at[NN_SAFETENSORS_RANK] = {0}, run = 1;
    int outer = item->rank;
    size_t width = nn_safetensors_dtype_size(item->dtype);
    const unsigned char *data = item->data;
    for (int i = 0; i < item->rank; i++)
        if (!item->shape[i]) return;
    while (outer && (item->stride[outer - 1] == run || item->shape[outer - 1] == 1)) run *= item->shape[--outer];
    for (int axis = 0; axis >= 0 && !to->failed;) {
        nn_replacement_put(to, data, (size_t)run * width);
        for (axis = outer - 1; axis >= 0; axis--) {
            data += item->stride[axis] * (int64_t)width;
            if (++at[axis] < item->shape[axis]) break;
            data -= item->stride[axis] * (int64_t)width * at[axis];
            at[axis] = 0;
        }
    }
}

static void write_all(nn_replacement *to, nn_safetensors_item *items, size_t item_count, nn_safetensors_pair *pairs,
                      size_t pair_count)
{
    nn_buffer header = {0};
    if (!sort(to, items, item_count, pairs, pair_count) &&
        !make_header(to, &header, items, item_count, pairs, pair_count)) {
        unsigned char bytes[8];
        for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)((uint64_t)header.size >> 8 * i);
        nn_replacement_put(to, bytes, 8);
        nn_replacement_put(to, header.bytes, header.size);
        for (size_t i = 0; i < item_count; i++) put_data(to, &items[i]);
    }
    nn_buffer_free(&header);
}

mha_status nn_safetensors_write(const char *path, const nn_safetensors_item *items, size_t item_count,
                                const nn_safetensors_pair *metadata, size_t pair_count, char *error, size_t error_size)
{
    return nn_safetensors_write_locked(path, NULL, items, item_count, metadata, pair_count, error, error_size);
}

mha_status nn_safetensors_write_locked(const char *path, nn_file_lock *lock, const nn_safetensors_item *items,
                                       size_t item_count, const nn_safetensors_pair *metadata, size_t pair_count,
                                       char *error, size_t error_size)
{
    nn_safetensors_item *sorted = malloc(item_count * sizeof *sorted + 1);
    nn_safetensors_pair *pairs = malloc(pair_count * sizeof *pairs + 1);
    nn_replacement *to = malloc(sizeof *to);
    mha_status status;
    if (sorted && pairs && to) {
        if (item_count) memcpy(sorted, items, item_count * sizeof *sorted);
        if (pair_count) memcpy(pairs, metadata, pair_count * sizeof *pairs);
        status = nn_replacement_begin(to, path, error, error_size);
        to->lock = lock;
        if (!status) write_all(to, sorted, item_count, pairs, pair_count);
        status = nn_replacement_end(to);
    } else status = nn_error(&(nn_failure){path, error, error_size}, MHA_NO_MEMORY, "out of memory");
    free(to);
    free(pairs);
    free(sorted);
    return status;
}
