/* The options --diagram and -o of a command that draws the data flow of a model. */
#ifndef DIAGRAM_H
#define DIAGRAM_H

#include "cli/common/options.h"
#include "cli/draw/flow.h"

#define DIAGRAM_ROW(type, field) "--diagram", NULL, "draw the data flow with its shapes instead", CLI_FLAG(type, field)
#define DIAGRAM_OUT_ROW(type, field)                                                                   \
    CLI_OUT, "FILE", "the file of the diagram: .svg, or .mmd for Mermaid text", CLI_FILE(type, field), \
        .otherwise = "Mermaid text on standard output", .needs = "--diagram"

/* Checks -o: it needs a known suffix, and must not be the input, if there is one. Prints an error and returns
 * false otherwise. `path` NULL: none was given. */
bool diagram_can_write(const char *path, const char *input);

/* Writes the diagram to the file, or to standard output for NULL. Returns an exit code, after printing an error. */
int diagram_write(const flow *f, const char *path);

#endif
