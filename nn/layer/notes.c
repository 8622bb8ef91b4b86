/* Options to text and back, from one table. */
#include "layer/notes.h"
#include "io/json.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { WHOLE, REAL, LONG_REAL, TRUTH, TYPE } kind;

static const struct {
    const char *key;
    kind kind;
    size_t at;           /* in mha_layer_options */
    int64_t least, most; /* of an integer */
} entries[] = {
    {"width", WHOLE, offsetof(mha_layer_options, width), 1, NN_LAYER_SIZE_MAX},
    {"heads", WHOLE, offsetof(mha_layer_options, heads), 1, NN_LAYER_SIZE_MAX},
    {"kv_heads", WHOLE, offsetof(mha_layer_options, kv_heads), 1, NN_LAYER_SIZE_MAX},
    {"key_width", WHOLE, offsetof(mha_layer_options, key_width), 1, NN_LAYER_SIZE_MAX},
    {"value_width", WHOLE, offsetof(mha_layer_options, value_width), 1, NN_LAYER_SIZE_MAX},
    {"head_width", WHOLE, offsetof(mha_layer_options, head_width), 1, NN_LAYER_SIZE_MAX},
    {"value_head_width", WHOLE, offsetof(mha_layer_options, value_head_width), 1, NN_LAYER_SIZE_MAX},
    {"out_projection", TRUTH, offsetof(mha_layer_options, out_projection), 0, 0},
    {"add_zero_attn", TRUTH, offsetof(mha_layer_options, zero_kv), 0, 0},
    {"norm_epsilon", REAL, offsetof(mha_layer_options, norm_epsilon), 0, 0},
    {"rotary_base", LONG_REAL, offsetof(mha_layer_options, rotary_base), 0, 0},
    {"rotary_width", WHOLE, offsetof(mha_layer_options, rotary_width), 0, NN_LAYER_SIZE_MAX},
    {"rotary_interleaved", TRUTH, offsetof(mha_layer_options, rotary_interleaved), 0, 0},
    {"scale", REAL, offsetof(mha_layer_options, scale), 0, 0},
    {"softcap", REAL, offsetof(mha_layer_options, softcap), 0, 0},
    {"causal", TRUTH, offsetof(mha_layer_options, causal), 0, 0},
    {"window_left", WHOLE, offsetof(mha_layer_options, window_left), MHA_UNLIMITED, INT64_C(1) << 40},
    {"window_right", WHOLE, offsetof(mha_layer_options, window_right), MHA_UNLIMITED, INT64_C(1) << 40},
    {"dropout", REAL, offsetof(mha_layer_options, dropout), 0, 0},
    {"compute", TYPE, offsetof(mha_layer_options, compute), 0, 0},
};
enum { ENTRIES = sizeof entries / sizeof *entries };
_Static_assert(ENTRIES + 2 <= NN_LAYER_NOTES, "room for all of them, the format and its version");

/* Names of some options in PyTorch's module and in model configurations. */
static const struct {
    const char *key, *ours;
} others[] = {
    {"num_heads", "heads"},
    {"n_head", "heads"},
    {"num_attention_heads", "heads"},
    {"num_key_value_heads", "kv_heads"},
};
enum { OTHERS = sizeof others / sizeof *others };

/* A field by its kind; copied, to avoid aliasing pointers of different types. */
typedef union field {
    int64_t whole;
    float real;
    double long_real;
    bool truth;
    mha_type type;
} field;

static const size_t field_size[] = {[WHOLE] = sizeof(int64_t),
                                    [REAL] = sizeof(float),
                                    [LONG_REAL] = sizeof(double),
                                    [TRUTH] = sizeof(bool),
                                    [TYPE] = sizeof(mha_type)};

/* ---- To text ---------------------------------------------------------------------------------------------------- */

static void add(nn_layer_notes *notes, const char *key)
{
    notes->pair[notes->count] = (nn_safetensors_pair){key, notes->text[notes->count]};
    notes->count++;
}

void nn_layer_notes_write(nn_layer_notes *notes, const mha_layer_options *options)
{
    *notes = (nn_layer_notes){.text = {"mha.layer", "1"}};
    add(notes, "format");
    add(notes, "version");
    for (int i = 0; i < ENTRIES; i++) {
        field f;
        char *text = notes->text[notes->count];
        memcpy(&f, (const char *)options + entries[i].at, field_size[entries[i].kind]);
        switch (entries[i].kind) {
        case WHOLE:
            snprintf(text, sizeof notes->text[0], "%lld", (long long)f.whole);
            break;
        case REAL:
            if (isnan(f.real)) continue; /* the default scale, from the head width */
            snprintf(text, sizeof notes->text[0], "%.9g", (double)f.real);
            break;
        case LONG_REAL:
            snprintf(text, sizeof notes->text[0], "%.17g", f.long_real);
            break;
        case TRUTH:
            snprintf(text, sizeof notes->text[0], "%s", f.truth ? "true" : "false");
            break;
        case TYPE:
            snprintf(text, sizeof notes->text[0], "%s", mha_type_name(f.type));
            break;
        }
        add(notes, entries[i].key);
    }
}

