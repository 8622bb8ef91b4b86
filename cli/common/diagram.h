/* The options --diagram and -o of a command that draws the data flow of a model. */
#ifndef DIAGRAM_H
#define DIAGRAM_H

#include "cli/draw/flow.h"

/* clang-format off */
#define DIAGRAM_HELP \
         "  --diagram             draw the data flow with its shapes instead\n" \
         "  -o FILE               the file of the diagram: .svg, or .mmd for Mermaid text\n" \
         "                        (default: Mermaid text on standard output)\n"
/* clang-format on */

/* Checks -o: it needs --diagram, a known suffix, and must not be the input, if there is one. Prints an error and returns
 * false otherwise. `path` NULL: none was given. */
bool diagram_can_write(const char *command, bool diagram, const char *path, const char *input);

/* Writes the diagram to the file, or to standard output for NULL. Returns an exit code, after printing an error. */
int diagram_write(const flow *f, const char *path);

#endif
