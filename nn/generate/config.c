/* A table of keys, one row each; another of keys that would change what is generated and are not known, with the value
 * at which they change nothing. Everything else (names of versions, outputs to return, caches) is passed over. */
#include "generate/config.h"
#include "io/json.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum kind { BOOL, COUNT, REAL, TOKEN, LIST, WORDS, EARLY } kind;

/* The slots of `memory`. */
enum { END, FORCED_END, SUPPRESSED, SUPPRESSED_FIRST, BANNED };

typedef struct key {
    const char *name;
    kind kind;
    size_t at;
    int slot;         /* of a list */
    double low, high; /* of a number */
} key;

#define AT(field) offsetof(nn_generation_config, field)

static const key keys[] = {
    {"do_sample", BOOL, AT(sample), 0, 0, 0},
    {"temperature", REAL, AT(temperature), 0, 0, 1e6},
    {"top_k", COUNT, AT(top_k), 0, 0, 0x1p31},
    {"top_p", REAL, AT(top_p), 0, 0, 1},
    {"min_p", REAL, AT(min_p), 0, 0, 1},
    {"repetition_penalty", REAL, AT(repetition_penalty), 0, 1e-6, 1e6},
    {"encoder_repetition_penalty", REAL, AT(encoder_repetition_penalty), 0, 1e-6, 1e6},
    {"no_repeat_ngram_size", COUNT, AT(no_repeat_ngram), 0, 0, 0x1p31},
    {"encoder_no_repeat_ngram_size", COUNT, AT(encoder_no_repeat_ngram), 0, 0, 0x1p31},
    {"num_beams", COUNT, AT(beams), 0, 1, 1024},
    {"length_penalty", REAL, AT(length_penalty), 0, -1e3, 1e3},
    {"early_stopping", EARLY, AT(early_stopping), 0, 0, 0},
    {"renormalize_logits", BOOL, AT(renormalize), 0, 0, 0},
    {"max_length", COUNT, AT(max_length), 0, 0, 0x1p40},
    {"max_new_tokens", COUNT, AT(max_new_tokens), 0, 0, 0x1p40},
    {"min_length", COUNT, AT(min_length), 0, 0, 0x1p40},
    {"min_new_tokens", COUNT, AT(min_new_tokens), 0, 0, 0x1p40},
    {"bos_token_id", TOKEN, AT(bos), 0, 0, 0x1p31 - 1},
    {"pad_token_id", TOKEN, AT(pad), 0, -1, 0x1p31 - 1},
    {"decoder_start_token_id", TOKEN, AT(decoder_start), 0, 0, 0x1p31 - 1},
    {"forced_bos_token_id", TOKEN, AT(forced_bos), 0, 0, 0x1p31 - 1},
    {"eos_token_id", LIST, AT(end), END, 0, 0x1p31 - 1},
    {"forced_eos_token_id", LIST, AT(forced_end), FORCED_END, 0, 0x1p31 - 1},
    {"suppress_tokens", LIST, AT(suppressed), SUPPRESSED, -1, 0x1p31 - 1},
    {"begin_suppress_tokens", LIST, AT(suppressed_first), SUPPRESSED_FIRST, -1, 0x1p31 - 1},
    {"bad_words_ids", WORDS, AT(banned), BANNED, 0, 0x1p31 - 1},
};

/* Keys that are not known, and the value that they may have; NAN: null, false, or an empty list alone. */
static const struct {
    const char *name;
    double harmless;
} unknown[] = {
    {"typical_p", 1},
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"top_h", NAN},
    {"penalty_alpha", 0},
    {"num_beam_groups", 1},
    {"diversity_penalty", 0},
    {"guidance_scale", 1},
    {"sequence_bias", NAN},
    {"constraints", NAN},
    {"force_words_ids", NAN},
    {"exponential_decay_length_penalty", NAN},
    {"dola_layers", NAN},
    {"watermarking_config", NAN},
    {"stop_strings", NAN},
    {"max_time", NAN},
    {"prompt_lookup_num_tokens", NAN},
};