/* ---- From text -------------------------------------------------------------------------------------------------- */

/* Numbers as strtod reads them, but without surrounding space, words such as "inf", and hexadecimal. */
static bool plain(const char *text, const char *characters) { return *text && !text[strspn(text, characters)]; }

static bool read_whole(const char *text, int64_t least, int64_t most, int64_t *value)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    *value = number;
    return plain(text, "-0123456789") && !*end && !errno && number >= least && number <= most;
}

static bool read_real(const char *text, field *f, bool wide)
{
    char *end;
    if (wide) f->long_real = strtod(text, &end);
    else f->real = strtof(text, &end);
    return plain(text, "+-.0123456789eE") && !*end && isfinite(wide ? f->long_real : (double)f->real);
}

/* Also in the form of Python's str(). */
static bool read_truth(const char *text, bool *value)
{
    *value = strcmp(text, "true") == 0 || strcmp(text, "True") == 0;
    return *value || strcmp(text, "false") == 0 || strcmp(text, "False") == 0;
}

static bool read_type(const char *text, mha_type *value)
{
    *value = strcmp(text, mha_type_name(MHA_BFLOAT16)) == 0 ? MHA_BFLOAT16 : MHA_FLOAT32;
    return strcmp(text, mha_type_name(*value)) == 0;
}

/* Whether the text of entry i is valid; `should` describes valid values. */
static bool read_entry(field *f, int i, const char *text, char *should, size_t room)
{
    switch (entries[i].kind) {
    case WHOLE:
        snprintf(should, room, "a whole number from %lld to %lld", (long long)entries[i].least,
                 (long long)entries[i].most);
        return read_whole(text, entries[i].least, entries[i].most, &f->whole);
    case REAL:
    case LONG_REAL:
        snprintf(should, room, "a finite number");
        return read_real(text, f, entries[i].kind == LONG_REAL);
    case TRUTH:
        snprintf(should, room, "true or false");
        return read_truth(text, &f->truth);
    default:
        snprintf(should, room, "float32 or bfloat16");
        return read_type(text, &f->type);
    }
}

/* The key of entry i in the file, preferably its own name; NULL if none. Synonyms must agree. */
static bool find_key(const char **key, int i, const nn_safetensors *file, char *why, size_t why_size)
{
    char quoted[60];
    *key = nn_safetensors_metadata(file, entries[i].key) ? entries[i].key : NULL;
    for (int k = 0; k < OTHERS; k++) {
        const char *other = others[k].key, *text = nn_safetensors_metadata(file, other);
        if (!text || strcmp(others[k].ours, entries[i].key) != 0) continue;
        if (!*key) *key = other;
        if (strcmp(text, nn_safetensors_metadata(file, *key)) == 0) continue;
        snprintf(why, why_size, "metadata %s is %s, but %s differs", other, nn_json_quote(quoted, sizeof quoted, text),
                 *key);
        return false;
    }
    return true;
}

bool nn_layer_notes_are_ours(const nn_safetensors *file)
{
    const char *format = nn_safetensors_metadata(file, "format");
    return format && strcmp(format, "mha.layer") == 0;
}

bool nn_layer_notes_read(mha_layer_options *options, const nn_safetensors *file, char *why, size_t why_size)
{
    const char *version = nn_safetensors_metadata(file, "version"), *key;
    char quoted[60], should[80];
    if (nn_layer_notes_are_ours(file) && (!version || strcmp(version, "1") != 0)) {
        snprintf(why, why_size, "version %s of mha.layer is not supported, only 1",
                 nn_json_quote(quoted, sizeof quoted, version ? version : ""));
        return false;
    }
    for (int i = 0; i < ENTRIES; i++) {
        field f;
        if (!find_key(&key, i, file, why, why_size)) return false;
        if (!key) continue;
        const char *text = nn_safetensors_metadata(file, key);
        if (!read_entry(&f, i, text, should, sizeof should)) {
            snprintf(why, why_size, "metadata %s is %s, but should be %s", key,
                     nn_json_quote(quoted, sizeof quoted, text), should);
            return false;
        }
        memcpy((char *)options + entries[i].at, &f, field_size[entries[i].kind]);
    }
    return true;
}
