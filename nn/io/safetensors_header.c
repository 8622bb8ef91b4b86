/* The header of a safetensors file: JSON into records, and every rule of the format.
 *
 * Names and texts are decoded into one block as long as the header, which is always enough (json.h), and the array of
 * records grows by doubling, so memory is limited to a small multiple of the header. Each record is checked as it is
 * read, against the size of the data. Then the records are sorted: by name to find duplicates, by offset to find gaps
 * and overlaps. The header may list them in any order, as in the reference implementation. */
#include "io/safetensors_header.h"
#include "io/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of parsing. */
typedef struct walk {
    nn_safetensors_header *out;
    nn_json j;
    size_t used;                   /* bytes of out->text */
    size_t tensor_room, pair_room; /* records allocated */
    bool metadata;                 /* seen */
    uint64_t data_size;
    const nn_failure *to;
} walk;

/* Returns `records` with room for one more, or NULL, leaving it unchanged. Doubling limits the total to twice the size
 * needed. */
static void *make_room(walk *w, void *records, size_t *room, size_t count, size_t record_size)
{
    if (count < *room) return records;
    size_t more = *room ? 2 * *room : 8;
    void *bigger = realloc(records, more * record_size);
    if (bigger) *room = more;
    else nn_error(w->to, MHA_NO_MEMORY, "not enough memory for a header of %zu bytes", w->j.size);
    return bigger;
}

/* The status of the JSON that has been read so far. */
static mha_status json_status(walk *w)
{
    if (!nn_json_failed(&w->j)) return MHA_OK;
    return nn_error(w->to, MHA_BAD_FILE, "the header is not valid JSON: %s", w->j.why);
}

/* A decoded string in the header's text block, or NULL. */
static const char *read_text(walk *w, bool key)
{
    char *into = w->out->text + w->used;
    size_t length;
    bool ok = key ? nn_json_key(&w->j, into, &length) : nn_json_string(&w->j, into, &length);
    if (!ok) return NULL;
    w->used += length + 1;
    return into;
}

static mha_status read_metadata(walk *w)
{
    nn_safetensors_header *out = w->out;
    if (w->metadata) return nn_error(w->to, MHA_BAD_FILE, "\"__metadata__\" occurs twice");
    w->metadata = true;
    if (nn_json_peek(&w->j) != '{') return nn_error(w->to, MHA_BAD_FILE, "\"__metadata__\" is not an object");
    nn_json_enter(&w->j, '{');
    while (nn_json_more(&w->j, '}')) {
        nn_safetensors_pair *pairs = make_room(w, out->pairs, &w->pair_room, out->pair_count, sizeof *pairs);
        if (!pairs) return MHA_NO_MEMORY;
        out->pairs = pairs;
        nn_safetensors_pair *entry = &out->pairs[out->pair_count];
        entry->key = read_text(w, true);
        if (!entry->key) break;
        if (nn_json_peek(&w->j) != '"')
            return nn_error(w->to, MHA_BAD_FILE, "metadata %s is not a string", nn_json_brief(entry->key).text);
        entry->value = read_text(w, false);
        if (!entry->value) break;
        out->pair_count++;
    }
    return json_status(w);
}

static mha_status read_dtype(walk *w, nn_safetensors_tensor *tensor)
{
    size_t mark = w->used;
    if (nn_json_peek(&w->j) != '"')
        return nn_error(w->to, MHA_BAD_FILE, "tensor %s: dtype is not a string", nn_json_brief(tensor->name).text);
    const char *word = read_text(w, false);
    if (!word) return json_status(w);
    w->used = mark; /* not kept after the lookup */
    if (nn_safetensors_dtype_find(word, &tensor->dtype)) return MHA_OK;
    return nn_error(w->to, MHA_BAD_FILE, "tensor %s has the dtype %s, which is not supported",
                    nn_json_brief(tensor->name).text, nn_json_brief(word).text);
}

