/* The argument parser. */
#include "cli/common/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cli_word cli_dtypes[] = {{"f32", MHA_FLOAT32}, {"bf16", MHA_BFLOAT16}, {NULL, 0}};
const cli_word cli_whens[] = {{"auto", TERM_AUTO}, {"always", TERM_ALWAYS}, {"never", TERM_NEVER}, {NULL, 0}};

/* ---- The running command ---------------------------------------------------------------------------------------- */

enum { ROWS = 64 };

/* A process runs one command. */
static struct {
    const cli_command *command;
    char **argv;
    const char *values[ROWS]; /* the last value of each row, or its name if it takes none; NULL if it was not given */
} running;

const char *cli_name(void) { return running.command ? running.command->name : ""; }

bool cli_is_tool(void) { return running.command && running.command->tool; }

const char *cli_typed(const cli_command *command)
{
    static char typed[80];
    snprintf(typed, sizeof typed, "%s%s", command->tool ? "" : "mha ", command->name);
    return typed;
}

static const char *value_of(const cli_option *o) { return running.values[o - running.command->options]; }

/* The row with that first name, or NULL. */
static const cli_option *row_of(const char *first)
{
    char name[CLI_NAME_MOST];
    for (const cli_option *o = running.command->options; o->names; o++) {
        const char *names = o->names;
        if (cli_next_name(name, &names) && strcmp(name, first) == 0) return o;
    }
    return NULL;
}

bool cli_was_given(const char *name)
{
    const cli_option *o = row_of(name);
    return o && value_of(o);
}

/* ---- Values ------------------------------------------------------------------------------------------------------ */

bool cli_number(const cli_given *g, int64_t least, int64_t most, int64_t *number)
{
    char *end;
    errno = 0;
    *number = strtoll(g->value, &end, 10);
    bool digits = g->value[0] >= '0' && g->value[0] <= '9';
    if (digits && !errno && !*end && *number >= least && *number <= most) return true;
    return cli_refuse("%s must be a number from %lld to %lld, not '%s'", g->name, (long long)least, (long long)most,
                      g->value);
}

/* "a, b or c"; the default is marked if there is one. */
static void list_words(char *out, size_t room, const cli_word *words, const char *preset, const char *otherwise)
{
    size_t n = 0;
    out[0] = 0;
    for (int i = 0; words[i].name && n < room; i++) {
        bool is_default = preset && strcmp(preset, words[i].name) == 0;
        n += (size_t)snprintf(out + n, room - n, "%s%s%s%s%s",
                              i == 0              ? ""
                              : words[i + 1].name ? ", "
                                                  : " or ",
                              words[i].name,
                              !is_default ? ""
                              : otherwise ? " (default: "
                                          : " (default",
                              is_default && otherwise ? otherwise : "", is_default ? ")" : "");
    }
}

const char *cli_list_words(char *out, size_t room, const cli_option *o)
{
    list_words(out, room, o->words, o->preset, o->otherwise);
    return out;
}

bool cli_choice(const cli_given *g, const cli_word *words, int *value)
{
    enum { WORDS = 40, MANY = 5 };
    char list[400];
    int count = 0;
    const char *names[WORDS + 1] = {NULL};
    for (int i = 0; words[i].name; i++) {
        *value = words[i].value;
        if (strcmp(g->value, words[i].name) == 0) return true;
        if (i < WORDS) names[count++] = words[i].name;
    }
    list_words(list, sizeof list, words, NULL, NULL);
    const char *near = count < MANY ? NULL : cli_closest(g->value, names); /* few are seen at a glance */
    return cli_refuse("%s must be %s, not '%s'%s%s%s", g->name, list, g->value, near ? "; did you mean '" : "",
                      near ? near : "", near ? "'?" : "");
}

/* Decimal numbers only: no "nan", "inf" or hexadecimal ones. */
static bool take_real(const cli_given *g, const cli_option *o, double *number)
{
    char *end;
    *number = strtod(g->value, &end);
    bool plain = *g->value && !g->value[strspn(g->value, ".0123456789eE+-")] && !*end;
    if (plain && *number >= o->least && *number <= o->most) return true;
    return cli_refuse("%s must be %s, not '%s'", g->name, o->must, g->value);
}

