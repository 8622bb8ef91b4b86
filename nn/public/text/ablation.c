/* The loss of a language model over a text, also without some of its heads. */
#include "inspect/text/ablation.h"
#include "public/check.h"
#include "public/text/windows.h"

#include <stdlib.h>

/* Cases without a list: one, with all heads. */
static mha_status measure(mha_context *ctx, mha_model *m, mha_score *scores, const bool *off, int64_t cases,
                          const nn_windows *w)
{
    char error[240] = "";
    bool *none = off ? NULL : calloc((size_t)nn_description_all_heads(&m->d), sizeof *none);
    nn_text_loss *losses = calloc((size_t)cases, sizeof *losses);
    mha_status status = MHA_OK;
    if (!losses || (!off && !none)) status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the losses");
    else if (!nn_text_ablation_measure(losses, ctx, m->net, w->sequences, w->count, off ? off : none, cases, error,
                                       sizeof error))
        status = nn_public_reason(ctx, error);
    for (int64_t c = 0; losses && !status && c < cases; c++)
        scores[c] = (mha_score){losses[c].tokens, losses[c].correct, losses[c].loss};
    free(none);
    free(losses);
    return status;
}

mha_status mha_text_ablate(mha_context *ctx, mha_model *model, mha_score *scores, const bool *off, int64_t cases,
                           const mha_text *text, const mha_text_options *options)
{
    nn_windows w = {0};
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, scores, "scores")))
        return status;
    if (cases < 1 || cases > 1 << 24 || (!off && cases > 1))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "cases: is %lld, must be from 1 to 16777216, and 1 without `off`",
                              (long long)cases);
    const char *problem = nn_text_loss_problem(&model->d);
    if (problem) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s", problem);
    status = nn_windows_make(&w, ctx, model, text, options, false);
    if (!status) status = measure(ctx, model, scores, off, cases, &w);
    nn_windows_free(&w);
    return status;
}
