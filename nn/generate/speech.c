#include "generate/speech.h"
#include "io/json.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void nn_speech_config_defaults(nn_speech_config *c) { *c = (nn_speech_config){.no_timestamps = -1}; }

void nn_speech_config_free(nn_speech_config *c)
{
    free(c->languages.all);
    free(c->tasks.all);
    nn_speech_config_defaults(c);
}

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

typedef struct reader {
    nn_json j;
    char *text; /* room for any string of the file */
    const char *key;
    const nn_failure *to;
    bool failed; /* with its reason in `to` */
} reader;

static bool wrong(reader *r, const char *what)
{
    if (!r->failed && !nn_json_failed(&r->j)) nn_fail(r->to, "%s %s", r->key, what);
    r->failed = true;
    return false;
}

static bool read_id(reader *r, int32_t *id)
{
    int64_t value = 0;
    int first = nn_json_peek(&r->j);
    if (first < '0' || first > '9') return wrong(r, "has a token that is not a number from 0 on");
    if (!nn_json_integer(&r->j, &value)) return false;
    if (value > INT32_MAX) return wrong(r, "has a token that is too large");
    *id = (int32_t)value;
    return true;
}

static bool read_name(reader *r, char name[NN_SPEECH_NAME])
{
    if (nn_json_peek(&r->j) != '"') return wrong(r, "is not a string");
    if (!nn_json_string(&r->j, r->text, NULL)) return false;
    if (strlen(r->text) >= NN_SPEECH_NAME) return wrong(r, "is too long");
    snprintf(name, NN_SPEECH_NAME, "%s", r->text);
    return true;
}

static bool read_names(reader *r, nn_speech_names *names)
{
    if (nn_json_peek(&r->j) != '{') return wrong(r, "is not an object of names and tokens");
    names->count = 0;
    nn_json_enter(&r->j, '{');
    while (!r->failed && nn_json_more(&r->j, '}')) {
        struct nn_speech_token one = {"", 0}, *more;
        if (!nn_json_key(&r->j, r->text, NULL)) break;
        if (strlen(r->text) >= sizeof one.name) return wrong(r, "has a name that is too long");
        snprintf(one.name, sizeof one.name, "%s", r->text);
        if (!read_id(r, &one.id)) break;
        if (!(more = realloc(names->all, (size_t)(names->count + 1) * sizeof *more)))
            return wrong(r, "does not fit into memory");
        names->all = more;
        more[names->count++] = one;
    }
    return !r->failed;
}

/* Pairs whose first place is not 1 have no effect; from there on every place needs one. */
static bool read_forced(reader *r, nn_speech_config *c)
{
    bool used = true;
    if (nn_json_peek(&r->j) != '[') return wrong(r, "is not a list of pairs");
    c->forced_count = 0;
    nn_json_enter(&r->j, '[');
    for (int64_t n = 1; !r->failed && nn_json_more(&r->j, ']'); n++) {
        int32_t id = -1;
        int64_t place = 0;
        if (nn_json_peek(&r->j) != '[') return wrong(r, "is not a list of pairs");
        nn_json_enter(&r->j, '[');
        if (!nn_json_more(&r->j, ']') || !nn_json_integer(&r->j, &place) || !nn_json_more(&r->j, ']'))
            return wrong(r, "has a pair without a place and a token");
        if (nn_json_peek(&r->j) == 'n') nn_json_skip(&r->j);
        else if (!read_id(r, &id)) return false;
        if (nn_json_more(&r->j, ']')) return wrong(r, "has a pair of more than two numbers");
        if (n == 1) used = place == 1;
        if (!used) continue;
        if (place != n) return wrong(r, "leaves out a place");
        if (n > NN_SPEECH_FORCED) return wrong(r, "has too many pairs");
        c->forced[c->forced_count++] = id;
    }
    return !r->failed;
}

static bool read_key(reader *r, nn_speech_config *c, const char *key)
{
    static const char *const known[] = {
        "lang_to_id", "task_to_id", "forced_decoder_ids", "no_timestamps_token_id", "is_multilingual",
        "language",   "task"};
    int n = 0, count = sizeof known / sizeof *known;
    while (n < count && strcmp(key, known[n]) != 0) n++;
    if (n == count || nn_json_peek(&r->j) == 'n') return nn_json_skip(&r->j); /* null: as if it were not there */
    r->key = known[n];
    switch (n) {
    case 0:
        return read_names(r, &c->languages);
    case 1:
        return read_names(r, &c->tasks);
    case 2:
        return read_forced(r, c);
    case 3:
        return read_id(r, &c->no_timestamps);
    case 4:
        c->english_only = nn_json_peek(&r->j) == 'f';
        return c->english_only || nn_json_peek(&r->j) == 't' ? nn_json_skip(&r->j) : wrong(r, "is not true or false");
    case 5:
        return read_name(r, c->language);
    default:
        return read_name(r, c->task);
    }
}

bool nn_speech_config_read(nn_speech_config *c, const char *text, size_t size, const nn_failure *to)
{
    char *memory = malloc(2 * (size + 1));
    if (!memory) return nn_fail_because(to, "not enough memory");
    reader r = {.j = nn_json_open(text, size), .text = memory + size + 1, .to = to};
    nn_json_enter(&r.j, '{');
    while (!r.failed && nn_json_more(&r.j, '}'))
        if (nn_json_key(&r.j, memory, NULL)) read_key(&r, c, memory);
    if (!r.failed) nn_json_end(&r.j);
    if (nn_json_failed(&r.j)) nn_fail_because(to, r.j.why);
    free(memory);
    return !r.failed && !nn_json_failed(&r.j);
}

