/* Shared by the subcommands of mha: exit codes and messages.
 *
 * Data goes to standard output, messages go to standard error. Commands need not check writes to standard output: main
 * flushes at the end and fails if a write failed. */
#ifndef CLI_H
#define CLI_H

#include <mha.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1, /* a check failed */
    CLI_USAGE = 2   /* wrong usage or bad input */
};

typedef struct cli_command cli_command; /* options.h */

/* The name of this program in suggested commands: a relative path such as build/mha, or mha if it was found on the PATH
 * or called by an absolute path. main sets it. */
void cli_called(const char *program);
const char *cli_program(void);

/* The ending of a noun for so many things. */
static inline const char *plural(long long count) { return count == 1 ? "" : "s"; }

/* Like fprintf, for text that contains names: control characters are escaped (printable.h), so the format may contain
 * none except newlines at its beginning and end. Up to 8191 bytes. */
__attribute__((format(printf, 2, 3))) void cli_print(FILE *out, const char *format, ...);

/* Prints one line on standard error: "mha: ", or the name of a tool, the message, a newline. Escaped as in cli_print. Returns false. */
__attribute__((format(printf, 1, 2))) bool cli_error(const char *format, ...);

/* The same with the name of the running command before the message: "mha: eval: ...". */
__attribute__((format(printf, 1, 2))) bool cli_refuse(const char *format, ...);

/* The name of the command that runs. */
const char *cli_name(void);

/* Whether that is a tool, a program of its own. */
bool cli_is_tool(void);

/* A message of the library in which an argument is called by the option of the running command that it comes from: the library
 * says "options.heads", and the result "--heads N". Valid until the next call. */
const char *cli_in_options(const char *message);

/* The same for the reason of the context's last failure. */
const char *cli_reason(const mha_context *ctx);

/* Creates a context with the defaults, or with `threads` threads. Prints an error and returns NULL on failure, such as
 * an MHA_ISA that this machine does not have. */
mha_context *cli_context(void);
mha_context *cli_context_of(int threads);

/* Ends the program's output, and returns its exit code: `status`, or CLI_FAILED after a failed write, which is reported. A full
 * disk or a closed pipe is noticed at the latest when the stream is closed. */
int cli_finish(int status);

/* Seconds of a monotonic clock. */
double cli_clock(void);

/* Whether the file can be created or replaced; tries by creating and removing the temporary file. Prints an error if
 * not. */
bool cli_can_write(const char *path);

/* Whether `output` and `path` are the same file, or `path` is a folder and `output` a file of the model in it, so that writing
 * would overwrite the command's input; if so, prints an error that calls it `what`. */
bool cli_is_output(const char *output, const char *path, const char *what);

/* The candidate that is most similar to a misspelt `word`, or NULL if none is close; never its opposite, such as
 * --no-special for --special. `candidates` ends with NULL. */
const char *cli_closest(const char *word, const char *const *candidates);

/* Whether the word is --help or -h. */
bool cli_wants_help(const char *word);

#endif
