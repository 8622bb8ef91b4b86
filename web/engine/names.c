/* What the heads of a page's model attend to in a text, in words. */
#include "web/engine/engine.h"

#include <stdlib.h>
#include <string.h>

/* The words of all heads, a line for each, as the text of the page. */
static const char *take_lines(page *p, const mha_text_survey *survey)
{
    mha_text_survey_info about = {.size = sizeof about};
    mha_text_head head = {.size = sizeof head};
    size_t size = 1;
    if (page_check(mha_text_survey_about(page_context, survey, &about))) return NULL;
    for (int64_t n = 0; n < about.heads && !mha_text_head_get(page_context, survey, n, &head); n++)
        size += strlen(head.words) + 1;
    free(p->writing->text);
    p->writing->text_length = 0;
    char *at = p->writing->text = malloc(size);
    if (!at) return page_fail("not enough memory for the names of heads"), NULL;
    for (int64_t n = 0; n < about.heads && !mha_text_head_get(page_context, survey, n, &head); n++) {
        size_t length = strlen(head.words);
        memcpy(at, head.words, length);
        at[length] = '\n';
        at += length + 1;
    }
    *at = 0;
    p->writing->text_length = (size_t)(at - p->writing->text);
    return p->writing->text;
}

/* Which tokens of the vocabulary may be drawn: those that are neither special nor without a piece. To be freed. */
static bool *mark_drawn(const page *p)
{
    const mha_tokenizer *t = p->writing ? p->writing->tokenizers[0] : NULL;
    bool *drawn = calloc((size_t)p->about.vocabulary + 1, sizeof *drawn);
    for (int64_t n = 0; drawn && n < p->about.vocabulary; n++)
        drawn[n] = !t || (mha_tokenizer_piece(t, n, NULL) && !mha_tokenizer_is_special(t, n));
    if (!drawn) page_fail("not enough memory for the names of heads");
    return drawn;
}

PAGE_API(page_names)
const char *page_names(page *p, const int32_t *ids, int count, int before, int after, const int32_t *target,
                       int target_count, int repeats)
{
    mha_text_options o = MHA_TEXT_DEFAULTS;
    mha_text_survey *survey = NULL;
    bool pair = p->about.encoder_blocks > 0;
    if (before < 0 || after < 0 || before + after > count) return page_fail("the text has fewer tokens"), NULL;
    if (pair) before = after = 0;
    int64_t starts[2] = {0, count - before - after}, target_starts[2] = {0, target_count};
    mha_text text = {.count = 1, .tokens = ids + before, .starts = starts};
    if (pair) text.decoder_tokens = target, text.decoder_starts = target_starts;
    o.window = count, o.repeats = repeats;
    o.before = ids, o.before_count = before;
    o.after = ids + count - after, o.after_count = after;
    bool *drawn = page_start_writing(p) ? NULL : mark_drawn(p);
    if (!drawn) return NULL;
    o.drawn = drawn;
    int failed = page_check(mha_text_survey_make(page_context, &survey, p->model, &text, &o));
    free(drawn);
    if (failed) return NULL;
    const char *lines = take_lines(p, survey);
    mha_text_survey_free(survey);
    return lines;
}
