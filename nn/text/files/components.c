/* What all components of a tokenizer.json share: a type that selects how it is read, sequences, patterns. */
#include "text/files/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

mha_status nn_load_memory(const nn_load *l)
{
    return nn_error(&l->to, MHA_NO_MEMORY, "not enough memory for a tokenizer");
}

/* All components of the array in a field. */
static mha_status sequence(nn_load *l, const nn_fields *f, const char *field, const char *where,
                           const nn_component *table, void *into)
{
    TRY(nn_fields_need(f, field));
    nn_json j = *nn_fields_find(f, field);
    if (nn_json_peek(&j) != '[') return nn_error(&l->to, MHA_BAD_FILE, "%s of %s must be an array", field, f->where);
    nn_json_enter(&j, '[');
    while (nn_json_more(&j, ']')) {
        TRY(nn_load_component(l, &j, where, table, into));
        nn_json_skip(&j);
    }
    return MHA_OK;
}

/* The component of the table whose type is that of the fields. `type` is to be freed. */
static mha_status read_component(nn_load *l, nn_fields *f, const nn_json *at, const char *where,
                                 const nn_component *table, char **type, void *into)
{
    char name[80];
    nn_json j = *at;
    TRY(nn_fields_read(f, &l->to, where, &j));
    TRY(nn_fields_need(f, "type"));
    TRY(nn_fields_text(f, "type", type, NULL));
    for (const nn_component *c = table; c->type; c++) {
        if (strcmp(c->type, *type) != 0) continue;
        snprintf(name, sizeof name, "%s %s", where, *type);
        f->where = name;
        TRY(nn_fields_only(f, c->fields));
        return c->read ? c->read(l, f, into) : sequence(l, f, strchr(c->fields, ' ') + 1, where, table, into);
    }
    return nn_error(&l->to, MHA_BAD_FILE, "the %s type %s is not supported", where, nn_json_brief(*type).text);
}

mha_status nn_load_component(nn_load *l, const nn_json *at, const char *where, const nn_component *table, void *into)
{
    char *type = NULL;
    nn_fields *f = malloc(sizeof *f);
    mha_status status = f ? read_component(l, f, at, where, table, &type, into) : nn_load_memory(l);
    free(type);
    free(f);
    return status;
}

mha_status nn_load_pattern(nn_load *l, const nn_fields *f, nn_pattern *pattern)
{
    char error[200];
    nn_fields inner;
    TRY(nn_fields_need(f, "pattern"));
    nn_json j = *nn_fields_find(f, "pattern");
    TRY(nn_fields_read(&inner, &l->to, f->where, &j));
    TRY(nn_fields_only(&inner, "String Regex"));
    if (inner.count != 1)
        return nn_error(&l->to, MHA_BAD_FILE, "the pattern of %s must be a String or a Regex", f->where);
    TRY(nn_fields_need(&inner, inner.key[0]));
    TRY(nn_fields_text(&inner, inner.key[0], &pattern->text, &pattern->size));
    if (strcmp(inner.key[0], "String") == 0) return MHA_OK;
    if (strlen(pattern->text) != pattern->size)
        return nn_error(&l->to, MHA_BAD_FILE, "the Regex of %s contains a NUL", f->where);
    mha_status status = nn_expression_compile(&pattern->expression, pattern->text, error, sizeof error);
    return status ? nn_error(&l->to, status, "%s: %s", f->where, error) : MHA_OK;
}

mha_status nn_load_code(nn_load *l, const nn_fields *f, const char *field, int32_t *code)
{
    char *text = NULL;
    size_t size = 0, n = 0;
    TRY(nn_fields_need(f, field));
    TRY(nn_fields_text(f, field, &text, &size));
    if (size) *code = nn_utf8_get(text, &n);
    free(text);
    if (size && n == size) return MHA_OK;
    return nn_error(&l->to, MHA_BAD_FILE, "%s of %s must be one character", field, f->where);
}
