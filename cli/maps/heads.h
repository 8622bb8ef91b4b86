/* Sheets of maps of heads: those of a survey, and those of a few images. */
#ifndef MAPS_HEADS_H
#define MAPS_HEADS_H

#include "inspect/heads.h"
#include "cli/maps/file.h"
#include "inspect/survey.h"

/* Two maps a head: where what is read out looks, on the mean over images, and the mean map of all tokens. */
bool maps_of_survey(const char *path, maps_format format, const char *file, const nn_survey *s, char *error,
                    size_t error_size);

/* Where the heads of the blocks from `first` to before `end` look, image after image. */
typedef struct maps_image {
    const char *name;
    nn_heads_view view;
} maps_image;
bool maps_of_images(const char *path, maps_format format, const char *file, const maps_image *images, int64_t count,
                    int64_t first, int64_t end, bool mean, char *error, size_t error_size);

#endif