/* ---- Names ------------------------------------------------------------------------------------------------------ */

/* Whether `given` is the name, in any case, with the brackets "<|" and "|>" of the name or without. */
static bool is_name(const char *name, const char *given)
{
    size_t length = strlen(name), skip = 0;
    if (length > 4 && strncmp(name, "<|", 2) == 0 && given[0] != '<') skip = 2;
    if (strlen(given) != length - 2 * skip) return false;
    for (size_t n = 0; given[n]; n++)
        if (tolower((unsigned char)given[n]) != tolower((unsigned char)name[n + skip])) return false;
    return true;
}

static const struct nn_speech_token *find(const nn_speech_names *names, const char *given)
{
    for (int64_t n = 0; n < names->count; n++)
        if (is_name(names->all[n].name, given)) return &names->all[n];
    return NULL;
}

static const struct nn_speech_token *find_id(const nn_speech_names *names, int32_t id)
{
    for (int64_t n = 0; n < names->count; n++)
        if (names->all[n].id == id) return &names->all[n];
    return NULL;
}

/* "there is no KIND NAME; it has a, b, c, ..." */
static bool unknown(const nn_speech_names *names, const char *kind, const char *given, const nn_failure *to)
{
    char list[160] = "";
    if (!names->all || !names->count) return nn_fail(to, "names no %ss; leave out the %s", kind, kind);
    for (int64_t n = 0; n < names->count && strlen(list) < 100; n++) {
        const char *name = names->all[n].name;
        size_t length = strlen(name);
        bool brackets = length > 4 && strncmp(name, "<|", 2) == 0;
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s%.*s", n ? ", " : "",
                 (int)(brackets ? length - 4 : length), name + (brackets ? 2 : 0));
        if (n + 1 < names->count && strlen(list) >= 100) snprintf(list + strlen(list), 6, ", ...");
    }
    return nn_fail(to, "has no %s %s; it has %s", kind, nn_json_brief(given).text, nn_json_brief(list).text);
}

/* ---- The prompt ------------------------------------------------------------------------------------------------- */

static bool add_token(nn_speech_prompt *p, const nn_speech_names *names, const char *kind, const char *given,
                      const nn_failure *to)
{
    const struct nn_speech_token *token = find(names, given);
    if (!token) return unknown(names, kind, given, to);
    p->tokens[p->count++] = token->id;
    return true;
}

bool nn_speech_prompt_make(nn_speech_prompt *p, const nn_speech_config *c, int32_t start, const char *language,
                           const char *task, const nn_failure *to)
{
    *p = (nn_speech_prompt){.tokens = {start}, .count = 1, .detect = -1};
    if ((language || task) && c->english_only)
        return nn_fail_because(to, "is of English alone; leave out language and task");
    if (!language && *c->language) language = c->language;
    if (!task && *c->task) task = c->task;
    bool forced = !language && !task;
    for (int n = 0; forced && n < c->forced_count; n++) p->tokens[p->count++] = c->forced[n];
    if (language && !add_token(p, &c->languages, "language", language, to)) return false;
    if (!language && c->languages.count && (p->count == 1 || p->tokens[1] < 0)) {
        if (p->count == 1) p->count++;
        p->detect = 1;
    }
    if (!forced && (task || c->tasks.count) && !add_token(p, &c->tasks, "task", task ? task : "transcribe", to))
        return false;
    if (c->no_timestamps >= 0 && p->tokens[p->count - 1] != c->no_timestamps) p->tokens[p->count++] = c->no_timestamps;
    int kept = 1; /* places without a token are left out */
    for (int n = 1; n < p->count; n++)
        if (n == p->detect || p->tokens[n] >= 0) p->tokens[kept++] = p->tokens[n];
    p->count = kept;
    return true;
}

int32_t nn_speech_detect(const nn_speech_config *c, const float *logits, int64_t V)
{
    int32_t best = -1;
    for (int64_t n = 0; n < c->languages.count; n++) {
        int32_t id = c->languages.all[n].id;
        if (id >= V || (best >= 0 && logits[id] < logits[best])) continue;
        if (best < 0 || logits[id] > logits[best] || id < best) best = id;
    }
    return best;
}

void nn_speech_names_of(char language[NN_SPEECH_NAME], char task[NN_SPEECH_NAME], const nn_speech_config *c,
                        const nn_speech_prompt *p)
{
    language[0] = task[0] = 0;
    for (int n = 1; n < p->count; n++) {
        const struct nn_speech_token *l = find_id(&c->languages, p->tokens[n]), *t = find_id(&c->tasks, p->tokens[n]);
        size_t length = l ? strlen(l->name) : 0;
        bool brackets = length > 4 && strncmp(l->name, "<|", 2) == 0;
        if (l)
            snprintf(language, NN_SPEECH_NAME, "%.*s", (int)(brackets ? length - 4 : length),
                     l->name + (brackets ? 2 : 0));
        if (t) snprintf(task, NN_SPEECH_NAME, "%s", t->name);
    }
}
