/* Parses the arguments of a command from a table:
 *
 *     static const cli_option options[] = {{"--data", true, NULL, offsetof(request, data)},
 *                                          {"--threads", true, cli_shared, offsetof(request, threads)},
 *                                          {"--part", true, parse_part, 0},
 *                                          {NULL, false, NULL, 0}};
 *     int stop = cli_parse("eval", argc, argv, options, take_word, help, &request);
 *     if (stop) return stop - 1;
 *
 * The value of an option is the next argument; that of a long option may also follow a '='. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "cli/common/cli.h"
#include "cli/draw/term.h"

#include <stddef.h>

typedef struct cli_option {
    const char *name; /* NULL ends the table */
    bool value;       /* whether the option takes a value */
    /* Returns false, after printing an error, if the value (NULL if the option takes none) is invalid. A NULL parser
     * stores the text in the const char * at `at` in the request; an option without a value sets the bool there. */
    bool (*parse)(const char *value, void *request);
    size_t at;
} cli_option;

/* ---- Options with the same meaning in every command -------------------------------------------------------------- */

/* A row with this parser is one of the shared options, found by its name. It stores into the request at `at`:
 *
 *     -o, --out                const char *   a file name; "" and "-" are errors
 *     --curves, --curve, ...   const char *   likewise
 *     --threads                long
 *     --dtype                  mha_type       f32 or bf16
 *     --color                  term_when
 *
 * Their help lines follow. The option column is 24 characters wide in every command. */
bool cli_shared(const char *value, void *request);

/* clang-format off */
#define CLI_HELP_THREADS "  --threads N           number of threads (default: all)\n"
#define CLI_HELP_DTYPE   "  --dtype TYPE          type of the matrix products: f32 (default) or bf16\n"
#define CLI_HELP_COLOR   "  --color WHEN          auto (default: on a terminal), always or never\n"
/* clang-format on */

/* The value of --dtype: one of the first `count` of f32, bf16, f16. Prints an error and returns false otherwise. */
bool cli_dtype(const char *command, const char *text, int count, mha_type *type);

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* Parses all arguments. `word` is called for each argument that is not an option; it returns true if it used the
 * argument, false if there are too many (cli_parse prints the error), or sets *said if it has printed an error itself.
 * Returns 0 to continue, or the exit code plus 1. */
int cli_parse(const char *command, int argc, char **argv, const cli_option *options,
              bool (*word)(const char *text, void *request, bool *said), void (*help)(void), void *request);

/* A `word` function for commands without positional arguments. */
bool cli_no_word(const char *text, void *request, bool *said);

/* Parses an integer from `least` to `most`. Prints an error and returns false otherwise. `what` is the option's name.
 * */
bool cli_number(const char *command, const char *what, const char *text, long least, long most, long *number);

/* Returns the index of `text` in `names`, which ends with NULL; prints an error and returns -1 if it is not there. */
int cli_choice(const char *command, const char *what, const char *text, const char *const *names);

/* auto, always or never. */
bool cli_when(const char *command, const char *text, term_when *when);

#endif
