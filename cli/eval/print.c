/* The scores of a model: a summary, the confusion matrix and the worst errors; or JSON. */
#include "cli/eval/print.h"
#include "cli/common/cli.h"
#include "cli/common/head_list.h"
#include "cli/common/model.h"
#include "io/json.h"
#include "cli/draw/scale.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { INDENT = 2, NAME = 11, CELL = 5, COUNT = 8, SHARE = 9 };
enum { USUAL = 10 }; /* classes */
_Static_assert(INDENT + NAME + USUAL * CELL + COUNT + SHARE <= 80, "the table fits the screen");

static int64_t count_of(const eval_scores *s, int label, int answer)
{
    return s->confusion[label * s->classes + answer];
}

static int64_t answers_of(const eval_scores *s, int class)
{
    int64_t sum = 0;
    for (int label = 0; label < s->classes; label++) sum += count_of(s, label, class);
    return sum;
}

static int64_t labels_of(const eval_scores *s, int class)
{
    int64_t sum = 0;
    for (int answer = 0; answer < s->classes; answer++) sum += count_of(s, class, answer);
    return sum;
}

static double part_of(int64_t part, int64_t whole) { return whole ? (double)part / (double)whole : NAN; }
double eval_precision(const eval_scores *s, int class)
{
    return part_of(count_of(s, class, class), answers_of(s, class));
}
double eval_recall(const eval_scores *s, int class) { return part_of(count_of(s, class, class), labels_of(s, class)); }

/* ---- Text ------------------------------------------------------------------------------------------------------- */

static void put_name(const term *t, const char *name)
{
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, name);
}

__attribute__((format(printf, 3, 4))) static void put_row(const term *t, const char *what, const char *format, ...)
{
    char text[2000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, what);
    cli_print(stdout, "%s\n", text);
}

