/* Parses the arguments of a command from a table:
 *
 *     static const cli_option options[] = {CLI_TEXT("FILE", request, file),
 *                                          CLI_NUMBER("--sample -n", request, sample, 1, 1000),
 *                                          CLI_CHOICE("--part", request, part, parts),
 *                                          CLI_THREADS(request, threads),
 *                                          CLI_OWN("--word", parse_word),
 *                                          CLI_END};
 *     int stop = cli_parse("eval", argc, argv, options, help, &request);
 *     if (stop) return stop - 1;
 *
 * A row may have several names, separated by spaces: the first is the one that the help describes, and the others are
 * listed at its end. The value of an option is the next argument; that of a long option may also follow a '='. A long
 * option may be shortened to any beginning that no other option has. A name without a dash is a positional argument; these
 * are taken in the order of their rows. All arguments that follow "--" are positional. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "cli/common/cli.h"
#include "cli/draw/term.h"

#include <stddef.h>
#include <stdint.h>

typedef enum cli_kind {
    CLI_IS_FLAG,
    CLI_IS_SET,
    CLI_IS_TEXT,
    CLI_IS_NAME,
    CLI_IS_FILE,
    CLI_IS_NUMBER,
    CLI_IS_REAL,
    CLI_IS_CHOICE,
    CLI_IS_LIST,
    CLI_IS_OWN
} cli_kind;

/* An option of a command. */
typedef struct cli_given {
    const char *command, *name; /* the name that was given, in full */
    const char *value;          /* its text; NULL if the option takes none */
    const char *row;            /* the first name of the row */
} cli_given;

/* A word that an option accepts, and what it stores. */
typedef struct cli_name {
    const char *name; /* NULL ends the table */
    int value;
} cli_name;

/* All values of a row, in order; `all` must have room for them. */
typedef struct cli_list {
    const char **all;
    int count;
} cli_list;

typedef struct cli_option {
    const char *names; /* separated by spaces; NULL ends the table */
    cli_kind kind;
    size_t at; /* of the field in the request */
    double least, most;
    const char *must;
    const cli_name *words;
    bool (*parse)(const cli_given *given, void *request);
} cli_option;

/* ---- Rows of a table --------------------------------------------------------------------------------------------- */

/* A row stores into a field of the request type:
 *
 *     CLI_FLAG     bool            true; takes no value
 *     CLI_SET      an enum or int  a constant; takes no value
 *     CLI_TEXT     const char *    any text
 *     CLI_NAME     const char *    a text that is not empty
 *     CLI_FILE     const char *    the name of an output file; "" and "-" are errors
 *     CLI_NUMBER   (u)int64_t      an integer in a range
 *     CLI_REAL     double          a number in a range, which `must` describes for the message
 *     CLI_CHOICE   an enum or int  the value of one of the names
 *     CLI_LIST     cli_list        appends a text; as a positional argument it takes all that follow
 *     CLI_OWN                      calls a function that stores the value, or prints an error and returns false
 *
 * A field of another type does not compile. */
#define CLI_FIELD(type, field, is) _Generic(((type *)0)->field, is : offsetof(type, field))
#define CLI_EITHER(type, field, is, or) \
    _Generic(((type *)0)->field, is : offsetof(type, field), or : offsetof(type, field))

/* clang-format off */
#define CLI_FLAG(n, type, field)          {.names = n, .kind = CLI_IS_FLAG, .at = CLI_FIELD(type, field, bool)}
#define CLI_SET(n, type, field, value)    {.names = n, .kind = CLI_IS_SET, .at = CLI_EITHER(type, field, int, unsigned), \
                                           .least = value}
#define CLI_TEXT(n, type, field)          {.names = n, .kind = CLI_IS_TEXT, .at = CLI_FIELD(type, field, const char *)}
#define CLI_NAME(n, type, field)          {.names = n, .kind = CLI_IS_NAME, .at = CLI_FIELD(type, field, const char *)}
#define CLI_FILE(n, type, field)          {.names = n, .kind = CLI_IS_FILE, .at = CLI_FIELD(type, field, const char *)}
#define CLI_NUMBER(n, type, field, from, to) \
    {.names = n, .kind = CLI_IS_NUMBER, .at = CLI_EITHER(type, field, int64_t, uint64_t), .least = from, .most = to}
#define CLI_REAL(n, type, field, from, to, says) \
    {.names = n, .kind = CLI_IS_REAL, .at = CLI_FIELD(type, field, double), .least = from, .most = to, .must = says}
#define CLI_CHOICE(n, type, field, from)  {.names = n, .kind = CLI_IS_CHOICE, \
                                           .at = CLI_EITHER(type, field, int, unsigned), .words = from}
#define CLI_LIST(n, type, field)          {.names = n, .kind = CLI_IS_LIST, .at = CLI_FIELD(type, field, cli_list)}
#define CLI_OWN(n, function)              {.names = n, .kind = CLI_IS_OWN, .parse = function}
#define CLI_END                           {.names = NULL}

/* Options with the same meaning in every command. The option column of their help is 24 characters wide. */
#define CLI_OUT(type, field)     CLI_FILE("-o --out --output", type, field)
#define CLI_THREADS(type, field) CLI_NUMBER("--threads", type, field, 1, 4096)
#define CLI_DTYPE(type, field)   CLI_CHOICE("--dtype", type, field, cli_dtypes)
#define CLI_COLOR(type, field)   CLI_CHOICE("--color", type, field, cli_whens)
#define CLI_TOKENS               "--tokens -n --max-tokens --max-new-tokens --n-predict" /* most new ones of a sequence */
#define CLI_HELP_THREADS "  --threads N           number of threads (default: all)\n"
#define CLI_HELP_DTYPE   "  --dtype TYPE          type of the matrix products: f32 (default) or bf16\n"
#define CLI_HELP_COLOR   "  --color WHEN          auto (default: on a terminal), always or never\n"
/* clang-format on */

extern const cli_name cli_dtypes[]; /* mha_type */
extern const cli_name cli_whens[];  /* term_when */

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* Parses all arguments. Returns 0 to continue, or the exit code plus 1. --help prints `help`, then the further names of
 * options. */
int cli_parse(const char *command, int argc, char **argv, const cli_option *options, void (*help)(void), void *request);

/* The row that a word such as --data or --data=DIR names, or NULL. */
const cli_option *cli_find(const cli_option *options, const char *word);

/* Whether the option is followed by a value. */
bool cli_has_value(const cli_option *option);

/* Parses an integer from `least` to `most`. Prints an error and returns false otherwise. */
bool cli_number(const cli_given *given, int64_t least, int64_t most, int64_t *number);

/* Finds the value of a name. Prints an error and returns false if there is no such name. */
bool cli_choice(const cli_given *given, const cli_name *names, int *value);

#endif
