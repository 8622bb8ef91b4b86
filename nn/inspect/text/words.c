/* What a head attends to in words: the first rule that applies (mha_text.h, at mha_text_head). */
#include "inspect/text/survey.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static bool at_least(double x, double least) { return x >= least; } /* not of a NAN */

static bool stands_out(double x, double chance) { return x >= 0.05 && x >= 3 * chance; }

static void name_offset(char *out, int64_t offset)
{
    const char *where = offset < 0 ? "before" : "after";
    if (llabs(offset) == 1) snprintf(out, NN_TEXT_WORDS, "the %s token", offset < 0 ? "previous" : "next");
    else snprintf(out, NN_TEXT_WORDS, "%lld tokens %s", llabs(offset), where);
}

static const char *of_cross(const nn_text_head *h)
{
    if (at_least(h->first, 0.5)) return h->audio ? "the first frame" : "the first source token";
    if (at_least(h->last, 0.5)) return h->audio ? "the last frame" : "the last source token";
    if (at_least(h->largest, 0.5) && at_least(h->monotone, 0.7)) return "aligned, in order";
    if (at_least(h->largest, 0.5)) return h->audio ? "single frames" : "single source tokens";
    if (h->uniform - h->entropy < 0.2) return h->audio ? "all frames equally" : "all tokens equally";
    return at_least(h->monotone, 0.7) ? "follows the order" : "by content";
}

/* The rules after those for single keys. */
static const char *of_rest(const nn_text_head *h)
{
    if (h->uniform - h->entropy < 0.2) return "all tokens equally";
    if (stands_out(h->induction, h->chance)) return "induction, weakly";
    if (stands_out(h->duplicate, h->chance)) return "the same token, weakly";
    if (h->distance < 0.25 * h->uniform_distance) return "near tokens";
    if (at_least(h->first, 0.25)) return "partly the first token";
    if (at_least(h->last, 0.25)) return "partly the last token";
    return isnan(h->content) ? "mixed" : h->content >= h->position ? "by content" : "by position";
}

void nn_text_describe(nn_text_head *h)
{
    const char *words = NULL;
    if (h->place.cross) words = of_cross(h);
    else if (at_least(h->induction, 0.3)) words = "induction";
    else if (at_least(h->duplicate, 0.3)) words = "the same token before";
    else if (at_least(h->self, 0.5)) words = "itself";
    else if (at_least(h->offset_weight, 0.5)) name_offset(h->words, h->offset);
    else if (at_least(h->first, 0.5)) words = "the first token";
    else if (at_least(h->last, 0.5)) words = "the last token";
    else words = of_rest(h);
    if (words) snprintf(h->words, sizeof h->words, "%s", words);
}
