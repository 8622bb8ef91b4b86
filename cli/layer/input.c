/* The INPUT file of `mha layer`: names, shapes and masks as nn.MultiheadAttention takes them.
 *
 * PyTorch's masks hide keys (bool, true means hidden) or are added to scores (float). Both masks of either kind become
 * one bias with -infinity for hidden keys, so that the library sees a single case. */
#include "cli/common/cli.h"
#include "io/json.h"
#include "cli/layer/run.h"
#include "io/safetensors_floats.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"query", "key", "value", "attn_mask", "key_padding_mask", "grad_output", NULL};

/* The state of reading. */
typedef struct reading {
    layer_input *in;
    mha_context *ctx;
    const nn_safetensors *file;
    const char *path;
} reading;

typedef struct words {
    char text[120];
} words;

/* A shape for messages; an arbitrary size is shown by its letter. */
static words shape_words(int rank, const int64_t *shape)
{
    static const char *const letters[] = {"B", "T", "M"};
    words w = {"("};
    size_t n = 1;
    for (int i = 0; i < rank && n < sizeof w.text; i++) {
        const char *comma = i ? "," : "";
        if (shape[i] >= 0) n += (size_t)snprintf(w.text + n, sizeof w.text - n, "%s%lld", comma, (long long)shape[i]);
        else n += (size_t)snprintf(w.text + n, sizeof w.text - n, "%s%s", comma, letters[(3 - rank + i) % 3]);
    }
    if (n < sizeof w.text) snprintf(w.text + n, sizeof w.text - n, ")");
    return w;
}

/* The name that was probably meant, or NULL: a misspelling, or its beginning or end, such as "mask". */
static const char *closest(const char *word)
{
    size_t length = strlen(word);
    const char *near = cli_closest(word, names);
    for (int i = 0; names[i] && length && !near; i++) {
        size_t more = strlen(names[i]);
        bool begins = strncmp(names[i], word, length) == 0;
        if (begins || (length < more && strcmp(names[i] + more - length, word) == 0)) near = names[i];
    }
    return near;
}

static bool is_known(const char *name)
{
    int i = 0;
    while (names[i] && strcmp(names[i], name) != 0) i++;
    return names[i];
}

bool layer_input_is(const char *path)
{
    char error[400];
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    bool is = file && nn_safetensors_find(file, "query");
    for (size_t i = 0; is && i < nn_safetensors_count(file); i++) is = is_known(nn_safetensors_get(file, i)->name);
    nn_safetensors_free(file);
    return is;
}

/* Reports all unknown tensors on one line; for a single one, with a suggestion. */
static bool check_names(const reading *r)
{
    char list[240] = "", quoted[60];
    const char *near = NULL;
    size_t n = 0;
    for (size_t i = 0; i < nn_safetensors_count(r->file); i++) {
        const char *name = nn_safetensors_get(r->file, i)->name;
        if (is_known(name)) continue;
        near = n ? NULL : closest(name);
        if (n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "",
                                  nn_json_quote(quoted, sizeof quoted, name));
    }
    if (n >= sizeof list) memcpy(list + sizeof list - 4, "...", 4);
    if (near) cli_error("%s: unknown tensor %s; did you mean %s?", r->path, list, near);
    else if (n)
        cli_error("%s: unknown tensor %s; known: query, key, value, attn_mask, key_padding_mask, grad_output", r->path,
                  list);
    return !n;
}

/* Whether the tensor has these sizes; -1 is any size that cannot overflow. */
static bool matches(const nn_safetensors_tensor *tensor, int rank, const int64_t *want)
{
    bool same = tensor->rank == rank;
    for (int i = 0; i < rank && same; i++)
        same = want[i] < 0 ? tensor->shape[i] <= INT32_MAX : want[i] == tensor->shape[i];
    return same;
}

static float *keep_numbers(reading *r, float *numbers)
{
    if (numbers) r->in->owned[r->in->owned_count++] = numbers;
    else cli_error("%s: out of memory", r->path);
    return numbers;
}

/* ---- Inputs ----------------------------------------------------------------------------------------------------- */

/* Reads a tensor as (B,T,width), where B and T are -1 for any size. Leaves *view alone if the file has no such tensor.
 * */
static bool take_tensor(reading *r, mha_tensor *view, const char *name, int64_t B, int64_t T, int64_t width)
{
    const nn_safetensors_tensor *tensor = nn_safetensors_find(r->file, name);
    const int64_t want[3] = {B, T, width};
    int skip = r->in->batched ? 0 : 1;
    if (!tensor) return true;
    if (!nn_safetensors_is_float(tensor->dtype))
        return cli_error("%s: %s is %s, but should be float16, bfloat16, float32 or float64", r->path, name,
                         nn_safetensors_dtype_name(tensor->dtype));
    if (!matches(tensor, 3 - skip, want + skip))
        return cli_error("%s: %s is %s, but should be %s", r->path, name, shape_words(tensor->rank, tensor->shape).text,
                         shape_words(3 - skip, want + skip).text);
    float *numbers = keep_numbers(r, nn_safetensors_floats(r->ctx, tensor));
    if (!numbers) return false;
    int64_t rows = tensor->shape[1 - skip];
    *view = mha_tensor_3d(numbers, MHA_FLOAT32, skip ? 1 : tensor->shape[0], rows, width);
    return true;
}

