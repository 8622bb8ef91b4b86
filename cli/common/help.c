/* --help: the examples and notes of a command, and its table of options. */
#include "cli/common/options.h"

#include <stdio.h>
#include <string.h>

enum { COLUMN = 24, WIDTH = 80 };

/* Prints words from `column` on, in lines of up to WIDTH columns; further lines begin at `indent`. Returns the column behind
 * the last word. */
static int print_words(const char *text, int column, int indent)
{
    for (bool first = true; *(text += strspn(text, " "));) {
        int length = (int)strcspn(text, " ");
        int columns = 0;
        for (int i = 0; i < length; i++) columns += (text[i] & 0xc0) != 0x80; /* of UTF-8 */
        if (!first && column + 1 + columns > WIDTH) {
            printf("\n%*s", column = indent, "");
            first = true;
        }
        column += columns + printf(first ? "" : " ");
        printf("%.*s", length, text);
        text += length, first = false;
    }
    return column;
}

/* What an option does, with its words or its default. */
static void describe_option(char *out, size_t room, const cli_option *o)
{
    char words[400] = "";
    size_t length = strlen(o->help);
    bool lists = length && o->help[length - 1] == ':';
    const char *by_default = o->otherwise ? o->otherwise : o->preset;
    if (lists) cli_list_words(words, sizeof words, o);
    if (lists) snprintf(out, room, "%s %s", o->help, words);
    else
        snprintf(out, room, "%s%s%s%s", o->help, by_default ? " (default: " : "", by_default ? by_default : "",
                 by_default ? ")" : "");
}

static void print_option(const cli_option *o)
{
    char spelled[CLI_SPELLED], text[1200];
    describe_option(text, sizeof text, o);
    int column = printf("  %s", cli_spelled(spelled, o));
    if (column >= COLUMN) printf("\n%*s", COLUMN, "");
    else printf("%*s", COLUMN - column, "");
    print_words(text, COLUMN, COLUMN);
    printf("\n");
}

/* Positional arguments with a description, behind the options. */
static void print_arguments(const cli_option *options)
{
    enum { NAME = 8 };
    for (const cli_option *o = options; o->names; o++) {
        if (!cli_is_positional(o) || !*o->help) continue;
        int column = printf("\n%-*s ", NAME - 1, o->value) - 1;
        print_words(o->help, column, NAME);
        printf("\n");
    }
}

static void print_options(const cli_option *options)
{
    for (const cli_option *o = options; o->names; o++) {
        if (o->kind == CLI_IS_TITLE) printf("\n%s:\n", o->help);
        else if (!cli_is_positional(o)) print_option(o);
    }
}

/* Lists the further names of options, if there are any. */
static void print_other_names(const cli_option *options)
{
    const char *title = "\nOther names:\n";
    char name[CLI_NAME_MOST], list[400];
    for (const cli_option *o = options; o->names; o++) {
        const char *names = o->names;
        if (!cli_next_name(name, &names) || !*names) continue;
        printf("%s  %-*s", title, COLUMN - 2, name);
        title = "";
        size_t used = 0;
        for (const char *comma = ""; cli_next_name(name, &names) && used < sizeof list; comma = ", ")
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", comma, name);
        print_words(list, COLUMN, COLUMN);
        printf("\n");
    }
}

/* How the command is typed before every line. */
static void print_usage(const cli_command *c)
{
    const char *title = "Usage:";
    for (const char *line = c->usage; *line; title = "      ") {
        size_t length = strcspn(line, "\n");
        printf("%s %s %.*s\n", title, cli_typed(c), (int)length, line);
        line += length + (line[length] == '\n');
    }
}

void cli_help(const cli_command *c)
{
    printf("Examples:\n%s\n", c->examples);
    print_usage(c);
    print_options(c->options);
    print_arguments(c->options);
    if (c->notes) printf("\n%s", c->notes);
    if (c->print_lists) c->print_lists();
    print_other_names(c->options);
}
