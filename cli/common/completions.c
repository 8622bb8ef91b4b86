/* 'mha --generate': what is written from the tables of options for other programs: the manual page, and completions for
 * bash and zsh. The build runs it, and cmake --install installs the files. */
#include "cli/common/options.h"

#include <stdio.h>
#include <string.h>

/* ---- bash -------------------------------------------------------------------------------------------------------- */

/* Prints all names of options, "--help" among them, separated by spaces. */
static void print_names(const cli_option *options)
{
    char name[CLI_NAME_MOST];
    for (const cli_option *o = options; o->names; o++)
        for (const char *names = o->names; !cli_is_positional(o) && cli_next_name(name, &names);) printf("%s ", name);
    printf("--help");
}

/* "--part|--dtype) words='...' ;;" for options with a list of words. Any other value is completed as a file name. */
static void print_bash_words(const cli_option *options)
{
    char name[CLI_NAME_MOST];
    for (const cli_option *o = options; o->names; o++) {
        if (!o->words) continue;
        const char *bar = "                ";
        for (const char *names = o->names; cli_next_name(name, &names); bar = "|") printf("%s%s", bar, name);
        printf(") words='");
        for (const cli_word *w = o->words; w->name; w++) printf(w == o->words ? "%s" : " %s", w->name);
        printf("' ;;\n");
    }
}

static void generate_bash(void)
{
    puts("# Completions of mha for bash, written by 'mha --generate complete-bash'.\n"
         "_mha()\n"
         "{\n"
         "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} options= words=\n"
         "    COMPREPLY=()\n"
         "    [ \"$word\" != = ] || word=\n"
         "    [ \"$before\" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}\n"
         "    if [ \"$COMP_CWORD\" -eq 1 ]; then");
    printf("        COMPREPLY=($(compgen -W '");
    for (const cli_command *const *c = cli_commands; *c; c++) printf("%s ", (*c)->name);
    puts("help --help --version --generate' -- \"$word\"))\n"
         "        return\n"
         "    fi\n"
         "    case ${COMP_WORDS[1]} in\n"
         "        --generate) words='man complete-bash complete-zsh' ;;");
    for (const cli_command *const *c = cli_commands; *c; c++) {
        printf("        %s)\n            options='", (*c)->name);
        print_names((*c)->options);
        printf("'\n            case $before in\n");
        print_bash_words((*c)->options);
        printf("                *) ;;\n            esac ;;\n");
    }
    puts("    esac\n"
         "    if [ -n \"$words\" ]; then COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
         "    elif [[ $word == -* ]]; then COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
         "    fi\n"
         "}\n"
         "complete -o default -o bashdefault -F _mha mha");
}

/* ---- zsh --------------------------------------------------------------------------------------------------------- */

/* Prints the first sentence of a description as a part of a word in single quotes, without what _arguments reads. */
static void print_zsh_text(const char *text)
{
    for (const char *at = text; *at && strncmp(at, ". ", 2) != 0 && strncmp(at, "; ", 2) != 0; at++) {
        if (*at == ':' && !at[1]) break;
        if (strchr("[]:\\", *at)) putchar('\\');
        if (*at == '\'') fputs("'\\''", stdout);
        else putchar(*at);
    }
}

static void print_zsh_value(const cli_option *o)
{
    bool number = o->kind == CLI_IS_NUMBER || o->kind == CLI_IS_DOUBLE || o->kind == CLI_IS_FLOAT;
    printf(":%s:", o->value);
    if (!o->words) printf(number ? " " : "_files");
    for (const cli_word *w = o->words; w && w->name; w++) printf(w == o->words ? "(%s" : " %s", w->name);
    if (o->words) putchar(')');
}

static void print_zsh_options(const cli_option *options)
{
    char name[CLI_NAME_MOST];
    for (const cli_option *o = options; o->names; o++)
        for (const char *names = o->names; !cli_is_positional(o) && cli_next_name(name, &names);) {
            printf(" \\\n                '%s%s[", o->kind == CLI_IS_LIST ? "*" : "", name);
            print_zsh_text(o->help);
            putchar(']');
            if (cli_has_value(o)) print_zsh_value(o);
            putchar('\'');
        }
    printf(" \\\n                '(- *)--help[print the help]' '*:file:_files'");
}

static void generate_zsh(void)
{
    puts("#compdef mha\n"
         "# Completions of mha for zsh, written by 'mha --generate complete-zsh'.\n"
         "_mha()\n"
         "{\n"
         "    local -a commands=(");
    for (const cli_command *const *c = cli_commands; *c; c++) {
        printf("        '%s:", (*c)->name);
        print_zsh_text((*c)->summary);
        puts("'");
    }
    puts("    )\n"
         "    if (( CURRENT == 2 )); then\n"
         "        _describe command commands\n"
         "        return\n"
         "    fi\n"
         "    shift words\n"
         "    (( CURRENT-- ))\n"
         "    case $words[1] in");
    for (const cli_command *const *c = cli_commands; *c; c++) {
        printf("        %s)\n            _arguments", (*c)->name);
        print_zsh_options((*c)->options);
        puts(" ;;");
    }
    puts("    esac\n"
         "}\n"
         "_mha \"$@\"");
}

