/* Saving a layer: the family's names for the layer's parameters in place, the options as metadata. */
#include "layer/file.h"
#include "layer/notes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parameter n: its row in the table, its head if it is one of a list, and the view. Returns false if there is none. */
static bool get(const nn_layer_file *file, size_t n, float *block, const nn_layer_name **row, int64_t *head,
                mha_tensor *view)
{
    mha_layer_parts parts = mha_layer_view(file->layer, block);
    for (*row = file->family->names; (*row)->name; ++*row) {
        if ((*row)->part >= NN_LAYER_PARTS) continue;
        mha_tensor part = nn_layer_part_of(&parts, (*row)->part);
        const mha_layer_options *o = mha_layer_shape(file->layer);
        int64_t heads = !nn_layer_name_lists((*row)->name) ? 1
                        : (*row)->part == NN_LAYER_K_NORM  ? o->kv_heads
                                                           : o->heads;
        if (!part.data) continue;
        if (n >= (size_t)heads) {
            n -= (size_t)heads;
            continue;
        }
        *head = (int64_t)n;
        part.size[0] /= heads;
        part.data = (float *)part.data + *head * part.size[0] * part.stride[0];
        if ((*row)->cut == NN_LIFTED) part = mha_tensor_3d(part.data, part.type, 1, 1, part.size[0]);
        if ((*row)->cut == NN_SWAPPED) part = mha_tensor_swap(part, 0, 1);
        *view = part;
        return true;
    }
    return false;
}

mha_tensor nn_layer_file_item(const nn_layer_file *file, size_t n, float *block)
{
    const nn_layer_name *row;
    mha_tensor view = MHA_NO_TENSOR;
    int64_t head;
    get(file, n, block, &row, &head, &view);
    return view;
}

bool nn_layer_file_items(nn_layer_items *out, const nn_layer_file *file, float *block, const char *before)
{
    static const char *const words[NN_LAYER_PARTS] = {
        [NN_LAYER_Q_WEIGHT] = "q", [NN_LAYER_K_WEIGHT] = "k", [NN_LAYER_V_WEIGHT] = "v",
        [NN_LAYER_Q_BIAS] = "q",   [NN_LAYER_K_BIAS] = "k",   [NN_LAYER_V_BIAS] = "v"};
    const nn_layer_name *row;
    mha_tensor view;
    int64_t head;
    size_t count = 0, longest = strlen(before) + strlen(file->prefix) + 24; /* with the number of a head */
    for (row = file->family->names; row->name; row++)
        if (strlen(before) + strlen(file->prefix) + strlen(row->name) + 24 > longest)
            longest = strlen(before) + strlen(file->prefix) + strlen(row->name) + 24;
    *out = (nn_layer_items){0};
    while (get(file, count, block, &row, &head, &view)) count++;
    char *memory = calloc(count + 1, sizeof *out->item + longest), *names = memory + count * sizeof *out->item;
    if (!memory) return false;
    out->item = (nn_safetensors_item *)(void *)memory;
    for (; get(file, out->count, block, &row, &head, &view); names += longest) {
        int length = snprintf(names, longest, "%s%s", before, file->prefix);
        nn_layer_name_of_head(names + length, longest - (size_t)length, row->name, head);
        if (nn_layer_name_shares(row)) /* the parts of a tensor by their own names */
            length = (int)strlen(names), snprintf(names + length, longest - (size_t)length, ".%s", words[row->part]);
        out->item[out->count++] = nn_safetensors_item_view(names, view);
    }
    return true;
}

void nn_layer_items_free(nn_layer_items *items)
{
    free(items->item);
    *items = (nn_layer_items){0};
}

const char *nn_layer_file_cannot_save(const mha_layer *layer)
{
    const mha_layer_options *o = mha_layer_shape(layer);
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    if (o->norm != MHA_NORM_RMS || o->norm_span != MHA_NORM_EACH_HEAD || o->norm_bias)
        return "a norm other than RMS with one gain for all heads";
    if (o->out_projection && o->out_width != o->width) return "an output width other than that of its queries";
    if (o->rotary_frequencies.rank || o->rotary_cos.rank || o->rotary_multiplier != 1)
        return "custom rotary frequencies or tables";
    if (parts.q_weight.type != MHA_FLOAT32 || parts.q_weight.rank != 2 ||
        (o->out_projection && parts.out_weight.type != MHA_FLOAT32))
        return "weights that are not one block of float32 numbers";
    return NULL;
}

bool nn_layer_file_save(const mha_layer *layer, const char *path, char *error, size_t error_size)
{
    nn_layer_items items;
    nn_layer_notes notes;
    const char *reason = nn_layer_file_cannot_save(layer);
    if (reason) {
        snprintf(error, error_size, "%s: the layer has %s, which layer files cannot express", path, reason);
        return false;
    }
    nn_layer_family family;
    nn_layer_family_to_save(&family, layer);
    nn_layer_file file = {.layer = (mha_layer *)(uintptr_t)layer, .family = &family};
    if (!nn_layer_file_items(&items, &file, NULL, "")) {
        snprintf(error, error_size, "%s: not enough memory", path);
        return false;
    }
    nn_layer_notes_write(&notes, mha_layer_shape(layer));
    bool ok = !nn_safetensors_write(path, items.item, items.count, notes.pair, notes.count, error, error_size);
    nn_layer_items_free(&items);
    return ok;
}

int64_t nn_layer_count_not_finite(const mha_layer *layer, int64_t *count)
{
    mha_layer_parts parts = mha_layer_view(layer, NULL);
    int64_t all = 0, bad = 0;
    for (int part = NN_LAYER_Q_WEIGHT; part <= NN_LAYER_K_NORM_BIAS; part++) {
        mha_tensor t = nn_layer_part_of(&parts, (nn_layer_part)part);
        int64_t n = !t.data ? 0 : t.rank == 2 ? t.size[0] * t.size[1] : t.size[0];
        for (int64_t i = 0; i < n; i++) bad += !isfinite(((const float *)t.data)[i]);
        all += n;
    }
    if (count) *count = all;
    return bad;
}
