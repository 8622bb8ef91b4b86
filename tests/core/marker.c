/* A library that says when it is loaded, in place of the plug-in of a device. */
#include <unistd.h>

__attribute__((constructor)) static void say(void)
{
    static const char text[] = "the plug-in is loaded\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(1);
}
