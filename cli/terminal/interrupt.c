/* The handler calls only what POSIX allows there. */
#include "cli/terminal/interrupt.h"
#include "cli/draw/term.h"
#include "io/replace.h"

#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t *volatile soft; /* where the first signal is stored; NULL: nowhere */

static bool redraws; /* standard error is a terminal where a line can be erased */

static void write_message(const char *text, size_t length)
{
    ssize_t written = write(STDERR_FILENO, text, length);
    (void)written; /* there is nobody to tell */
}

static void on_signal(int number)
{
    static const char erase[] = "\r\033[K", interrupted[] = "mha: interrupted\n", terminated[] = "mha: terminated\n";
    volatile sig_atomic_t *flag = soft;
    if (flag && !*flag) {
        *flag = number;
        return;
    }
    bool by_key = number == SIGINT;
    nn_replacement_abandon();
    if (redraws) write_message(erase, sizeof erase - 1); /* a line of progress, and the terminal's ^C */
    if (by_key) write_message(interrupted, sizeof interrupted - 1);
    else write_message(terminated, sizeof terminated - 1);
    _exit(interrupt_status(number));
}

void interrupt_install(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    redraws = term_redraws();
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
        if (!sigaction(numbers[n], NULL, &before) && before.sa_handler != SIG_IGN) sigaction(numbers[n], &action, NULL);
}

void interrupt_catch(volatile sig_atomic_t *flag) { soft = flag; }
