/* A command is a table of its options and a body:
 *
 *     typedef struct request { const char *text; int64_t top; bool json; } request;
 *
 *     static const cli_option options[] = {
 *         {"TEXT", "TEXT", "", CLI_TEXT(request, text), .noun = "text", .required = true},
 *         {"--top -n", "N", "how many tokens for each mask", CLI_NUMBER(request, top, 1, 1000), .preset = "5"},
 *         {CLI_JSON(request, json)},
 *         CLI_END};
 *
 *     static int fill_masks(void *request) { ... return CLI_OK; }
 *
 *     const cli_command fill_command = {
 *         "fill", "the most likely words for the [MASK] of a text", .usage = "MODEL TEXT [OPTIONS]", .examples = "...",
 *         .options = options, .request_size = sizeof(request), .run = fill_masks};
 *
 * Everything that is said or checked about an option comes from its row: parsing, defaults, --help (help.c), the manual page
 * and the completions of shells (completions.c), messages about what is missing, given twice or excluded, suggestions for
 * misspelt names, and the words in which errors of the library name their arguments (cli_reason).
 *
 * A row may have several names: the first is the one that help and messages use, and the others are listed at the end of the
 * help. The value of an option is the next argument; that of a long option may also follow a '='. A long option may be
 * shortened to any beginning that no other option has. A name without a dash is a positional argument; these are taken in
 * the order of their rows. All arguments that follow "--" are positional. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "cli/common/cli.h"
#include "cli/draw/term.h"

#include <stddef.h>
#include <stdint.h>

typedef enum cli_kind {
    CLI_IS_FLAG = 1,
    CLI_IS_SET,
    CLI_IS_TEXT,
    CLI_IS_NAME,
    CLI_IS_FILE,
    CLI_IS_NUMBER,
    CLI_IS_DOUBLE,
    CLI_IS_FLOAT,
    CLI_IS_CHOICE,
    CLI_IS_LIST,
    CLI_IS_OWN,
    CLI_IS_TITLE /* no option: begins a group of them in the help */
} cli_kind;

/* An option as it was given on the command line. */
typedef struct cli_given {
    const char *name;  /* the name that was used, in full */
    const char *value; /* NULL if the option takes none */
    const char *row;   /* the first name of the row */
} cli_given;

/* A word that an option accepts, and what it stores. */
typedef struct cli_word {
    const char *name; /* NULL ends the table */
    int value;
} cli_word;

/* All values of a row, in order. The memory is cli_run's. */
typedef struct cli_list {
    const char **all;
    int count;
} cli_list;

typedef struct cli_option {
    const char *names; /* separated by spaces; NULL ends the table */
    const char *value; /* what the help calls the value, such as "FILE"; NULL if the option takes none */
    const char
        *help; /* what the option does, without a full stop. One that ends with a colon is followed by the words */

    /* The type of the value and where it is stored: one of the macros below. */
    cli_kind kind;
    size_t at;             /* offset of the field in the request */
    double least, most;    /* range of a number; `least` is also the constant of CLI_SET */
    const char *must;      /* describes the range of a real number in messages: "a number above 0" */
    const cli_word *words; /* of CLI_CHOICE */
    bool (*parse)(const cli_given *given, void *request); /* of CLI_OWN */

    const char *preset;    /* the default, stored as if it had been given; NULL: what the request begins with */
    const char *otherwise; /* the default in words, for the help: "all" */
    const char *argument;  /* the argument of the library that the value becomes: "options.heads"; NULL for none */
    const char *noun;      /* of a positional argument, for messages: "model"; NULL: its name */

    /* Rules over several options; a list of names has spaces between them. */
    bool required;        /* must be given... */
    const char *unless;   /* ...or one of these instead */
    const char *needs;    /* one of these must be given, too */
    const char *excludes; /* none of these may be given, too */
    const char *implies;  /* a flag that is set as well */
    const char *why;      /* the reason for a rule, which ends its message; or NULL */
} cli_option;

/* ---- Rows of a table --------------------------------------------------------------------------------------------- */

/* The type of a value; it is stored in a field of the request type:
 *
 *     CLI_FLAG     bool             true; takes no value
 *     CLI_SET      an enum or int   a constant; takes no value
 *     CLI_TEXT     const char *     any text
 *     CLI_NAME     const char *     a text that is not empty
 *     CLI_FILE     const char *     the name of an output file; "" and "-" are errors
 *     CLI_NUMBER   (u)int64_t       an integer in a range
 *     CLI_REAL     double or float  a number in a range, which `says` describes for the message
 *     CLI_CHOICE   an enum or int   the value of one of the words
 *     CLI_LIST     cli_list         appends a text; as a positional argument it takes all that follow
 *     CLI_OWN                       calls a function that stores the value, or prints an error and returns false
 *
 * A field of another type does not compile. */
#define CLI_FIELD(type, field, is) _Generic(((type *)0)->field, is : offsetof(type, field))
#define CLI_EITHER(type, field, is, or) \
    _Generic(((type *)0)->field, is : offsetof(type, field), or : offsetof(type, field))

