/* Shared by the subcommands of mha: how they are called, exit codes, messages.
 *
 * A subcommand is `int cmd_NAME(int argc, char **argv)`: argv[0] is its own name, the rest are its arguments, and
 * the result is the exit code. Data goes to standard output, messages go to standard error. Commands need not check
 * writes to standard output: main flushes at the end and fails if a write failed. */
#ifndef CLI_H
#define CLI_H

#include <mha.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* a check failed */
    CLI_USAGE = 2   /* wrong usage or bad input */
};

int cmd_bench(int argc, char **argv);
int cmd_classify(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_inspect(int argc, char **argv);
int cmd_conformance(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_embed(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_fill(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_heads(int argc, char **argv);
int cmd_layer(int argc, char **argv);
int cmd_prune(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_transcribe(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_view(int argc, char **argv);

/* The name of this program in suggested commands: a relative path such as build/mha, or mha if it was found on the PATH
 * or called by an absolute path. main sets it. */
void cli_called(const char *program);
const char *cli_program(void);

/* The ending of a noun for so many things. */
static inline const char *plural(long long count) { return count == 1 ? "" : "s"; }

/* Like fprintf, for text that contains names: control characters are escaped (printable.h), so the format may contain
 * none except newlines at its beginning and end. Up to 8191 bytes. */
__attribute__((format(printf, 2, 3))) void cli_print(FILE *out, const char *format, ...);
void cli_vprint(FILE *out, const char *format, va_list args);

/* Prints one line on standard error: "mha: ", the message, a newline. Escaped as in cli_print. Returns false. */
__attribute__((format(printf, 1, 2))) bool cli_error(const char *format, ...);

/* Creates a context with the defaults, or with `threads` threads. Prints an error and returns NULL on failure, such as
 * an MHA_ISA that this machine does not have. */
mha_context *cli_context(void);
mha_context *cli_context_of(int threads);

/* Seconds of a monotonic clock. */
double cli_clock(void);

/* Whether the file can be created or replaced; tries by creating and removing the temporary file. Prints an error if
 * not. */
bool cli_can_write(const char *path);

/* Whether `output` and `path` are the same file, or `path` is a folder and `output` a file of the model in it, so that writing
 * would overwrite the command's input; if so, prints an error that calls it `what`. */
bool cli_is_output(const char *command, const char *output, const char *path, const char *what);

/* The candidate that is most similar to a misspelt `word`, or NULL if none is close; never its opposite, such as
 * --no-special for --special. `candidates` ends with NULL. */
const char *cli_closest(const char *word, const char *const *candidates);

/* Prints an error for an unknown option, with a suggestion from `options` (which ends with NULL) if one is close. Returns
 * CLI_USAGE. */
int cli_unknown_option(const char *command, const char *option, const char *const *options);

/* Prints an error for an argument beyond those that a command takes. Returns CLI_USAGE. */
int cli_unexpected(const char *command, const char *word);

/* Whether the word is --help or -h. */
bool cli_wants_help(const char *word);

#endif
