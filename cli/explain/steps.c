/* One word in one head, from x to y, in three tables of the same layout: multiply down the columns, add up at the line.
 *
 * All numbers are computed; three decimals are enough to check each sum with a calculator. */
#include "cli/explain/explain.h"

#include <math.h>
#include <stdio.h>

enum { NAME = 14 };

static void spaces(int n) { printf("%*s", n, ""); }

/* One formula of a step: the step's name, or "", the formula, and its shapes at the right end of the table. */
static void formula(const term *t, const char *name, const char *text, const char *shapes)
{
    spaces(INDENT);
    term_left(t, NAME, TERM_BOLD, name);
    fputs(text, stdout);
    term_right(t, MEASURE - NAME - term_columns(text), TERM_FAINT, shapes);
    printf("\n");
}

/* D numbers of a row, each in `width` columns, after a mark: the name of a sum, or nothing. */
static void pair(const term *t, int gap, const char *mark, int width, term_style style, const float *two)
{
    spaces(gap - 1);
    term_left(t, 1, TERM_FAINT, mark);
    for (int d = 0; d < D; d++) term_number(t, width, 3, style, (double)two[d]);
}

/* The names of such a pair, over its two columns. */
static void names(const term *t, int gap, int width, const char *first, const char *second)
{
    spaces(gap);
    term_right(t, width, TERM_FAINT, first);
    term_right(t, width, TERM_FAINT, second);
}

/* ---- 1: x beside the three matrices of the head ----------------------------------------------------------------- */

enum { X_WIDTH = 16, GAP = 4, ENTRY = 8 };

static void projection_columns(const term *t)
{
    static const char *const matrices[3][3] = {{"W_Q", "right", "up"}, {"W_K", "right", "up"}, {"W_V", "thing", "act"}};
    spaces(INDENT);
    term_right(t, X_WIDTH, TERM_FAINT, "x");
    for (int i = 0; i < 3; i++) {
        spaces(GAP - 1);
        term_left(t, 3, TERM_FAINT, matrices[i][0]);
        term_right(t, ENTRY - 2, TERM_FAINT, matrices[i][1]);
        term_right(t, ENTRY, TERM_FAINT, matrices[i][2]);
    }
    printf("\n");
}

static void draw_projection(const term *t, const explain_model *m, int word, int head)
{
    formula(t, "1  Project", "q = x W_Q     k = x W_K     v = x W_V", "(8) (8, 2) = (2)");
    printf("\n");
    projection_columns(t);
    for (int n = 0; n < M; n++) {
        spaces(INDENT);
        term_left(t, X_WIDTH - 6, TERM_PLAIN, explain_slots[n]);
        term_number(t, 6, 3, TERM_PLAIN, (double)m->x[word][n]);
        pair(t, GAP, "", ENTRY, TERM_PLAIN, m->w_q[head][n]);
        pair(t, GAP, "", ENTRY, TERM_PLAIN, m->w_k[head][n]);
        pair(t, GAP, "", ENTRY, TERM_PLAIN, m->w_v[head][n]);
        printf("\n");
    }
    term_rule(t, INDENT, MEASURE);
    spaces(INDENT + X_WIDTH);
    pair(t, GAP, "q", ENTRY, TERM_BOLD, m->q[head][word]);
    pair(t, GAP, "k", ENTRY, TERM_BOLD, m->k[head][word]);
    pair(t, GAP, "v", ENTRY, TERM_BOLD, m->v[head][word]);
    printf("\n\n");
}

/* ---- 2: the query against every key ----------------------------------------------------------------------------- */

static void attention_formulas(const term *t)
{
    formula(t, "2  Attend", term_pick(t, "s = q \u00b7 k / \u221a2", "s = q . k / sqrt(2)"), "(2) (2, 8) = (8)");
    formula(t, "",
            term_pick(t, "weight = exp(s - max) / \u03a3 exp(s - max)", "weight = exp(s - max) / sum exp(s - max)"),
            "softmax (8) = (8)");
    formula(t, "", term_pick(t, "o = \u03a3 weight \u00d7 v", "o = sum weight * v"), "(8) (8, 2) = (2)");
    printf("\n");
}

static void attention_columns(const term *t)
{
    spaces(INDENT + 9);
    term_right(t, 9, TERM_FAINT, "k");
    term_right(t, 40, TERM_FAINT, "v");
    term_right(t, 17, TERM_FAINT, term_pick(t, "weight \u00d7 v", "weight * v"));
    printf("\n");
    spaces(INDENT);
    names(t, 9, 7, "right", "up");
    term_right(t, 9, TERM_FAINT, "s");
    term_right(t, 7, TERM_FAINT, "exp");
    term_right(t, 11, TERM_FAINT, "weight");
    names(t, 2, 5, "thing", "act");
    names(t, 0, 7, "thing", "act");
    printf("\n");
}

