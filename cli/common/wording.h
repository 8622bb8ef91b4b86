/* Messages of the library in the words of a command: the library calls an option "options.heads", the command "--heads N". */
#ifndef WORDING_H
#define WORDING_H

#include <stddef.h>

typedef struct wording {
    const char *library, *command; /* NULL ends the table */
} wording;

/* Writes the message to `out`, of `room` bytes, with the words of the library replaced where they stand alone; returns
 * `out`. */
const char *wording_apply(char *out, size_t room, const char *message, const wording *words);

#endif
