/* The argument parser. */
#include "cli/common/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_MOST = 30 };

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
        return cli_choice(g, o->names, at);
    case CLI_IS_OWN:
        return o->parse(g, request);
    case CLI_IS_TEXT:
    case CLI_IS_NAME:
    case CLI_IS_FILE:
        return take_text(g, o->kind, at);
    }
    return false;
}

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

bool cli_has_value(const cli_option *o) { return o->kind != CLI_IS_FLAG && o->kind != CLI_IS_SET; }

/* Finds the option that the word names, or NULL; *value is the text after its '=', or NULL. */
static const cli_option *find(const cli_option *options, const char *word, const char **value)
{
    size_t length = strcspn(word, "=");
    for (const cli_option *o = options; o->name; o++) {
        *value = word[length] ? word + length + 1 : NULL;
        if (*value && (!cli_has_value(o) || o->name[1] != '-')) continue; /* only long options take '=' */
        if (strlen(o->name) == length && strncmp(word, o->name, length) == 0) return o;
    }
    return NULL;
}

/* The row of positional argument n, from 0, or NULL if there are too many. */
static const cli_option *positional(const cli_option *options, int n)
{
    for (const cli_option *o = options; o->name; o++)
        if (o->name[0] != '-' && (n-- == 0 || o->kind == CLI_IS_LIST)) return o;
    return NULL;
}

static int unknown(const char *command, const char *word, const cli_option *options)
{
    static const char device[] = "--device";
    size_t length = strcspn(word, "=");
    if (length == sizeof device - 1 && strncmp(word, device, length) == 0) {
        cli_error("%s: --device is for bench, layer and conformance; whole models run on the CPU", command);
        return CLI_USAGE + 1;
    }
    const char *names[OPTIONS_MOST + 2] = {"--help"};
    int count = 1;
    for (const cli_option *o = options; o->name && count <= OPTIONS_MOST; o++)
        if (o->name[0] == '-') names[count++] = o->name;
    return cli_unknown_option(command, word, names) + 1;
}

int cli_parse(const char *command, int argc, char **argv, const cli_option *options, void (*help)(void), void *request)
{
    for (int i = 1, words = 0; i < argc; i++) {
        if (cli_wants_help(argv[i])) {
            help();
            return CLI_OK + 1;
        }
        cli_given g = {.command = command, .value = argv[i]};
        const cli_option *o = argv[i][0] == '-' ? find(options, argv[i], &g.value) : positional(options, words++);
        if (!o) return unknown(command, argv[i], options);
        g.name = o->name;
        bool lacks = cli_has_value(o) && !g.value && !(g.value = argv[++i]);
        if (lacks ? !needs_value(&g) : !take(&g, o, request)) return CLI_USAGE + 1;
    }
    return 0;
}
