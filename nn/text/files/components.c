/* What all components of a tokenizer.json share: a type that selects how it is read, sequences, patterns. */
#include "text/files/load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool nn_load_memory(const nn_load *l) { return nn_fail(&l->to, "not enough memory for a tokenizer"); }

/* All components of the array in a field. */
static bool sequence(nn_load *l, const nn_fields *f, const char *field, const char *where, const nn_component *table,
                     void *into)
{
    if (!nn_fields_need(f, field)) return false;
    nn_json j = *nn_fields_find(f, field);
    if (nn_json_peek(&j) != '[') return nn_fail(&l->to, "%s of %s must be an array", field, f->where);
    nn_json_enter(&j, '[');
    while (nn_json_more(&j, ']')) {
        if (!nn_load_component(l, &j, where, table, into)) return false;
        nn_json_skip(&j);
    }
    return true;
}

bool nn_load_component(nn_load *l, const nn_json *at, const char *where, const nn_component *table, void *into)
{
    char name[80];
    char *type = NULL;
    const nn_component *all = table;
    nn_json j = *at;
    nn_fields *f = malloc(sizeof *f);
    bool done = false;
    if (!f) return nn_load_memory(l);
    if (!nn_fields_read(f, &l->to, where, &j) || !nn_fields_need(f, "type") || !nn_fields_text(f, "type", &type, NULL))
        goto out;
    for (; table->type; table++) {
        if (strcmp(table->type, type) != 0) continue;
        snprintf(name, sizeof name, "%s %s", where, type);
        f->where = name;
        done =
            nn_fields_only(f, table->fields) &&
            (table->read ? table->read(l, f, into) : sequence(l, f, strchr(table->fields, ' ') + 1, where, all, into));
        goto out;
    }
    nn_fail(&l->to, "the %s type %s is not supported", where, nn_json_brief(type).text);
out:
    free(type);
    free(f);
    return done;
}

bool nn_load_pattern(nn_load *l, const nn_fields *f, nn_pattern *pattern)
{
    char error[200];
    nn_fields inner;
    if (!nn_fields_need(f, "pattern")) return false;
    nn_json j = *nn_fields_find(f, "pattern");
    if (!nn_fields_read(&inner, &l->to, f->where, &j) || !nn_fields_only(&inner, "String Regex")) return false;
    if (inner.count != 1) return nn_fail(&l->to, "the pattern of %s must be a String or a Regex", f->where);
    if (!nn_fields_need(&inner, inner.key[0]) || !nn_fields_text(&inner, inner.key[0], &pattern->text, &pattern->size))
        return false;
    if (strcmp(inner.key[0], "String") == 0) return true;
    if (strlen(pattern->text) != pattern->size) return nn_fail(&l->to, "the Regex of %s contains a NUL", f->where);
    pattern->expression = nn_expression_compile(pattern->text, error, sizeof error);
    return pattern->expression || nn_fail(&l->to, "%s: %s", f->where, error);
}

bool nn_load_code(nn_load *l, const nn_fields *f, const char *field, int32_t *code)
{
    char *text = NULL;
    size_t size = 0, n = 0;
    if (!nn_fields_need(f, field) || !nn_fields_text(f, field, &text, &size)) return false;
    if (size) *code = nn_utf8_get(text, &n);
    free(text);
    return (size && n == size) || nn_fail(&l->to, "%s of %s must be one character", field, f->where);
}
