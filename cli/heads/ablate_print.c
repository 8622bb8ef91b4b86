/* An ablation as tables in 80 columns: heads, whole blocks, labels; and as JSON. */
#include "cli/heads/ablate.h"
#include "cli/common/cli.h"
#include "cli/draw/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 2, NAME = 11, HEAD = 6, SHARE = 9, DROP = 7, LOSS = 9, CELL = 6 };
enum { IMPORTANCE = 14, GAP = 6, PAIR = 11 }; /* columns of one table alone */
_Static_assert(INDENT + HEAD + IMPORTANCE + GAP + 2 * (SHARE + DROP + LOSS) <= 80, "heads fit the screen");
_Static_assert(INDENT + HEAD + SHARE + DROP + LOSS + 2 * DROP + PAIR + 3 * DROP <= 80, "blocks fit the screen");
_Static_assert(INDENT + HEAD + SHARE + 10 * CELL <= 80, "labels fit the screen");

static double share_of(const mha_score *s) { return 100 * (double)s->correct / (double)s->count; }

static void put_heading(const term *t, const char *name)
{
    printf("\n%*s", INDENT, "");
    term_left(t, 0, TERM_BOLD, name);
    printf("\n");
}

static void put_name(const term *t, const char *name)
{
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, name);
}

/* ---- Above the tables ------------------------------------------------------------------------------------------- */

static void put_correlation(const char *with, double correlation)
{
    if (isfinite(correlation)) printf("%.2f in %s", correlation, with);
    else printf("none in %s", with);
}

static void put_title(const term *t, const ablation *a, const survey *s, const heads_setting *set)
{
    put_name(t, "model");
    cli_print(stdout, "%s: %" PRId64 " head%s in %" PRId64 " block%s\n", set->file, a->heads, plural(a->heads),
              a->blocks, plural(a->blocks));
    put_name(t, "data");
    cli_print(stdout, "%" PRId64 " test image%s %s %s\n", a->scores[0].count, plural(a->scores[0].count),
              set->set.synthetic ? "drawn by" : "of", set->set.name);
    if (set->set.synthetic && !set->asked) {
        put_name(t, "");
        printf("synthetic digits: the accuracy does not compare with MNIST\n");
    }
    put_name(t, "all heads");
    printf("accuracy %.2f %%, loss %.4f\n", share_of(&a->scores[0]), a->scores[0].loss);
    put_name(t, "ranks");
    printf("Spearman's rank correlation of importance (%" PRId64 " image%s) with what\n", s->info.importance_images,
           plural(s->info.importance_images));
    put_name(t, "");
    printf("a head that is off costs: ");
    put_correlation("loss", a->by_loss);
    printf(", ");
    put_correlation("accuracy", a->by_accuracy);
    printf("\n");
    put_name(t, "time");
    printf("%.1f s for %" PRId64 " case%s; %.1f s for importance and similarity\n", a->seconds, a->different,
           plural(a->different), set->seconds);
}

/* ---- Heads ------------------------------------------------------------------------------------------------------ */

static void put_head_name(const survey *s, int64_t n, int width)
{
    char name[48];
    snprintf(name, sizeof name, "%" PRId64 ".%" PRId64, s->heads[n].block, s->heads[n].head);
    printf("%*s", width, name);
}

/* Points of accuracy; those that print as zero have no sign. */
static void put_points(int width, double drop)
{
    char text[24];
    snprintf(text, sizeof text, "%.2f", 100 * drop);
    printf("%*s", width, strcmp(text, "-0.00") == 0 ? "0.00" : text);
}

static void put_score(const ablation *a, int64_t at)
{
    printf("%*.2f", SHARE, share_of(&a->scores[at]));
    put_points(DROP, ablation_drop(a, at));
    printf("%*.4f", LOSS, ablation_rise(a, at));
}

static void put_score_names(const term *t)
{
    term_right(t, SHARE, TERM_FAINT, "acc. %");
    term_right(t, DROP, TERM_FAINT, "drop");
    term_right(t, LOSS, TERM_FAINT, "loss +");
}

static void put_heads(const term *t, const ablation *a, const survey *s, const int64_t *order)
{
    put_heading(t, "Single heads");
    printf("%*s", INDENT + HEAD + IMPORTANCE, "");
    term_right(t, SHARE + DROP + LOSS, TERM_FAINT, "switched off");
    term_right(t, GAP + SHARE + DROP + LOSS, TERM_FAINT, "alone in its block");
    printf("\n%*s", INDENT, "");
    term_right(t, HEAD, TERM_FAINT, "head");
    term_right(t, IMPORTANCE, TERM_FAINT, "importance");
    put_score_names(t);
    printf("%*s", GAP, "");
    put_score_names(t);
    printf("\n");
    term_rule(t, INDENT, 80 - 2 * INDENT);
    for (int64_t n = 0; n < a->heads; n++) {
        printf("%*s", INDENT, "");
        put_head_name(s, order[n], HEAD);
        printf("%*.5f", IMPORTANCE, s->heads[order[n]].importance);
        put_score(a, ablation_at(a, ABLATION_OFF, order[n]));
        printf("%*s", GAP, "");
        put_score(a, ablation_at(a, ABLATION_ALONE, order[n]));
        printf("\n");
    }
}

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

