/* The argument parser, and the options that commands share. */
#include "cli/common/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MOST = 30 };

/* Finds the option that the word names, or NULL; *value is the text after its '=', or NULL. */
static const cli_option *find(const cli_option *options, const char *word, const char **value)
{
    size_t length = strcspn(word, "=");
    for (const cli_option *o = options; o->name; o++) {
        *value = word[length] ? word + length + 1 : NULL;
        if (*value && (!o->value || o->name[1] != '-')) continue; /* only long options take '=' */
        if (strlen(o->name) == length && strncmp(word, o->name, length) == 0) return o;
    }
    return NULL;
}

static int unknown(const char *command, const char *word, const cli_option *options)
{
    const char *names[OPTIONS_MOST + 2] = {"--help"};
    for (int i = 0; i < OPTIONS_MOST && options[i].name; i++) names[i + 1] = options[i].name;
    return cli_unknown_option(command, word, names) + 1;
}

/* ---- Shared options ---------------------------------------------------------------------------------------------- */

/* Each parser stores its value at `at`. */
static bool parse_file(const char *command, const char *name, const char *value, void *at)
{
    memcpy(at, &value, sizeof value);
    if (*value && strcmp(value, "-") != 0) return true;
    cli_error("%s: %s needs a file name, not '%s'", command, name, value);
    return false;
}

static bool parse_threads(const char *command, const char *name, const char *value, void *at)
{
    return cli_number(command, name, value, 1, 4096, at);
}

static bool parse_dtype(const char *command, const char *name, const char *value, void *at)
{
    (void)name;
    return cli_dtype(command, value, 2, at);
}

static bool parse_color(const char *command, const char *name, const char *value, void *at)
{
    (void)name;
    return cli_when(command, value, at);
}

static const struct shared {
    const char *name;
    bool (*parse)(const char *command, const char *name, const char *value, void *at);
} shared[] = {
    {"-o", parse_file},           {"--out", parse_file},    {"--curves", parse_file}, {"--curve", parse_file},
    {"--threads", parse_threads}, {"--dtype", parse_dtype}, {"--color", parse_color},
};

/* Only marks rows of a table; take() calls the parser of the shared option. */
bool cli_shared(const char *value, void *request)
{
    (void)value, (void)request;
    return false;
}

static bool take_shared(const char *command, const cli_option *o, const char *value, void *request)
{
    size_t n = 0;
    while (strcmp(shared[n].name, o->name) != 0) n++;
    return shared[n].parse(command, o->name, value, (char *)request + o->at);
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

static bool take(const char *command, const cli_option *o, const char *value, void *request)
{
    const bool yes = true;
    if (o->parse == cli_shared) return take_shared(command, o, value, request);
    if (o->parse) return o->parse(value, request);
    if (o->value) memcpy((char *)request + o->at, &value, sizeof value);
    else memcpy((char *)request + o->at, &yes, sizeof yes);
    return true;
}

int cli_parse(const char *command, int argc, char **argv, const cli_option *options,
              bool (*word)(const char *text, void *request, bool *said), void (*help)(void), void *request)
{
    for (int i = 1; i < argc; i++) {
        const char *value = NULL;
        bool said = false;
        if (cli_wants_help(argv[i])) {
            help();
            return CLI_OK + 1;
        }
        if (argv[i][0] != '-' && word(argv[i], request, &said)) continue;
        if (said) return CLI_USAGE + 1;
        const cli_option *o = find(options, argv[i], &value);
        if (!o) return unknown(command, argv[i], options);
        if (o->value && !value) value = ++i < argc ? argv[i] : NULL;
        if (o->value && !value) {
            cli_error("%s: %s needs a value; see 'mha %s --help'", command, o->name, command);
            return CLI_USAGE + 1;
        }
        if (!take(command, o, value, request)) return CLI_USAGE + 1;
    }
    return 0;
}

bool cli_no_word(const char *text, void *request, bool *said)
{
    (void)text, (void)request, (void)said;
    return false;
}

bool cli_number(const char *command, const char *what, const char *text, long least, long most, long *number)
{
    char *end;
    errno = 0;
    *number = strtol(text, &end, 10);
    bool digits = text[0] >= '0' && text[0] <= '9';
    if (digits && !errno && !*end && *number >= least && *number <= most) return true;
    cli_error("%s: %s must be a number from %ld to %ld, not '%s'", command, what, least, most, text);
    return false;
}

int cli_choice(const char *command, const char *what, const char *text, const char *const *names)
{
    char list[100] = "";
    size_t n = 0;
    for (int i = 0; names[i]; i++) {
        if (strcmp(text, names[i]) == 0) return i;
        if (n < sizeof list)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s",
                                  i == 0         ? ""
                                  : names[i + 1] ? ", "
                                                 : " or ",
                                  names[i]);
    }
    cli_error("%s: %s must be %s, not '%s'", command, what, list, text);
    return -1;
}

bool cli_dtype(const char *command, const char *text, int count, mha_type *type)
{
    static const char *const names[] = {"f32", "bf16", "f16"};
    static const mha_type types[] = {MHA_FLOAT32, MHA_BFLOAT16, MHA_FLOAT16};
    const char *known[4] = {NULL};
    memcpy(known, names, (size_t)count * sizeof *known);
    int which = cli_choice(command, "--dtype", text, known);
    if (which >= 0) *type = types[which];
    return which >= 0;
}

bool cli_when(const char *command, const char *text, term_when *when)
{
    static const char *const names[] = {"auto", "always", "never", NULL};
    int which = cli_choice(command, "--color", text, names);
    if (which >= 0) *when = (term_when)which;
    return which >= 0;
}