static void put_head(const term *t, const eval_setting *set, const eval_scores *s)
{
    const mha_model_info *m = &set->about;
    char text[MODEL_WORDS];
    put_row(t, "model", "%s", set->file);
    put_row(t, "",
            "%" PRId64 " block%s of %s, width %" PRId64 ", patches of %" PRId64 " x %" PRId64 ", %" PRId64
            " parameters",
            m->blocks, plural(m->blocks), model_heads_words(text, set->model, true), m->width, m->patch, m->patch,
            m->parameters);
    if (set->off) {
        put_name(t, "without");
        head_list_print(set->off, set->model, INDENT + NAME);
        printf("\n");
    }
    put_row(t, "data", "the %" PRId64 " %s image%s %s%s", s->score.count, set->part, plural(s->score.count),
            set->set.synthetic ? "drawn by " : "of ", set->set.name);
    if (set->set.synthetic && !set->folder)
        put_row(t, "", "synthetic digits: the accuracy does not compare with MNIST");
    printf("\n%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, "accuracy");
    snprintf(text, sizeof text, "%.2f %%", 100 * part_of(s->score.correct, s->score.count));
    term_left(t, 0, TERM_BOLD, text);
    printf("   %" PRId64 " correct, %" PRId64 " wrong\n", s->score.correct, s->score.count - s->score.correct);
    put_row(t, "loss", "%.4f", s->score.loss);
    put_row(t, "speed", "%.0f images/s: %.2f s, %d thread%s, %s on %s", (double)s->score.count / s->seconds, s->seconds,
            set->threads, set->threads == 1 ? "" : "s", set->type, set->isa);
    printf("\n");
}

static int64_t largest_error(const eval_scores *s)
{
    int64_t most = 1;
    for (int i = 0; i < s->classes; i++)
        for (int j = 0; j < s->classes; j++)
            if (i != j && count_of(s, i, j) > most) most = count_of(s, i, j);
    return most;
}

/* Five columns, so that the table fits the screen; more for counts of five digits. */
static int cell_width(const eval_scores *s)
{
    int64_t most = 0;
    for (int c = 0; c < s->classes; c++)
        if (answers_of(s, c) > most) most = answers_of(s, c);
    return most < 10000 ? CELL : snprintf(NULL, 0, "%" PRId64, most) + 2;
}

/* Correct counts are bold; errors are coloured, brighter for larger counts. */
static void put_cell(const term *t, int width, const eval_scores *s, int label, int answer, int64_t most)
{
    int64_t count = count_of(s, label, answer);
    bool wrong = label != answer && count > 0;
    if (!wrong || t->depth == TERM_MONO) {
        term_number(t, width, 0, label == answer ? TERM_BOLD : TERM_PLAIN, (double)count);
        return;
    }
    printf(" ");
    scale_ground(t, (double)count / (double)most);
    printf("%*" PRId64 "%s", width - 1, count, term_style_on(t, TERM_PLAIN));
}

static void put_share(const term *t, int width, int decimals, double share)
{
    char text[20] = "-";
    if (isfinite(share)) snprintf(text, sizeof text, "%.*f", decimals, 100 * share);
    term_right(t, width, TERM_PLAIN, text);
}

static void put_table_head(const term *t, int width, const eval_scores *s)
{
    char name[12];
    put_name(t, "predicted");
    for (int c = 0; c < s->classes; c++) {
        snprintf(name, sizeof name, "%d", c);
        term_right(t, width, TERM_FAINT, name);
    }
    term_right(t, COUNT, TERM_FAINT, "images");
    term_right(t, SHARE, TERM_FAINT, "recall %");
    printf("\n");
}

static void put_table_foot(const term *t, int width, const eval_scores *s)
{
    term_rule(t, INDENT, NAME + s->classes * width + COUNT + SHARE);
    put_name(t, "predictions");
    for (int c = 0; c < s->classes; c++) printf("%*" PRId64, width, answers_of(s, c));
    printf("%*" PRId64, COUNT, s->score.count);
    put_share(t, SHARE, 2, part_of(s->score.correct, s->score.count));
    printf("\n");
    put_name(t, "precision %");
    for (int c = 0; c < s->classes; c++) { /* "100" next to "100" needs a gap */
        double share = eval_precision(s, c);
        put_share(t, width, share < 0.9995 ? 1 : 0, share);
    }
    printf("\n");
}

/* The confusion matrix: labels down, predictions across, with recall at the right and precision below. */
static void put_table(const term *t, const eval_scores *s)
{
    int64_t most = largest_error(s);
    int width = cell_width(s);
    put_table_head(t, width, s);
    for (int label = 0; label < s->classes; label++) {
        char name[20];
        snprintf(name, sizeof name, "label %d", label);
        put_name(t, name);
        for (int answer = 0; answer < s->classes; answer++) put_cell(t, width, s, label, answer, most);
        printf("%*" PRId64, COUNT, labels_of(s, label));
        put_share(t, SHARE, 2, eval_recall(s, label));
        printf("\n");
    }
    put_table_foot(t, width, s);
}

static void put_worst(const term *t, const eval_setting *set, const eval_scores *s)
{
    if (!s->worst_count) return;
    printf("\n%*s", INDENT, "");
    term_left(t, 0, TERM_BOLD, "Worst errors");
    printf("\n");
    for (int i = 0; i < s->worst_count; i++) {
        const eval_error *m = &s->worst[i];
        printf("%*simage %-6" PRId64 "  label %d, predicted %d with %.2f %%; label probability %.2g %%\n", INDENT, "",
               m->index, m->label, m->answer, 100 * m->probability, 100 * m->of_label);
    }
    if (strcmp(set->part, "test") != 0 || set->off) return; /* mha classify has all heads */
    printf("\n%*s", INDENT, "");
    term_left(t, 0, TERM_BOLD, "Try next");
    cli_print(stdout, "  %s classify %s %" PRId64 "%s%s --heads\n", cli_program(), set->file, s->worst[0].index,
              set->folder ? " --data " : "", set->folder ? set->folder : "");
}

void eval_print_text(const term *t, const eval_setting *set, const eval_scores *s)
{
    put_head(t, set, s);
    put_table(t, s);
    put_worst(t, set, s);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------ */

static void put_number(const char *before, const char *format, double x)
{
    fputs(before, stdout);
    if (isfinite(x)) printf(format, x);
    else fputs("null", stdout);
}

static void put_text(const char *before, const char *text)
{
    char quoted[1200];
    printf("%s%s", before, nn_json_quote(quoted, sizeof quoted, text));
}

static void put_model(const mha_model *model, const mha_model_info *m)
{
    printf(",\n  \"parameters\": %" PRId64 ", \"blocks\": %" PRId64 ", \"heads\": %" PRId64 ", \"block_heads\": [",
           m->parameters, m->blocks, m->block_heads);
    for (int64_t l = 0; l < m->blocks; l++)
        printf("%s%" PRId64, l ? ", " : "", mha_model_attention_get(model, l).heads);
    printf("], \"width\": %" PRId64 ", \"patch\": %" PRId64, m->width, m->patch);
}

static void put_off(const eval_setting *set)
{
    int64_t n = 0, named = 0;
    printf(", \"without\": [");
    for (int64_t l = 0; set->off && l < set->about.blocks; l++)
        for (int64_t h = 0; h < mha_model_attention_get(set->model, l).heads; h++)
            if (set->off[n++]) printf("%s{\"block\": %" PRId64 ", \"head\": %" PRId64 "}", named++ ? ", " : "", l, h);
    printf("]");
}

static void put_classes(const eval_scores *s)
{
    printf(",\n  \"classes\": [\n");
    for (int c = 0; c < s->classes; c++) {
        printf("    {\"label\": %d, \"images\": %" PRId64 ", \"answers\": %" PRId64 ", \"correct\": %" PRId64, c,
               labels_of(s, c), answers_of(s, c), count_of(s, c, c));
        put_number(", \"precision\": ", "%.6f", eval_precision(s, c));
        put_number(", \"recall\": ", "%.6f", eval_recall(s, c));
        printf("}%s\n", c + 1 < s->classes ? "," : "");
    }
    printf("  ],\n  \"confusion\": [\n");
    for (int i = 0; i < s->classes; i++) {
        printf("    [");
        for (int j = 0; j < s->classes; j++) printf("%s%" PRId64, j ? ", " : "", count_of(s, i, j));
        printf("]%s\n", i + 1 < s->classes ? "," : "");
    }
    printf("  ]");
}

void eval_print_json(const eval_setting *set, const eval_scores *s)
{
    put_text("{\n  \"model\": ", set->file);
    put_model(set->model, &set->about);
    put_off(set);
    put_text(",\n  \"data\": ", set->set.name);
    printf(", \"synthetic\": %s", set->set.synthetic ? "true" : "false");
    put_text(", \"part\": ", set->part);
    printf(",\n  \"images\": %" PRId64 ", \"correct\": %" PRId64, s->score.count, s->score.correct);
    put_number(", \"accuracy\": ", "%.6f", part_of(s->score.correct, s->score.count));
    put_number(", \"loss\": ", "%.6f", s->score.loss);
    put_number(",\n  \"seconds\": ", "%.6f", s->seconds);
    put_number(", \"images_per_second\": ", "%.1f", (double)s->score.count / s->seconds);
    printf(", \"threads\": %d", set->threads);
    put_text(", \"isa\": ", set->isa);
    put_text(", \"dtype\": ", set->type);
    put_classes(s);
    printf(",\n  \"worst\": [");
    for (int i = 0; i < s->worst_count; i++) {
        const eval_error *m = &s->worst[i];
        printf("%s\n    {\"index\": %" PRId64 ", \"label\": %d, \"answer\": %d", i ? "," : "", m->index, m->label,
               m->answer);
        put_number(", \"probability\": ", "%.6g", m->probability);
        put_number(", \"of_label\": ", "%.6g", m->of_label);
        printf("}");
    }
    printf("%s]\n}\n", s->worst_count ? "\n  " : "");
}
