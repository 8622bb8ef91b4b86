#include "cli/common/contribution.h"
#include "cli/draw/heads_view.h"

#include <stdlib.h>

bool contribution_make(contribution *c, mha_context *ctx, mha_model *model, const unsigned char *image)
{
    mha_model_info m = {.size = sizeof m};
    if (mha_model_about(ctx, model, &m)) return false;
    *c = (contribution){.heads = m.heads, .blocks = m.blocks, .classes = m.classes};
    int64_t rows = m.heads + m.blocks + 2;
    float *pixels = calloc((size_t)(m.rows * m.columns), sizeof *pixels);
    c->terms = calloc((size_t)rows, (size_t)m.classes * sizeof *c->terms);
    bool ok = pixels && c->terms;
    if (!ok) mha_context_fail(ctx, MHA_NO_MEMORY, "not enough memory for the contributions of heads");
    if (ok) {
        mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, m.rows, m.columns)};
        heads_view_pixels(pixels, image, m.rows * m.columns);
        ok = !mha_model_contributions(ctx, model, mha_tensor_3d(c->terms, MHA_FLOAT32, 1, rows, m.classes), &in);
    }
    free(pixels);
    if (!ok) contribution_free(c);
    return ok;
}

void contribution_free(contribution *c)
{
    free(c->terms);
    *c = (contribution){0};
}

double contribution_sum(const contribution *c, int64_t first, int64_t count, int64_t class)
{
    double sum = 0;
    for (int64_t n = first; n < first + count; n++) sum += contribution_of(c, n, class);
    return sum;
}
