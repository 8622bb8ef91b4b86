/* The sentence, its embeddings, and what every head attends to: a heatmap and its numbers.
 *
 * Up to eight keys, the heatmap and the numbers are side by side. More keys get a heatmap of their own and numbers in
 * groups of columns. Columns of a heatmap have the numbers of the words, columns of numbers their first letters. */
#include "cli/explain/explain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LABEL = 11, CELL = 3, NUMBER = 5, BESIDE = 8, NARROW_CELL = 2, ENTRY = 8, PEAK = 25 };
_Static_assert(LABEL + BESIDE * CELL + 1 + BESIDE * NUMBER == MEASURE, "the maps are as wide as the tables");
_Static_assert(LABEL + EXPLAIN_WORDS * NARROW_CELL <= MEASURE, "the longest sentence fits");

/* ---- Tables ----------------------------------------------------------------------------------------------------- */

void explain_number(const term *t, int width, term_style style, double value)
{
    int decimals = fabs(value) < 99.9995 ? 3 : fabs(value) < 999.995 ? 2 : 1;
    if (isfinite(value)) term_number(t, width, decimals, style, value);
    else term_right(t, width, TERM_FAINT, term_pick(t, value > 0 ? "\u221e" : "-\u221e", value > 0 ? "inf" : "-inf"));
}

/* Groups of about equal size. */
static int group_size(int columns, int most)
{
    int groups = (columns + most - 1) / most;
    return (columns + groups - 1) / groups;
}

static void draw_label(const term *t, const char *word, int width, term_style style)
{
    char shortened[EXPLAIN_BYTES + 8];
    term_left(t, width, style, explain_shorten(shortened, t, word, width - 1));
}

void explain_draw_table(const term *t, const explain_model *m, const explain_table *table)
{
    int size = group_size(table->columns, table->most);
    char name[16];
    for (int first = 0; first < table->columns; first += size) {
        int end = first + size < table->columns ? first + size : table->columns;
        printf("%*s", INDENT, "");
        term_left(t, LABEL, TERM_FAINT, table->corner);
        for (int c = first; c < end; c++) term_right(t, ENTRY, TERM_FAINT, table->name(name, m, c));
        printf("\n");
        for (int r = 0; r < table->rows->count; r++) {
            term_style style = r == table->marked ? TERM_BOLD : TERM_PLAIN;
            printf("%*s", INDENT, "");
            draw_label(t, table->rows->word[r], LABEL, style);
            for (int c = first; c < end; c++)
                explain_number(t, ENTRY, style, (double)table->values[r * table->stride + c]);
            printf("\n");
        }
        printf("\n");
    }
}

/* ---- The sentence ----------------------------------------------------------------------------------------------- */

/* Words with their numbers above and their marks, if there are any, below, on as many lines as they take. */
static void draw_words(const term *t, const explain_sentence *s, const char *const *roles)
{
    enum { WIDEST = 30, SPACE = 2 };
    char text[EXPLAIN_BYTES + 8];
    for (int first = 0, end; first < s->count; first = end) {
        int width[EXPLAIN_WORDS], room = MEASURE;
        for (end = first; end < s->count; end++) {
            int role = roles ? term_columns(roles[end]) : 0;
            width[end] = term_columns(explain_shorten(text, t, s->word[end], WIDEST));
            if (role > width[end]) width[end] = role;
            if (end > first && width[end] > room) break;
            room -= width[end] + SPACE;
        }
        for (int line = 0; line < (roles ? 3 : 2); line++) {
            printf("%*s", INDENT, "");
            for (int i = first; i < end; i++) {
                if (line == 0) snprintf(text, sizeof text, "%d", i + 1);
                else if (line == 1) explain_shorten(text, t, s->word[i], WIDEST);
                else snprintf(text, sizeof text, "%s", roles[i]);
                term_left(t, i + 1 < end ? width[i] + SPACE : 0, line == 1 ? TERM_BOLD : TERM_FAINT, text);
            }
            printf("\n");
        }
        printf("\n");
    }
}

