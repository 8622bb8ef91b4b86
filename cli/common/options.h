/* The words behind a command, read by a table:
 *
 *     static const cli_option options[] = {{"--data", true, NULL, offsetof(request, data)},
 *                                          {"--part", true, parse_part, 0},
 *                                          {NULL, false, NULL, 0}};
 *     int stop = cli_parse("eval", argc, argv, options, take_word, help, &request);
 *     if (stop) return stop - 1;
 *
 * An option's value is the next word, or stands behind '='. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "cli/common/cli.h"
#include "cli/draw/term.h"

#include <stddef.h>

typedef struct cli_option {
    const char *name; /* NULL: the end of the table */
    bool value;       /* one follows */
    /* False, having said so, if the value (NULL without one) will not do. NULL: the value goes, as text, to the
     * const char * at `at` in the request; an option without a value sets the bool there. */
    bool (*parse)(const char *value, void *request);
    size_t at;
} cli_option;

/* Goes through the words: options of the table, --help, and others, of which `word` takes one and returns true, or
 * returns false if it is one too many (without a message), or has said what is wrong and set *said. Returns 0 to go on,
 * else the exit code plus 1. */
int cli_parse(const char *command, int argc, char **argv, const cli_option *options,
              bool (*word)(const char *text, void *request, bool *said), void (*help)(void), void *request);

/* A whole number from `least` to `most`; false, having said so, if it is none. `what` is an option's name. */
bool cli_number(const char *command, const char *what, const char *text, long least, long most, long *number);

/* Which of the names (the last is NULL) the text is; -1, having said so, if none. */
int cli_choice(const char *command, const char *what, const char *text, const char *const *names);

/* auto, always or never. */
bool cli_when(const char *command, const char *text, term_when *when);

#endif
