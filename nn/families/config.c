#include "families/config.h"
#include "io/failure.h"
#include "io/json.h"
#include "io/source.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1 << 24 };

static bool check(const nn_config *c, char *error, size_t error_size)
{
    nn_json j = nn_json_open(c->text, c->size);
    bool object = nn_json_peek(&j) == '{';
    nn_json_skip(&j);
    nn_json_end(&j);
    if (object && !nn_json_failed(&j)) return true;
    return nn_fail(&(nn_failure){c->name, error, error_size}, "%s", nn_json_failed(&j) ? j.why : "not a JSON object");
}

bool nn_config_open(nn_config *c, const char *path, char *error, size_t error_size)
{
    *c = (nn_config){.name = path};
    nn_source_text(&c->text, path, MOST, &c->size, error, error_size);
    if (!c->text) return false;
    if (check(c, error, error_size)) return true;
    nn_config_free(c);
    return false;
}

bool nn_config_text(nn_config *c, const char *text, const char *name, char *error, size_t error_size)
{
    *c = (nn_config){(char *)(uintptr_t)text, strlen(text), name};
    return check(c, error, error_size);
}

void nn_config_free(nn_config *c)
{
    free(c->text);
    c->text = NULL;
}

/* ---- Finding ---------------------------------------------------------------------------------------------------- */

/* The value that comes next. */
static nn_fact next_value(nn_json *j)
{
    nn_json_peek(j);
    size_t from = j->at;
    if (!nn_json_skip(j)) return (nn_fact){NULL, 0};
    return (nn_fact){(const char *)j->text + from, j->at - from};
}

bool nn_fact_next(nn_fact object, size_t *at, nn_fact *key, nn_fact *value)
{
    if (!object.text || *object.text != '{') return false;
    nn_json j = nn_json_open(object.text, object.size);
    if (!*at) nn_json_enter(&j, '{');
    else j.at = *at, j.depth = 1;
    if (!nn_json_more(&j, '}')) return false;
    nn_json_peek(&j);
    *key = (nn_fact){(const char *)j.text + j.at + 1, 0};
    nn_json_key(&j, NULL, &key->size);
    *value = next_value(&j);
    *at = j.at;
    return !nn_json_failed(&j);
}

/* The value of a key of so many bytes; of a key that is there twice, the last. */
static nn_fact member(nn_fact object, const char *key, size_t length)
{
    nn_fact found = {NULL, 0}, name, value;
    for (size_t at = 0; nn_fact_next(object, &at, &name, &value);)
        if (name.size == length && memcmp(name.text, key, length) == 0) found = value;
    return found;
}

nn_fact nn_fact_find(nn_fact object, const char *key) { return member(object, key, strlen(key)); }

nn_fact nn_config_find(const nn_config *c, const char *path)
{
    nn_fact f = {NULL, 0};
    while (!f.text) {
        size_t length = strcspn(path, "|");
        const char *at = path, *end = path + length;
        f = (nn_fact){c->text, c->size};
        while (f.size && *f.text != '{') f.text++, f.size--; /* white space before it */
        while (f.text && at < end) {
            size_t word = strcspn(at, ".|");
            f = member(f, at, word);
            at += word + (at[word] == '.');
        }
        if (f.text || !*end) return f;
        path = end + 1;
    }
    return f;
}

/* ---- Values ----------------------------------------------------------------------------------------------------- */

bool nn_fact_is_null(nn_fact f) { return f.size == 4 && memcmp(f.text, "null", 4) == 0; }

bool nn_fact_is(nn_fact f, const char *text)
{
    char word[128];
    if (!f.text) return false;
    if (nn_fact_string(f, word, sizeof word)) return strcmp(word, text) == 0;
    return strlen(text) == f.size && memcmp(f.text, text, f.size) == 0;
}

bool nn_fact_real(nn_fact f, double *value)
{
    char text[64], *end;
    if (!f.text || !f.size || f.size >= sizeof text || !strchr("-0123456789", *f.text)) return false;
    memcpy(text, f.text, f.size);
    text[f.size] = 0;
    *value = strtod(text, &end);
    return !*end && isfinite(*value);
}

bool nn_fact_int(nn_fact f, int64_t *value)
{
    double real;
    if (!nn_fact_real(f, &real) || real != floor(real) || fabs(real) > 0x1p53) return false;
    *value = (int64_t)real;
    return true;
}

bool nn_fact_truth(nn_fact f, bool *value)
{
    bool yes = f.text && f.size == 4 && memcmp(f.text, "true", 4) == 0;
    bool no = f.text && f.size == 5 && memcmp(f.text, "false", 5) == 0;
    if (yes || no) *value = yes;
    return yes || no;
}

bool nn_fact_string(nn_fact f, char *out, size_t room)
{
    if (!f.text || *f.text != '"' || f.size >= room) return false;
    nn_json j = nn_json_open(f.text, f.size);
    return nn_json_string(&j, out, NULL);
}

int64_t nn_fact_count(nn_fact f)
{
    if (!f.text || (*f.text != '[' && *f.text != '{')) return -1;
    char close = *f.text == '[' ? ']' : '}';
    nn_json j = nn_json_open(f.text, f.size);
    int64_t count = 0;
    nn_json_enter(&j, *f.text);
    while (nn_json_more(&j, close)) {
        if (close == '}') nn_json_key(&j, NULL, NULL);
        nn_json_skip(&j);
        count++;
    }
    return count;
}

nn_fact nn_fact_item(nn_fact array, int64_t n)
{
    if (!array.text || *array.text != '[') return (nn_fact){NULL, 0};
    nn_json j = nn_json_open(array.text, array.size);
    nn_json_enter(&j, '[');
    for (int64_t i = 0; nn_json_more(&j, ']'); i++) {
        nn_fact value = next_value(&j);
        if (i == n) return value;
    }
    return (nn_fact){NULL, 0};
}
