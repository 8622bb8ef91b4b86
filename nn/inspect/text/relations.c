#include "inspect/text/relations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct scorer {
    nn_relations *r;
    const nn_relation_text *text;
    const nn_description *d;
    int stack;
    int64_t next;    /* link */
    int64_t most;    /* words of a sequence */
    double *weights; /* (most): from one word to all */
    int64_t *tokens; /* (most): of each word */
} scorer;

static bool is_causal(const scorer *s) { return nn_description_last(s->d)->blocks.causal; }

static bool counts(const scorer *s, int64_t from, int64_t to) { return from != to && (!is_causal(s) || to < from); }

/* ---- One sequence ----------------------------------------------------------------------------------------------- */

/* The word, other than `from`, that gets the largest weight of it; -1 if there is none. */
static int64_t strongest(const scorer *s, const float *map, int64_t T, const int32_t *words, int64_t count,
                         int64_t from)
{
    int64_t best = -1;
    memset(s->weights, 0, (size_t)count * sizeof *s->weights);
    for (int64_t i = 0; i < T; i++)
        for (int64_t j = 0; words[i] == from && j < T; j++)
            if (words[j] >= 0) s->weights[words[j]] += (double)map[i * T + j];
    for (int64_t w = 0; w < count; w++)
        if (counts(s, from, w) && s->tokens[w] && (best < 0 || s->weights[w] > s->weights[best])) best = w;
    return best;
}

static void score(const scorer *s, const nn_link *link, const float *const *maps, int64_t T, const int32_t *words,
                  int64_t count)
{
    for (int way = 0; way < 2; way++) {
        int64_t from = way ? link->to : link->from, to = way ? link->from : link->to, at = 2 * link->relation + way;
        int64_t n = 0;
        if (!counts(s, from, to) || !s->tokens[from] || !s->tokens[to]) continue;
        s->r->links[at]++;
        for (int64_t a = 0; a < nn_description_attentions(s->d); a++)
            for (int64_t h = 0; h < nn_description_attention(s->d, a).heads; h++, n++)
                s->r->hits[at * s->r->heads + n] += strongest(s, maps[a] + h * T * T, T, words, count, from) == to;
    }
}

static void visit(void *arg, int64_t n, const float *const *maps)
{
    scorer *s = arg;
    int64_t T = s->text->sequences[n].T[s->stack], count = 0;
    const int32_t *words = s->text->words[n];
    memset(s->tokens, 0, (size_t)s->most * sizeof *s->tokens);
    for (int64_t i = 0; i < T; i++) {
        if (words[i] < 0) continue;
        s->tokens[words[i]]++;
        if (words[i] + 1 > count) count = words[i] + 1;
    }
    for (; s->next < s->text->link_count && s->text->links[s->next].sequence == n; s->next++) {
        const nn_link *link = &s->text->links[s->next];
        if (link->from < count && link->to < count) score(s, link, maps, T, words, count);
    }
}

/* ---- The best fixed offset -------------------------------------------------------------------------------------- */

/* Whether both words of a link have tokens. */
static bool has_tokens(const scorer *s, const nn_link *link)
{
    bool from = false, to = false;
    for (int64_t i = 0; i < s->text->sequences[link->sequence].T[s->stack]; i++) {
        from |= s->text->words[link->sequence][i] == link->from;
        to |= s->text->words[link->sequence][i] == link->to;
    }
    return from && to;
}

/* counts (2*most+1): how many links of a relation have each offset. */
static void find_offset(const scorer *s, int64_t *counted, int64_t relation, int way)
{
    int64_t at = 2 * relation + way;
    memset(counted, 0, (size_t)(2 * s->most + 1) * sizeof *counted);
    for (int64_t n = 0; n < s->text->link_count; n++) {
        const nn_link *link = &s->text->links[n];
        int64_t from = way ? link->to : link->from, to = way ? link->from : link->to;
        if (link->relation == relation && counts(s, from, to) && has_tokens(s, link)) counted[to - from + s->most]++;
    }
    for (int64_t o = 0; o < 2 * s->most + 1; o++)
        if (counted[o] > s->r->offset_hits[at]) s->r->offset_hits[at] = counted[o], s->r->offset[at] = o - s->most;
}

/* ---- All of it -------------------------------------------------------------------------------------------------- */

static bool prepare(scorer *s, nn_relations *r, int64_t **counted)
{
    const nn_relation_text *t = s->text;
    s->most = 1;
    for (int64_t n = 0; n < t->link_count; n++) {
        if (t->links[n].from >= s->most) s->most = t->links[n].from + 1;
        if (t->links[n].to >= s->most) s->most = t->links[n].to + 1;
    }
    for (int64_t n = 0; n < t->count; n++)
        for (int64_t i = 0; i < t->sequences[n].T[s->stack]; i++)
            if (t->words[n][i] >= s->most) s->most = t->words[n][i] + 1;
    size_t ways = 2 * (size_t)t->relations;
    *r = (nn_relations){.relations = t->relations, .heads = nn_description_all_heads(s->d)};
    r->links = calloc(ways + 1, sizeof *r->links);
    r->hits = calloc(ways * (size_t)r->heads + 1, sizeof *r->hits);
    r->offset = calloc(ways + 1, sizeof *r->offset);
    r->offset_hits = calloc(ways + 1, sizeof *r->offset_hits);
    s->weights = calloc((size_t)s->most, sizeof *s->weights);
    s->tokens = calloc((size_t)s->most, sizeof *s->tokens);
    *counted = calloc(2 * (size_t)s->most + 1, sizeof **counted);
    return r->links && r->hits && r->offset && r->offset_hits && s->weights && s->tokens && *counted;
}

bool nn_relations_make(nn_relations *r, mha_context *ctx, nn_model *net, const nn_relation_text *text, char *error,
                       size_t error_size)
{
    const nn_description *d = nn_model_description(net);
    scorer s = {.r = r, .text = text, .d = d, .stack = d->decoder.blocks.depth > 0};
    nn_text_pass p = {0};
    int64_t T[2] = {0, 0}, *counted = NULL;
    bool ok = prepare(&s, r, &counted);
    if (!ok)
        snprintf(error, error_size, "not enough memory for the scores of %lld relations", (long long)text->relations);
    for (int64_t n = 0; n < text->count; n++)
        for (int k = 0; k < 2; k++)
            if (text->sequences[n].T[k] > T[k]) T[k] = text->sequences[n].T[k];
    ok = ok && nn_text_pass_open(&p, ctx, net, T, error, error_size) &&
         nn_text_pass_run(&p, text->sequences, text->count, visit, &s, error, error_size);
    for (int64_t n = 0; ok && n < 2 * text->relations; n++) find_offset(&s, counted, n / 2, (int)(n % 2));
    nn_text_pass_close(&p);
    free(s.weights);
    free(s.tokens);
    free(counted);
    if (!ok) nn_relations_free(r);
    return ok;
}

void nn_relations_free(nn_relations *r)
{
    free(r->links);
    free(r->hits);
    free(r->offset);
    free(r->offset_hits);
    *r = (nn_relations){0};
}
