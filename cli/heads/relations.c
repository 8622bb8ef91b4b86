#include "cli/heads/relations.h"
#include "cli/common/cli.h"
#include "cli/heads/conllu.h"
#include "cli/common/tokenizer.h"
#include "io/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCES = 1000, LEAST = 10 }; /* links of a relation that has a line in the table */
enum { INDENT = 2, NAME = 8, RELATION = 16, WAY = 16, LINKS = 7, HEAD = 8, SCORE = 9, OFFSET = 11, BEYOND = 8 };
_Static_assert(2 * INDENT + RELATION + WAY + LINKS + HEAD + SCORE + OFFSET + BEYOND <= 80, "it fits the screen");

/* The sentences as tokens, with the word of each. */
typedef struct tokens {
    int32_t *ids, *words;
    int64_t *starts, count, room;
} tokens;

typedef struct result {
    conllu file;
    tokens tokens;
    mha_relations *of;
    int64_t heads;
    double seconds;
} result;

/* ---- Tokens ----------------------------------------------------------------------------------------------------- */

/* The word of a sentence that a token stands for; -1 if none: the first whose characters it has. */
static int32_t word_at(const conllu *c, const conllu_sentence *s, const mha_token *t)
{
    for (int64_t w = 0; t->text == 0 && w < s->words; w++) {
        const conllu_word *word = &c->words[s->word + w];
        if (t->start < word->end && t->end > word->start) return (int32_t)w;
    }
    return -1;
}

static bool add_sentence(result *r, mha_context *ctx, const mha_tokenizer *tokenizer, int64_t n)
{
    const conllu_sentence *s = &r->file.sentences[n];
    tokens *t = &r->tokens;
    mha_encoding *e = NULL;
    if (mha_encoding_make(ctx, &e, tokenizer, r->file.text + s->text, (size_t)s->length, NULL, 0, NULL))
        return cli_refuse("sentence %" PRId64 ": %s", n + 1, cli_reason(ctx));
    int64_t count = mha_encoding_count(e);
    while (t->count + count > t->room) {
        t->room = 2 * t->room + 4096;
        int32_t *ids = realloc(t->ids, (size_t)t->room * sizeof *ids);
        if (ids) t->ids = ids;
        int32_t *words = realloc(t->words, (size_t)t->room * sizeof *words);
        if (words) t->words = words;
        if (!ids || !words) {
            mha_encoding_free(e);
            return cli_refuse("not enough memory for the tokens");
        }
    }
    for (int64_t i = 0; i < count; i++, t->count++) {
        mha_token one = mha_encoding_get(e, i);
        t->ids[t->count] = one.id;
        t->words[t->count] = word_at(&r->file, s, &one);
    }
    t->starts[n + 1] = t->count;
    mha_encoding_free(e);
    return true;
}

