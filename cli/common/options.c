/* The argument parser. */
#include "cli/common/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cli_name cli_dtypes[] = {{"f32", MHA_FLOAT32}, {"bf16", MHA_BFLOAT16}, {NULL, 0}};
const cli_name cli_whens[] = {{"auto", TERM_AUTO}, {"always", TERM_ALWAYS}, {"never", TERM_NEVER}, {NULL, 0}};

/* ---- Values ------------------------------------------------------------------------------------------------------ */

bool cli_number(const cli_given *g, int64_t least, int64_t most, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(g->value, &end, 10);
    bool digits = g->value[0] >= '0' && g->value[0] <= '9';
    if (digits && !errno && !*end && *number >= least && *number <= most) return true;
    return cli_error("%s: %s must be a number from %lld to %lld, not '%s'", g->command, g->name, (long long)least,
                     (long long)most, g->value);
}

bool cli_choice(const cli_given *g, const cli_name *names, int *value)
{
    char list[100] = "";
    size_t n = 0;
    for (int i = 0; names[i].name; i++) {
        *value = names[i].value;
        if (strcmp(g->value, names[i].name) == 0) return true;
        const char *before = i == 0 ? "" : names[i + 1].name ? ", " : " or ";
        if (n < sizeof list) n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", before, names[i].name);
    }
    return cli_error("%s: %s must be %s, not '%s'", g->command, g->name, list, g->value);
}

/* Decimal numbers only: no "nan", "inf" or hexadecimal ones. */
static bool take_real(const cli_given *g, const cli_option *o, double *number)
{
    char *end;
    *number = strtod(g->value, &end);
    bool plain = *g->value && !g->value[strspn(g->value, ".0123456789eE+-")] && !*end;
    if (plain && *number >= o->least && *number <= o->most) return true;
    return cli_error("%s: %s must be %s, not '%s'", g->command, g->name, o->must, g->value);
}

static bool needs_value(const cli_given *g)
{
    return cli_error("%s: %s needs a value; see 'mha %s --help'", g->command, g->name, g->command);
}

static bool take_text(const cli_given *g, cli_kind kind, const char **text)
{
    *text = g->value;
    if (kind == CLI_IS_NAME && !*g->value) return needs_value(g);
    if (kind != CLI_IS_FILE || (*g->value && strcmp(g->value, "-") != 0)) return true;
    return cli_error("%s: %s needs a file name, not '%s'", g->command, g->name, g->value);
}

