/* Notes as text and back: one table, walked both ways. Both places where a file may have them, the metadata and the
 * JSON object inside it, are brought to the same texts first, so that one set of rules says what a text may be. */
#include "families/vit_notes.h"
#include "io/json.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { WHOLE, POSITIVE, FRACTION, REAL, ACTIVATION, TRUTH, POOL } kind;

static const struct {
    const char *key, *other; /* what people also call it, or NULL */
    kind kind;
    size_t at; /* in nn_vit_notes */
} entries[] = {
    {"heads", "num_heads", WHOLE, offsetof(nn_vit_notes, heads)},
    {"head_width", NULL, WHOLE, offsetof(nn_vit_notes, head_width)},
    {"rows", "image_size", WHOLE, offsetof(nn_vit_notes, rows)},
    {"columns", "image_size", WHOLE, offsetof(nn_vit_notes, columns)},
    {"epsilon", "norm_eps", POSITIVE, offsetof(nn_vit_notes, epsilon)},
    {"dropout", NULL, FRACTION, offsetof(nn_vit_notes, dropout)},
    {"mean", "input_mean", REAL, offsetof(nn_vit_notes, mean)},
    {"deviation", "input_std", POSITIVE, offsetof(nn_vit_notes, deviation)},
    {"activation", NULL, ACTIVATION, offsetof(nn_vit_notes, activation)},
    {"causal", NULL, TRUTH, offsetof(nn_vit_notes, causal)},
    {"pre_norm", NULL, TRUTH, offsetof(nn_vit_notes, pre_norm)},
    {"pool", NULL, POOL, offsetof(nn_vit_notes, pool)},
};
enum { ENTRIES = sizeof entries / sizeof *entries };
_Static_assert(ENTRIES + 2 <= NN_VIT_NOTES, "room for all of them, the format and its version");

static const char *const activations[] = {[MHA_LINEAR] = "linear",
                                          [MHA_RELU] = "relu",
                                          [MHA_GELU] = "gelu_erf",
                                          [MHA_SILU] = "silu",
                                          [MHA_GELU_TANH] = "gelu_tanh"};
enum { ACTIVATIONS = sizeof activations / sizeof *activations };

bool nn_vit_notes_reads(const char *key)
{
    for (int i = 0; i < ENTRIES; i++)
        if (!strcmp(key, entries[i].key) || (entries[i].other && !strcmp(key, entries[i].other))) return true;
    return !strcmp(key, "format") || !strcmp(key, "version") || !strcmp(key, "config");
}

/* ---- To text ---------------------------------------------------------------------------------------------------- */

static void add(nn_vit_notes_text *out, const char *key, const char *text)
{
    snprintf(out->text[out->count], sizeof out->text[0], "%s", text);
    out->pair[out->count] = (nn_safetensors_pair){key, out->text[out->count]};
    out->count++;
}

void nn_vit_notes_write(nn_vit_notes_text *out, const nn_vit_notes *notes)
{
    *out = (nn_vit_notes_text){0};
    add(out, "format", "mha.vit");
    add(out, "version", "1");
    for (int i = 0; i < ENTRIES; i++) {
        char text[32];
        const char *field = (const char *)notes + entries[i].at;
        int64_t whole;
        float real;
        switch (entries[i].kind) {
        case WHOLE:
            memcpy(&whole, field, sizeof whole);
            if (!whole) continue;
            snprintf(text, sizeof text, "%lld", (long long)whole);
            break;
        case POSITIVE:
        case FRACTION:
        case REAL:
            memcpy(&real, field, sizeof real);
            snprintf(text, sizeof text, "%.9g", (double)real);
            break;
        case ACTIVATION:
            snprintf(text, sizeof text, "%s", activations[notes->activation]);
            break;
        case TRUTH:
            snprintf(text, sizeof text, "%s", *(const bool *)(const void *)field ? "true" : "false");
            break;
        case POOL:
            snprintf(text, sizeof text, "%s", notes->pool == NN_VIT_POOL_MEAN ? "mean" : "cls");
            break;
        }
        add(out, entries[i].key, text);
    }
}

/* ---- From the file ---------------------------------------------------------------------------------------------- */

/* A text as a file has it: cut, where it is longer than any that says something. */
typedef struct said {
    const char *where; /* "metadata" or "config"; NULL: not said */
    const char *key;
    char text[48];
} said;

/* An entry's own key counts before the other one, and what is outside the JSON object before what is inside. */
static void hear(said all[ENTRIES], const char *where, const char *key, const char *text, size_t length)
{
    for (int i = 0; i < ENTRIES; i++) {
        bool own = strcmp(key, entries[i].key) == 0;
        if (!own && (!entries[i].other || strcmp(key, entries[i].other) != 0)) continue;
        bool before = all[i].where && (strcmp(all[i].where, where) != 0 || !own);
        if (before) continue;
        all[i].where = where;
        all[i].key = own ? entries[i].key : entries[i].other;
        snprintf(all[i].text, sizeof all[i].text, "%.*s", (int)(length < sizeof all[i].text ? length : 47), text);
    }
}

/* Strings decoded, other values as they stand there; null says nothing. */
static bool hear_object(said all[ENTRIES], const char *text, char *why, size_t why_size)
{
    size_t size = strlen(text), length;
    char *key = malloc(2 * size + 2), *value = key + size + 1;
    if (!key) {
        snprintf(why, why_size, "not enough memory for metadata config");
        return false;
    }
    nn_json j = nn_json_open(text, size);
    nn_json_enter(&j, '{');
    while (nn_json_more(&j, '}')) {
        nn_json_key(&j, key, NULL);
        int first = nn_json_peek(&j);
        size_t from = j.at;
        if (first == '"') {
            if (nn_json_string(&j, value, &length)) hear(all, "config", key, value, length);
        } else if (nn_json_skip(&j) && first != 'n') hear(all, "config", key, text + from, j.at - from);
    }
    nn_json_end(&j);
    free(key);
    if (nn_json_failed(&j)) snprintf(why, why_size, "metadata config is not a JSON object: %s", j.why);
    return !nn_json_failed(&j);
}

