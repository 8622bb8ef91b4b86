/* Drawings and pictures of digits, made to look like MNIST's by mha_model_fit. */
#include "web/engine/engine.h"

#include <stdlib.h>

static const char *doubt = "";

PAGE_API(page_doubt) const char *page_doubt(void) { return doubt; }

PAGE_API(page_fit) int page_fit(page *p, const unsigned char *pixels, int rows, int columns)
{
    int64_t count = p->about.rows * p->about.columns;
    float *fitted = page_take(p, PAGE_FITTED, count);
    unsigned char *bytes = malloc((size_t)count);
    mha_fit found = {.size = sizeof found};
    int failed = !fitted || !bytes
                     ? page_fail("not enough memory for a drawing")
                     : page_check(mha_model_fit(page_context, p->model, bytes, &found, pixels, rows, columns, 4, NULL));
    for (int64_t i = 0; !failed && i < count; i++) fitted[i] = bytes[i];
    free(bytes);
    doubt = failed ? "" : found.doubt;
    return failed ? -1 : found.blank;
}
