/* A survey of the heads of a model over the test images of a data set, with its numbers at hand. */
#ifndef SURVEY_H
#define SURVEY_H

#include "cli/draw/heads_view.h"

typedef struct survey {
    mha_survey *of;
    mha_survey_info info;
    mha_survey_head *heads; /* (info.heads), block after block */
} survey;

/* `path` is the model's file, for messages. Prints an error and returns false on failure; nothing needs to be freed
 * then. */
bool survey_make(survey *s, mha_context *ctx, mha_model *model, const mha_data *data, const mha_survey_options *options,
                 const char *path);
void survey_free(survey *s); /* a zeroed one is legal */

int64_t survey_block_heads(const survey *s, int64_t block);

/* out (rows,columns): the class token's row of the mean map of head n, or the mean of all rows for a model without a
 * class token. */
void survey_map(double *out, const survey *s, int64_t n);

/* The mean maps as those of one image, without a prediction. Returns false if out of memory. */
bool survey_view(heads_view *view, const survey *s);

#endif
