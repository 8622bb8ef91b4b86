/* What the subcommands of mha share: the way they are called, their exit codes, their messages.
 *
 * A subcommand is `int cmd_NAME(int argc, char **argv)`: argv[0] is its own name, the rest are its arguments, and
 * the result is the exit code. Data goes to standard output, messages go to standard error. Nobody checks writes to
 * standard output one by one: main flushes at the end and fails if anything was lost. */
#ifndef CLI_H
#define CLI_H

#include <mha.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* a check that failed */
    CLI_USAGE = 2   /* wrong use or bad input */
};

int cmd_bench(int argc, char **argv);
int cmd_classify(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_conformance(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_heads(int argc, char **argv);
int cmd_layer(int argc, char **argv);
int cmd_prune(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_view(int argc, char **argv);

/* How this program was called, for lines that a person may copy: build/mha, say, or mha if it is on the PATH or was
 * called by a path from the root. main tells it. */
void cli_called(const char *program);
const char *cli_program(void);

/* As fprintf, for text with names in it: whatever a terminal would obey comes out as an escape (printable.h), so the
 * format has no control characters but newlines at its beginning and its end. Up to 8191 bytes. */
__attribute__((format(printf, 2, 3))) void cli_print(FILE *out, const char *format, ...);
void cli_vprint(FILE *out, const char *format, va_list args);

/* One line on standard error: "mha: ", the message, a newline. Printed as by cli_print. */
__attribute__((format(printf, 1, 2))) void cli_error(const char *format, ...);

/* A context with the defaults, or with so many threads; or NULL, having said why: MHA_ISA may name what this machine
 * lacks. */
mha_context *cli_context(void);
mha_context *cli_context_of(int threads);

/* Whether a file could be made or replaced, by making the temporary one and giving it up; if not, says why. */
bool cli_can_write(const char *path);

/* Whether writing to `output` would replace the file at `path`, whatever it is called there; if so, says that it is also
 * the command's `what`. */
bool cli_is_output(const char *command, const char *output, const char *path, const char *what);

/* The candidate that `word` is most likely a slip of, or NULL when none is near. `candidates` ends with NULL. */
const char *cli_closest(const char *word, const char *const *candidates);

/* Says that `command` has no such option, with a suggestion from `options` (which ends with NULL) if one is near; or
 * that it takes no such argument. Returns CLI_USAGE. */
int cli_unknown_option(const char *command, const char *option, const char *const *options);

/* Whether the word asks for help: --help or -h. */
bool cli_wants_help(const char *word);

#endif
