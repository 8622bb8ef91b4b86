/* An ablation as tables in 80 columns: heads, whole blocks, labels; and as JSON. */
#include "cli/heads/ablate.h"
#include "cli/common/cli.h"
#include "cli/draw/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 2, NAME = 10, HEAD = 6, SHARE = 9, DROP = 7, LOSS = 9, TWIN = 8, IMPORTANCE = 12, CELL = 6 };
_Static_assert(INDENT + HEAD + IMPORTANCE + SHARE + DROP + LOSS + SHARE + TWIN + 2 * DROP <= 80,
               "heads fit the screen");
_Static_assert(INDENT + HEAD + SHARE + 10 * CELL <= 80, "labels fit the screen");

static double share_of(const mha_score *s) { return 100 * (double)s->correct / (double)s->count; }
static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

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
    if (isfinite(correlation)) printf("%.2f with the %s", correlation, with);
    else printf("none with the %s", with);
}

static void put_title(const term *t, const ablation *a, const survey *s, const heads_setting *set)
{
    put_name(t, "model");
    cli_print(stdout, "%s: %" PRId64 " head%s in %" PRId64 " block%s\n", set->file, a->heads, plural(a->heads),
              a->blocks, plural(a->blocks));
    put_name(t, "data");
    cli_print(stdout, "%" PRId64 " test image%s %s %s\n", a->scores[0].count, plural(a->scores[0].count),
              set->set.synthetic ? "drawn by" : "of", set->set.name);
    if (set->set.synthetic) {
        put_name(t, "");
        printf("synthetic digits: the accuracy does not compare with MNIST\n");
    }
    put_name(t, "all heads");
    printf("accuracy %.2f %%, loss %.4f\n", share_of(&a->scores[0]), a->scores[0].loss);
    put_name(t, "ranks");
    printf("importance of %" PRId64 " image%s: rank correlation ", s->info.importance_images,
           plural(s->info.importance_images));
    put_correlation("rise of loss", a->by_loss);
    printf("\n");
    put_name(t, "");
    printf("of a head that is off, ");
    put_correlation("drop of accuracy (Spearman)", a->by_accuracy);
    printf("\n");
    put_name(t, "time");
    printf("%.1f s for %" PRId64 " cases; %.1f s for importance and similarity\n", a->seconds, a->different,
           set->seconds);
}

/* ---- Heads ------------------------------------------------------------------------------------------------------ */

static void put_head_name(const survey *s, int64_t n, int width)
{
    char name[48];
    snprintf(name, sizeof name, "%" PRId64 ".%" PRId64, s->heads[n].block + 1, s->heads[n].head + 1);
    printf("%*s", width, name);
}

/* Points of accuracy; those that print as zero have no sign. */
static void put_points(int width, double drop)
{
    char text[24];
    snprintf(text, sizeof text, "%.2f", 100 * drop);
    printf("%*s", width, strcmp(text, "-0.00") == 0 ? "0.00" : text);
}

static void put_head(const ablation *a, const survey *s, int64_t n)
{
    int64_t off = ablation_at(a, ABLATION_OFF, n), twin = ablation_twin(s, n);
    printf("%*s", INDENT, "");
    put_head_name(s, n, HEAD);
    printf("%*.4g", IMPORTANCE, s->heads[n].importance);
    printf("%*.2f", SHARE, share_of(&a->scores[off]));
    put_points(DROP, ablation_drop(a, off));
    printf("%*.4f", LOSS, ablation_rise(a, off));
    printf("%*.2f", SHARE, share_of(&a->scores[ablation_at(a, ABLATION_ALONE, n)]));
    if (twin >= 0) {
        put_head_name(s, twin, TWIN);
        put_points(DROP, ablation_drop(a, ablation_at(a, ABLATION_PAIR, n)));
        put_points(DROP, ablation_sum(a, n, n, false) + ablation_sum(a, twin, twin, false));
    }
    printf("\n");
}

static void put_heads(const term *t, const ablation *a, const survey *s, const int64_t *order)
{
    put_heading(t, "Single heads");
    printf("%*s", INDENT + HEAD + IMPORTANCE, "");
    term_right(t, SHARE + DROP + LOSS, TERM_FAINT, "--- switched off ---");
    term_right(t, SHARE, TERM_FAINT, "alone");
    term_right(t, TWIN + 2 * DROP, TERM_FAINT, "with similar head off");
    printf("\n%*s", INDENT, "");
    term_right(t, HEAD, TERM_FAINT, "head");
    term_right(t, IMPORTANCE, TERM_FAINT, "importance");
    term_right(t, SHARE, TERM_FAINT, "acc. %");
    term_right(t, DROP, TERM_FAINT, "drop");
    term_right(t, LOSS, TERM_FAINT, "loss +");
    term_right(t, SHARE, TERM_FAINT, "acc. %");
    term_right(t, TWIN, TERM_FAINT, "head");
    term_right(t, DROP, TERM_FAINT, "drop");
    term_right(t, DROP, TERM_FAINT, "sum");
    printf("\n");
    term_rule(t, INDENT, 80 - 2 * INDENT);
    for (int64_t n = 0; n < a->heads; n++) put_head(a, s, order[n]);
}