static void draw_title(const term *t, const explain_model *m)
{
    char title[100];
    snprintf(title, sizeof title, "Multi-head attention: %s, %d head%s%s", m->cross ? "two sentences" : "one sentence",
             m->H, m->H == 1 ? "" : "s", m->causal ? ", causal" : "");
    printf("\n%*s", INDENT, "");
    term_left(t, 0, TERM_BOLD, title);
    printf("\n");
    term_rule(t, INDENT, MEASURE);
    if (m->cross) printf("  Queries come from this sentence:\n\n");
    draw_words(t, &m->query, m->own ? m->roles : NULL);
    if (!m->cross) return;
    printf("  Keys and values come from this one:\n\n");
    draw_words(t, &m->key, NULL);
}

/* What the numbers of a word and the heads are, and what they are not. */
static void draw_origin(const explain_model *m)
{
    if (m->own) {
        printf("  Each word is eight numbers: its position, as the hand of a clock that points\n"
               "  at 1 to 8; a constant; five marks: subject, verb, main clause, relative\n"
               "  clause, and the noun that it describes. The four heads were written by hand\n"
               "  for this sentence.\n\n");
        return;
    }
    printf("  Each word is %d numbers: its position and the word itself, each as the hand\n"
           "  of a clock; a constant; numbers drawn from its letters (c1, ...).\n",
           m->M);
    if (m->patterns == 1) printf("  Head 1 is a pattern written by hand; it does not know the language.\n");
    else printf("  Heads 1 to %d are patterns written by hand; they do not know the language.\n", m->patterns);
    printf("  %s and W_O are random, as in a layer before training.\n\n",
           m->patterns < m->H ? "Other heads, all values" : "Values");
}

static void draw_shapes(const term *t, const explain_model *m)
{
    const char *arrow = term_pick(t, "\u2192", "->");
    if (m->cross)
        printf("  X (%d, %d) %s Q (%d, %d, %d)     Z (%d, %d) %s K, V (%d, %d, %d)\n  Q, K, V", m->T, m->M, arrow, m->H,
               m->T, m->D, m->K, m->M, arrow, m->H, m->K, m->D);
    else printf("  X (%d, %d) %s Q, K, V (%d, %d, %d)", m->T, m->M, arrow, m->H, m->T, m->D);
    printf(" %s weights (%d, %d, %d) %s Y (%d, %d)\n\n", arrow, m->H, m->T, m->K, arrow, m->T, m->M);
}

static const char *slot_name(char out[16], const explain_model *m, int column)
{
    snprintf(out, 16, "%s", m->slot[column]);
    return out;
}

/* ---- Maps ------------------------------------------------------------------------------------------------------- */

/* The numbers of the keys, above cells. */
static void draw_key_numbers(const term *t, int count, int cell)
{
    char number[12];
    for (int j = 0; j < count; j++) {
        bool skipped = cell == NARROW_CELL && j % 2; /* there is no room for two digits and a space */
        snprintf(number, sizeof number, "%d", j + 1);
        if (skipped) continue;
        term_right(t, j ? 2 + (cell == CELL ? 1 : NARROW_CELL) : 2, TERM_FAINT, number);
    }
}

/* First letters, above numbers. */
static void draw_key_words(const term *t, const explain_model *m, int first, int end)
{
    char text[EXPLAIN_BYTES + 1];
    for (int j = first; j < end; j++) {
        const char *word = m->key.word[j];
        snprintf(text, sizeof text, "%.*s", (int)term_fitting(word, NUMBER - 1), word);
        term_right(t, NUMBER, TERM_FAINT, text);
    }
}

/* The row of the selected word is marked. */
static void draw_row_label(const term *t, const explain_model *m, int row, bool chosen)
{
    printf("%s ", chosen ? term_pick(t, "\u203a", ">") : " ");
    draw_label(t, m->query.word[row], LABEL, chosen ? TERM_BOLD : TERM_PLAIN);
}

static void draw_cells(const term *t, const explain_model *m, int head, int row, int cell)
{
    for (int j = 0; j < m->K; j++) {
        float weight = m->weights[explain_at(m, head, row, j)];
        if (t->depth == TERM_MONO && cell == NARROW_CELL && weight < 0.05f) printf(" %s", term_pick(t, "\u00b7", "."));
        else term_heat(t, cell, (double)weight);
    }
}

