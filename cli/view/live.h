/* The model of a text page and its tokenizers, for a page that runs them. */
#ifndef VIEW_LIVE_H
#define VIEW_LIVE_H

#include "cli/common/texts.h"
#include "cli/view/text.h"
#include "io/buffer.h"

/* Writes the value of "live": an object with the files, or {"why": ...} if the page cannot run the model; *runs says which. Prints an
 * error and returns false on failure. */
bool view_live(nn_buffer *out, const view_text *v, const texts *t, bool *runs);

#endif
