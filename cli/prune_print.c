/* Lines, summary and object of mha prune. */
#include "prune_print.h"
#include "cli.h"
#include "json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { DRAWING = 38, GONE = 18 }; /* columns at most */

static double share(const trainer_score *s) { return (double)s->correct / (double)s->count; }

/* ---- Rounds ----------------------------------------------------------------------------------------------------- */

/* Whether a drawing, a mark a head and a space between blocks, fits the line. */
static bool fits(const prune_story *s) { return s->draws && s->heads + s->model->config.body.depth - 1 <= DRAWING; }

/* Whether the head went in a round before that of the last entry, or in that one. */
static bool is_gone(const prune_story *s, int64_t block, int64_t head)
{
    for (int64_t n = 0; n < s->count; n++) {
        const prune_entry *e = &s->entries[n];
        for (int64_t i = 0; !e->round.taken_back && i < e->round.gone_count; i++)
            if (e->gone[i].block == block && e->gone[i].head == head) return true;
    }
    return false;
}

static void draw(const prune_story *s)
{
    const char *there = s->utf8 ? "\u25a0" : "#", *gone = s->utf8 ? "\u00b7" : ".";
    fputs("  ", stderr);
    for (int64_t l = 0; l < s->model->config.body.depth; l++) {
        if (l) fputc(' ', stderr);
        for (int64_t h = 0; h < s->block_heads[l]; h++) fputs(is_gone(s, l, h) ? gone : there, stderr);
    }
}

/* "2.4 5.1", blocks and heads counted from 1; what has no room is counted. */
static void list_gone(char out[80], const prune_entry *e)
{
    size_t used = 0;
    out[0] = 0;
    for (int64_t i = 0; i < e->round.gone_count; i++) {
        char word[48];
        int length = snprintf(word, sizeof word, "%s%" PRId64 ".%" PRId64, used ? " " : "", e->gone[i].block + 1,
                              e->gone[i].head + 1);
        if (used + (size_t)length > GONE - (i + 1 < e->round.gone_count ? 5 : 0)) {
            snprintf(out + used, 80 - used, " +%" PRId64, e->round.gone_count - i);
            return;
        }
        used += (size_t)snprintf(out + used, 80 - used, "%s", word);
    }
}

void prune_print_head(const prune_story *s)
{
    fprintf(stderr, "heads   held out: cut     learnt   gone%s\n", fits(s) ? "                what is left" : "");
}

void prune_print_round(const prune_story *s)
{
    const prune_entry *e = &s->entries[s->count - 1];
    char gone[80], cut[20] = "-";
    list_gone(gone, e);
    if (e->round.number && !e->round.gone_count) snprintf(gone, sizeof gone, "none: learnt on");
    if (e->round.gone_count) snprintf(cut, sizeof cut, "%.2f %%", 100 * share(&e->round.cut));
    fprintf(stderr, "%5" PRId64 "  %14s  %7.2f %%", e->round.heads, cut, 100 * share(&e->round.tuned));
    if (e->round.taken_back) fprintf(stderr, "   without %s it falls too far: taken back\n", gone);
    else if (fits(s)) {
        fprintf(stderr, "   %-*s", GONE, gone);
        draw(s);
        fputc('\n', stderr);
    } else fprintf(stderr, "%s%s\n", *gone ? "   " : "", gone);
}

/* ---- Summary ---------------------------------------------------------------------------------------------------- */

void prune_print_text(const prune_story *s)
{
    char words[TRANSFORMER_WORDS];
    const transformer_config *c = &s->model->config.body;
    int64_t left = transformer_all_heads(c);
    printf("%" PRId64 " of %" PRId64 " heads are gone; %" PRId64 " blocks of %s are left\n", s->heads - left, s->heads,
           c->depth, transformer_heads_words(words, c));
    printf("%.2f %% right on the test set, %.2f %% before: %" PRId64 " and %" PRId64 " of %" PRId64 " %simages\n",
           100 * share(&s->after), 100 * share(&s->before), s->after.correct, s->before.correct, s->after.count,
           s->set->synthetic ? "synthetic " : "");
    printf("%s: %" PRId64 " parameters, %" PRId64 " before; %.1f s\n", s->out, s->model->count, s->parameters,
           s->seconds);
}

static void put_score(const char *before, const trainer_score *s)
{
    printf("%s{\"images\": %" PRId64 ", \"correct\": %" PRId64 ", \"accuracy\": %.6f, \"loss\": %.6f}", before,
           s->count, s->correct, share(s), s->loss);
}

static void put_round(const prune_entry *e)
{
    printf("    {\"round\": %" PRId64 ", \"heads\": %" PRId64 ", \"gone\": [", e->round.number, e->round.heads);
    for (int64_t i = 0; i < e->round.gone_count; i++)
        printf("%s{\"block\": %" PRId64 ", \"head\": %" PRId64 "}", i ? ", " : "", e->gone[i].block + 1,
               e->gone[i].head + 1);
    put_score("], \"cut\": ", &e->round.cut);
    put_score(", \"learnt\": ", &e->round.tuned);
    printf(", \"taken_back\": %s}", e->round.taken_back ? "true" : "false");
}

void prune_print_json(const prune_story *s)
{
    char quoted[3][1200];
    const transformer_config *c = &s->model->config.body;
    printf("{\n  \"model\": %s, \"out\": %s,\n  \"data\": %s, \"synthetic\": %s,\n",
           json_quote(quoted[0], sizeof quoted[0], s->file), json_quote(quoted[1], sizeof quoted[1], s->out),
           json_quote(quoted[2], sizeof quoted[2], s->data ? s->data : s->set->name),
           s->set->synthetic ? "true" : "false");
    printf("  \"heads_before\": %" PRId64 ", \"heads\": %" PRId64 ", \"block_heads\": [", s->heads,
           transformer_all_heads(c));
    for (int64_t l = 0; l < c->depth; l++) printf("%s%" PRId64, l ? ", " : "", transformer_heads(c, l));
    printf("],\n  \"parameters_before\": %" PRId64 ", \"parameters\": %" PRId64 ",\n  \"rounds\": [\n", s->parameters,
           s->model->count);
    for (int64_t n = 0; n < s->count; n++) {
        put_round(&s->entries[n]);
        printf("%s\n", n + 1 < s->count ? "," : "");
    }
    put_score("  ],\n  \"test_before\": ", &s->before);
    put_score(",\n  \"test\": ", &s->after);
    printf(",\n  \"seconds\": %.3f, \"threads\": %d, \"isa\": \"%s\"\n}\n", s->seconds, s->threads, s->isa);
}
