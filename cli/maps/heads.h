/* Sheets of attention maps: of a survey, or of a few images. */
#ifndef MAPS_HEADS_H
#define MAPS_HEADS_H

#include "cli/maps/file.h"
#include "cli/common/survey.h"

/* Two maps per head, both means over images: the attention of the class token (or of all patches), and of all tokens.
 * */
bool maps_of_survey(const char *path, maps_format format, const char *file, const survey *s, char *error,
                    size_t error_size);

/* The maps of the blocks from `first` up to, not including, `end`, for each image. */
typedef struct maps_image {
    const char *name;
    heads_view view;
} maps_image;
bool maps_of_images(const char *path, maps_format format, const char *file, const maps_image *images, int64_t count,
                    int64_t first, int64_t end, bool mean, char *error, size_t error_size);

#endif