/* ---- From text -------------------------------------------------------------------------------------------------- */

/* Numbers as C reads them, but for what it allows before and behind, words such as "inf", and hexadecimal. */
static bool plain(const char *text, const char *characters) { return *text && !text[strspn(text, characters)]; }

static const char *read_whole(const char *text, void *field)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    int64_t whole = number;
    memcpy(field, &whole, sizeof whole);
    bool good = plain(text, "0123456789") && !*end && !errno && number >= 1 && number <= 1 << 20;
    return good ? NULL : "a whole number from 1 to 1048576";
}

static const char *read_real(const char *text, kind of, void *field)
{
    char *end;
    float real = strtof(text, &end);
    memcpy(field, &real, sizeof real);
    bool finite = plain(text, "+-.0123456789eE") && !*end && isfinite(real);
    if (of == POSITIVE) return finite && real > 0 ? NULL : "a finite number above 0";
    if (of == FRACTION) return finite && real >= 0 && real < 1 ? NULL : "a number from 0 to below 1";
    return finite ? NULL : "a finite number";
}

static const char *read_activation(const char *text, mha_activation *activation)
{
    for (int n = 0; n < ACTIVATIONS; n++) {
        if (strcmp(text, activations[n]) != 0) continue;
        *activation = (mha_activation)n;
        return NULL;
    }
    return "gelu_erf, gelu_tanh, relu, silu or linear";
}

/* Also as Python's str() writes it. */
static const char *read_truth(const char *text, bool *truth)
{
    *truth = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;
    return *truth || strcmp(text, "false") == 0 || strcmp(text, "False") == 0 ? NULL : "true or false";
}

static const char *read_pool(const char *text, nn_vit_pool *pool)
{
    *pool = strcmp(text, "cls") == 0 ? NN_VIT_POOL_CLASS : NN_VIT_POOL_MEAN;
    return *pool == NN_VIT_POOL_CLASS || strcmp(text, "mean") == 0 || strcmp(text, "avg") == 0 ? NULL
                                                                                               : "cls, mean or avg";
}

/* What the text of entry i should be and is not; NULL if all is well. */
static const char *read_entry(nn_vit_notes *notes, int i, const char *text)
{
    char *field = (char *)notes + entries[i].at;
    switch (entries[i].kind) {
    case WHOLE:
        return read_whole(text, field);
    case ACTIVATION:
        return read_activation(text, &notes->activation);
    case TRUTH:
        return read_truth(text, (bool *)(void *)field);
    case POOL:
        return read_pool(text, &notes->pool);
    default:
        return read_real(text, entries[i].kind, field);
    }
}

/* All that a file says. */
static bool hear_file(said all[ENTRIES], const nn_safetensors *file, char *why, size_t why_size)
{
    const char *config = nn_safetensors_metadata(file, "config");
    for (size_t i = 0; i < nn_safetensors_metadata_count(file); i++) {
        const char *key = nn_safetensors_metadata_key(file, i), *text = nn_safetensors_metadata(file, key);
        hear(all, "metadata", key, text, strlen(text));
    }
    return !config || hear_object(all, config, why, why_size);
}

const char *nn_vit_notes_assumed(char *out, size_t room, const nn_safetensors *file)
{
    static const char *const asked[] = {"epsilon", "activation", "mean", "deviation", NULL};
    char why[200];
    said all[ENTRIES] = {0};
    nn_vit_notes usual = NN_VIT_NOTES_DEFAULTS;
    nn_vit_notes_text text;
    size_t n = 0;
    out[0] = 0;
    nn_vit_notes_write(&text, &usual);
    if (!hear_file(all, file, why, sizeof why)) return out;
    for (size_t p = 0; p < text.count && n < room; p++) {
        const char *key = text.pair[p].key;
        int a = 0, i = 0;
        while (asked[a] && strcmp(asked[a], key) != 0) a++;
        while (i < ENTRIES && strcmp(entries[i].key, key) != 0) i++;
        if (!asked[a] || all[i].where) continue;
        char number[32], *end;
        snprintf(number, sizeof number, "%g", strtod(text.pair[p].value, &end));
        n += (size_t)snprintf(out + n, room - n, "%s%s %s", n ? ", " : "", key, *end ? text.pair[p].value : number);
    }
    return out;
}

bool nn_vit_notes_read(nn_vit_notes *notes, const nn_safetensors *file, char *why, size_t why_size)
{
    char quoted[80];
    said all[ENTRIES] = {0};
    const char *format = nn_safetensors_metadata(file, "format"), *version = nn_safetensors_metadata(file, "version");
    if (format && strcmp(format, "mha.vit") == 0 && (!version || strcmp(version, "1") != 0)) {
        snprintf(why, why_size, "version %s of mha.vit is not supported, only 1",
                 nn_json_quote(quoted, sizeof quoted, version ? version : ""));
        return false;
    }
    if (!hear_file(all, file, why, why_size)) return false;
    for (int i = 0; i < ENTRIES; i++) {
        const char *should = all[i].where ? read_entry(notes, i, all[i].text) : NULL;
        if (!should) continue;
        snprintf(why, why_size, "%s %s is %s, but should be %s", all[i].where, all[i].key,
                 nn_json_quote(quoted, sizeof quoted, all[i].text), should);
        return false;
    }
    return true;
}