/* clang-format off */
#define CLI_FLAG(type, field)             .kind = CLI_IS_FLAG, .at = CLI_FIELD(type, field, bool)
#define CLI_SET(type, field, constant)    .kind = CLI_IS_SET, .at = CLI_EITHER(type, field, int, unsigned), .least = constant
#define CLI_TEXT(type, field)             .kind = CLI_IS_TEXT, .at = CLI_FIELD(type, field, const char *)
#define CLI_NAME(type, field)             .kind = CLI_IS_NAME, .at = CLI_FIELD(type, field, const char *)
#define CLI_FILE(type, field)             .kind = CLI_IS_FILE, .at = CLI_FIELD(type, field, const char *)
#define CLI_NUMBER(type, field, from, to) .kind = CLI_IS_NUMBER, .at = CLI_EITHER(type, field, int64_t, uint64_t), \
                                          .least = from, .most = to
#define CLI_REAL(type, field, from, to, says) \
    .kind = _Generic(((type *)0)->field, double : CLI_IS_DOUBLE, float : CLI_IS_FLOAT), \
    .at = CLI_EITHER(type, field, double, float), .least = from, .most = to, .must = says
#define CLI_CHOICE(type, field, from)     .kind = CLI_IS_CHOICE, .at = CLI_EITHER(type, field, int, unsigned), .words = from
#define CLI_LIST(type, field)             .kind = CLI_IS_LIST, .at = CLI_FIELD(type, field, cli_list)
#define CLI_OWN(function)                 .kind = CLI_IS_OWN, .parse = function
#define CLI_TITLE(title)                  {"", NULL, title, .kind = CLI_IS_TITLE}
#define CLI_END                           {.names = NULL}

/* What is in the braces of a row for an option with the same meaning in every command. */
#define CLI_OUT                  "-o --out --output"
#define CLI_TOKENS               "--tokens -n --max-tokens --max-new-tokens --n-predict"
#define CLI_JSON(type, field)    "--json", NULL, "print one JSON object", CLI_FLAG(type, field)
#define CLI_THREADS(type, field) "--threads", "N", "number of threads", CLI_NUMBER(type, field, 1, 4096), .otherwise = "all"
#define CLI_DTYPE(type, field)   "--dtype", "TYPE", "type of the matrix products:", CLI_CHOICE(type, field, cli_dtypes), \
                                 .preset = "f32"
#define CLI_COLOR(type, field)   "--color", "WHEN", "colours in the output:", CLI_CHOICE(type, field, cli_whens), \
                                 .preset = "auto", .otherwise = "on a terminal"
/* clang-format on */

extern const cli_word cli_dtypes[]; /* mha_type */
extern const cli_word cli_whens[];  /* term_when */

/* ---- Commands ---------------------------------------------------------------------------------------------------- */

struct cli_command {
    const char *name, *summary; /* the summary is its line in 'mha --help' */
    bool tool;                  /* a program of its own: not 'mha NAME', but 'NAME' */
    const char *usage;          /* lines of usage, without "mha NAME" */
    const char *examples;       /* lines, as the help prints them */
    const char *notes;          /* the rest of the help, in lines of up to 80 columns; or NULL */
    void (*print_lists)(void);  /* prints what depends on the build or the library, behind the notes; or NULL */
    const cli_option *options;
    size_t request_size;
    const void *defaults;      /* what a request begins with, before presets; NULL: zeros */
    int (*run)(void *request); /* returns the exit code */
};

/* One in the folder of each command. */
extern const cli_command bench_command, classify_command, demo_command, embed_command, eval_command, explain_command,
    fill_command, generate_command, heads_command, info_command, inspect_command, layer_command, prune_command,
    tokenize_command, train_command, transcribe_command, view_command;

/* All commands, in the order of the help; NULL ends the table. main.c has it. */
extern const cli_command *const cli_commands[];

/* Parses the arguments, of which argv[0] is the command's name, checks the rules, and runs the command. --help prints the
 * help instead. Returns the exit code. */
int cli_run(const cli_command *command, int argc, char **argv);

/* Whether an option of the command that runs was given; `name` is the first of its row. */
bool cli_was_given(const char *name);

/* How a command is typed: "mha eval", or the name of a tool. Valid until the next call. */
const char *cli_typed(const cli_command *command);

/* Prints the help of a command. */
void cli_help(const cli_command *command);

/* Prints the manual page, or the completions for a shell. `what` is "man", "complete-bash" or "complete-zsh"; prints an error
 * and returns CLI_USAGE for anything else. */
int cli_generate(const char *what);

/* ---- Values of options that parse themselves --------------------------------------------------------------------- */

/* Parses an integer from `least` to `most`. Prints an error and returns false otherwise. */
bool cli_number(const cli_given *given, int64_t least, int64_t most, int64_t *number);

/* Finds the value of a word. Prints an error and returns false if there is no such word. */
bool cli_choice(const cli_given *given, const cli_word *words, int *value);

/* ---- Rows as help.c and completions.c read them ------------------------------------------------------------------ */

enum { CLI_NAME_MOST = 64 }; /* bytes of a name, with its end */

/* Takes the next name of a list, such as the names of a row. Returns false after the last one. */
bool cli_next_name(char name[CLI_NAME_MOST], const char **names);

/* "-o FILE", "FILE", or "--json": how the help and messages write an option. Returns `out`. */
enum { CLI_SPELLED = CLI_NAME_MOST + 40 };
const char *cli_spelled(char out[CLI_SPELLED], const cli_option *option);

static inline bool cli_is_positional(const cli_option *o) { return o->names[0] && o->names[0] != '-'; }
static inline bool cli_has_value(const cli_option *o) { return o->kind != CLI_IS_FLAG && o->kind != CLI_IS_SET; }

/* "auto (default: on a terminal), always or never", from the words and the default of a row. Returns `out`. */
const char *cli_list_words(char *out, size_t room, const cli_option *option);

#endif