/* An array of up to `most` non-negative integers. */
static mha_status read_sizes(walk *w, const char *name, const char *field, int64_t *sizes, int most, int *count)
{
    *count = 0;
    if (nn_json_peek(&w->j) != '[')
        return nn_error(w->to, MHA_BAD_FILE, "tensor %s: %s is not an array", nn_json_brief(name).text, field);
    nn_json_enter(&w->j, '[');
    while (nn_json_more(&w->j, ']')) {
        if (*count == most)
            return nn_error(w->to, MHA_BAD_FILE, "tensor %s: %s has more than %d numbers", nn_json_brief(name).text,
                            field, most);
        if (!nn_json_integer(&w->j, &sizes[*count])) break;
        if (sizes[*count] < 0)
            return nn_error(w->to, MHA_BAD_FILE, "tensor %s: %s has a negative number", nn_json_brief(name).text,
                            field);
        ++*count;
    }
    return json_status(w);
}

/* The fields of one tensor. Unknown fields are ignored, as in the reference implementation. */
static mha_status read_fields(walk *w, nn_safetensors_tensor *tensor)
{
    static const char *const fields[] = {"dtype", "shape", "data_offsets"};
    bool seen[3] = {false};
    int64_t offsets[2];
    int count;
    while (nn_json_more(&w->j, '}')) {
        size_t mark = w->used;
        const char *field = read_text(w, true);
        if (!field) break;
        w->used = mark;
        int which = 0;
        while (which < 3 && strcmp(field, fields[which]) != 0) which++;
        if (which == 3) {
            if (!nn_json_skip(&w->j)) break;
            continue;
        }
        if (seen[which])
            return nn_error(w->to, MHA_BAD_FILE, "tensor %s: %s occurs twice", nn_json_brief(tensor->name).text,
                            fields[which]);
        seen[which] = true;
        if (which == 0) TRY(read_dtype(w, tensor));
        if (which == 1) TRY(read_sizes(w, tensor->name, "shape", tensor->shape, NN_SAFETENSORS_RANK, &tensor->rank));
        if (which == 2) {
            TRY(read_sizes(w, tensor->name, "data_offsets", offsets, 2, &count));
            if (count != 2)
                return nn_error(w->to, MHA_BAD_FILE, "tensor %s: data_offsets is not a pair",
                                nn_json_brief(tensor->name).text);
            tensor->begin = offsets[0];
            tensor->end = offsets[1];
        }
    }
    TRY(json_status(w));
    for (int i = 0; i < 3; i++)
        if (!seen[i])
            return nn_error(w->to, MHA_BAD_FILE, "tensor %s has no %s", nn_json_brief(tensor->name).text, fields[i]);
    return MHA_OK;
}

/* Checks that the offsets are inside the data and match the shape. Sizes of 0 are excluded from the product of the
 * overflow check, so that they cannot hide an absurd size. */
static mha_status check_tensor(const walk *w, nn_safetensors_tensor *tensor)
{
    char what[160];
    int64_t product = (int64_t)nn_safetensors_dtype_size(tensor->dtype);
    bool empty = false;
    for (int i = 0; i < tensor->rank; i++) {
        int64_t size = tensor->shape[i];
        empty = empty || size == 0;
        if (size && product > INT64_MAX / size)
            return nn_error(w->to, MHA_BAD_FILE, "tensor %s: %s does not fit 63 bits", nn_json_brief(tensor->name).text,
                            nn_safetensors_describe(what, sizeof what, tensor));
        if (size) product *= size;
    }
    int64_t bytes = empty ? 0 : product;
    tensor->count = bytes / (int64_t)nn_safetensors_dtype_size(tensor->dtype);
    if (tensor->begin > tensor->end)
        return nn_error(w->to, MHA_BAD_FILE, "tensor %s begins at %lld, after its end %lld",
                        nn_json_brief(tensor->name).text, (long long)tensor->begin, (long long)tensor->end);
    if (tensor->end - tensor->begin != bytes)
        return nn_error(w->to, MHA_BAD_FILE, "tensor %s says %lld bytes, but %s needs %lld",
                        nn_json_brief(tensor->name).text, (long long)(tensor->end - tensor->begin),
                        nn_safetensors_describe(what, sizeof what, tensor), (long long)bytes);
    if ((uint64_t)tensor->end > w->data_size)
        return nn_error(w->to, MHA_BAD_FILE,
                        "tensor %s ends at byte %lld of the data, but the file has %llu; the file is truncated",
                        nn_json_brief(tensor->name).text, (long long)tensor->end, (unsigned long long)w->data_size);
    return MHA_OK;
}

