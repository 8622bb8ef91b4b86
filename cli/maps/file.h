/* Attention maps as an image file: a titled sheet of labelled heatmaps, as SVG or PNG.
 *
 *     maps_panel panels[] = {{.title = "head 1", .note = {"itself"}, .map = {{weights, 7, 7}}}};
 *     maps_sheet sheet = {.title = "Attention of the heads", .panels = panels, .count = 1, .across = 4, .tokens = 50};
 *     if (!maps_write("heads.svg", MAPS_SVG, &sheet, error, sizeof error)) puts(error);
 *
 * The colours of each map run from the uniform weight, 1/tokens, to its own largest weight, which is printed under it;
 * see scale_weight. */
#ifndef MAPS_FILE_H
#define MAPS_FILE_H

#include "cli/common/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum maps_format { MAPS_TERMINAL, MAPS_PNG, MAPS_SVG } maps_format;

extern const cli_word maps_formats[];

#define MAPS_FORMAT_ROW(type, field) \
    "--format", "FORMAT", "format of the maps:", CLI_CHOICE(type, field, maps_formats), .preset = "terminal"
#define MAPS_OUT_ROW(type, field) CLI_OUT, "FILE", "output file for --format png or svg", CLI_FILE(type, field)

typedef struct maps_map {
    const float *values; /* (rows,columns), not negative; NULL for none */
    int64_t rows, columns;
} maps_map;

enum { MAPS_BESIDE = 2, MAPS_TEXT = 96 };

typedef struct maps_panel {
    char title[MAPS_TEXT], note[MAPS_TEXT]; /* above and below its maps */
    maps_map map[MAPS_BESIDE];              /* side by side */
    bool starts_row;
    char heading[2 * MAPS_TEXT]; /* of the row that this panel starts; or "" */
} maps_panel;

typedef struct maps_sheet {
    const char *title;
    const char *about[3]; /* lines under the title; NULL ends them */
    const maps_panel *panels;
    int64_t count;
    int64_t across; /* maximum number of panels per row */
    int64_t tokens; /* number of keys per row of weights */
} maps_sheet;

/* Writes the file atomically; PNG needs a build with libpng. Returns false on error, with one line in `error`. */
bool maps_write(const char *path, maps_format format, const maps_sheet *sheet, char *error, size_t error_size);

/* Checks that -o fits the format and is not one of the inputs, which end with NULL. Prints an error and returns false
 * otherwise. */
bool maps_can_write(maps_format format, const char *path, const char *const *inputs);

#endif
