/* A sheet of the mean attention maps of a text model. */
#ifndef MAPS_TEXT_H
#define MAPS_TEXT_H

#include "cli/maps/file.h"

#include <mha_text.h>

/* One map per head, (queries,keys); a row of panels for each block. Returns false on error, with one line in `error`. */
bool maps_of_text(const char *path, maps_format format, const char *file, const mha_text_survey *survey,
                  const mha_text_survey_info *info, const mha_text_head *heads, char *error, size_t error_size);

#endif