static bool take_float(const cli_given *g, const cli_option *o, float *number)
{
    double wide;
    bool good = take_real(g, o, &wide);
    *number = (float)wide;
    return good;
}

static bool needs_value(const cli_given *g)
{
    return cli_refuse("%s needs a value; see '%s --help'", g->name, cli_typed(running.command));
}

static bool take_text(const cli_given *g, cli_kind kind, const char **text)
{
    *text = g->value;
    if (kind == CLI_IS_NAME && !*g->value) return needs_value(g);
    if (kind != CLI_IS_FILE || (*g->value && strcmp(g->value, "-") != 0)) return true;
    return cli_refuse("%s needs a file name, not '%s'", g->name, g->value);
}

/* Stores a value. Prints an error and returns false if it is invalid. */
static bool store_value(const cli_given *g, const cli_option *o, void *request)
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
    case CLI_IS_DOUBLE:
        return take_real(g, o, at);
    case CLI_IS_FLOAT:
        return take_float(g, o, at);
    case CLI_IS_CHOICE:
        return cli_choice(g, o->words, at);
    case CLI_IS_OWN:
        return o->parse(g, request);
    case CLI_IS_TEXT:
    case CLI_IS_NAME:
    case CLI_IS_FILE:
        return take_text(g, o->kind, at);
    case CLI_IS_TITLE:
        break;
    }
    return false;
}

/* Stores a value of the command line, and sets the flag that the option implies. */
static bool take_argument(const cli_given *g, const cli_option *o, void *request)
{
    running.values[o - running.command->options] = g->value ? g->value : o->names;
    if (o->implies) store_value(g, row_of(o->implies), request);
    return store_value(g, o, request);
}

/* ---- Names ------------------------------------------------------------------------------------------------------- */

bool cli_next_name(char name[CLI_NAME_MOST], const char **names)
{
    size_t length = strcspn(*names += strspn(*names, " "), " ");
    snprintf(name, CLI_NAME_MOST, "%.*s", (int)length, *names);
    *names += length;
    return length > 0;
}

/* --help is in no table, but its beginnings count. */
static const cli_option help_row = {.names = "--help -h", .kind = CLI_IS_FLAG};

/* The rows that have a name which begins with the word. */
typedef struct matches {
    char name[CLI_NAME_MOST]; /* of the first */
    const cli_option *first;
    int count;
    char list[400]; /* a name of each, for a message */
} matches;

static void match_row(matches *m, const cli_option *o, const char *word, size_t length)
{
    char name[CLI_NAME_MOST];
    for (const char *names = o->names; cli_next_name(name, &names);) {
        if (strncmp(name, word, length) != 0) continue;
        size_t used = strlen(m->list);
        snprintf(m->list + used, sizeof m->list - used, "%s%s", m->count ? ", " : "", name);
        if (!m->count++) m->first = o, memcpy(m->name, name, sizeof name);
        return;
    }
}

/* Finds the row with a name that the word is, or is the beginning of; count tells how many there are. */
static matches find_rows(const cli_option *options, const char *word)
{
    matches m = {.count = 0};
    size_t length = strcspn(word, "=");
    for (const cli_option *o = options; o->names; o++)
        for (const char *names = o->names; cli_next_name(m.name, &names);)
            if (strlen(m.name) == length && strncmp(word, m.name, length) == 0) {
                m.first = o, m.count = 1;
                return m;
            }
    if (strncmp(word, "--", 2) != 0 || length < 3) return m;
    for (const cli_option *o = options; o->names; o++) match_row(&m, o, word, length);
    match_row(&m, &help_row, word, length);
    return m;
}

/* The row of positional argument n, from 0, or NULL if there are too many. */
static const cli_option *positional(const cli_option *options, int n)
{
    for (const cli_option *o = options; o->names; o++)
        if (cli_is_positional(o) && (n-- == 0 || o->kind == CLI_IS_LIST)) return o;
    return NULL;
}

const char *cli_spelled(char out[CLI_SPELLED], const cli_option *o)
{
    char name[CLI_NAME_MOST];
    const char *names = o->names;
    cli_next_name(name, &names);
    if (cli_is_positional(o)) snprintf(out, CLI_SPELLED, "%s%s", o->value, o->kind == CLI_IS_LIST ? "..." : "");
    else snprintf(out, CLI_SPELLED, "%s%s%s", name, o->value ? " " : "", o->value ? o->value : "");
    return out;
}

