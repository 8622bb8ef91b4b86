/* Cuts, patterns, and lists of steps. */
#include "io/json.h"
#include "text/steps.h"
#include "text/vocabulary.h"

#include <stdlib.h>
#include <string.h>

/* ---- Patterns ---------------------------------------------------------------------------------------------------- */

void nn_pattern_free(nn_pattern *p)
{
    free(p->text);
    nn_expression_free(p->expression);
    *p = (nn_pattern){0};
}

/* The next match in a text from `from` on. Returns 1, 0 for none or -1 as nn_expression_find. */
static int find_match(const nn_pattern *p, nn_matcher *m, const char *text, size_t size, size_t from, size_t *start,
                      size_t *end)
{
    if (p->expression) return nn_expression_find(p->expression, m, text, size, from, start, end);
    for (size_t at = from; at + p->size <= size; at++) {
        if (p->size) {
            const char *first = memchr(text + at, p->text[0], size - at - p->size + 1);
            if (!first) return 0;
            at = (size_t)(first - text);
        }
        if (p->size && memcmp(text + at, p->text, p->size) != 0) continue;
        *start = at;
        *end = at + p->size;
        return 1;
    }
    return 0;
}

mha_status nn_pattern_all(const nn_pattern *p, nn_matcher *m, const char *text, size_t size, nn_pattern_each *each,
                          void *user)
{
    size_t from = 0, done = 0, last = SIZE_MAX, start, end;
    while (size && from <= size) {
        int found = find_match(p, m, text, size, from, &start, &end);
        if (found < 0) return m->steps ? MHA_NO_MEMORY : MHA_BAD_ARGUMENT;
        if (!found) break;
        if (start == end && end == last) {
            size_t n = 1;
            if (from < size) nn_utf8_get(text + from, &n);
            from += n;
            continue;
        }
        if (start > done) each(user, done, start, false);
        each(user, start, end, true);
        from = done = last = end;
    }
    if (done < size) each(user, done, size, false);
    return MHA_OK;
}

void nn_pattern_fail(const nn_pattern *p, nn_flow *f)
{
    if (f->matcher.steps) nn_flow_memory(f);
    else
        nn_flow_fail(f, MHA_BAD_ARGUMENT, "the regular expression %s takes too many steps on this text",
                     nn_json_brief(p->text).text);
}

/* ---- Cuts -------------------------------------------------------------------------------------------------------- */

typedef struct cutting {
    const nn_step *step;
    nn_flow *flow;
    size_t start;
} cutting;

static void cut_each(void *user, size_t start, size_t end, bool match)
{
    cutting *c = user;
    nn_flow_piece(c->flow, c->step->behavior, c->start + start, c->start + end, match != c->step->invert);
}

void nn_cut_pattern(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    cutting c = {s, f, start};
    if (nn_pattern_all(&s->pattern, &f->matcher, f->text.bytes + start, end - start, cut_each, &c))
        nn_pattern_fail(&s->pattern, f);
}

void nn_cut_class(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    size_t between = start, n;
    for (size_t at = start; at < end; at += n) {
        if (!s->is(nn_utf8_get(f->text.bytes + at, &n))) continue;
        if (between < at) nn_flow_piece(f, s->behavior, between, at, false);
        nn_flow_piece(f, s->behavior, at, at + n, true);
        between = at + n;
    }
    if (between < end) nn_flow_piece(f, s->behavior, between, end, false);
}

void nn_cut_words(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    enum { SPACE, WORD, OTHER } kind, before = SPACE;
    size_t from = start, n;
    (void)s;
    for (size_t at = start; at < end; at += n) {
        int32_t c = nn_utf8_get(f->text.bytes + at, &n);
        kind = nn_is_word(c) ? WORD : nn_is_space(c) ? SPACE : OTHER;
        if (kind != before) {
            if (before != SPACE) nn_flow_part(f, from, at, -1);
            from = at;
        }
        before = kind;
    }
    if (before != SPACE) nn_flow_part(f, from, end, -1);
}

void nn_cut_length(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    size_t from = start, n;
    int64_t count = 0;
    for (size_t at = start; at < end; at += n) {
        nn_utf8_get(f->text.bytes + at, &n);
        if (++count < s->length) continue;
        nn_flow_part(f, from, at + n, -1);
        from = at + n;
        count = 0;
    }
    nn_flow_part(f, from, end, -1);
}

/* ---- Lists of steps ---------------------------------------------------------------------------------------------- */

static nn_step *add_step(nn_steps *s, nn_step step)
{
    if (nn_grow(&s->at, &s->room, s->count + 1, sizeof *s->at)) return NULL;
    s->at[s->count] = step;
    return &s->at[s->count++];
}

nn_step *nn_steps_edit(nn_steps *s, nn_edit *edit) { return add_step(s, (nn_step){.edit = edit}); }
nn_step *nn_steps_cut(nn_steps *s, nn_cut *cut) { return add_step(s, (nn_step){.cut = cut}); }

void nn_steps_free(nn_steps *s)
{
    for (size_t i = 0; i < s->count; i++) {
        nn_pattern_free(&s->at[i].pattern);
        free(s->at[i].content);
        nn_precompiled_free(s->at[i].precompiled);
    }
    free(s->at);
    *s = (nn_steps){0};
}

void nn_steps_run(const nn_steps *s, nn_flow *f)
{
    for (size_t i = 0; i < s->count && !f->failed; i++) {
        if (s->at[i].edit) nn_flow_edit(f, &s->at[i], s->at[i].edit);
        else nn_flow_cut(f, &s->at[i], s->at[i].cut);
    }
}
