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

/* The numbers of the part of tensor n; -1 if an earlier tensor belongs to the same part. */
static int64_t sum_of_part(const mha_model *model, int64_t n)
{
    mha_model_place p = mha_model_parameter_place(model, n);
    int64_t sum = 0;
    for (int64_t i = 0; i < mha_model_parameter_count(model); i++) {
        mha_model_place q = mha_model_parameter_place(model, i);
        mha_model_parameter of = mha_model_parameter_get(model, i);
        if (!inspect_same(&p, &q)) continue;
        if (i < n) return -1;
        if (of.same < 0) sum += inspect_numbers(&of.tensor);
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
    nn_buffer_printf(out, "], \"parameters\": %lld, ", (long long)inspect_numbers(&p.tensor));
    put_text(out, "type", p.tensor.data ? mha_type_name(p.tensor.type) : "");
    nn_buffer_puts(out, ", ");
    put_text(out, "source", p.source ? p.source : p.name);
    if (p.same < 0) nn_buffer_puts(out, ", \"same\": null}");
    else
        nn_buffer_puts(out, ", "), put_text(out, "same", mha_model_parameter_get(model, p.same).name),
            nn_buffer_puts(out, "}");
}

static void put_tokenizer(nn_buffer *out, const inspect_tokenizer *k)
{
    nn_buffer_puts(out, "\"tokenizer\": ");
    if (!k->there) {
        nn_buffer_puts(out, "null,\n  ");
        return;
    }
    nn_buffer_puts(out, "{");
    put_text(out, "kind", k->about.kind);
    nn_buffer_puts(out, ", ");
    put_text(out, "format", k->about.format);
    nn_buffer_printf(out, ", \"tokens\": %lld},\n  ", (long long)k->about.tokens);
}

static void put_names(nn_buffer *out, const char *key, const char *(*name)(const mha_model *, int64_t),
                      const mha_model *model)
{
    char quoted[4096];
    nn_buffer_printf(out, "\"%s\": [", key);
    for (int64_t n = 0; name(model, n); n++)
        nn_buffer_printf(out, "%s%s", n ? ", " : "", nn_json_quote(quoted, sizeof quoted, name(model, n)));
    nn_buffer_puts(out, "],\n  ");
}

bool inspect_print_json(const session *s, const inspect_tokenizer *k)
{
    nn_buffer out = {0};
    const char *description = mha_model_describe(s->model);
    int64_t count = mha_model_parameter_count(s->model);
    bool first = true;
    nn_buffer_puts(&out, "{\n  ");
    put_text(&out, "file", s->from->file);
    nn_buffer_puts(&out, ",\n  ");
    put_text(&out, "family", s->about.family);
    nn_buffer_puts(&out, ",\n  ");
    if (s->about.text_of) put_text(&out, "text_of", s->about.text_of);
    else nn_buffer_puts(&out, "\"text_of\": null");
    nn_buffer_printf(&out, ",\n  \"parameters\": %lld,\n  ", (long long)s->about.parameters);
    put_text(&out, "assumed", s->about.assumed);
    nn_buffer_puts(&out, ",\n  ");
    put_names(&out, "labels", mha_model_label, s->model);
    put_tokenizer(&out, k);
    put_names(&out, "missing", mha_model_missing, s->model);
    put_names(&out, "left_over", mha_model_unused, s->model);
    nn_buffer_printf(&out, "\"description\": %s,\n  \"parts\": [", description ? description : "null");
    for (int64_t n = 0; n < count; n++) {
        mha_model_place p = mha_model_parameter_place(s->model, n);
        int64_t sum = sum_of_part(s->model, n);
        if (sum < 0) continue;
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
