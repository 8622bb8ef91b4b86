/* Two passes over the JSON text: the first finds the kind of this layer among those of its model, which the second
 * needs to select the layer's values. Then the table of model types supplies the rest. */
#include "layer/config.h"
#include "io/json.h"
#include "io/source.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MOST = 1 << 24 };

/* ---- Model types ------------------------------------------------------------------------------------------------ */

typedef enum causality { NEVER, ALWAYS, IF_DECODER, BY_PREFIX } causality;

/* Defaults for keys that files of such a model may lack. `needs`: keys that are required because their usual values
 * differ from model to model. */
static const struct kind {
    const char *type, *family;
    causality causal;
    double rotary_base; /* if the file has none; 0: no rotary embedding */
    double rotary_part; /* of the width of a head, likewise */
    bool interleaved;
    const char *needs[4];
} kinds[] = {
    {"gpt2", "gpt2", ALWAYS, 0, 0, false, {NULL}},
    {"bert", "bert", IF_DECODER, 0, 0, false, {NULL}},
    {"roberta", "bert", IF_DECODER, 0, 0, false, {NULL}},
    {"xlm-roberta", "bert", IF_DECODER, 0, 0, false, {NULL}},
    {"camembert", "bert", IF_DECODER, 0, 0, false, {NULL}},
    {"electra", "bert", IF_DECODER, 0, 0, false, {NULL}},
    {"llama", "llama", ALWAYS, 10000, 1, false, {NULL}},
    {"mistral", "llama", ALWAYS, 10000, 1, false, {"sliding_window"}},
    {"mixtral", "llama", ALWAYS, 1e6, 1, false, {NULL}},
    {"qwen2", "llama", ALWAYS, 10000, 1, false, {NULL}},
    {"qwen3", "llama", ALWAYS, 10000, 1, false, {NULL}},
    {"gemma", "llama", ALWAYS, 10000, 1, false, {NULL}},
    {"gemma2",
     "llama",
     ALWAYS,
     10000,
     1,
     false,
     {"query_pre_attn_scalar", "attn_logit_softcapping", "sliding_window", "layer_types"}},
    {"granite", "llama", ALWAYS, 10000, 1, false, {"attention_multiplier"}},
    {"olmo", "llama", ALWAYS, 10000, 1, false, {NULL}},
    {"cohere", "llama", ALWAYS, 10000, 1, true, {NULL}},
    {"smollm3", "llama", ALWAYS, 2e6, 1, false, {"no_rope_layers"}},
    {"stablelm", "llama", ALWAYS, 10000, 0.25, false, {NULL}},
    {"starcoder2", "llama", ALWAYS, 10000, 1, false, {NULL}},
    {"gpt_oss", "llama", ALWAYS, 150000, 1, false, {"rope_parameters|rope_scaling", "sliding_window", "layer_types"}},
    {"opt", "bart", ALWAYS, 0, 0, false, {NULL}},
    {"bart", "bart", BY_PREFIX, 0, 0, false, {NULL}},
    {"mbart", "bart", BY_PREFIX, 0, 0, false, {NULL}},
    {"m2m_100", "bart", BY_PREFIX, 0, 0, false, {NULL}},
    {"marian", "bart", BY_PREFIX, 0, 0, false, {NULL}},
    {"pegasus", "bart", BY_PREFIX, 0, 0, false, {NULL}},
    {"whisper", "bart", BY_PREFIX, 0, 0, false, {NULL}},
    {"clip_text_model", "bart", ALWAYS, 0, 0, false, {NULL}},
    {"clip_vision_model", "bart", NEVER, 0, 0, false, {NULL}},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const struct kind *kind_of(const char *type)
{
    for (int i = 0; i < KINDS; i++)
        if (strcmp(kinds[i].type, type) == 0) return &kinds[i];
    return NULL;
}

/* ---- Finding ---------------------------------------------------------------------------------------------------- */

char *nn_layer_config_find(const char *file)
{
    static const char name[] = "config.json";
    const char *slash = strrchr(file, '/');
    size_t folder = slash ? (size_t)(slash - file) + 1 : 0;
    char *path = malloc(folder + sizeof name);
    if (!path) return NULL;
    memcpy(path, file, folder);
    memcpy(path + folder, name, sizeof name);
    if (access(path, F_OK) != 0) path[0] = 0;
    return path;
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

typedef struct reading {
    const char *prefix;
    int64_t layer; /* layer index; -1: the prefix has none */
    char type[NN_LAYER_CONFIG_TEXT];
    char layer_type
        [NN_LAYER_CONFIG_TEXT]; /* of layer_types; "" if absent, "?" if layers differ and the index is unknown */
    char rotary_type[NN_LAYER_CONFIG_TEXT];
    int64_t heads, kv_heads, head_width, width, window, rotary_width;
    double theta, part, softcap, scalar, multiplier, epsilon;
    bool decoder, no_window, unrotated;
    unsigned seen; /* bits of `keys`, null or not */
    char why[300];
} reading;

typedef enum form { WHOLE, REAL, TRUTH, TEXT, ROTARY, KIND, ROTATED, ONLY } form;

/* `at` is a field of reading; for ONLY, `only` is the only supported value, besides null. */
static const struct {
    const char *key;
    form form;
    size_t at;
    const char *only;
} keys[] = {
    {"model_type", TEXT, offsetof(reading, type), NULL},
    {"num_attention_heads", WHOLE, offsetof(reading, heads), NULL},
    {"n_head", WHOLE, offsetof(reading, heads), NULL},
    {"num_heads", WHOLE, offsetof(reading, heads), NULL},
    {"num_key_value_heads", WHOLE, offsetof(reading, kv_heads), NULL},
    {"head_dim", WHOLE, offsetof(reading, head_width), NULL},
    {"hidden_size", WHOLE, offsetof(reading, width), NULL},
    {"n_embd", WHOLE, offsetof(reading, width), NULL},
    {"d_model", WHOLE, offsetof(reading, width), NULL},
    {"rope_theta", REAL, offsetof(reading, theta), NULL},
    {"partial_rotary_factor", REAL, offsetof(reading, part), NULL},
    {"rope_scaling", ROTARY, 0, NULL},
    {"rope_parameters", ROTARY, 0, NULL},
    {"no_rope_layers", ROTATED, offsetof(reading, unrotated), NULL},
    {"query_pre_attn_scalar", REAL, offsetof(reading, scalar), NULL},
    {"attention_multiplier", REAL, offsetof(reading, multiplier), NULL},
    {"attn_logit_softcapping", REAL, offsetof(reading, softcap), NULL},
    {"rms_norm_eps", REAL, offsetof(reading, epsilon), NULL},
    {"sliding_window", WHOLE, offsetof(reading, window), NULL},
    {"use_sliding_window", TRUTH, offsetof(reading, no_window), "false"},
    {"layer_types", KIND, offsetof(reading, layer_type), NULL},
    {"is_decoder", TRUTH, offsetof(reading, decoder), "true"},
    {"clip_qkv", ONLY, 0, "null"},
    {"use_qk_norm", ONLY, 0, "false"},
    {"qk_layernorm", ONLY, 0, "false"},
    {"scale_attn_weights", ONLY, 0, "true"},
    {"scale_attn_by_inverse_layer_idx", ONLY, 0, "false"},
    {"position_embedding_type", ONLY, 0, "\"absolute\""},
};
enum { KEYS = sizeof keys / sizeof *keys };
_Static_assert(KEYS <= 32, "a bit for each");

__attribute__((format(printf, 2, 3))) static void refuse(reading *r, const char *format, ...)
{
    va_list args;
    if (r->why[0]) return; /* keep the first error */
    va_start(args, format);
    vsnprintf(r->why, sizeof r->why, format, args);
    va_end(args);
}

/* The text of the next value, verbatim; `text` is truncated if it is longer than any known value. */
static void take_text(nn_json *j, char *text, size_t room)
{
    nn_json_peek(j);
    size_t start = j->at;
    text[0] = 0;
    if (nn_json_skip(j))
        snprintf(text, room, "%.*s", (int)(j->at - start < room ? j->at - start : room), j->text + start);
}

static void take_string(reading *r, nn_json *j, const char *key, char *out, size_t room)
{
    char text[2 * NN_LAYER_CONFIG_TEXT] = "";
    take_text(j, text, sizeof text);
    size_t length = strlen(text);
    if (strcmp(text, "null") == 0) return;
    if (length < 2 || length - 2 >= room || text[0] != '"' || strchr(text, '\\')) {
        char quoted[60];
        refuse(r, "%s is %s, but should be a short text", key, nn_json_quote(quoted, sizeof quoted, text));
        return;
    }
    snprintf(out, room, "%.*s", (int)length - 2, text + 1);
}

/* A number, or null, which is ignored. */
static void take_number(reading *r, nn_json *j, const char *key, void *field, bool whole)
{
    char text[60], quoted[80], *end;
    take_text(j, text, sizeof text);
    if (strcmp(text, "null") == 0) return;
    errno = 0;
    double number = strtod(text, &end);
    bool good = *text && strchr("-0123456789", text[0]) && !*end && isfinite(number) && number >= 0;
    if (whole) good = good && number == floor(number) && number <= 1 << 30;
    if (!good)
        refuse(r, "%s is %s, but should be %s", key, nn_json_quote(quoted, sizeof quoted, text),
               whole ? "a whole number" : "a number that is not negative");
    int64_t count = good ? (int64_t)fmin(number, 1e18) : 0;
    if (good && whole) memcpy(field, &count, sizeof count);
    else if (good) memcpy(field, &number, sizeof number);
}

/* A key; "" if it is longer than any known key. */
static void take_key(nn_json *j, char *name, size_t room)
{
    size_t length = 0;
    nn_json ahead = *j;
    name[0] = 0;
    nn_json_key(&ahead, NULL, &length);
    nn_json_key(j, length < room ? name : NULL, NULL);
}

/* rope_scaling, or rope_parameters; the latter may have an object for each kind of layer. */
static void take_rotary(reading *r, nn_json *j, const char *key)
{
    char name[60];
    bool ours = false, others = false;
    if (nn_json_peek(j) != '{') {
        take_text(j, name, sizeof name);
        if (strcmp(name, "null") != 0) refuse(r, "%s is %s, but should be an object", key, name);
        return;
    }
    nn_json_enter(j, '{');
    while (nn_json_more(j, '}')) {
        take_key(j, name, sizeof name);
        bool inner = nn_json_peek(j) == '{', mine = inner && strcmp(name, r->layer_type) == 0;
        ours |= mine;
        others |= inner && !mine;
        if (mine) take_rotary(r, j, key);
        else if (strcmp(name, "rope_type") == 0 || strcmp(name, "type") == 0)
            take_string(r, j, name, r->rotary_type, sizeof r->rotary_type);
        else if (strcmp(name, "rope_theta") == 0) take_number(r, j, name, &r->theta, false);
        else if (strcmp(name, "partial_rotary_factor") == 0) take_number(r, j, name, &r->part, false);
        else nn_json_skip(j);
    }
    if (others && !ours) refuse(r, "%s differs between layers, and the index of this layer is unknown", key);
}

/* The layer's element of an array with one per layer; "?" if they differ and the index is unknown, "" if empty. */
static void take_element(reading *r, nn_json *j, char *out, size_t room)
{
    char text[NN_LAYER_CONFIG_TEXT];
    int64_t n = 0;
    bool differ = false;
    out[0] = 0;
    if (nn_json_peek(j) != '[') {
        nn_json_skip(j);
        return;
    }
    nn_json_enter(j, '[');
    for (; nn_json_more(j, ']'); n++) {
        take_text(j, text, sizeof text);
        if (n && r->layer < 0) differ |= strcmp(text, out) != 0;
        if (r->layer < 0 ? n == 0 : n == r->layer) snprintf(out, room, "%s", text);
    }
    if (differ) snprintf(out, room, "?");
}

static void take_value(reading *r, nn_json *j, int k)
{
    const char *key = keys[k].key;
    char text[80], *field = (char *)r + keys[k].at;
    size_t length;
    switch (keys[k].form) {
    case WHOLE:
    case REAL:
        take_number(r, j, key, field, keys[k].form == WHOLE);
        return;
    case TEXT:
        take_string(r, j, key, field, NN_LAYER_CONFIG_TEXT);
        return;
    case TRUTH:
        take_text(j, text, sizeof text);
        *(bool *)(void *)field = strcmp(text, keys[k].only) == 0;
        return;
    case ROTARY:
        take_rotary(r, j, key);
        return;
    case KIND: /* without the quotes */
        take_element(r, j, text, sizeof text);
        length = strlen(text);
        if (length > 2 && length - 2 < NN_LAYER_CONFIG_TEXT)
            snprintf(field, NN_LAYER_CONFIG_TEXT, "%.*s", (int)length - 2, text + 1);
        else snprintf(field, NN_LAYER_CONFIG_TEXT, "%.*s", NN_LAYER_CONFIG_TEXT - 1, text);
        return;
    case ROTATED: /* 1: this layer rotates */
        take_element(r, j, text, sizeof text);
        r->unrotated = strcmp(text, "0") == 0;
        if (strcmp(text, "?") == 0) refuse(r, "%s differs between layers, and the index of this layer is unknown", key);
        return;
    case ONLY:
        take_text(j, text, sizeof text);
        if (strcmp(text, "null") != 0 && strcmp(text, keys[k].only) != 0)
            refuse(r, "%s is %s, which this layer does not support", key, text);
        return;
    }
}

/* Whether the key is the number of heads of the encoder or decoder that contains the layer. */
static bool is_our_side(const reading *r, const char *key)
{
    bool decoder = strncmp(r->prefix, "decoder.", 8) == 0 || strstr(r->prefix, ".decoder.");
    return strcmp(key, decoder ? "decoder_attention_heads" : "encoder_attention_heads") == 0;
}

/* One object: the whole file, or the object for the layer's part of the model. */
static void walk(reading *r, nn_json *j, bool kinds_alone)
{
    const char *part = strstr(r->prefix, "vision") ? "vision_config" : "text_config";
    char name[60];
    nn_json_enter(j, '{');
    while (nn_json_more(j, '}')) {
        int k = 0;
        take_key(j, name, sizeof name);
        while (k < KEYS && strcmp(keys[k].key, name) != 0) k++;
        if (strcmp(name, part) == 0 && nn_json_peek(j) == '{') walk(r, j, kinds_alone);
        else if (!kinds_alone && is_our_side(r, name)) take_number(r, j, name, &r->heads, true);
        else if (k == KEYS || (kinds_alone && keys[k].form != KIND)) nn_json_skip(j);
        else {
            r->seen |= 1u << k;
            take_value(r, j, k);
        }
    }
}

/* The last number between dots. */
static int64_t layer_of(const char *prefix)
{
    int64_t layer = -1;
    for (const char *at = prefix; *at; at += strcspn(at, "."), at += *at == '.') {
        size_t digits = strspn(at, "0123456789");
        if (digits && digits < 7 && at[digits] == '.') layer = strtol(at, NULL, 10);
    }
    return layer;
}

/* ---- Interpretation --------------------------------------------------------------------------------------------- */

static bool has_seen(const reading *r, const char *names)
{
    for (int k = 0; k < KEYS; k++) {
        const char *at = strstr(names, keys[k].key);
        size_t length = strlen(keys[k].key);
        bool whole = at && (at == names || at[-1] == '|') && (!at[length] || at[length] == '|');
        if (whole && (r->seen >> k & 1)) return true;
    }
    return false;
}

static void choose_window(reading *r, nn_layer_config *c)
{
    if (!r->window || r->no_window || strcmp(r->layer_type, "full_attention") == 0) return;
    if (strcmp(r->layer_type, "?") == 0)
        refuse(r, "sliding_window applies to some layers only, and the index of this layer is unknown");
    else if (*r->layer_type && strcmp(r->layer_type, "sliding_attention") != 0)
        refuse(r, "layer_types has %s, which this layer does not support", r->layer_type);
    else c->window = r->window;
}

static void choose_rotary(reading *r, nn_layer_config *c, const struct kind *kind)
{
    if (*r->rotary_type && strcmp(r->rotary_type, "default") != 0)
        refuse(r, "rotary embedding of type %s is not supported, only the default one", r->rotary_type);
    c->rotary_said = r->theta > 0 || r->unrotated;
    if (!(kind->rotary_base > 0) || r->unrotated) return;
    double part = r->part > 0 ? r->part : kind->rotary_part;
    c->rotary_base = r->theta > 0 ? r->theta : kind->rotary_base;
    c->rotary_interleaved = kind->interleaved;
    int64_t width = r->head_width ? r->head_width : r->heads ? r->width / r->heads : 0;
    if (part < 1 && !width) refuse(r, "partial_rotary_factor is %g, but the width is unknown", part);
    if (part < 1) c->rotary_width = (int64_t)(part * (double)width);
    if (part < 1 && !c->rotary_width)
        refuse(r, "partial_rotary_factor %g of width %lld gives a rotary width of 0", part, (long long)width);
}

static void choose(reading *r, nn_layer_config *c)
{
    const struct kind *kind = kind_of(r->type);
    const char *decoder = strstr(r->prefix, "decoder.");
    if (!kind) {
        refuse(r, "model_type %s is not supported", r->type);
        return;
    }
    for (int i = 0; i < 4 && kind->needs[i]; i++)
        if (!has_seen(r, kind->needs[i])) refuse(r, "%s is missing, and has no common default", kind->needs[i]);
    c->family = kind->family;
    c->heads = r->heads;
    c->kv_heads = r->kv_heads;
    c->head_width = r->head_width;
    c->width = r->width;
    c->causal_said = kind->causal == IF_DECODER && has_seen(r, "is_decoder");
    c->causal = kind->causal == ALWAYS || (kind->causal == IF_DECODER && r->decoder) ||
                (kind->causal == BY_PREFIX && decoder && strstr(decoder, "self_attn"));
    if (r->scalar > 0) c->scale = (float)(1 / sqrt(r->scalar));
    if (r->multiplier > 0) c->scale = (float)r->multiplier;
    c->softcap = (float)r->softcap;
    c->norm_epsilon = (float)r->epsilon;
    choose_window(r, c);
    choose_rotary(r, c, kind);
}

bool nn_layer_config_read(nn_layer_config *config, const char *path, const char *prefix, char *error, size_t error_size)
{
    size_t size = 0;
    reading r = {.prefix = prefix, .layer = layer_of(prefix)};
    *config = (nn_layer_config){.scale = NAN};
    char *text;
    nn_source_text(&text, path, FILE_MOST, &size, error, error_size);
    if (!text) return false;
    for (int pass = 0; pass < 2 && !r.why[0]; pass++) {
        nn_json j = nn_json_open(text, size);
        walk(&r, &j, pass == 0);
        if (!nn_json_end(&j)) refuse(&r, "not a JSON object: %s", j.why);
    }
    if (*r.type && !r.why[0]) choose(&r, config);
    snprintf(config->type, sizeof config->type, "%s", r.type);
    free(text);
    if (r.why[0]) snprintf(error, error_size, "%s: %s", path, r.why);
    return !r.why[0];
}

/* ---- Options ---------------------------------------------------------------------------------------------------- */

bool nn_layer_config_apply(mha_layer_options *o, const nn_layer_config *c, const nn_layer_family *family, char *why,
                           size_t why_size)
{
    if (!*c->type) return true;
    if (strcmp(c->family, family->title) != 0) {
        snprintf(why, why_size, "config.json has model_type %s, with tensor names of %s, but the file has those of %s",
                 c->type, c->family, family->title);
        return false;
    }
    o->heads = c->heads;
    o->kv_heads = c->kv_heads;
    o->head_width = c->head_width;
    o->causal = c->causal;
    o->rotary_base = c->rotary_base;
    o->rotary_width = c->rotary_width;
    o->rotary_interleaved = c->rotary_interleaved;
    o->scale = c->scale;
    o->softcap = c->softcap;
    if (c->window) o->window_left = c->window - 1; /* the window includes the query's own position */
    return true;
}

/* Sizes that are 0 are not known yet. */
bool nn_layer_config_agrees(const mha_layer_options *o, const nn_layer_config *c, const char *other, char *why,
                            size_t why_size)
{
    const struct {
        const char *what;
        double said, is;
        bool counts;
    } all[] = {
        {"heads", (double)c->heads, (double)o->heads, c->heads && o->heads},
        {"kv_heads", (double)c->kv_heads, (double)o->kv_heads, c->kv_heads && o->kv_heads},
        {"head_width", (double)c->head_width, (double)o->head_width, c->head_width && o->head_width},
        {"width", (double)c->width, (double)o->width, c->width && o->width},
        {"rotary_base", c->rotary_base, o->rotary_base, c->rotary_said},
        {"rotary_width", (double)c->rotary_width, (double)o->rotary_width, c->rotary_width > 0},
        {"scale", (double)c->scale, (double)o->scale, !isnan(c->scale)},
        {"softcap", (double)c->softcap, (double)o->softcap, c->softcap > 0},
        {"causal", c->causal, o->causal, c->causal_said},
        {"window_left", (double)c->window - 1, (double)o->window_left, c->window > 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all && *c->type; i++) {
        if (!all[i].counts || all[i].said == all[i].is) continue;
        snprintf(why, why_size, "%s is %.10g in config.json, but %.10g in %s", all[i].what, all[i].said, all[i].is,
                 other);
        return false;
    }
    return true;
}