static void draw_weights(const term *t, const explain_model *m, int head, int row, int first, int end)
{
    for (int j = first; j < end; j++) {
        double weight = (double)m->weights[explain_at(m, head, row, j)];
        term_number(t, NUMBER, 2, 100 * weight >= PEAK ? TERM_BOLD : TERM_PLAIN, weight);
    }
    printf("\n");
}

static void draw_wide_map(const term *t, const explain_model *m, int head, int word)
{
    int size = group_size(m->K, (MEASURE - LABEL) / NUMBER);
    printf("%*s", INDENT + LABEL, "");
    draw_key_numbers(t, m->K, NARROW_CELL);
    printf("\n");
    for (int i = 0; i < m->T; i++) {
        draw_row_label(t, m, i, i == word);
        draw_cells(t, m, head, i, NARROW_CELL);
        printf("\n");
    }
    for (int first = 0; first < m->K; first += size) {
        int end = first + size < m->K ? first + size : m->K;
        printf("\n%*s", INDENT + LABEL, "");
        draw_key_words(t, m, first, end);
        printf("\n");
        for (int i = 0; i < m->T; i++) {
            draw_row_label(t, m, i, i == word);
            draw_weights(t, m, head, i, first, end);
        }
    }
}

static void draw_map(const term *t, const explain_model *m, int head, int word)
{
    printf("%*s", INDENT + LABEL, "");
    draw_key_numbers(t, m->K, CELL);
    printf("  ");
    draw_key_words(t, m, 0, m->K);
    printf("\n");
    for (int i = 0; i < m->T; i++) {
        draw_row_label(t, m, i, i == word);
        draw_cells(t, m, head, i, CELL);
        printf(" ");
        draw_weights(t, m, head, i, 0, m->K);
    }
}

/* "saw attends to itself (0.48) and ran (0.48)": the keys with at least a quarter of the weight. */
static void print_attended(const term *t, const explain_model *m, int head, int word)
{
    char text[EXPLAIN_BYTES + 8];
    int said = 0;
    printf("%*s%s attends to", INDENT, "", explain_shorten(text, t, m->query.word[word], 18));
    for (int j = 0; j < m->K; j++) {
        double weight = (double)m->weights[explain_at(m, head, word, j)];
        bool itself = !m->cross && j == word;
        if (100 * weight < PEAK) continue;
        explain_shorten(text, t, m->key.word[j], said ? 8 : 18);
        printf("%s %s (%.2f)", said ? " and" : "", itself ? "itself" : text, weight);
        said++;
    }
    printf("%s.\n", said ? "" : " many words, each below 0.25");
}

static void draw_head(const term *t, const explain_model *m, int head, int word)
{
    char title[64];
    snprintf(title, sizeof title, "Head %d  %s", head + 1, m->head[head].habit);
    printf("%*s", INDENT, "");
    term_left(t, 0, TERM_BOLD, title);
    term_right(t, MEASURE - term_columns(title), TERM_FAINT, m->head[head].how);
    printf("\n");
    print_attended(t, m, head, word);
    if (m->K <= BESIDE) draw_map(t, m, head, word);
    else draw_wide_map(t, m, head, word);
    printf("\n");
}

void explain_draw_maps(const term *t, const explain_model *m, int word)
{
    explain_table x = {"X", &m->query, word, m->M, 8, slot_name, m->x, m->M};
    explain_table z = {"Z", &m->key, -1, m->M, 8, slot_name, m->z, m->M};
    draw_title(t, m);
    draw_origin(m);
    explain_draw_table(t, m, &x);
    if (m->cross) explain_draw_table(t, m, &z);
    draw_shapes(t, m);
    printf("  Rows are queries, columns are keys. Each row sums to 1; a dot is a weight that\n"
           "  rounds to 0.%s\n\n%*s",
           m->causal ? " A word sees itself and the words before it." : "", INDENT, "");
    term_left(t, LABEL, TERM_FAINT, "weight");
    term_heat_legend(t);
    printf("\n\n");
    for (int h = 0; h < m->H; h++) draw_head(t, m, h, word);
}