void nn_generation_config_defaults(nn_generation_config *c)
{
    *c = (nn_generation_config){.temperature = 1,
                                .top_k = 50,
                                .top_p = 1,
                                .repetition_penalty = 1,
                                .encoder_repetition_penalty = 1,
                                .beams = 1,
                                .length_penalty = 1,
                                .bos = -1,
                                .pad = -1,
                                .decoder_start = -1,
                                .forced_bos = -1};
}

void nn_generation_config_free(nn_generation_config *c)
{
    for (size_t n = 0; n < sizeof c->memory / sizeof *c->memory; n++) free(c->memory[n]);
    free((void *)c->banned_ends);
    nn_generation_config_defaults(c);
}

/* ---- Values ----------------------------------------------------------------------------------------------------- */

typedef struct reader {
    nn_json j;
    nn_generation_config *c;
    const key *key;
    const nn_failure *to;
    bool failed; /* with its reason in `to` */
} reader;

static bool wrong(reader *r, const char *what)
{
    if (!r->failed && !nn_json_failed(&r->j)) nn_fail(r->to, "%s %s", r->key->name, what);
    r->failed = true;
    return false;
}

static bool take_word(reader *r, const char *word)
{
    size_t length = strlen(word);
    nn_json_peek(&r->j);
    if (r->j.size - r->j.at < length || memcmp(r->j.text + r->j.at, word, length) != 0) return false;
    return nn_json_skip(&r->j);
}

static bool read_number(reader *r, double *value)
{
    char text[64];
    int first = nn_json_peek(&r->j);
    size_t start = r->j.at;
    if (first != '-' && (first < '0' || first > '9')) return wrong(r, "is not a number");
    if (!nn_json_skip(&r->j)) return false;
    if (r->j.at - start >= sizeof text) return wrong(r, "is a number of too many digits");
    memcpy(text, r->j.text + start, r->j.at - start);
    text[r->j.at - start] = 0;
    *value = strtod(text, NULL);
    if (*value < r->key->low || *value > r->key->high) {
        char what[80];
        snprintf(what, sizeof what, "is %g, must be from %g to %g", *value, r->key->low, r->key->high);
        return wrong(r, what);
    }
    return true;
}

static bool read_whole(reader *r, int64_t *value)
{
    double number = 0;
    if (!read_number(r, &number)) return false;
    *value = (int64_t)number;
    return (double)*value == number || wrong(r, "is not a whole number");
}

/* Adds a token to a list that grows in its slot. */
static bool add_token(reader *r, nn_tokens *list, int32_t id)
{
    void **slot = &r->c->memory[r->key->slot];
    if ((list->count & (list->count - 1)) == 0) { /* at 0, 1, 2, 4, ... */
        int32_t *more = realloc(*slot, (size_t)(list->count ? 2 * list->count : 1) * sizeof *more);
        if (!more) return wrong(r, "does not fit into memory");
        list->ids = *slot = more;
    }
    ((int32_t *)*slot)[list->count++] = id;
    return true;
}

static bool read_tokens(reader *r, nn_tokens *list)
{
    int64_t id;
    if (nn_json_peek(&r->j) != '[') return read_whole(r, &id) && add_token(r, list, (int32_t)id);
    nn_json_enter(&r->j, '[');
    while (!r->failed && nn_json_more(&r->j, ']'))
        if (read_whole(r, &id)) add_token(r, list, (int32_t)id);
    return !r->failed;
}

