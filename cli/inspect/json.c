/* The description, the parts and the tensors of a model as JSON. */
#include "cli/inspect/inspect.h"
#include "io/json.h"

#include <stdio.h>

static void put_text(nn_buffer *out, const char *key, const char *text)
{
    char quoted[4096];
    nn_buffer_printf(out, "\"%s\": %s", key, nn_json_quote(quoted, sizeof quoted, text));
}

static void put_place(nn_buffer *out, const mha_model_place *p)
{
    put_text(out, "stack", p->stack);
    if (p->block < 0) nn_buffer_puts(out, ", \"block\": null, ");
    else nn_buffer_printf(out, ", \"block\": %lld, ", (long long)p->block);
    put_text(out, "part", p->part);
}

/* The numbers of the part of tensor n; 0 if an earlier tensor belongs to the same part. */
static int64_t sum_of_part(const mha_model *model, int64_t n)
{
    mha_model_place p = mha_model_parameter_place(model, n);
    int64_t sum = 0;
    for (int64_t i = 0; i < mha_model_parameter_count(model); i++) {
        mha_model_place q = mha_model_parameter_place(model, i);
        mha_tensor t = mha_model_parameter_get(model, i).tensor;
        if (!inspect_same(&p, &q)) continue;
        if (i < n) return 0;
        sum += inspect_numbers(&t);
    }
    return sum;
}

static void put_tensor(nn_buffer *out, const mha_model *model, int64_t n)
{
    mha_model_parameter p = mha_model_parameter_get(model, n);
    mha_model_place place = mha_model_parameter_place(model, n);
    nn_buffer_puts(out, n ? ",\n    {" : "\n    {");
    put_text(out, "name", p.name);
    nn_buffer_puts(out, ", ");
    put_place(out, &place);
    nn_buffer_puts(out, ", \"shape\": [");
    for (int i = 0; i < p.tensor.rank; i++) nn_buffer_printf(out, i ? ", %lld" : "%lld", (long long)p.tensor.size[i]);
    nn_buffer_printf(out, "], \"parameters\": %lld}", (long long)inspect_numbers(&p.tensor));
}

bool inspect_print_json(const session *s)
{
    nn_buffer out = {0};
    const char *description = mha_model_describe(s->model);
    int64_t count = mha_model_parameter_count(s->model);
    bool first = true;
    nn_buffer_puts(&out, "{\n  ");
    put_text(&out, "file", s->from->file);
    nn_buffer_puts(&out, ",\n  ");
    put_text(&out, "family", s->about.family);
    nn_buffer_printf(&out, ",\n  \"parameters\": %lld,\n  ", (long long)s->about.parameters);
    put_text(&out, "assumed", s->about.assumed);
    nn_buffer_printf(&out, ",\n  \"description\": %s,\n  \"parts\": [", description ? description : "null");
    for (int64_t n = 0; n < count; n++) {
        mha_model_place p = mha_model_parameter_place(s->model, n);
        int64_t sum = sum_of_part(s->model, n);
        if (!sum) continue;
        nn_buffer_puts(&out, first ? "\n    {" : ",\n    {");
        put_place(&out, &p);
        nn_buffer_printf(&out, ", \"parameters\": %lld}", (long long)sum);
        first = false;
    }
    nn_buffer_puts(&out, "\n  ],\n  \"tensors\": [");
    for (int64_t n = 0; n < count; n++) put_tensor(&out, s->model, n);
    nn_buffer_puts(&out, "\n  ]\n}\n");
    bool whole = !out.failed && description;
    if (whole) fwrite(out.bytes, 1, out.size, stdout);
    nn_buffer_free(&out);
    return whole;
}