static void attention_row(const term *t, const explain_model *m, int word, int head, int key, double exponential)
{
    double weight = (double)m->weights[head][word][key];
    spaces(INDENT);
    term_left(t, 9, TERM_PLAIN, explain_words[key].text);
    for (int d = 0; d < D; d++) term_number(t, 7, 3, TERM_PLAIN, (double)m->k[head][key][d]);
    term_number(t, 9, 3, TERM_PLAIN, (double)m->scores[head][word][key]);
    term_number(t, 7, 3, TERM_PLAIN, exponential);
    spaces(2);
    term_heat(t, 3, weight);
    term_number(t, 6, 3, weight >= 0.25 ? TERM_BOLD : TERM_PLAIN, weight);
    for (int d = 0; d < D; d++) term_number(t, d == 0 ? 7 : 5, 0, TERM_PLAIN, (double)m->v[head][key][d]);
    for (int d = 0; d < D; d++) term_number(t, 7, 3, TERM_PLAIN, weight * (double)m->v[head][key][d]);
    printf("\n");
}

static void draw_attention(const term *t, const explain_model *m, int word, int head)
{
    double largest = -INFINITY, total = 0, one = 0, exponentials[T];
    for (int j = 0; j < T; j++) /* not fmax: gcc 12 fails on that loop on Arm */
        if ((double)m->scores[head][word][j] > largest) largest = (double)m->scores[head][word][j];
    for (int j = 0; j < T; j++) {
        total += exponentials[j] = exp((double)m->scores[head][word][j] - largest);
        one += (double)m->weights[head][word][j];
    }
    attention_formulas(t);
    attention_columns(t);
    for (int j = 0; j < T; j++) attention_row(t, m, word, head, j, exponentials[j]);
    term_rule(t, INDENT, MEASURE);
    spaces(INDENT + 32);
    term_number(t, 7, 3, TERM_PLAIN, total);
    term_number(t, 11, 3, TERM_PLAIN, one);
    pair(t, 12, "o", 7, TERM_BOLD, m->out[word][head]);
    printf("\n\n");
}

/* ---- 3: all heads beside the output matrix ---------------------------------------------------------------------- */

enum { PART = 16, OUT = 7, COLUMN = 6 };

/* The columns of W_O are printed in pairs. */
static int column_width(int n) { return n == 0 ? COLUMN + 2 : n % 2 == 0 ? COLUMN + 1 : COLUMN; }

static void output_columns(const term *t)
{
    static const char *const columns[M] = {"doer", "deed", "thing", "act", "thing", "act", "thing", "act"};
    spaces(INDENT + PART + OUT + 1);
    term_left(t, 2 * COLUMN + 1, TERM_FAINT, "W_O");
    term_right(t, 10, TERM_FAINT, "near");
    names(t, 1, 2 * COLUMN + 1, "before", "mean");
    printf("\n");
    spaces(INDENT + PART);
    term_right(t, OUT, TERM_FAINT, "concat");
    for (int n = 0; n < M; n++) term_right(t, column_width(n), TERM_FAINT, columns[n]);
    printf("\n");
}

static void output_row(const term *t, const explain_model *m, int word, int row, int marked)
{
    static const char *const parts[D] = {"thing", "act"};
    int head = row / D, part = row % D;
    char label[32] = "";
    if (part == 0) snprintf(label, sizeof label, "%d %s", head + 1, explain_heads[head].name);
    spaces(INDENT);
    term_left(t, PART - 5, TERM_PLAIN, label);
    term_left(t, 5, TERM_FAINT, parts[part]);
    term_number(t, OUT, 3, head == marked ? TERM_BOLD : TERM_PLAIN, (double)m->out[word][head][part]);
    for (int n = 0; n < M; n++) term_number(t, column_width(n), 2, TERM_PLAIN, (double)m->w_o[row][n]);
    printf("\n");
}

static void draw_output(const term *t, const explain_model *m, int word, int head)
{
    formula(t, "3  Output", "y = concat(o of heads 1 to 4) W_O", "(8) (8, 8) = (8)");
    printf("\n");
    output_columns(t);
    for (int row = 0; row < H * D; row++) output_row(t, m, word, row, head);
    term_rule(t, INDENT, MEASURE);
    spaces(INDENT + PART + OUT + 1);
    term_left(t, 1, TERM_FAINT, "y");
    for (int n = 0; n < M; n++) term_number(t, column_width(n) - (n == 0 ? 2 : 0), 2, TERM_BOLD, (double)m->y[word][n]);
    printf("\n\n");
}

void explain_draw_steps(const term *t, const explain_model *model, int word, int head)
{
    char title[80];
    snprintf(title, sizeof title, "Step by step: %s in head %d, %s", explain_words[word].text, head + 1,
             explain_heads[head].habit);
    spaces(INDENT);
    term_left(t, 0, TERM_BOLD, title);
    printf("\n");
    term_rule(t, INDENT, MEASURE);
    spaces(INDENT);
    term_left(t, 0, TERM_FAINT, "Multiply down each column, add up at the line.");
    printf("\n\n");
    draw_projection(t, model, word, head);
    draw_attention(t, model, word, head);
    draw_output(t, model, word, head);
}
