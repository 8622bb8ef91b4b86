/* What a command is doing, in a line on standard error: on a terminal alone, from half a second on, and erased at the end.
 *
 *     progress_begin("reading %s", path);
 *     for (int64_t n = 0; n < count; n++) work(n), progress_at(n + 1, count);
 *     progress_end();
 *
 * A thread of its own redraws the line, so that calls of the library show how long they have taken. Messages erase it. */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Begins a line, in place of one that has not ended. Control characters in the text are escaped. */
__attribute__((format(printf, 1, 2))) void progress_begin(const char *format, ...);

/* How much is done: the line then has a bar and an estimate of the time that is left. From any thread. */
void progress_at(int64_t done, int64_t all);

void progress_end(void); /* without a line it does nothing */

/* Erases the line until it is drawn again; before a message. */
void progress_hide(void);

/* For lines of progress: the columns of standard error's terminal, at most 80, without the last one, where some terminals
 * wrap; a bar of `width` columns; and a time such as 1:05 or 1:00:05. */
int progress_columns(void);
void progress_bar(char *out, size_t room, int width, double done, bool utf8);
void progress_time(char *out, size_t room, double seconds);

#endif
