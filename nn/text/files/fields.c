#include "text/files/fields.h"

#include <stdlib.h>
#include <string.h>

/* Reads a key into `out`; false if it is too long or not a key. */
static bool read_key(nn_json *j, char out[NN_FIELDS_KEY])
{
    nn_json ahead = *j;
    size_t length = 0;
    out[0] = 0;
    if (!nn_json_key(&ahead, NULL, &length)) {
        *j = ahead;
        return false;
    }
    if (length >= NN_FIELDS_KEY) return false;
    return nn_json_key(j, out, NULL);
}

mha_status nn_fields_read(nn_fields *f, const nn_failure *to, const char *where, nn_json *j)
{
    f->to = to;
    f->where = where;
    f->count = 0;
    if (nn_json_peek(j) != '{' && !nn_json_failed(j)) return nn_error(to, MHA_BAD_FILE, "%s must be an object", where);
    nn_json_enter(j, '{');
    while (nn_json_more(j, '}')) {
        char key[NN_FIELDS_KEY];
        if (!read_key(j, key)) {
            if (nn_json_failed(j)) break;
            return nn_error(to, MHA_BAD_FILE, "%s has a field whose name is too long", where);
        }
        if (f->count == NN_FIELDS_MOST)
            return nn_error(to, MHA_BAD_FILE, "%s has more than %d fields", where, NN_FIELDS_MOST);
        for (int i = 0; i < f->count; i++)
            if (strcmp(f->key[i], key) == 0)
                return nn_error(to, MHA_BAD_FILE, "%s has two fields %s", where, nn_json_brief(key).text);
        memcpy(f->key[f->count], key, sizeof key);
        f->at[f->count++] = *j;
        nn_json_skip(j);
    }
    return nn_json_failed(j) ? nn_error_because(to, MHA_BAD_FILE, j->why) : MHA_OK;
}

const nn_json *nn_fields_find(const nn_fields *f, const char *key)
{
    for (int i = 0; i < f->count; i++)
        if (strcmp(f->key[i], key) == 0) {
            nn_json j = f->at[i];
            return nn_json_peek(&j) == 'n' ? NULL : &f->at[i];
        }
    return NULL;
}

static mha_status wrong(const nn_fields *f, const char *key, const char *must)
{
    return nn_error(f->to, MHA_BAD_FILE, "%s of %s must be %s", nn_json_brief(key).text, f->where, must);
}

mha_status nn_fields_bool(const nn_fields *f, const char *key, bool *value)
{
    const nn_json *at = nn_fields_find(f, key);
    if (!at) return MHA_OK;
    nn_json j = *at;
    int c = nn_json_peek(&j);
    if (c != 't' && c != 'f') return wrong(f, key, "true or false");
    *value = c == 't';
    return MHA_OK;
}

mha_status nn_fields_integer(const nn_fields *f, const char *key, int64_t least, int64_t most, int64_t *value)
{
    const nn_json *at = nn_fields_find(f, key);
    int64_t got;
    if (!at) return MHA_OK;
    nn_json j = *at;
    if (!nn_json_integer(&j, &got) || got < least || got > most)
        return nn_error(f->to, MHA_BAD_FILE, "%s of %s must be a whole number from %lld to %lld",
                        nn_json_brief(key).text, f->where, (long long)least, (long long)most);
    *value = got;
    return MHA_OK;
}

char *nn_json_copy(nn_json *j, size_t *size)
{
    nn_json ahead = *j;
    size_t length = 0;
    if (nn_json_peek(j) != '"' || !nn_json_string(&ahead, NULL, &length)) return NULL;
    char *text = malloc(length + 1);
    if (text) nn_json_string(j, text, size);
    return text;
}

mha_status nn_fields_text(const nn_fields *f, const char *key, char **text, size_t *size)
{
    const nn_json *at = nn_fields_find(f, key);
    size_t length;
    if (!at) return MHA_OK;
    nn_json j = *at;
    if (nn_json_peek(&j) != '"') return wrong(f, key, "a text");
    char *own = nn_json_copy(&j, &length);
    if (!own) return nn_error(f->to, MHA_NO_MEMORY, "not enough memory for %s", f->where);
    free(*text);
    *text = own;
    if (size) *size = length;
    return MHA_OK;
}

mha_status nn_fields_need(const nn_fields *f, const char *key)
{
    if (nn_fields_find(f, key)) return MHA_OK;
    return nn_error(f->to, MHA_BAD_FILE, "%s lacks %s", f->where, nn_json_brief(key).text);
}

static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == 0 || at[n] == ' ')) return true;
    return false;
}

mha_status nn_fields_only(const nn_fields *f, const char *known)
{
    for (int i = 0; i < f->count; i++)
        if (!*f->key[i] || strchr(f->key[i], ' ') || !in_list(known, f->key[i]))
            return nn_error(f->to, MHA_BAD_FILE, "%s has %s, which is not supported", f->where,
                            nn_json_brief(f->key[i]).text);
    return MHA_OK;
}

bool nn_json_real(nn_json *j, double *value)
{
    char digits[64];
    int c = nn_json_peek(j);
    size_t start = j->at;
    if (c != '-' && (c < '0' || c > '9')) return false;
    if (!nn_json_skip(j) || j->at - start >= sizeof digits) return false;
    memcpy(digits, j->text + start, j->at - start);
    digits[j->at - start] = 0;
    *value = strtod(digits, NULL);
    return true;
}