/* ---- Words of the library ---------------------------------------------------------------------------------------- */

/* Whether the command line has exactly this word, so that a message that begins with it means a file. */
static bool is_argument(const char *word, size_t length)
{
    for (char **at = running.argv; at && *at; at++)
        if (strlen(*at) == length && strncmp(*at, word, length) == 0) return true;
    return false;
}

/* Whether the argument of the library, of that length, stands alone at `at`, and is not a name from the command line. One
 * without a dot, such as "pool", is a word of the language, too: it counts only where a message begins with it. */
static bool names_argument(const char *at, const char *argument, size_t length, const char *message)
{
    bool first = at == message, member = memchr(argument, '.', length);
    if (strncmp(at, argument, length) != 0 || (!first && (!member || at[-1] != ' '))) return false;
    unsigned char after = (unsigned char)at[length];
    if (first) return after == ':' && !is_argument(at, length);
    return !after || (!isalnum(after) && !strchr("._-/", after));
}

/* Writes the option that the words at `at` name to `out`. Returns the length of these words, 0 if they name none. */
static size_t word_argument(char out[CLI_SPELLED], const char *at, const char *message)
{
    char name[CLI_NAME_MOST];
    for (const cli_option *o = running.command ? running.command->options : NULL; o && o->names; o++) {
        for (const char *argument = o->argument; argument && *argument;) {
            size_t all = strcspn(argument, ";"), length = strcspn(argument, ":;");
            if (names_argument(at, argument, length, message)) {
                const char *names = o->names;
                cli_next_name(name, &names);
                bool plain = length == all;                                             /* no value of its own */
                if (plain && at[length] == ':') snprintf(out, CLI_SPELLED, "%s", name); /* "options.window: is 3" */
                else if (plain) cli_spelled(out, o);
                else
                    snprintf(out, CLI_SPELLED, "%s%s%.*s", name, all > length + 1 ? " " : "", (int)(all - length - 1),
                             argument + length + 1);
                return length;
            }
            argument += all + (argument[all] == ';');
        }
    }
    return 0;
}

const char *cli_in_options(const char *message)
{
    static char out[1200];
    char option[CLI_SPELLED];
    size_t n = 0;
    for (const char *at = message; *at && n + 1 < sizeof out;) {
        size_t length = word_argument(option, at, message);
        if (length) n += (size_t)snprintf(out + n, sizeof out - n, "%s", option);
        else out[n++] = *at;
        at += length ? length : 1;
    }
    out[n < sizeof out ? n : sizeof out - 1] = 0;
    return out;
}

const char *cli_reason(const mha_context *ctx) { return cli_in_options(mha_context_error(ctx)); }

/* ---- Rules over several options ----------------------------------------------------------------------------------- */

/* Adds an option to a list "a, b or c" of which `left` more will come. */
static void add_to_list(char *list, size_t room, const char *word, int before, int left, const char *last)
{
    size_t n = strlen(list);
    snprintf(list + n, room - n, "%s%s", !before ? "" : left ? ", " : last, word);
}

static int count_names(const char *names)
{
    char name[CLI_NAME_MOST];
    int count = 0;
    while (names && cli_next_name(name, &names)) count++;
    return count;
}

/* The first row of a list of names that was given, or NULL. */
static const cli_option *given_of(const char *names)
{
    char name[CLI_NAME_MOST];
    while (names && cli_next_name(name, &names)) {
        const cli_option *o = row_of(name);
        if (o && value_of(o)) return o;
    }
    return NULL;
}

/* "-o FILE", or "model" of a positional argument with that noun; then alternatives, such as "--lines FILE". */
static void name_missing(char *out, size_t room, const cli_option *o)
{
    char name[CLI_NAME_MOST], spelled[CLI_SPELLED];
    int left = count_names(o->unless), before = 1;
    cli_spelled(spelled, o);
    snprintf(out, room, "%s%s%s", o->noun ? o->noun : "", o->noun && left ? ": " : "",
             o->noun && !left       ? ""
             : cli_is_positional(o) ? o->value
                                    : spelled);
    for (const char *names = o->unless; names && cli_next_name(name, &names);)
        add_to_list(out, room, cli_spelled(spelled, row_of(name)), before++, --left, " or ");
}

