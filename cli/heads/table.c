/* The table of heads, with their maps below it. */
#include "cli/heads/table.h"
#include "cli/common/cli.h"
#include "cli/draw/heads_draw.h"
#include "cli/draw/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { INDENT = 2, NAME = 8, BLOCK = 5, HEAD = 5, GAP = 2, WORDS = 28, ENTROPY = 5, DISTANCE = 9, IMPORTANCE = 8 };
enum { BAR = 3, NEAREST = 11 };
_Static_assert(INDENT + BLOCK + HEAD + GAP + WORDS + ENTROPY + DISTANCE + IMPORTANCE + 1 + BAR + 1 + NEAREST <= 80,
               "the table fits the screen");

/* ---- Order ------------------------------------------------------------------------------------------------------ */

/* Smaller ranks come first; ties keep the block order. */
static double sort_value(const mha_survey_head *h, heads_sort sort)
{
    return sort == HEADS_BY_IMPORTANCE ? -h->importance
           : sort == HEADS_BY_ENTROPY  ? h->entropy
           : sort == HEADS_BY_DISTANCE ? h->distance
                                       : 0;
}

int64_t *heads_order(const survey *s, heads_sort sort)
{
    int64_t *order = calloc((size_t)s->info.heads, sizeof *order);
    for (int64_t n = 0; order && n < s->info.heads; n++) {
        int64_t at = n;
        for (; at > 0 && sort_value(&s->heads[order[at - 1]], sort) > sort_value(&s->heads[n], sort); at--)
            order[at] = order[at - 1];
        order[at] = n;
    }
    return order;
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

static void put_title(const term *t, const survey *s, const heads_setting *set)
{
    const char *of = set->set.synthetic ? "drawn by" : "of";
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, "model");
    cli_print(stdout, "%s: %" PRId64 " head%s in %" PRId64 " block%s\n", set->file, s->info.heads,
              plural(s->info.heads), s->info.blocks, plural(s->info.blocks));
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, "data");
    cli_print(stdout, "%" PRId64 " test image%s %s %s; %.1f s\n", s->info.images, plural(s->info.images), of,
              set->set.name, set->seconds);
    printf("%*s", INDENT + NAME, "");
    printf("maps, distance and similarity from %" PRId64 " image%s, importance from %" PRId64 "\n\n",
           s->info.close_images, plural(s->info.close_images), s->info.importance_images);
}

/* The headings of entropy and importance are wider than their numbers and extend into the neighbouring columns. */
static void put_names(const term *t)
{
    enum { OVER = 3 };
    printf("%*s", INDENT, "");
    term_right(t, BLOCK, TERM_FAINT, "block");
    term_right(t, HEAD, TERM_FAINT, "head");
    printf("%*s", GAP, "");
    term_left(t, WORDS - OVER, TERM_FAINT, "attends to");
    term_right(t, ENTROPY + OVER, TERM_FAINT, "entropy");
    term_right(t, DISTANCE, TERM_FAINT, "distance");
    term_right(t, IMPORTANCE + 1 + BAR, TERM_FAINT, "importance");
    printf(" ");
    term_left(t, 0, TERM_FAINT, "similar");
    printf("\n");
    term_rule(t, INDENT, 80 - 2 * INDENT);
}

/* Length and brightness show the importance relative to the most important head. */
static void put_bar(const term *t, double share)
{
    static const char *const parts[] = {"", "\u258f", "\u258e", "\u258d", "\u258c", "\u258b", "\u258a", "\u2589"};
    int eighths = share > 0 ? (int)lround(8 * BAR * fmin(share, 1)) : 0;
    if (!t->utf8) eighths = (eighths + 4) / 8 * 8;
    scale_ink(t, 0.25 + 0.6 * share);
    for (int i = 0; i < eighths / 8; i++) fputs(term_pick(t, "\u2588", "#"), stdout);
    printf("%s%s%*s", parts[eighths % 8], term_style_on(t, TERM_PLAIN), BAR - (eighths + 7) / 8, "");
}

static void put_nearest(const term *t, const mha_survey_head *h)
{
    char text[40];
    if (h->nearest < 0) return;
    if (h->alike) snprintf(text, sizeof text, h->nearest < 10 ? "like head %" PRId64 : "like h. %" PRId64, h->nearest);
    else snprintf(text, sizeof text, "%" PRId64 " (%.2f)", h->nearest, h->divergence);
    term_left(t, 0, h->alike ? TERM_BOLD : TERM_FAINT, text);
}

/* As many decimals as give the largest value three digits; scientific notation if they do not fit. */
static void put_importance(double importance, double most)
{
    int decimals = 2;
    while (decimals < 5 && most * pow(10, decimals) < 100) decimals++;
    if (most < 1e-3) printf("%*.1e ", IMPORTANCE, importance);
    else printf("%*.*f ", IMPORTANCE, decimals, importance);
}

static void put_head(const term *t, const mha_survey_head *h, double most)
{
    printf("%*s%*" PRId64 "%*" PRId64 "%*s", INDENT, "", BLOCK, h->block, HEAD, h->head, GAP, "");
    term_left(t, WORDS, TERM_BOLD, h->words);
    printf("%*.2f%*.2f", ENTROPY, h->entropy, DISTANCE, h->distance);
    put_importance(h->importance, most);
    put_bar(t, most > 0 ? h->importance / most : 0);
    printf(" ");
    put_nearest(t, h);
    printf("\n");
}

static void put_foot(const survey *s, double most)
{
    printf("\n%*sattends to: mean over all query tokens and images\n", INDENT, "");
    printf("%*sby position: depends on the position of the query, not on the image\n", INDENT, "");
    printf("%*sby content: depends on the image\n", INDENT, "");
    printf("%*sentropy: of a row of weights, in nats; uniform attention has %.2f\n", INDENT, "",
           log((double)s->info.tokens));
    printf("%*sdistance: mean distance to the attended patches, in patches\n", INDENT, "");
    printf("%*simportance: change of the loss without the head, to first order; full bar %.3g\n", INDENT, "", most);
    printf("%*ssimilar: closest head of the block, by Jensen-Shannon divergence (0 to 0.69)\n\n", INDENT, "");
}

/* ---- The maps --------------------------------------------------------------------------------------------------- */

bool heads_table(const term *t, const survey *s, const heads_setting *setting)
{
    heads_view view;
    int64_t *order = heads_order(s, setting->sort);
    bool ok = order && survey_view(&view, s);
    double most = 0;
    for (int64_t n = 0; n < s->info.heads; n++)
        if (s->heads[n].importance > most) most = s->heads[n].importance;
    if (ok) {
        put_title(t, s, setting);
        put_names(t);
        for (int64_t n = 0; n < s->info.heads; n++) put_head(t, &s->heads[order[n]], most);
        put_foot(s, most);
        heads_draw_all(t, &view,
                       s->info.class_token
                           ? "Mean attention of the class token; each map is scaled to its strongest patch"
                           : "Mean attention of the patches; each map is scaled to its strongest patch");
        heads_view_free(&view);
    }
    free(order);
    return ok;
}