/* ---- The manual page --------------------------------------------------------------------------------------------- */

/* Prints a text with its special characters escaped for roff. */
static void print_roff(const char *text, size_t length)
{
    if (length && (*text == '.' || *text == '\'')) fputs("\\&", stdout);
    for (size_t n = 0; n < length; n++) {
        if (text[n] == '\\') fputs("\\e", stdout);
        else if (text[n] == '-') fputs("\\-", stdout);
        else putchar(text[n]);
    }
}

/* Prints lines: paragraphs are filled, and lines that begin with a space stay as they are. */
static void print_roff_lines(const char *text, bool fill)
{
    bool filling = fill;
    if (!fill) puts(".nf");
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        bool plain = !fill || *line == ' ';
        if (plain == filling && length) {
            puts(plain ? ".nf" : ".fi");
            filling = !plain;
        }
        if (length) print_roff(line, length);
        puts(length ? "" : ".PP");
        line += length + (line[length] == '\n');
    }
    if (!filling) puts(".fi");
}

static void print_roff_option(const cli_option *o)
{
    char name[CLI_NAME_MOST], words[400] = "";
    const char *by_default = o->otherwise ? o->otherwise : o->preset, *comma = "";
    puts(".TP");
    for (const char *names = o->names; cli_next_name(name, &names); comma = ", ") {
        printf("%s\\fB", comma);
        if (cli_is_positional(o)) print_roff(o->value, strlen(o->value));
        else print_roff(name, strlen(name));
        printf("\\fR");
    }
    if (o->value && !cli_is_positional(o)) printf(" \\fI%s\\fR", o->value);
    puts("");
    print_roff(o->help, strlen(o->help));
    if (o->words && o->help[strlen(o->help) - 1] == ':') {
        putchar(' ');
        cli_list_words(words, sizeof words, o);
        print_roff(words, strlen(words));
    } else if (by_default) {
        printf(" (default: ");
        print_roff(by_default, strlen(by_default));
        putchar(')');
    }
    puts(".");
}

static void print_roff_command(const cli_command *c)
{
    printf(".SH \"MHA ");
    for (const char *at = c->name; *at; at++) putchar(*at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
    printf("\"\n");
    print_roff(c->summary, strlen(c->summary));
    puts(".\n.PP\n.nf");
    for (const char *line = c->usage; *line;) {
        size_t length = strcspn(line, "\n");
        printf("\\fBmha %s\\fR ", c->name);
        print_roff(line, length);
        puts("");
        line += length + (line[length] == '\n');
    }
    puts(".fi");
    for (const cli_option *o = c->options; o->names; o++) {
        if (o->kind == CLI_IS_TITLE) printf(".SS \"%s\"\n", o->help);
        else if (*o->help) print_roff_option(o);
    }
    puts(".PP\nExamples:\n.PP");
    print_roff_lines(c->examples, false);
    if (c->notes) puts(".PP"), print_roff_lines(c->notes, true);
    if (!c->print_lists) return;
    puts(".PP\n.nf");
    c->print_lists();
    puts(".fi");
}

static void generate_man(void)
{
    printf(".TH MHA 1 \"\" \"mha %s\" \"User Commands\"\n", mha_version());
    puts(".SH NAME\n"
         "mha \\- multi\\-head attention: train, run and explain transformers\n"
         ".SH SYNOPSIS\n"
         "\\fBmha\\fR \\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n"
         ".SH COMMANDS");
    for (const cli_command *const *c = cli_commands; *c; c++) {
        printf(".TP\n\\fB%s\\fR\n", (*c)->name);
        print_roff((*c)->summary, strlen((*c)->summary));
        puts("");
    }
    puts(".PP\n"
         "A long option may be shortened to any beginning that no other option has. Arguments after '\\-\\-' are not "
         "options.");
    for (const cli_command *const *c = cli_commands; *c; c++) print_roff_command(*c);
    puts(".SH ENVIRONMENT\n"
         ".TP\n"
         "\\fBMHA_ISA\\fR\n"
         "forces one of the instruction sets that \\fBmha info\\fR lists.\n"
         ".SH EXIT STATUS\n"
         "0 success, 1 a check failed, 2 wrong usage or bad input, 130 interrupted.");
}

/* ---- The choice -------------------------------------------------------------------------------------------------- */

int cli_generate(const char *what)
{
    static const struct {
        const char *name;
        void (*generate)(void);
    } kinds[] = {{"man", generate_man}, {"complete-bash", generate_bash}, {"complete-zsh", generate_zsh}};
    for (size_t n = 0; what && n < sizeof kinds / sizeof *kinds; n++)
        if (strcmp(what, kinds[n].name) == 0) return kinds[n].generate(), CLI_OK;
    cli_error("--generate must be man, complete-bash or complete-zsh%s%s%s", what ? ", not '" : "", what ? what : "",
              what ? "'" : "");
    return CLI_USAGE;
}
