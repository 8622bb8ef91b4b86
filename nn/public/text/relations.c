/* Relations between words, over inspect/text/relations.h. */
#include "inspect/text/relations.h"
#include "public/check.h"
#include "public/text/windows.h"

#include <stdlib.h>

struct mha_relations {
    nn_relations r;
};

/* The inputs of a call, for the code inside. */
typedef struct inputs {
    nn_text_sequence *sequences;
    const int32_t **words;
    nn_link *links;
} inputs;

static mha_status check_links(mha_context *ctx, const mha_text *text, const mha_link *links, int64_t count,
                              int64_t relations)
{
    if (count < 1 || relations < 1 || relations > 1 << 20)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "links: there are none, or no relations");
    for (int64_t n = 0; n < count; n++) {
        const mha_link *l = &links[n];
        bool inside = l->sequence >= 0 && l->sequence < text->count && l->relation >= 0 && l->relation < relations;
        if (!inside || l->from < 0 || l->to < 0 || l->from > 1 << 20 || l->to > 1 << 20)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "links: link %lld names what does not exist", (long long)n);
        if (n && l->sequence < links[n - 1].sequence)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "links: link %lld is not in the order of the sequences",
                                  (long long)n);
    }
    return MHA_OK;
}

static mha_status check_words(mha_context *ctx, const mha_text *text, const int32_t *words)
{
    for (int64_t i = text->starts[0]; i < text->starts[text->count]; i++)
        if (words[i] < -1 || words[i] > 1 << 20)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "words: that of token %lld is %d", (long long)i, words[i]);
    return MHA_OK;
}

static bool make_inputs(inputs *in, int64_t sequences, int64_t links)
{
    *in = (inputs){.sequences = calloc((size_t)sequences, sizeof *in->sequences),
                   .words = calloc((size_t)sequences, sizeof *in->words),
                   .links = calloc((size_t)links, sizeof *in->links)};
    return in->sequences && in->words && in->links;
}

/* The sequences as the code inside reads them, and the longest of them. */
static mha_status fill(mha_context *ctx, inputs *in, int stack, int64_t longest[2], const mha_text *text,
                       const int32_t *words)
{
    for (int64_t b = 0; b < text->count; b++) {
        nn_text_sequence *to = &in->sequences[b];
        to->tokens[stack] = text->tokens + text->starts[b];
        to->T[stack] = text->starts[b + 1] - text->starts[b];
        in->words[b] = words + text->starts[b];
        if (to->T[stack] < 1)
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "text: sequence %lld is empty", (long long)b);
        if (to->T[stack] > longest[stack]) longest[stack] = to->T[stack];
    }
    return MHA_OK;
}

static mha_status measure(mha_context *ctx, mha_model *m, mha_relations *made, const mha_text *text,
                          const int32_t *words, const mha_link *links, int64_t count, int64_t relations)
{
    char error[240] = "";
    int stack = m->d.encoder.blocks.depth ? 0 : 1;
    int64_t longest[2] = {0, 0};
    inputs in;
    mha_status status;
    if (!make_inputs(&in, text->count, count)) {
        status = nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for %lld links", (long long)count);
        goto out;
    }
    if ((status = fill(ctx, &in, stack, longest, text, words))) goto out;
    for (int64_t n = 0; n < count; n++)
        in.links[n] = (nn_link){links[n].sequence, links[n].from, links[n].to, links[n].relation};
    if ((status = nn_public_net(ctx, m, nn_text_pass_batch(&m->d, longest), longest[0], longest[1]))) goto out;
    if (m->parameters) nn_model_changed(m->net);
    nn_relation_text all = {in.sequences, in.words, text->count, in.links, count, relations};
    if (!nn_relations_make(&made->r, ctx, m->net, &all, error, sizeof error)) status = nn_public_reason(ctx, error);
out:
    free(in.sequences);
    free((void *)in.words);
    free(in.links);
    return status;
}

mha_status mha_relations_make(mha_context *ctx, mha_relations **relations, mha_model *model, const mha_text *text,
                              const int32_t *words, const mha_link *links, int64_t link_count, int64_t relation_count)
{
    mha_status status;
    if (!ctx || !relations) return MHA_BAD_ARGUMENT;
    *relations = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, model, "model")) || (status = nn_public_need(ctx, words, "words")) ||
        (status = nn_public_need(ctx, links, "links")) || (status = nn_public_cpu(ctx)))
        return status;
    if (nn_description_is_pair(&model->d))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "relations are measured in models with one stack of blocks");
    if ((status = nn_windows_check(ctx, model, text)) || (status = check_words(ctx, text, words)) ||
        (status = check_links(ctx, text, links, link_count, relation_count)))
        return status;
    mha_relations *made = calloc(1, sizeof *made);
    if (!made) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for relations");
    status = measure(ctx, model, made, text, words, links, link_count, relation_count);
    if (status) free(made);
    else *relations = made;
    return status;
}

void mha_relations_free(mha_relations *relations)
{
    if (!relations) return;
    nn_relations_free(&relations->r);
    free(relations);
}

mha_status mha_relation_get(mha_context *ctx, const mha_relations *relations, int64_t relation, bool back,
                            mha_relation *to)
{
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, relations, "relations")) || (status = nn_public_need(ctx, to, "relation")))
        return status;
    const nn_relations *r = &relations->r;
    if (relation < 0 || relation >= r->relations)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "relation %lld: there are %lld", (long long)relation,
                              (long long)r->relations);
    int64_t at = 2 * relation + back;
    mha_relation all = {.links = r->links[at], .offset = r->offset[at], .offset_hits = r->offset_hits[at]};
    for (int64_t n = 0; n < r->heads; n++)
        if (r->hits[at * r->heads + n] > r->hits[at * r->heads + all.best]) all.best = n;
    all.hits = r->hits[at * r->heads + all.best];
    return nn_public_give(ctx, to, &all, sizeof all, "mha_relation");
}

int64_t mha_relation_hits(const mha_relations *relations, int64_t relation, bool back, int64_t n)
{
    if (!relations || relation < 0 || relation >= relations->r.relations || n < 0 || n >= relations->r.heads) return -1;
    return relations->r.hits[(2 * relation + back) * relations->r.heads + n];
}