/* The sum of the drops of single heads, and what is lost beyond it without all of them. */
static void put_sum(const ablation *a, const survey *s, ablation_case which, int64_t block)
{
    double sum = ablation_sum(a, s, which, block), drop = ablation_drop(a, ablation_at(a, which, block));
    put_points(DROP, sum);
    put_points(DROP, drop - sum);
}

static void put_block(const ablation *a, const survey *s, int64_t l)
{
    char names[100];
    int64_t first = a->pairs[2 * l], second = a->pairs[2 * l + 1];
    printf("%*s%*" PRId64, INDENT, "", HEAD, l);
    put_score(a, ablation_at(a, ABLATION_BLOCK, l));
    put_sum(a, s, ABLATION_BLOCK, l);
    if (first >= 0) {
        snprintf(names, sizeof names, "%" PRId64 ".%" PRId64 " %" PRId64 ".%" PRId64, l, s->heads[first].head, l,
                 s->heads[second].head);
        printf("%*s", PAIR, names);
        put_points(DROP, ablation_drop(a, ablation_at(a, ABLATION_PAIR, l)));
        put_sum(a, s, ABLATION_PAIR, l);
    }
    printf("\n");
}

static void put_blocks(const term *t, const ablation *a, const survey *s)
{
    put_heading(t, "Several heads at once, and what they had compensated for");
    printf("%*s", INDENT + HEAD, "");
    term_right(t, SHARE + 3 * DROP + LOSS, TERM_FAINT, "all heads of a block switched off");
    term_right(t, PAIR + 3 * DROP, TERM_FAINT, "most similar pair off");
    printf("\n%*s", INDENT, "");
    term_right(t, HEAD, TERM_FAINT, "block");
    put_score_names(t);
    term_right(t, DROP, TERM_FAINT, "sum");
    term_right(t, DROP, TERM_FAINT, "comp.");
    term_right(t, PAIR, TERM_FAINT, "heads");
    term_right(t, DROP, TERM_FAINT, "drop");
    term_right(t, DROP, TERM_FAINT, "sum");
    term_right(t, DROP, TERM_FAINT, "comp.");
    printf("\n");
    term_rule(t, INDENT, 80 - 2 * INDENT);
    for (int64_t l = 0; l < a->blocks; l++) put_block(a, s, l);
}

/* ---- Labels ----------------------------------------------------------------------------------------------------- */

/* A drop in points; brighter for larger ones. */
static void put_cell(const term *t, double drop, double most)
{
    bool large = isfinite(drop) && 100 * drop >= 0.05 && t->depth != TERM_MONO;
    if (!large) {
        if (isfinite(drop)) term_number(t, CELL, 1, TERM_PLAIN, 100 * drop);
        else term_right(t, CELL, TERM_FAINT, "-");
        return;
    }
    printf(" ");
    scale_ground(t, drop / most);
    printf("%*.1f%s", CELL - 1, 100 * drop, term_style_on(t, TERM_PLAIN));
}

static double largest_drop(const ablation *a, ablation_case which)
{
    double most = 0;
    for (int64_t n = 0; n < a->heads; n++)
        for (int64_t c = 0; c < a->classes; c++)
            most = fmax(most, ablation_class_drop(a, ablation_at(a, which, n), c)); /* not NAN */
    return most > 0 ? most : 1;
}

static void put_labels(const term *t, const ablation *a, const survey *s, const int64_t *order, ablation_case which,
                       const char *heading)
{
    double most = largest_drop(a, which);
    put_heading(t, heading);
    printf("%*s", INDENT, "");
    term_right(t, HEAD, TERM_FAINT, "head");
    term_right(t, SHARE, TERM_FAINT, "all");
    for (int64_t c = 0; c < a->classes; c++) {
        char name[24];
        snprintf(name, sizeof name, "%" PRId64, c);
        term_right(t, CELL, TERM_FAINT, name);
    }
    printf("\n");
    term_rule(t, INDENT, HEAD + SHARE + CELL * (int)a->classes);
    for (int64_t n = 0; n < a->heads; n++) {
        int64_t at = ablation_at(a, which, order[n]);
        printf("%*s", INDENT, "");
        put_head_name(s, order[n], HEAD);
        put_points(SHARE, ablation_drop(a, at));
        for (int64_t c = 0; c < a->classes; c++) put_cell(t, ablation_class_drop(a, at, c), most);
        printf("\n");
    }
}

