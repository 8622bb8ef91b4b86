/* The page of a text model: the attention of every head over one text. */
#ifndef VIEW_TEXT_H
#define VIEW_TEXT_H

#include <mha_model.h>

typedef struct view_text {
    const char *file, *page;        /* the model, and where to write */
    const char *text, *audio;       /* one of them: a text, or a WAV file */
    const char *target, *tokenizer; /* may be NULL */
} view_text;

/* Runs the model over the text or sound and writes the page atomically; what it has is described in `about`. Prints an error and
 * returns false on failure. */
bool view_text_write(const view_text *v, mha_context *ctx, mha_model *model, size_t *bytes, char *about, size_t room);

#endif
