/* The line of progress on a terminal, and what a signal that ends the command leaves. */
#include "cli/terminal.h"
#include "cli/words.h"

/* A text that takes long: every token has a window of its own. */
static const char *slow_model(void)
{
    static char path[256];
    if (*path) return path;
    snprintf(path, sizeof path, "%s", letters_make("letters", NULL));
    FILE *file = fopen(in_folder("slow.txt"), "wb");
    for (int n = 0; file && n < 20000; n++) fputs("the cat saw ", file);
    if (expect(file, "no text")) fclose(file);
    return path;
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++) count++;
    return count;
}

/* Waits until the line has been drawn twice, then presses Ctrl-C. */
TEST(a_terminal_sees_progress_and_one_line_at_the_end)
{
    char args[900], name[300];
    snprintf(name, sizeof name, "%s", in_folder("slow.txt"));
    snprintf(args, sizeof args, "eval %s --text '%s' --window 64 --stride 1 --threads 1", slow_model(), name);
    const char *seen = on_terminal("timeout --foreground --preserve-status -s INT 3 env TERM=xterm LC_ALL=C", args);
    expect(count_of(seen, "\rscoring /tmp/mha-test-") > 2 && strstr(seen, " %  ") && strstr(seen, " left\033[K"), "%s",
           seen);
    const char *end = strrchr(seen, '\033');
    expect(end && strcmp(end, "\033[Kmha: interrupted\r\n") == 0, "the end: %s", end);
    for (const char *at = seen; (at = strchr(at, '\r')); at++)
        expect(strcspn(at + 1, "\033\r") < 80, "a line of %zu columns", strcspn(at + 1, "\033\r"));
    seen = on_terminal("timeout --foreground --preserve-status -s INT 2 env TERM=dumb", args);
    expect(strcmp(seen, "mha: interrupted\r\n") == 0, "where nothing can be erased: %s", seen);
}

static const said *stopped(const char *signal, const char *input, const char *args)
{
    char settings[200];
    snprintf(settings, sizeof settings, "timeout --preserve-status -s %s 1 ", signal);
    if (*input) mkfifo(in_folder("pipe"), 0600);
    char line[900];
    snprintf(line, sizeof line, "%s %s%s%s", args, *input ? "<>'" : "", *input ? in_folder("pipe") : "",
             *input ? "'" : "");
    return command(settings, line);
}

TEST(ctrl_c_is_one_line_and_exit_code_130)
{
    char args[600];
    snprintf(args, sizeof args, "eval %s --text -", slow_model());
    const said *it = stopped("INT", "pipe", args);
    expect(it->status == 130 && !*it->out && strcmp(it->err, "mha: interrupted\n") == 0, "exit %d: %s", it->status,
           it->err);
    it = stopped("TERM", "pipe", args);
    expect(it->status == 143 && !*it->out && strcmp(it->err, "mha: terminated\n") == 0, "exit %d: %s", it->status,
           it->err);
}

TEST(an_interrupted_generation_prints_what_there_is)
{
    char args[600];
    snprintf(args, sizeof args, "generate %s -p 'the cat' --tokens 200000 --min-tokens 200000", slow_model());
    const said *it = stopped("INT", "", args);
    expect(it->status == 130 && strncmp(it->out, "the cat", 7) == 0 && strlen(it->out) > 8, "exit %d: %.60s",
           it->status, it->out);
    expect(strcmp(it->err, "mha: interrupted\n") == 0, "%s", it->err);
}

/* A message is one line for programs; on a terminal of 80 columns it is broken at spaces. A command that it ends with stays whole. */
TEST(messages_wrap_at_the_width_of_the_terminal)
{
    char args[400];
    snprintf(args, sizeof args, "heads %s --text nothing-of-this-name-lies-in-this-folder.txt", slow_model());
    const char *seen = on_terminal("", args);
    expect(strncmp(seen, "mha: heads: --text names a file", 31) == 0 && strstr(seen, "\r\n     "), "%s", seen);
    for (const char *at = seen; *at; at += strcspn(at, "\n"), at += *at == '\n')
        expect(strcspn(at, "\r") < 80, "%zu columns: %s", strcspn(at, "\r"), at);
    const said *it = command("", args);
    expect(one_line(it->err) && strlen(it->err) > 80, "%s", it->err);
}
