/* Ctrl-C: one line on standard error and exit code 130, wherever a command is, and no file that is half written. SIGTERM
 * likewise, with exit code 143. */
#ifndef INTERRUPT_H
#define INTERRUPT_H

#include <signal.h>

/* From now on; main calls it. Signals that whoever started the command has ignored stay ignored. */
void interrupt_install(void);

/* While a flag is given, the first signal only stores its number there, for commands that end by themselves; the second
 * one ends the process. NULL: the first one does. */
void interrupt_catch(volatile sig_atomic_t *flag);

/* The exit code of a command that a signal has ended. */
static inline int interrupt_status(int number) { return 128 + number; }

#endif
