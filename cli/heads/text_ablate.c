#include "cli/heads/text_ablate.h"
#include "cli/common/cli.h"
#include "cli/draw/scale.h"
#include "cli/terminal/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { INDENT = 2, BLOCK = 5, HEAD = 5, GAP = 2, WORDS = 24, LOSS = 8, CHANGE = 9, PERPLEXITY = 12, BAR = 9 };
_Static_assert(INDENT + BLOCK + HEAD + GAP + WORDS + LOSS + CHANGE + PERPLEXITY + 2 + BAR <= 80, "it fits the screen");

bool text_ablation_make(text_ablation *a, const texts *t, const mha_text_options *o, const text_survey *s,
                        const char *file)
{
    int64_t heads = s->info.heads;
    double start = cli_clock();
    *a = (text_ablation){.heads = heads, .windows = s->info.windows};
    bool *off = calloc((size_t)((heads + 1) * heads), sizeof *off);
    a->scores = calloc((size_t)heads + 1, sizeof *a->scores);
    bool ok = off && a->scores;
    if (!ok) cli_refuse("not enough memory to switch %" PRId64 " heads off", heads);
    for (int64_t n = 0; off && n < heads; n++) off[(n + 1) * heads + n] = true;
    progress_begin("switching off %" PRId64 " head%s, one at a time", heads, plural(heads));
    if (ok && mha_text_ablate(t->ctx, t->model, a->scores, off, heads + 1, &t->of, o))
        ok = cli_error("%s: %s", file, cli_reason(t->ctx));
    progress_end();
    free(off);
    a->seconds = cli_clock() - start;
    return ok;
}

void text_ablation_free(text_ablation *a)
{
    free(a->scores);
    *a = (text_ablation){0};
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

static void put_names(const term *t)
{
    printf("\n%*s", INDENT, "");
    term_right(t, BLOCK, TERM_FAINT, "block");
    term_right(t, HEAD, TERM_FAINT, "head");
    printf("%*s", GAP, "");
    term_left(t, WORDS, TERM_FAINT, "without the head that attends to");
    printf("\n%*s", INDENT + BLOCK + HEAD + GAP + WORDS, "");
    term_right(t, LOSS, TERM_FAINT, "loss");
    term_right(t, CHANGE, TERM_FAINT, "change");
    term_right(t, PERPLEXITY, TERM_FAINT, "perplexity");
    printf("\n");
    term_rule(t, INDENT, 80 - 2 * INDENT);
}

/* The length shows the change relative to the largest. */
static void put_bar(const term *t, double share)
{
    int cells = share > 0 ? (int)lround(BAR * fmin(share, 1)) : 0;
    printf("  ");
    scale_ink(t, 0.25 + 0.6 * fmax(0, share));
    for (int i = 0; i < cells; i++) fputs(term_pick(t, "\u2588", "#"), stdout);
    printf("%s\n", term_style_on(t, TERM_PLAIN));
}

static void put_head(const term *t, const mha_text_head *h, double loss, double all, double most)
{
    printf("%*s%*" PRId64 "%*" PRId64 "%*s", INDENT, "", BLOCK, h->block, HEAD, h->head, GAP, "");
    term_left(t, WORDS, TERM_PLAIN, h->words);
    printf("%*.4f%+*.4f%*.3f", LOSS, loss, CHANGE, loss - all, PERPLEXITY, exp(loss));
    put_bar(t, most > 0 ? (loss - all) / most : 0);
}

/* Numbers of heads, those that cost the most first. */
static int64_t *sort_by_loss(const text_ablation *a)
{
    int64_t *order = calloc((size_t)a->heads, sizeof *order);
    for (int64_t n = 0; order && n < a->heads; n++) {
        int64_t at = n;
        for (; at > 0 && a->scores[order[at - 1] + 1].loss < a->scores[n + 1].loss; at--) order[at] = order[at - 1];
        order[at] = n;
    }
    return order;
}

bool text_ablation_table(const term *t, const text_ablation *a, const text_survey *s)
{
    int64_t *order = sort_by_loss(a);
    const mha_score *all = &a->scores[0];
    if (!order) return false;
    printf("\n%*s%" PRId64 " token%s of %" PRId64 " window%s, each predicted from those before it; %.1f s\n", INDENT,
           "", all->count, plural(all->count), a->windows, plural(a->windows), a->seconds);
    printf("%*swith all heads: loss %.4f, perplexity %.3f, %.1f %% of the tokens predicted\n", INDENT, "", all->loss,
           exp(all->loss), 100 * (double)all->correct / (double)all->count);
    put_names(t);
    double most = a->scores[order[0] + 1].loss - all->loss;
    for (int64_t n = 0; n < a->heads; n++)
        put_head(t, &s->heads[order[n]], a->scores[order[n] + 1].loss, all->loss, most);
    free(order);
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void put_score(nn_buffer *out, const mha_score *s)
{
    nn_buffer_printf(out, "\"loss\": %.9g, \"perplexity\": %.9g, \"accuracy\": %.9g}", s->loss, exp(s->loss),
                     (double)s->correct / (double)s->count);
}

void text_ablation_json(nn_buffer *out, const text_ablation *a, const text_survey *s)
{
    nn_buffer_printf(out, "{\"windows\": %" PRId64 ", \"tokens\": %" PRId64 ", \"seconds\": %.3f,\n \"all_heads\": {",
                     a->windows, a->scores[0].count, a->seconds);
    put_score(out, &a->scores[0]);
    nn_buffer_puts(out, ",\n \"heads\": [");
    for (int64_t n = 0; n < a->heads; n++) {
        nn_buffer_printf(out, "%s\n  {\"block\": %" PRId64 ", \"head\": %" PRId64 ", ", n ? "," : "", s->heads[n].block,
                         s->heads[n].head);
        put_score(out, &a->scores[n + 1]);
    }
    nn_buffer_puts(out, "]}");
}