static void put_foot(const ablation *a)
{
    static const char *const lines[] = {
        "head: block.head; switched off: its output is zero; nothing is trained again",
        "importance: change of an image's loss without the head, to first order",
        "drop: lost accuracy in points; loss +: rise of the mean cross-entropy",
        "alone: all other heads of its block are switched off, other blocks are whole",
        "sum: of the drops of these heads, each switched off by itself",
        "comp.: drop - sum. Above 0, the heads compensate for each other: what one does",
        "  is missed only when the others are off, too. Below 0, their drops overlap",
    };
    printf("\n");
    for (size_t n = 0; n < sizeof lines / sizeof *lines; n++) printf("%*s%s\n", INDENT, "", lines[n]);
    printf("%*sone image is %.2f points\n", INDENT, "", 100 / (double)a->scores[0].count);
}

bool ablation_print(const term *t, const ablation *a, const survey *s, const heads_setting *setting)
{
    int64_t *order = heads_order(s, setting->sort);
    if (!order) return false;
    put_title(t, a, s, setting);
    put_heads(t, a, s, order);
    put_blocks(t, a, s);
    put_labels(t, a, s, order, ABLATION_OFF, "Points lost by label, with the head switched off");
    put_labels(t, a, s, order, ABLATION_ALONE, "Points lost by label, with the head alone in its block");
    put_foot(a);
    free(order);
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void put_number(nn_buffer *out, const char *before, double x)
{
    nn_buffer_puts(out, before);
    if (isfinite(x)) nn_buffer_printf(out, "%.9g", x);
    else nn_buffer_puts(out, "null");
}

/* accuracy, loss and the recall of each class. */
static void put_json_score(nn_buffer *out, const char *before, const ablation *a, int64_t at)
{
    nn_buffer_puts(out, before);
    put_number(out, "{\"accuracy\": ", (double)a->scores[at].correct / (double)a->scores[at].count);
    put_number(out, ", \"loss\": ", a->scores[at].loss);
    nn_buffer_puts(out, ", \"recall\": [");
    for (int64_t c = 0; c < a->classes; c++)
        put_number(out, c ? ", " : "",
                   a->labels[c] ? (double)a->correct[at * a->classes + c] / (double)a->labels[c] : NAN);
    nn_buffer_puts(out, "]}");
}

static void put_json_head(nn_buffer *out, const ablation *a, const survey *s, int64_t n)
{
    const mha_survey_head *h = &s->heads[n];
    nn_buffer_printf(out, "%s\n  {\"block\": %" PRId64 ", \"head\": %" PRId64, n ? "," : "", h->block, h->head);
    put_number(out, ", \"importance\": ", h->importance);
    put_json_score(out, ",\n   \"off\": ", a, ablation_at(a, ABLATION_OFF, n));
    put_json_score(out, ",\n   \"alone\": ", a, ablation_at(a, ABLATION_ALONE, n));
    nn_buffer_puts(out, "}");
}

static void put_json_block(nn_buffer *out, const ablation *a, const survey *s, int64_t l)
{
    int64_t first = a->pairs[2 * l], second = a->pairs[2 * l + 1];
    nn_buffer_printf(out, "%s\n  {\"block\": %" PRId64, l ? "," : "", l);
    put_json_score(out, ",\n   \"off\": ", a, ablation_at(a, ABLATION_BLOCK, l));
    put_number(out, ",\n   \"sum_of_drops\": ", ablation_sum(a, s, ABLATION_BLOCK, l));
    if (first < 0) {
        nn_buffer_puts(out, ", \"pair\": null}");
        return;
    }
    nn_buffer_printf(out, ",\n   \"pair\": {\"heads\": [%" PRId64 ", %" PRId64 "]", s->heads[first].head,
                     s->heads[second].head);
    put_json_score(out, ", \"off\": ", a, ablation_at(a, ABLATION_PAIR, l));
    put_number(out, ", \"sum_of_drops\": ", ablation_sum(a, s, ABLATION_PAIR, l));
    nn_buffer_puts(out, "}}");
}

void ablation_json(nn_buffer *out, const ablation *a, const survey *s)
{
    nn_buffer_printf(out, "{\"images\": %" PRId64 ", \"cases\": %" PRId64, a->scores[0].count, a->different);
    put_number(out, ", \"seconds\": ", a->seconds);
    put_number(out, ",\n \"rank_correlation\": {\"loss\": ", a->by_loss);
    put_number(out, ", \"accuracy\": ", a->by_accuracy);
    put_json_score(out, "},\n \"all_heads\": ", a, 0);
    nn_buffer_puts(out, ",\n \"heads\": [");
    for (int64_t n = 0; n < a->heads; n++) put_json_head(out, a, s, n);
    nn_buffer_puts(out, "],\n \"blocks\": [");
    for (int64_t l = 0; l < a->blocks; l++) put_json_block(out, a, s, l);
    nn_buffer_puts(out, "]}");
}
