/* Progress, summary and JSON of mha prune. */
#include "cli/prune/print.h"
#include "cli/common/cli.h"
#include "cli/common/model.h"
#include "io/json.h"
#include "cli/train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Maximum widths: a line has 34 columns before these two, 2 between them, and 80 in all. */
enum { GONE = 12, DRAWING = 32 };
static const double rest_between = 0.2; /* seconds between two redraws of the status line */

static double accuracy_of(const mha_score *s) { return (double)s->correct / (double)s->count; }

/* ---- Rounds ----------------------------------------------------------------------------------------------------- */

/* Whether the drawing, one mark per head and a space between blocks, fits the line. */
static bool fits_drawing(const prune_report *s) { return s->draws && s->heads + s->blocks - 1 <= DRAWING; }

/* The block and the index in it, both from 0, of a head counted through all blocks. */
typedef struct place {
    int64_t block, head;
} place;

static place find_head(const prune_report *s, int64_t head)
{
    place p = {0, head};
    while (p.head >= s->block_heads[p.block]) p.head -= s->block_heads[p.block++];
    return p;
}

/* Whether the head has been removed, up to and including the last entry. */
static bool is_gone(const prune_report *s, int64_t block, int64_t head)
{
    for (int64_t l = 0; l < block; l++) head += s->block_heads[l];
    for (int64_t n = 0; n < s->count; n++) {
        const prune_entry *e = &s->entries[n];
        for (int64_t i = 0; !e->round.undone && i < e->round.gone_count; i++)
            if (e->gone[i] == head) return true;
    }
    return false;
}

static void draw_heads(const prune_report *s)
{
    const char *there = s->utf8 ? "\u25a0" : "#", *gone = s->utf8 ? "\u00b7" : ".";
    fputs("  ", stderr);
    for (int64_t l = 0; l < s->blocks; l++) {
        if (l) fputc(' ', stderr);
        for (int64_t h = 0; h < s->block_heads[l]; h++) fputs(is_gone(s, l, h) ? gone : there, stderr);
    }
}

/* "1.3 4.0", counted from 0; "+N" for those that do not fit. */
static void list_gone(char out[80], const prune_report *s, const prune_entry *e, size_t room)
{
    size_t used = 0;
    out[0] = 0;
    for (int64_t i = 0; i < e->round.gone_count; i++) {
        char word[48];
        place p = find_head(s, e->gone[i]);
        int length = snprintf(word, sizeof word, "%s%" PRId64 ".%" PRId64, used ? " " : "", p.block, p.head);
        if (used + (size_t)length > room - (i + 1 < e->round.gone_count ? 5 : 0)) {
            snprintf(out + used, 80 - used, " +%" PRId64, e->round.gone_count - i);
            return;
        }
        used += (size_t)snprintf(out + used, 80 - used, "%s", word);
    }
}

void prune_print_head(const prune_report *s)
{
    fprintf(stderr, "  heads  held out: cut     tuned  removed%s\n", fits_drawing(s) ? "       remaining heads" : "");
}

void prune_print_round(prune_report *s)
{
    const prune_entry *e = &s->entries[s->count - 1];
    bool took = e->round.gone_count > 0, beside = fits_drawing(s) || e->round.undone;
    char gone[80], cut[20] = "-", learnt[20] = "-";
    list_gone(gone, s, e, beside ? GONE : GONE + DRAWING);
    if (e->round.number && !took) snprintf(gone, sizeof gone, "fine-tuning");
    if (took) snprintf(cut, sizeof cut, "%.2f %%", 100 * accuracy_of(&e->round.cut));
    if (!took || s->tunes) snprintf(learnt, sizeof learnt, "%.2f %%", 100 * accuracy_of(&e->round.tuned));
    prune_print_clear(s);
    fprintf(stderr, "  %5" PRId64 "  %13s  %8s", e->round.heads, cut, learnt);
    if (e->round.undone) fprintf(stderr, "  %s, undone: accuracy dropped too far\n", gone);
    else if (fits_drawing(s)) {
        fprintf(stderr, "  %-*s", GONE, gone);
        draw_heads(s);
        fputc('\n', stderr);
    } else fprintf(stderr, "%s%s\n", *gone ? "  " : "", gone);
}

