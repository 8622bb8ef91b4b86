/* What comes next: the probabilities of the next token, and generation with a cache. */
#include "web/engine/engine.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- Settings --------------------------------------------------------------------------------------------------- */

static int set_option(void *options, const char *key, const char *value)
{
    static const struct {
        const char *key;
        size_t at;
        enum { REAL, WHOLE, SEED } kind;
    } keys[] = {{"temperature", offsetof(mha_generation_options, temperature), REAL},
                {"top_k", offsetof(mha_generation_options, top_k), WHOLE},
                {"top_p", offsetof(mha_generation_options, top_p), REAL},
                {"min_p", offsetof(mha_generation_options, min_p), REAL},
                {"repetition_penalty", offsetof(mha_generation_options, repetition_penalty), REAL},
                {"seed", offsetof(mha_generation_options, seed), SEED},
                {"max_new_tokens", offsetof(mha_generation_options, max_new_tokens), WHOLE}};
    char *end = NULL;
    double number = strtod(value, &end);
    if (!*value || *end) return page_fail("a setting is not a number");
    for (size_t n = 0; n < sizeof keys / sizeof *keys; n++) {
        if (strcmp(key, keys[n].key) != 0) continue;
        void *at = (char *)options + keys[n].at;
        if (keys[n].kind == REAL) *(float *)at = (float)number;
        else if (!(number >= 0 && number <= INT32_MAX)) return page_fail("a setting is out of range");
        else if (keys[n].kind == WHOLE) *(int64_t *)at = (int64_t)number;
        else *(uint64_t *)at = (uint64_t)number;
        return 0;
    }
    return page_fail("a setting has an unknown key");
}

/* What the settings do not give is as `mha generate --sample` has it. */
static int parse_settings(mha_generation_options *o, const char *settings)
{
    *o = (mha_generation_options)MHA_GENERATION_DEFAULTS;
    o->method = MHA_GENERATE_SAMPLE;
    if (page_settings(settings, set_option, o)) return -1;
    if (o->temperature == 0) o->method = MHA_GENERATE_GREEDY, o->temperature = 1;
    return 0;
}

/* ---- The next token --------------------------------------------------------------------------------------------- */

PAGE_API(page_next) int page_next(page *p, int row, const char *settings)
{
    const struct page_writing *w = p->writing;
    const mha_model_info *m = &p->about;
    bool pair = m->encoder_blocks > 0;
    if (!w || row < 0 || row >= w->read_count[pair]) return page_fail("the last run has no such row");
    int64_t count = 0, starts[2][2] = {{0, w->read_count[0]}, {0, row + 1}};
    mha_candidate best[PAGE_NEXT_MOST];
    mha_generation_options o;
    mha_generation_inputs before = {.count = 1, .tokens = w->read[0], .starts = starts[pair ? 0 : 1]};
    if (pair) before.decoder_tokens = w->read[1], before.decoder_starts = starts[1];
    const float *logits = page_numbers(p, PAGE_LOGITS);
    if (!logits || !m->head || m->pooled) return page_fail("the model does not predict tokens");
    float *out = page_take(p, PAGE_NEXT, (int64_t)2 * PAGE_NEXT_MOST);
    if (!out || parse_settings(&o, settings) ||
        page_check(mha_generation_candidates(page_context, p->model, best, PAGE_NEXT_MOST, &count,
                                             logits + row * m->classes, m->causal ? &before : NULL, &o)))
        return -1;
    if (count > PAGE_NEXT_MOST) count = PAGE_NEXT_MOST;
    for (int64_t n = 0; n < count; n++) out[2 * n] = (float)best[n].token, out[2 * n + 1] = best[n].probability;
    return (int)count;
}

/* ---- Generation ------------------------------------------------------------------------------------------------- */

PAGE_API(page_generate_end) void page_generate_end(page *p)
{
    if (!p->writing) return;
    mha_generation_free(p->writing->generation);
    p->writing->generation = NULL;
}

PAGE_API(page_generate)
int page_generate(page *p, const int32_t *ids, int count, const int32_t *target, int target_count, const char *settings)
{
    mha_generation_options o;
    const int64_t starts[2] = {0, count}, target_starts[2] = {0, target_count};
    mha_generation_inputs in = {.count = 1, .tokens = ids, .starts = starts};
    if (target_count) in.decoder_tokens = target, in.decoder_starts = target_starts;
    page_generate_end(p);
    if (page_start_writing(p) || parse_settings(&o, settings)) return -1;
    return page_check(mha_generation_create(page_context, &p->writing->generation, p->model, &in, &o));
}

PAGE_API(page_generate_step) int page_generate_step(page *p)
{
    mha_generation *g = p->writing ? p->writing->generation : NULL;
    if (!g) return page_fail("there is no generation");
    if (mha_generation_finished(g)) return -2;
    if (page_check(mha_generation_step(page_context, g))) return -1;
    mha_generated all = mha_generation_get(g, 0);
    return all.tokens[all.count - 1];
}

static mha_generated generated(const page *p)
{
    return mha_generation_get(p->writing ? p->writing->generation : NULL, 0);
}

PAGE_API(page_generated) const int32_t *page_generated(const page *p) { return generated(p).tokens; }

PAGE_API(page_generated_count) int page_generated_count(const page *p) { return (int)generated(p).count; }