static bool read_words(reader *r, nn_tokens *list)
{
    nn_generation_config *c = r->c;
    if (nn_json_peek(&r->j) != '[') return wrong(r, "is not a list of lists of tokens");
    nn_json_enter(&r->j, '[');
    while (!r->failed && nn_json_more(&r->j, ']')) {
        int64_t *more = realloc((void *)c->banned_ends, (size_t)(c->banned_count + 1) * sizeof *more);
        if (!more) return wrong(r, "does not fit into memory");
        c->banned_ends = more;
        if (nn_json_peek(&r->j) != '[') return wrong(r, "is not a list of lists of tokens");
        if (read_tokens(r, list)) more[c->banned_count++] = list->count;
    }
    return !r->failed;
}

static bool read_early(reader *r, nn_early_stopping *early)
{
    if (take_word(r, "true")) *early = NN_EARLY_YES;
    else if (take_word(r, "false")) *early = NN_EARLY_NO;
    else if (take_word(r, "\"never\"")) *early = NN_EARLY_NEVER;
    else return wrong(r, "is not true, false or \"never\"");
    return true;
}

static bool read_bool(reader *r, bool *value)
{
    *value = take_word(r, "true");
    return *value || take_word(r, "false") || wrong(r, "is not true or false");
}

static bool read_value(reader *r)
{
    void *field = (char *)r->c + r->key->at;
    int64_t token;
    if (take_word(r, "null")) return true;
    switch (r->key->kind) {
    case BOOL:
        return read_bool(r, field);
    case COUNT:
        return read_whole(r, field);
    case REAL:
        return read_number(r, field);
    case EARLY:
        return read_early(r, field);
    case TOKEN:
        if (!read_whole(r, &token)) return false;
        *(int32_t *)field = (int32_t)token;
        return true;
    case LIST:
        ((nn_tokens *)field)->count = 0;
        return read_tokens(r, field);
    case WORDS:
        ((nn_tokens *)field)->count = 0;
        r->c->banned_count = 0;
        return read_words(r, field);
    }
    return false;
}

/* ---- Keys ------------------------------------------------------------------------------------------------------- */

/* Whether a value of a key that is not known changes nothing. */
static bool is_harmless(reader *r, double value)
{
    int first = nn_json_peek(&r->j);
    size_t start = r->j.at;
    if (!nn_json_skip(&r->j)) return true; /* damaged: another error */
    if (first == 'n' || first == 'f') return true;
    if (first == '[' || first == '{') {
        size_t size = 0;
        for (size_t n = start; n < r->j.at; n++) size += !strchr(" \t\r\n", r->j.text[n]);
        return size == 2;
    }
    char text[64] = "";
    if ((first != '-' && (first < '0' || first > '9')) || r->j.at - start >= sizeof text) return false;
    memcpy(text, r->j.text + start, r->j.at - start);
    return strtod(text, NULL) == value;
}

static void read_key(reader *r, const char *name)
{
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++)
        if (!strcmp(name, keys[n].name)) {
            r->key = &keys[n];
            read_value(r);
            return;
        }
    for (size_t n = 0; n < sizeof unknown / sizeof *unknown; n++)
        if (!strcmp(name, unknown[n].name)) {
            if (!is_harmless(r, unknown[n].harmless))
                snprintf(r->c->unsupported, sizeof r->c->unsupported, "%s", unknown[n].name);
            return;
        }
    nn_json_skip(&r->j);
}

bool nn_generation_config_read(nn_generation_config *c, const char *text, size_t size, const nn_failure *to)
{
    reader r = {.j = nn_json_open(text, size), .c = c, .to = to};
    char *name = malloc(size + 1);
    if (!name) return nn_fail_because(to, "not enough memory");
    nn_json_enter(&r.j, '{');
    while (!r.failed && nn_json_more(&r.j, '}')) {
        nn_json_key(&r.j, name, NULL);
        if (!nn_json_failed(&r.j)) read_key(&r, name);
    }
    if (!r.failed) nn_json_end(&r.j);
    if (nn_json_failed(&r.j)) nn_fail_because(to, r.j.why);
    free(name);
    return !r.failed && !nn_json_failed(&r.j);
}