static bool take_inputs(reading *r, const mha_layer_options *o, bool grad)
{
    layer_input *in = r->in;
    const nn_safetensors_tensor *query = nn_safetensors_find(r->file, "query");
    if (!query) return cli_error("%s: query is missing", r->path);
    in->batched = query->rank != 2;
    if (!take_tensor(r, &in->tensors.query, "query", -1, -1, o->width)) return false;
    in->B = in->tensors.query.size[0];
    in->Tq = in->tensors.query.size[1];
    if (!take_tensor(r, &in->tensors.key, "key", in->B, -1, o->key_width)) return false;
    in->Tk = in->tensors.key.data ? in->tensors.key.size[1] : in->Tq;
    if (!take_tensor(r, &in->tensors.value, "value", in->B, in->Tk, o->value_width)) return false;
    if (!in->tensors.key.data && o->key_width != o->width)
        return cli_error("%s: key is missing; query has width %lld, but the layer needs keys of width %lld", r->path,
                         (long long)o->width, (long long)o->key_width);
    if (!in->tensors.value.data && o->value_width != o->key_width)
        return cli_error("%s: value is missing; keys have width %lld, but the layer needs values of width %lld",
                         r->path, (long long)o->key_width, (long long)o->value_width);
    if (!grad) return true;
    if (!nn_safetensors_find(r->file, "grad_output"))
        return cli_error("%s: grad_output is missing, but --grad needs it", r->path);
    return take_tensor(r, &in->grad_output, "grad_output", in->B, in->Tq, o->out_width);
}

/* ---- Masks ------------------------------------------------------------------------------------------------------ */

/* A mask as floats to be added to the scores. */
static float *mask_numbers(reading *r, const nn_safetensors_tensor *mask)
{
    if (mask->dtype != NN_SAFETENSORS_BOOL) return keep_numbers(r, nn_safetensors_floats(r->ctx, mask));
    float *numbers = keep_numbers(r, calloc((size_t)mask->count + 1, sizeof *numbers));
    for (int64_t i = 0; numbers && i < mask->count; i++)
        if (((const unsigned char *)mask->data)[i]) numbers[i] = -INFINITY;
    return numbers;
}

static bool check_mask(const reading *r, const nn_safetensors_tensor *mask, bool fits, const char *should)
{
    if (mask->dtype != NN_SAFETENSORS_BOOL && !nn_safetensors_is_float(mask->dtype))
        return cli_error("%s: %s is %s, but should be bool (true: hidden) or a float type (added)", r->path, mask->name,
                         nn_safetensors_dtype_name(mask->dtype));
    if (fits) return true;
    return cli_error("%s: %s is %s, but should be %s", r->path, mask->name, shape_words(mask->rank, mask->shape).text,
                     should);
}

/* attn_mask as (1,1,Tq,Tk) or (B,H,Tq,Tk). */
static bool take_attn_mask(reading *r, mha_tensor *view, int64_t heads)
{
    const layer_input *in = r->in;
    const nn_safetensors_tensor *mask = nn_safetensors_find(r->file, "attn_mask");
    const int64_t want[3] = {in->B * heads, in->Tq, in->Tk};
    char should[260];
    if (!mask) return true;
    snprintf(should, sizeof should, "%s or %s", shape_words(2, want + 1).text, shape_words(3, want).text);
    bool each = matches(mask, 3, want);
    if (!check_mask(r, mask, each || matches(mask, 2, want + 1), should)) return false;
    float *numbers = mask_numbers(r, mask);
    *view = mha_tensor_4d(numbers, MHA_FLOAT32, each ? in->B : 1, each ? heads : 1, in->Tq, in->Tk);
    return numbers;
}

/* key_padding_mask as (B,1,1,Tk). */
static bool take_key_mask(reading *r, mha_tensor *view)
{
    const layer_input *in = r->in;
    const nn_safetensors_tensor *mask = nn_safetensors_find(r->file, "key_padding_mask");
    const int64_t want[2] = {in->B, in->Tk};
    int skip = in->batched ? 0 : 1;
    if (!mask) return true;
    if (!check_mask(r, mask, matches(mask, 2 - skip, want + skip), shape_words(2 - skip, want + skip).text))
        return false;
    float *numbers = mask_numbers(r, mask);
    *view = mha_tensor_4d(numbers, MHA_FLOAT32, in->B, 1, 1, in->Tk);
    return numbers;
}

/* A key hidden by either mask is hidden, even if the other is NaN or +infinity. */
static float both(float a, float b) { return a == -INFINITY || b == -INFINITY ? -INFINITY : a + b; }

static bool take_masks(reading *r, int64_t heads)
{
    layer_input *in = r->in;
    mha_tensor who = MHA_NO_TENSOR, keys = MHA_NO_TENSOR;
    if (!take_attn_mask(r, &who, heads) || !take_key_mask(r, &keys)) return false;
    in->bias = who.data ? who : keys;
    if (!who.data || !keys.data) return true;
    int64_t size[4] = {in->B, who.size[1], in->Tq, in->Tk};
    in->bias = layer_zeros(4, size);
    if (!keep_numbers(r, in->bias.data)) return false;
    float *to = in->bias.data;
    const float *a = who.data, *b = keys.data;
    for (int64_t row = 0, rows = size[1] * in->Tq; row < in->B * rows; row++)
        for (int64_t j = 0; j < in->Tk; j++)
            *to++ = both(a[(who.size[0] > 1 ? row : row % rows) * in->Tk + j], b[row / rows * in->Tk + j]);
    return true;
}

bool layer_input_read(layer_input *in, mha_context *ctx, const mha_layer *layer, const nn_safetensors *file,
                      const layer_request *request)
{
    const mha_layer_options *o = mha_layer_shape(layer);
    reading r = {in, ctx, file, request->input};
    *in = (layer_input){0};
    return check_names(&r) && take_inputs(&r, o, request->grad) && take_masks(&r, o->heads);
}

void layer_input_free(layer_input *in)
{
    for (int i = 0; i < in->owned_count; i++) free(in->owned[i]);
    in->owned_count = 0;
}