static mha_status read_tensor(walk *w, const char *name)
{
    nn_safetensors_header *out = w->out;
    nn_safetensors_tensor *tensors = make_room(w, out->tensors, &w->tensor_room, out->tensor_count, sizeof *tensors);
    if (!tensors) return MHA_NO_MEMORY;
    out->tensors = tensors;
    nn_safetensors_tensor *tensor = &out->tensors[out->tensor_count];
    memset(tensor, 0, sizeof *tensor);
    tensor->name = name;
    if (nn_json_peek(&w->j) != '{')
        return nn_error(w->to, MHA_BAD_FILE, "tensor %s is not an object", nn_json_brief(name).text);
    nn_json_enter(&w->j, '{');
    TRY(read_fields(w, tensor));
    TRY(check_tensor(w, tensor));
    out->tensor_count++;
    return MHA_OK;
}

/* ---- Checks across records -------------------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const nn_safetensors_tensor *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name); /* tensors without elements may share an offset */
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const nn_safetensors_tensor *)a)->name, ((const nn_safetensors_tensor *)b)->name);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const nn_safetensors_pair *)a)->key, ((const nn_safetensors_pair *)b)->key);
}

/* Checks that the tensors, in the order of the file, cover the data without gaps. */
static mha_status check_cover(walk *w)
{
    nn_safetensors_header *out = w->out;
    int64_t at = 0;
    for (size_t i = 0; i < out->tensor_count; i++) {
        const nn_safetensors_tensor *tensor = &out->tensors[i];
        if (tensor->begin < at)
            return nn_error(w->to, MHA_BAD_FILE, "tensors %s and %s overlap",
                            nn_json_brief(out->tensors[i - 1].name).text, nn_json_brief(tensor->name).text);
        if (tensor->begin > at)
            return nn_error(w->to, MHA_BAD_FILE, "bytes %lld to %lld of the data belong to no tensor", (long long)at,
                            (long long)tensor->begin - 1);
        at = tensor->end;
    }
    if ((uint64_t)at != w->data_size)
        return nn_error(w->to, MHA_BAD_FILE, "the last tensor ends at byte %lld of the data, but the file has %llu",
                        (long long)at, (unsigned long long)w->data_size);
    return MHA_OK;
}

static mha_status check_names(walk *w)
{
    nn_safetensors_header *out = w->out;
    for (size_t i = 1; i < out->tensor_count; i++)
        if (by_name(&out->tensors[i - 1], &out->tensors[i]) == 0)
            return nn_error(w->to, MHA_BAD_FILE, "tensor %s occurs twice", nn_json_brief(out->tensors[i].name).text);
    for (size_t i = 1; i < out->pair_count; i++)
        if (by_key(&out->pairs[i - 1], &out->pairs[i]) == 0)
            return nn_error(w->to, MHA_BAD_FILE, "metadata %s occurs twice", nn_json_brief(out->pairs[i].key).text);
    return MHA_OK;
}

static mha_status read_header(walk *w)
{
    if (nn_json_peek(&w->j) != '{' || w->j.at)
        return nn_error(w->to, MHA_BAD_FILE, "not a safetensors file: the header does not begin with '{'");
    nn_json_enter(&w->j, '{');
    while (nn_json_more(&w->j, '}')) {
        const char *name = read_text(w, true);
        if (!name) break;
        TRY(strcmp(name, "__metadata__") == 0 ? read_metadata(w) : read_tensor(w, name));
    }
    nn_json_end(&w->j);
    return json_status(w);
}

mha_status nn_safetensors_header_read(nn_safetensors_header *header, const void *bytes, size_t length,
                                      uint64_t data_size, const nn_failure *to)
{
    walk w = {.out = header, .j = nn_json_open(bytes, length), .data_size = data_size, .to = to};
    header->text = malloc(length + 1);
    if (!header->text) return nn_error(to, MHA_NO_MEMORY, "not enough memory for a header of %zu bytes", length);
    TRY(read_header(&w));
    if (header->pair_count) qsort(header->pairs, header->pair_count, sizeof *header->pairs, by_key);
    if (header->tensor_count) qsort(header->tensors, header->tensor_count, sizeof *header->tensors, by_name);
    TRY(check_names(&w));
    if (header->tensor_count) qsort(header->tensors, header->tensor_count, sizeof *header->tensors, by_offset);
    return check_cover(&w);
}

void nn_safetensors_header_free(nn_safetensors_header *header)
{
    free(header->text);
    free(header->tensors);
    free(header->pairs);
}