void prune_print_now(prune_report *s, const char *words, bool must)
{
    double now = cli_clock();
    if (!s->draws || (!must && now - s->last < rest_between)) return;
    fprintf(stderr, "\r  %s\033[K", words);
    s->last = now;
    s->drawn = true;
}

void prune_print_clear(prune_report *s)
{
    if (s->drawn) fputs("\r\033[K", stderr);
    s->drawn = false;
}

/* ---- Summary ---------------------------------------------------------------------------------------------------- */

/* Notes that heads are renumbered, with the first one as an example. */
static void put_numbers(const prune_report *s)
{
    for (int64_t l = 0; l < s->blocks; l++)
        for (int64_t h = 0, now = 0; h < s->block_heads[l]; h++) {
            if (is_gone(s, l, h)) continue;
            if (now++ == h) continue;
            printf("  heads are renumbered within a block: %" PRId64 ".%" PRId64 " is now %" PRId64 ".%" PRId64 "\n", l,
                   h, l, now - 1);
            return;
        }
    puts("  heads are renumbered within a block; here all keep their numbers");
}

void prune_print_text(const prune_report *s)
{
    char words[MODEL_WORDS];
    int64_t gone = s->heads - s->heads_left;
    printf("  removed %" PRId64 " of %" PRId64 " head%s; remaining: %" PRId64 " block%s of %s\n", gone, s->heads,
           plural(s->heads), s->blocks, plural(s->blocks), model_heads_words(words, s->smaller, true));
    printf("  test accuracy %.2f %%: %" PRId64 " of %" PRId64 " %simages; %.2f %% before\n",
           100 * accuracy_of(&s->after), s->after.correct, s->after.count, s->synthetic ? "synthetic " : "",
           100 * accuracy_of(&s->before));
    cli_print(stdout, "  %s: %" PRId64 " parameters, %" PRId64 " before; %.1f s\n", s->out, s->parameters_left,
              s->parameters, s->seconds);
    if (gone) put_numbers(s);
}

static void put_score(const char *before, const mha_score *s)
{
    printf("%s{\"images\": %" PRId64 ", \"correct\": %" PRId64 ", \"accuracy\": %.6f, ", before, s->count, s->correct,
           accuracy_of(s));
    if (isfinite(s->loss)) printf("\"loss\": %.6f}", s->loss);
    else printf("\"loss\": null}");
}

static void put_round(const prune_report *s, const prune_entry *e)
{
    printf("    {\"round\": %" PRId64 ", \"heads\": %" PRId64 ", \"gone\": [", e->round.number, e->round.heads);
    for (int64_t i = 0; i < e->round.gone_count; i++) {
        place p = find_head(s, e->gone[i]);
        printf("%s{\"block\": %" PRId64 ", \"head\": %" PRId64 "}", i ? ", " : "", p.block, p.head);
    }
    put_score("], \"cut\": ", &e->round.cut);
    put_score(", \"learnt\": ", &e->round.tuned);
    printf(", \"taken_back\": %s}", e->round.undone ? "true" : "false");
}

void prune_print_json(const prune_report *s)
{
    char quoted[3][1200];
    printf("{\n  \"model\": %s, \"out\": %s,\n  \"data\": %s, \"synthetic\": %s,\n",
           nn_json_quote(quoted[0], sizeof quoted[0], s->file), nn_json_quote(quoted[1], sizeof quoted[1], s->out),
           nn_json_quote(quoted[2], sizeof quoted[2], s->data ? s->data : s->data_name),
           s->synthetic ? "true" : "false");
    printf("  \"heads_before\": %" PRId64 ", \"heads\": %" PRId64 ", \"block_heads\": [", s->heads, s->heads_left);
    for (int64_t l = 0; l < s->blocks; l++)
        printf("%s%" PRId64, l ? ", " : "", mha_model_attention_get(s->smaller, l).heads);
    printf("],\n  \"parameters_before\": %" PRId64 ", \"parameters\": %" PRId64 ",\n  \"rounds\": [\n", s->parameters,
           s->parameters_left);
    for (int64_t n = 0; n < s->count; n++) {
        put_round(s, &s->entries[n]);
        printf("%s\n", n + 1 < s->count ? "," : "");
    }
    put_score("  ],\n  \"test_before\": ", &s->before);
    put_score(",\n  \"test\": ", &s->after);
    printf(",\n  \"seconds\": %.3f, \"threads\": %d, \"isa\": \"%s\"\n}\n", s->seconds, s->threads, s->isa);
}
