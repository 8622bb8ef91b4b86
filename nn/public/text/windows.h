/* The sequences that a text model is inspected with: windows of a text, and random tokens that are repeated. */
#ifndef NN_PUBLIC_TEXT_WINDOWS_H
#define NN_PUBLIC_TEXT_WINDOWS_H

#include "inspect/text/survey.h"
#include "public/model.h"

#include <mha_text.h>

typedef struct nn_windows {
    int64_t count, repeats;
    int64_t window;              /* tokens of a whole window, with those at its sides */
    nn_text_sequence *sequences; /* (count + repeats): windows of the text, then repeated random tokens */
    int64_t begin[2], length;    /* of the latter, as nn_text_plan has them */
    int64_t longest[2];          /* tokens of a sequence */
    int32_t *tokens, *random;    /* of the windows, and of the latter */
    float *features;             /* (count of the text,bins,frames) of an encoder of audio */
} nn_windows;

/* Checks a text and its options, and cuts it; also makes the model's net large enough. Repeated tokens are made on
 * request. Must be freed in either case. */
mha_status nn_windows_make(nn_windows *w, mha_context *ctx, mha_model *model, const mha_text *text,
                           const mha_text_options *options, bool repeats);
void nn_windows_free(nn_windows *w);

/* Whether a text is one that the model can read. */
mha_status nn_windows_check(mha_context *ctx, const mha_model *m, const mha_text *text);

#endif