/* ---- Blocks ----------------------------------------------------------------------------------------------------- */

static void put_blocks(const term *t, const ablation *a, const survey *s)
{
    enum { WIDE = 15 };
    put_heading(t, "Whole blocks");
    printf("%*s", INDENT, "");
    term_right(t, HEAD, TERM_FAINT, "block");
    term_right(t, NAME, TERM_FAINT, "heads");
    term_right(t, SHARE, TERM_FAINT, "acc. %");
    term_right(t, DROP, TERM_FAINT, "drop");
    term_right(t, LOSS, TERM_FAINT, "loss +");
    term_right(t, WIDE, TERM_FAINT, "sum of drops");
    term_right(t, WIDE, TERM_FAINT, "compensated");
    printf("\n");
    term_rule(t, INDENT, 80 - 2 * INDENT);
    for (int64_t l = 0, first = 0; l < a->blocks; l++) {
        int64_t at = ablation_at(a, ABLATION_BLOCK, l), heads = survey_block_heads(s, l);
        double sum = ablation_sum(a, first, first + heads - 1, false);
        printf("%*s%*" PRId64 "%*" PRId64, INDENT, "", HEAD, l + 1, NAME, heads);
        printf("%*.2f", SHARE, share_of(&a->scores[at]));
        put_points(DROP, ablation_drop(a, at));
        printf("%*.4f", LOSS, ablation_rise(a, at));
        put_points(WIDE, sum);
        put_points(WIDE, ablation_drop(a, at) - sum);
        printf("\n");
        first += heads;
    }
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
        "with similar head off: drop with both off, beside the sum of their own drops;",
        "  a drop above the sum is what one of the two had compensated for",
        "compensated: what a block loses without all of its heads beyond the sum of",
        "  what it loses without each of them",
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
static void put_score(nn_buffer *out, const ablation *a, int64_t at)
{
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
    nn_buffer_printf(out, "%s\n  {\"block\": %" PRId64 ", \"head\": %" PRId64, n ? "," : "", h->block + 1, h->head + 1);
    put_number(out, ", \"importance\": ", h->importance);
    nn_buffer_puts(out, ",\n   \"off\": ");
    put_score(out, a, ablation_at(a, ABLATION_OFF, n));
    nn_buffer_puts(out, ",\n   \"alone\": ");
    put_score(out, a, ablation_at(a, ABLATION_ALONE, n));
    if (h->nearest < 0) nn_buffer_puts(out, ",\n   \"twin\": null, \"both_off\": null}");
    else {
        nn_buffer_printf(out, ",\n   \"twin\": %" PRId64 ", \"both_off\": ", h->nearest + 1);
        put_score(out, a, ablation_at(a, ABLATION_PAIR, n));
        nn_buffer_puts(out, "}");
    }
}

void ablation_json(nn_buffer *out, const ablation *a, const survey *s)
{
    nn_buffer_printf(out, "{\"images\": %" PRId64 ", \"cases\": %" PRId64, a->scores[0].count, a->different);
    put_number(out, ", \"seconds\": ", a->seconds);
    put_number(out, ",\n \"rank_correlation\": {\"loss\": ", a->by_loss);
    put_number(out, ", \"accuracy\": ", a->by_accuracy);
    nn_buffer_puts(out, "},\n \"all_heads\": ");
    put_score(out, a, 0);
    nn_buffer_puts(out, ",\n \"heads\": [");
    for (int64_t n = 0; n < a->heads; n++) put_json_head(out, a, s, n);
    nn_buffer_puts(out, "],\n \"blocks\": [");
    for (int64_t l = 0; l < a->blocks; l++) {
        nn_buffer_printf(out, "%s\n  {\"block\": %" PRId64 ", \"off\": ", l ? "," : "", l + 1);
        put_score(out, a, ablation_at(a, ABLATION_BLOCK, l));
        nn_buffer_puts(out, "}");
    }
    nn_buffer_puts(out, "]}");
}