static bool take_tokens(result *r, mha_context *ctx, const mha_tokenizer *tokenizer)
{
    const conllu *c = &r->file;
    r->tokens.starts = calloc((size_t)c->count + 1, sizeof *r->tokens.starts);
    if (!r->tokens.starts) return cli_refuse("not enough memory for the tokens");
    for (int64_t n = 0; n < c->count; n++)
        if (!add_sentence(r, ctx, tokenizer, n)) return false;
    return true;
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

/* The attention and head that head n, counted through all attentions, is. */
static void find_head(const mha_model *m, int64_t n, int64_t *block, int64_t *head)
{
    int64_t a = 0;
    for (; n >= mha_model_attention_get(m, a).heads; a++) n -= mha_model_attention_get(m, a).heads;
    *block = mha_model_attention_get(m, a).block, *head = n;
}

static double hit_rate(int64_t hits, int64_t links) { return links ? (double)hits / (double)links : 0; }

static void put_line(const term *t, const session *s, const result *r, int64_t relation, bool back)
{
    mha_relation one = {.size = sizeof one};
    char text[64];
    int64_t block, head;
    if (mha_relation_get(s->ctx, r->of, relation, back, &one) || one.links < LEAST) return;
    find_head(s->model, one.best, &block, &head);
    double score = hit_rate(one.hits, one.links), fixed = hit_rate(one.offset_hits, one.links);
    bool coref = strcmp(r->file.relations[relation], "coref") == 0;
    printf("%*s", INDENT, "");
    term_left(t, RELATION, TERM_PLAIN, r->file.relations[relation]);
    term_left(t, WAY, TERM_FAINT,
              coref  ? back ? "to the later" : "to the earlier"
              : back ? "to dependent"
                     : "to its head");
    printf("%*" PRId64, LINKS, one.links);
    snprintf(text, sizeof text, "%" PRId64 ".%" PRId64, block, head);
    term_right(t, HEAD, TERM_PLAIN, text);
    snprintf(text, sizeof text, "%.1f %%", 100 * score);
    term_right(t, SCORE, score >= fixed + 0.1 ? TERM_BOLD : TERM_PLAIN, text);
    snprintf(text, sizeof text, "%.1f %%", 100 * fixed);
    term_right(t, OFFSET, TERM_PLAIN, text);
    snprintf(text, sizeof text, "%+" PRId64, one.offset);
    term_right(t, BEYOND, TERM_FAINT, text);
    printf("\n");
}

/* Relations by their number of links, the most frequent first. To be freed; NULL if out of memory. */
static int64_t *sort_relations(const conllu *c)
{
    int64_t *order = calloc((size_t)c->relation_count, sizeof *order),
            *links = calloc((size_t)c->relation_count, sizeof *links);
    for (int64_t n = 0; links && n < c->link_count; n++) links[c->links[n].relation]++;
    for (int64_t n = 0; order && links && n < c->relation_count; n++) {
        int64_t at = n;
        for (; at > 0 && links[order[at - 1]] < links[n]; at--) order[at] = order[at - 1];
        order[at] = n;
    }
    if (!links) free(order), order = NULL;
    free(links);
    return order;
}

static void put_title(const term *t, const heads_request *r, const result *found)
{
    const conllu *c = &found->file;
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, "model");
    cli_print(stdout, "%s: %" PRId64 " head%s\n", r->from.file, found->heads, plural(found->heads));
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, "file");
    cli_print(stdout, "%s: %" PRId64 " sentence%s, %" PRId64 " word%s, %" PRId64 " link%s; %.1f s\n", r->relations,
              c->count, plural(c->count), c->word_count, plural(c->word_count), c->link_count, plural(c->link_count),
              found->seconds);
}