/* Stores a value. Prints an error and returns false if it is invalid. */
static bool take(const cli_given *g, const cli_option *o, void *request)
{
    void *at = (char *)request + o->at;
    cli_list *list = at;
    switch (o->kind) {
    case CLI_IS_FLAG:
        *(bool *)at = true;
        return true;
    case CLI_IS_SET:
        *(int *)at = (int)o->least;
        return true;
    case CLI_IS_LIST:
        list->all[list->count++] = g->value;
        return true;
    case CLI_IS_NUMBER:
        return cli_number(g, (int64_t)o->least, (int64_t)o->most, at);
    case CLI_IS_REAL:
        return take_real(g, o, at);
    case CLI_IS_CHOICE:
        return cli_choice(g, o->words, at);
    case CLI_IS_OWN:
        return o->parse(g, request);
    case CLI_IS_TEXT:
    case CLI_IS_NAME:
    case CLI_IS_FILE:
        return take_text(g, o->kind, at);
    }
    return false;
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

enum { NAME_MOST = 64 }; /* bytes of a name, with its end */

/* Takes the next of the names of a row. Returns false after the last one. */
static bool next_name(char name[NAME_MOST], const char **names)
{
    size_t length = strcspn(*names += strspn(*names, " "), " ");
    snprintf(name, NAME_MOST, "%.*s", (int)length, *names);
    *names += length;
    return length > 0;
}

static bool is_positional(const cli_option *o) { return o->names[0] != '-'; }

bool cli_has_value(const cli_option *o) { return o->kind != CLI_IS_FLAG && o->kind != CLI_IS_SET; }

/* --help is in no table, but its beginnings count. */
static const cli_option help_row = {.names = "--help -h", .kind = CLI_IS_FLAG};

/* The rows that have a name which begins with the word. */
typedef struct matches {
    char name[NAME_MOST]; /* of the first */
    const cli_option *first;
    int count;
    char list[400]; /* a name of each, for a message */
} matches;

static void match_row(matches *m, const cli_option *o, const char *word, size_t length)
{
    char name[NAME_MOST];
    for (const char *names = o->names; next_name(name, &names);) {
        if (strncmp(name, word, length) != 0) continue;
        size_t used = strlen(m->list);
        snprintf(m->list + used, sizeof m->list - used, "%s%s", m->count ? ", " : "", name);
        if (!m->count++) m->first = o, memcpy(m->name, name, sizeof name);
        return;
    }
}

/* Finds the row with a name that the word is, or is the beginning of; count tells how many there are. */
static matches find(const cli_option *options, const char *word)
{
    matches m = {.count = 0};
    size_t length = strcspn(word, "=");
    for (const cli_option *o = options; o->names; o++)
        for (const char *names = o->names; next_name(m.name, &names);)
            if (strlen(m.name) == length && strncmp(word, m.name, length) == 0) {
                m.first = o, m.count = 1;
                return m;
            }
    if (strncmp(word, "--", 2) != 0 || length < 3) return m;
    for (const cli_option *o = options; o->names; o++) match_row(&m, o, word, length);
    match_row(&m, &help_row, word, length);
    return m;
}

const cli_option *cli_find(const cli_option *options, const char *word)
{
    matches m = find(options, word);
    return m.count == 1 ? m.first : NULL;
}

/* The row of positional argument n, from 0, or NULL if there are too many. */
static const cli_option *positional(const cli_option *options, int n)
{
    for (const cli_option *o = options; o->names; o++)
        if (is_positional(o) && (n-- == 0 || o->kind == CLI_IS_LIST)) return o;
    return NULL;
}

/* ---- Help -------------------------------------------------------------------------------------------------------- */

/* Lists the further names of options, if there are any. */
static void list_names(const cli_option *options)
{
    enum { COLUMN = 24, WIDTH = 80 };
    const char *title = "\nOther names:\n";
    char name[NAME_MOST];
    for (const cli_option *o = options; o->names; o++) {
        const char *names = o->names;
        if (!next_name(name, &names) || !*names) continue;
        int column = printf("%s  %-*s", title, COLUMN - 2, name) - (int)strlen(title);
        title = "";
        for (const char *comma = ""; next_name(name, &names); comma = ", ") {
            if (column + (int)(strlen(comma) + strlen(name)) >= WIDTH) {
                printf(",\n%*s", COLUMN, "");
                column = COLUMN, comma = "";
            }
            column += printf("%s%s", comma, name);
        }
        printf("\n");
    }
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

static int unknown(const char *command, const char *word, const cli_option *options)
{
    static const char device[] = "--device";
    enum { NAMES = 80 };
    char name[NAMES][NAME_MOST];
    const char *all[NAMES + 1] = {NULL};
    size_t length = strcspn(word, "=");
    if (length == sizeof device - 1 && strncmp(word, device, length) == 0) {
        cli_error("%s: --device is for bench, layer and conformance; whole models run on the CPU", command);
        return CLI_USAGE;
    }
    int count = 0;
    for (const cli_option *o = options; o->names; o++)
        for (const char *names = o->names; !is_positional(o) && count < NAMES && next_name(name[count], &names);
             count++)
            all[count] = name[count];
    char shown[NAME_MOST];
    snprintf(shown, sizeof shown, "%.*s", (int)length, word);
    return cli_unknown_option(command, strncmp(word, "--", 2) == 0 && length < sizeof shown ? shown : word, all);
}

/* One argument that begins with a dash, and its value, which may be the next one. Returns the exit code plus 1, or 0. */
static int take_option(const char *command, char ***at, const cli_option *options, void (*help)(void), void *request)
{
    const char *word = **at, *equals = strchr(word, '=');
    matches m = find(options, word);
    bool is_long = strncmp(word, "--", 2) == 0;
    if (m.count > 1) {
        cli_error("%s: '%s' is ambiguous: %s", command, word, m.list);
        return CLI_USAGE + 1;
    }
    if (m.count == 0 || (equals && !is_long)) return unknown(command, word, options) + 1;
    if (equals && !cli_has_value(m.first)) {
        cli_error("%s: %s takes no value", command, m.name);
        return CLI_USAGE + 1;
    }
    if (m.first == &help_row) {
        help();
        list_names(options);
        return CLI_OK + 1;
    }
    char row[NAME_MOST];
    const char *names = m.first->names;
    next_name(row, &names);
    cli_given g = {command, m.name, equals ? equals + 1 : NULL, row};
    bool lacks = cli_has_value(m.first) && !g.value && !(g.value = *++*at);
    return (lacks ? needs_value(&g) : take(&g, m.first, request)) ? 0 : CLI_USAGE + 1;
}

int cli_parse(const char *command, int argc, char **argv, const cli_option *options, void (*help)(void), void *request)
{
    bool only_words = false; /* behind "--" */
    int words = 0;
    for (char **at = argv + 1; at < argv + argc; at++) {
        int stop = 0;
        if (only_words || **at != '-') {
            const cli_option *o = positional(options, words++);
            cli_given g = {command, o ? o->names : NULL, *at, o ? o->names : NULL};
            stop = !o ? cli_unexpected(command, *at) + 1 : take(&g, o, request) ? 0 : CLI_USAGE + 1;
        } else if (strcmp(*at, "--") == 0) only_words = true;
        else if (cli_wants_help(*at)) {
            help();
            list_names(options);
            return CLI_OK + 1;
        } else stop = take_option(command, &at, options, help, request);
        if (stop) return stop;
    }
    return 0;
}
