/* What comes from the tables of options: the help of every command, and what `mha --generate` prints: completions, which bash
 * runs here, and the manual page. */
#include "cli/command.h"

#include <ctype.h>

/* Calls visit(command, option) for every option of every command that the completions of bash have. Returns how many. */
static int for_each_option(void (*visit)(const char *command, const char *option))
{
    static char script[1 << 16];
    char name[40] = "";
    int count = 0;
    snprintf(script, sizeof script, "%s", command("", "--generate complete-bash")->out);
    for (char *line = strtok(script, "\n"), *end; line; line = end) {
        end = strtok(NULL, "\n");
        char *options = strstr(line, "options='--"), *at = NULL;
        if (!options) options = strstr(line, "options='-");
        size_t length = strlen(line);
        if (strspn(line, " ") == 8 && line[length - 1] == ')')
            snprintf(name, sizeof name, "%.*s", (int)length - 9, line + 8);
        if (!options || !*name) continue;
        char list[2000];
        snprintf(list, sizeof list, "%s", strchr(options, '\'') + 1);
        list[strcspn(list, "'")] = 0;
        for (char *option = strtok_r(list, " ", &at); option; option = strtok_r(NULL, " ", &at), count++)
            visit(name, option);
    }
    return count;
}

/* ---- Help ------------------------------------------------------------------------------------------------------- */

static void expect_help(const char *of, const char *option)
{
    const char *const asks[] = {"%s --help", "%s -h", "help %s"};
    char args[80], usage[80];
    snprintf(usage, sizeof usage, "\nUsage: mha %s ", of);
    for (size_t n = 0; strcmp(option, "--help") == 0 && n < sizeof asks / sizeof *asks; n++) {
        snprintf(args, sizeof args, asks[n], of);
        const said *it = command("LC_ALL=C", args);
        expect(it->status == 0 && !*it->err && strncmp(it->out, "Examples:\n", 10) == 0 && strstr(it->out, usage),
               "%s: exit %d, %s%.300s", args, it->status, it->err, it->out);
        expect(widest_line(it->out) <= 80, "%s: a line of %zu columns", args, widest_line(it->out));
    }
}

TEST(help_of_every_command_begins_with_examples) { for_each_option(expect_help); }

/* ---- The same options everywhere -------------------------------------------------------------------------------- */

static void expect_in_help(const char *of, const char *option)
{
    char args[80], spelled[80];
    snprintf(args, sizeof args, "%s --help", of);
    snprintf(spelled, sizeof spelled, "%s", option);
    if (strcmp(option, "--help") == 0) return;
    const char *help = command("", args)->out, *at = help;
    bool there = false;
    while (!there && (at = strstr(at, spelled))) {
        there = (at == help || strchr(" \n", at[-1])) && strchr(" ,\n", at[strlen(spelled)]);
        at++;
    }
    expect(there, "mha %s --help does not have %s", of, option);
}

TEST(help_has_every_option) { expect(for_each_option(expect_in_help) > 200, "the completions have few options"); }

static const char *manual(void)
{
    static char page[1 << 17];
    char args[300];
    if (*page) return page;
    snprintf(args, sizeof args, "--generate man >'%s' #", in_folder("mha.1"));
    expect(command("", args)->status == 0, "no page");
    slurp(in_folder("mha.1"), page, sizeof page);
    return page;
}

static void expect_in_manual(const char *of, const char *option)
{
    char title[60] = ".SH \"MHA ", bold[120] = "\\fB";
    size_t n = strlen(title), m = strlen(bold);
    for (const char *c = of; *c; c++) n += (size_t)snprintf(title + n, sizeof title - n, "%c", toupper(*c));
    for (const char *c = option; *c; c++)
        m += (size_t)snprintf(bold + m, sizeof bold - m, *c == '-' ? "\\-" : "%c", *c);
    snprintf(bold + m, sizeof bold - m, "\\fR");
    const char *section = strstr(manual(), title), *end = section ? strstr(section + 1, "\n.SH ") : NULL;
    const char *at = section ? strstr(section, bold) : NULL;
    if (strcmp(option, "--help") == 0) return;
    expect(section && end && at && at < end, "the manual page does not have %s of %s", option, of);
}

TEST(manual_page_has_every_option)
{
    expect(for_each_option(expect_in_manual) > 200, "the completions have few options");
    expect(strncmp(manual(), ".TH MHA 1 ", 10) == 0 && strstr(manual(), "\n.SH EXIT STATUS\n"), "%.300s", manual());
}

/* ---- Completions ------------------------------------------------------------------------------------------------ */

/* What bash offers for the last of the words, sorted and with a space behind each. */
static const char *completed(const char *words)
{
    static char out[1 << 14];
    char line[1000], path[300];
    snprintf(path, sizeof path, "%s", in_folder("completed"));
    snprintf(line, sizeof line,
             "%s --generate complete-bash >'%s' && bash -c 'source %s; COMP_WORDS=(%s); "
             "COMP_CWORD=$((${#COMP_WORDS[@]}-1)); "
             "_mha; printf \"%%s \" \"${COMPREPLY[@]}\"' >'%s'",
             COMMAND, in_folder("mha.bash"), in_folder("mha.bash"), words, path);
    expect(system(line) == 0, "%s", line);
    slurp(path, out, sizeof out);
    return out;
}

TEST(bash_completes_commands_options_and_words)
{
    static const struct {
        const char *words, *offers;
    } tries[] = {{"mha tr", "train transcribe "},
                 {"mha eval --w", "--without --window "},
                 {"mha eval m --part \"\"", "test train "},
                 {"mha eval m --part = te", "test "},
                 {"mha heads m --sort e", "entropy "},
                 {"mha eval m --data \"\"", " "},
                 {"mha --generate complete-z", "complete-zsh "}};
    if (system("bash -c true") != 0) {
        not_given("there is no bash");
        return;
    }
    for (size_t n = 0; n < sizeof tries / sizeof *tries; n++)
        expect(strcmp(completed(tries[n].words), tries[n].offers) == 0, "%s: '%s', not '%s'", tries[n].words,
               completed(tries[n].words), tries[n].offers);
}

TEST(zsh_accepts_the_completions)
{
    char line[600];
    if (system("zsh -c true 2>/dev/null") != 0) {
        not_given("there is no zsh");
        return;
    }
    snprintf(line, sizeof line, "%s --generate complete-zsh >'%s' && zsh -n '%s'", COMMAND, in_folder("_mha"),
             in_folder("_mha"));
    expect(system(line) == 0, "zsh refuses the script");
}

TEST(anything_else_is_an_error)
{
    static const char *const wrong[][2] = {
        {"--generate", "mha: --generate must be man, complete-bash or complete-zsh\n"},
        {"--generate fish", "mha: --generate must be man, complete-bash or complete-zsh, not 'fish'\n"}};
    for (size_t n = 0; n < 2; n++) {
        const said *it = command("", wrong[n][0]);
        expect(it->status == 2 && !*it->out && strcmp(it->err, wrong[n][1]) == 0, "exit %d: %s", it->status, it->err);
    }
}