static bool print_table(const term *t, const heads_request *r, const session *s, const result *found)
{
    int64_t *order = sort_relations(&found->file);
    if (!order) return cli_error("not enough memory for the table");
    put_title(t, r, found);
    printf("\n%*s", INDENT, "");
    term_left(t, RELATION, TERM_FAINT, "relation");
    term_left(t, WAY, TERM_FAINT, "direction");
    term_right(t, LINKS, TERM_FAINT, "links");
    term_right(t, HEAD, TERM_FAINT, "head");
    term_right(t, SCORE, TERM_FAINT, "score");
    term_right(t, OFFSET, TERM_FAINT, "by offset");
    term_right(t, BEYOND, TERM_FAINT, "offset");
    printf("\n");
    term_rule(t, INDENT, 80 - 2 * INDENT);
    for (int64_t n = 0; n < found->file.relation_count; n++)
        for (int back = 0; back < 2; back++) put_line(t, s, found, order[n], back);
    printf("\n%*shead: block.head whose largest weight finds the related word most often\n", INDENT, "");
    printf("%*sscore: how often; bold if 10 points above the best fixed offset, in words\n", INDENT, "");
    printf("%*srelations with fewer than %d links are not listed; --json has all of them\n", INDENT, "", LEAST);
    free(order);
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void put_relation(nn_buffer *out, const session *s, const result *r, int64_t relation, bool back)
{
    mha_relation one = {.size = sizeof one};
    char quoted[200];
    int64_t block, head;
    mha_relation_get(s->ctx, r->of, relation, back, &one);
    find_head(s->model, one.best, &block, &head);
    nn_buffer_printf(out, "\n  {\"relation\": %s, \"direction\": \"%s\", \"links\": %" PRId64,
                     nn_json_quote(quoted, sizeof quoted, r->file.relations[relation]), back ? "back" : "forth",
                     one.links);
    nn_buffer_printf(out, ", \"block\": %" PRId64 ", \"head\": %" PRId64 ", \"hits\": %" PRId64, block, head, one.hits);
    nn_buffer_printf(out, ", \"offset\": %" PRId64 ", \"offset_hits\": %" PRId64 ", \"heads\": [", one.offset,
                     one.offset_hits);
    for (int64_t n = 0; n < r->heads; n++)
        nn_buffer_printf(out, n ? ", %" PRId64 : "%" PRId64, mha_relation_hits(r->of, relation, back, n));
    nn_buffer_puts(out, "]}");
}

static bool print_json(const heads_request *r, const session *s, const result *found)
{
    char quoted[1200];
    nn_buffer out = {0};
    const conllu *c = &found->file;
    nn_buffer_printf(&out, "{\"model\": %s", nn_json_quote(quoted, sizeof quoted, r->from.file));
    nn_buffer_printf(&out, ", \"file\": %s", nn_json_quote(quoted, sizeof quoted, r->relations));
    nn_buffer_printf(&out, ", \"sentences\": %" PRId64 ", \"words\": %" PRId64 ", \"links\": %" PRId64, c->count,
                     c->word_count, c->link_count);
    nn_buffer_puts(&out, ",\n \"relations\": [");
    for (int64_t n = 0; n < 2 * c->relation_count; n++) {
        if (n) nn_buffer_puts(&out, ",");
        put_relation(&out, s, found, n / 2, n % 2);
    }
    nn_buffer_puts(&out, "]}\n");
    bool whole = !out.failed;
    if (whole) fwrite(out.bytes, 1, out.size, stdout);
    nn_buffer_free(&out);
    return whole || cli_error("not enough memory for the JSON");
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

static bool measure_relations(result *found, const heads_request *r, session *s)
{
    const conllu *c = &found->file;
    double start = cli_clock();
    mha_text text = {.count = c->count, .tokens = found->tokens.ids, .starts = found->tokens.starts};
    mha_link *links = calloc((size_t)c->link_count + 1, sizeof *links);
    for (int64_t n = 0; links && n < c->link_count; n++)
        links[n] = (mha_link){c->links[n].sentence, c->links[n].from, c->links[n].to, c->links[n].relation};
    for (int64_t n = 0; n < mha_model_attention_count(s->model); n++)
        found->heads += mha_model_attention_get(s->model, n).heads;
    bool ok = links && !mha_relations_make(s->ctx, &found->of, s->model, &text, found->tokens.words, links,
                                           c->link_count, c->relation_count);
    if (!links) cli_refuse("not enough memory for the links");
    else if (!ok) cli_error("%s: %s", r->from.file, cli_reason(s->ctx));
    found->seconds = cli_clock() - start;
    free(links);
    return ok;
}

bool text_relations(const heads_request *r, session *s)
{
    char error[700];
    result found = {0};
    mha_tokenizer *tokenizer = NULL;
    term t = term_detect(r->when);
    bool ok = s->about.vocabulary || cli_refuse("%s: the model does not read text", r->from.file);
    if (ok && !tokenizer_open(&tokenizer, s->ctx, r->from.file, r->tokenizer, false))
        ok = cli_error("%s", cli_reason(s->ctx));
    if (ok && !conllu_read(&found.file, r->relations, r->sample ? r->sample : SENTENCES, error, sizeof error))
        ok = cli_error("%s", error);
    ok = ok && take_tokens(&found, s->ctx, tokenizer) && measure_relations(&found, r, s) &&
         (r->json ? print_json(r, s, &found) : print_table(&t, r, s, &found));
    mha_relations_free(found.of);
    free(found.tokens.ids);
    free(found.tokens.words);
    free(found.tokens.starts);
    conllu_free(&found.file);
    mha_tokenizer_free(tokenizer);
    return ok;
}
