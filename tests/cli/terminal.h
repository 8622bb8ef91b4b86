/* The command with a terminal for its standard error. Whoever includes this is compiled with _XOPEN_SOURCE=700: to open a
 * terminal is in POSIX's extension alone. */
#ifndef TERMINAL_H
#define TERMINAL_H

#include "support/harness.h"

#include "cli/command.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

/* The command with these words behind it; returns what arrived at the terminal. */
static inline const char *on_terminal(const char *settings, const char *args)
{
    static char seen[1 << 16];
    char line[1500];
    size_t used = 0;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (!expect(terminal >= 0 && !grantpt(terminal) && !unlockpt(terminal), "no terminal")) return "";
    int kept = open(ptsname(terminal), O_RDWR | O_NOCTTY); /* or there is nothing to read before the command opens it */
    snprintf(line, sizeof line, "%s %s %s >'%s' 2>'%s'", settings, COMMAND, args, in_folder("out"), ptsname(terminal));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    close(kept);
    for (ssize_t n; used < sizeof seen - 1 && (n = read(terminal, seen + used, sizeof seen - 1 - used)) != 0;) {
        if (n > 0) used += (size_t)n;
        else if (waitpid(child, NULL, WNOHANG) != 0)
            break; /* an error until the other side is open, and when it is shut */
    }
    close(terminal);
    waitpid(child, NULL, 0);
    seen[used] = 0;
    return seen;
}

#endif