/* Whether an option is required, and neither it nor what may be given instead is there. */
static bool is_missing(const cli_option *o) { return o->required && !value_of(o) && !given_of(o->unless); }

/* Whether all that is required was given. The message has all positional arguments that are missing, or else the first
 * option, and ends with the shortest usage. */
static bool has_required(void)
{
    char missing[400] = "", usage[400] = "", one[400], spelled[CLI_SPELLED];
    int count = 0, left = 0;
    for (const cli_option *o = running.command->options; o->names; o++)
        left += is_missing(o) && (cli_is_positional(o) || !left);
    if (!left) return true;
    for (const cli_option *o = running.command->options; o->names; o++) {
        const cli_option *instead = o->required && !value_of(o) ? given_of(o->unless) : NULL;
        if (!o->required) continue;
        size_t n = strlen(usage);
        snprintf(usage + n, sizeof usage - n, " %s", cli_spelled(spelled, instead ? instead : o));
        if (!is_missing(o) || !left) continue;
        name_missing(one, sizeof one, o);
        add_to_list(missing, sizeof missing, one, count++, --left, " and ");
    }
    return cli_refuse("missing %s; usage: %s%s", missing, cli_typed(running.command), usage);
}

/* The name of an option that was given; of a positional argument its value. */
static const char *name_given(char out[CLI_NAME_MOST], const cli_option *o)
{
    const char *names = o->names;
    if (cli_is_positional(o)) return value_of(o);
    cli_next_name(out, &names);
    return out;
}

static bool has_needed(const cli_option *o)
{
    char name[CLI_NAME_MOST], list[400] = "", spelled[CLI_SPELLED];
    int left = count_names(o->needs), before = 0;
    if (!o->needs || given_of(o->needs)) return true;
    for (const char *names = o->needs; cli_next_name(name, &names);)
        add_to_list(list, sizeof list, cli_spelled(spelled, row_of(name)), before++, --left, " or ");
    return cli_refuse("%s needs %s%s%s", name_given(name, o), list, o->why ? "; " : "", o->why ? o->why : "");
}

static bool is_alone(const cli_option *o)
{
    char name[CLI_NAME_MOST], other[CLI_NAME_MOST];
    const cli_option *with = given_of(o->excludes);
    return !with || cli_refuse("%s and %s exclude each other%s%s", name_given(name, o), name_given(other, with),
                               o->why ? "; " : "", o->why ? o->why : "");
}

static bool follows_rules(void)
{
    for (const cli_option *o = running.command->options; o->names; o++)
        if (value_of(o) && (!is_alone(o) || !has_needed(o))) return false;
    return has_required();
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

static bool refuse_unknown(const char *word, const cli_option *options)
{
    static const char device[] = "--device";
    enum { NAMES = 80 };
    char name[NAMES][CLI_NAME_MOST], shown[CLI_NAME_MOST];
    const char *all[NAMES + 1] = {NULL};
    size_t length = strcspn(word, "=");
    bool is_long = strncmp(word, "--", 2) == 0 && length < sizeof shown;
    if (length == sizeof device - 1 && strncmp(word, device, length) == 0)
        return cli_refuse("--device is for bench and layer; whole models run on the CPU");
    int count = 0;
    for (const cli_option *o = options; o->names; o++)
        for (const char *names = o->names; !cli_is_positional(o) && count < NAMES && cli_next_name(name[count], &names);
             count++)
            all[count] = name[count];
    snprintf(shown, sizeof shown, "%.*s", (int)length, word);
    if (is_long) word = shown;
    bool letter = word[1] && !word[2]; /* any other letter would be near */
    const char *near = letter ? NULL : cli_closest(word, all);
    if (near) return cli_refuse("unknown option '%s'; did you mean '%s'?", word, near);
    return cli_refuse("unknown option '%s'; '%s --help' lists them", word, cli_typed(running.command));
}

/* What an argument made of the parser. */
typedef enum parsed { PARSED, HELPED, REFUSED } parsed;

static parsed show_help(const cli_command *command)
{
    cli_help(command);
    return HELPED;
}

/* One argument that begins with a dash, and its value, which may be the next one. */
static parsed take_option(char ***at, void *request)
{
    const cli_option *options = running.command->options;
    const char *word = **at, *equals = strchr(word, '=');
    matches m = find_rows(options, word);
    if (m.count > 1) return cli_refuse("'%s' is ambiguous: %s", word, m.list), REFUSED;
    if (m.count == 0 || (equals && strncmp(word, "--", 2) != 0)) return refuse_unknown(word, options), REFUSED;
    if (equals && !cli_has_value(m.first)) return cli_refuse("%s takes no value", m.name), REFUSED;
    if (m.first == &help_row) return show_help(running.command);
    char row[CLI_NAME_MOST];
    const char *names = m.first->names;
    cli_next_name(row, &names);
    cli_given g = {m.name, equals ? equals + 1 : NULL, row};
    bool lacks = cli_has_value(m.first) && !g.value && !(g.value = *++*at);
    if (lacks ? !needs_value(&g) : !take_argument(&g, m.first, request)) return REFUSED;
    return PARSED;
}

/* A text of several words that lack quotes is the usual reason for one argument too many. */
static parsed refuse_more(const char *word)
{
    const cli_option *last = NULL;
    for (const cli_option *o = running.command->options; o->names; o++)
        if (cli_is_positional(o)) last = o;
    if (last && last->noun && last->kind == CLI_IS_TEXT && strcmp(last->noun, "text") == 0)
        cli_refuse("expected one text, got '%s' and '%s'; quote it", value_of(last), word);
    else cli_refuse("unexpected argument '%s'; see '%s --help'", word, cli_typed(running.command));
    return REFUSED;
}

static parsed take_word(const char *word, int n, void *request)
{
    const cli_option *o = positional(running.command->options, n);
    if (!o) return refuse_more(word);
    const cli_given g = {o->names, word, o->names};
    return take_argument(&g, o, request) ? PARSED : REFUSED;
}

/* An index of an image that is negative looks like an option. */
static bool is_negative(const char *word, int words)
{
    const cli_option *next = positional(running.command->options, words);
    return word[1] >= '0' && word[1] <= '9' && next && strcmp(next->names, "IMAGE") == 0;
}

static parsed parse(int argc, char **argv, void *request)
{
    bool only_words = false; /* behind "--" */
    int words = 0;
    parsed result = PARSED;
    for (char **at = argv + 1; at < argv + argc && result == PARSED; at++) {
        if (only_words || **at != '-') result = take_word(*at, words++, request);
        else if (strcmp(*at, "--") == 0) only_words = true;
        else if (cli_wants_help(*at)) result = show_help(running.command);
        else if (is_negative(*at, words)) {
            cli_refuse("the index of a test image must be 0 or more, not '%s'", *at);
            result = REFUSED;
        } else result = take_option(&at, request);
    }
    return result;
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static cli_list *list_of(const cli_option *o, void *request)
{
    return o->kind == CLI_IS_LIST ? (cli_list *)((char *)request + o->at) : NULL;
}

/* Frees a request; several rows may share a list. */
static void free_request(const cli_command *c, void *request)
{
    for (const cli_option *o = c->options; o->names; o++) {
        cli_list *list = list_of(o, request);
        if (list) free(list->all), list->all = NULL;
    }
    free(request);
}

/* Room for all arguments in every list, and the defaults. Returns NULL without memory. */
static void *make_request(const cli_command *c, int argc)
{
    void *request = calloc(1, c->request_size);
    if (request && c->defaults) memcpy(request, c->defaults, c->request_size);
    for (const cli_option *o = c->options; request && o->names; o++) {
        cli_list *list = list_of(o, request);
        const cli_given preset = {o->names, o->preset, o->names};
        if (o->preset) store_value(&preset, o, request);
        if (!list || list->all || (list->all = calloc((size_t)argc + 1, sizeof *list->all))) continue;
        free_request(c, request);
        return NULL;
    }
    return request;
}

int cli_run(const cli_command *command, int argc, char **argv)
{
    running.command = command, running.argv = argv;
    void *request = make_request(command, argc);
    if (!request) return cli_refuse("not enough memory"), CLI_USAGE;
    parsed result = parse(argc, argv, request);
    int status = result == HELPED ? CLI_OK : CLI_USAGE;
    if (result == PARSED && follows_rules()) status = command->run(request);
    free_request(command, request);
    return status;
}
