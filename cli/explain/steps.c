/* One word in one head, from x to y, and all heads side by side: multiply down the columns, add up at the line.
 *
 * All numbers are computed by the library; three decimals are enough to check each sum with a calculator. */
#include "cli/explain/explain.h"

#include <math.h>
#include <stdio.h>

enum { NAME = 14, WORD = 11, ENTRY = 8 };

static void print_spaces(int n) { printf("%*s", n, ""); }

/* One formula of a step: the step's name, or "", the formula, and its shapes at the right end of the table. */
static void formula(const term *t, const char *name, const char *text, const char *shapes)
{
    print_spaces(INDENT);
    term_left(t, NAME, TERM_BOLD, name);
    fputs(text, stdout);
    if (*shapes) term_right(t, MEASURE - NAME - term_columns(text), TERM_FAINT, shapes);
    printf("\n");
}

static void word_label(const term *t, int width, const char *word)
{
    char shortened[EXPLAIN_BYTES + 8];
    term_left(t, width, TERM_PLAIN, explain_shorten(shortened, t, word, width - 1));
}

/* ---- 1: x beside the three matrices of the head ----------------------------------------------------------------- */

enum { X_WIDTH = 16, GAP = 4, BLOCK_MOST = (MEASURE - X_WIDTH - GAP) / ENTRY };

/* Some columns of one of the three matrices. */
typedef struct block {
    int matrix, first, count;
} block;

static int cut_blocks(block blocks[], int D)
{
    int n = 0;
    for (int matrix = 0; matrix < 3; matrix++)
        for (int first = 0; first < D; first += BLOCK_MOST)
            blocks[n++] = (block){matrix, first, D - first < BLOCK_MOST ? D - first : BLOCK_MOST};
    return n;
}

static float element(const explain_model *m, const block *b, int head, int n, int d)
{
    const mha_tensor *w[] = {&m->weights_of.q_weight, &m->weights_of.k_weight, &m->weights_of.v_weight};
    return explain_in(m, w[b->matrix], head, n, b->first + d);
}

static void draw_projection_table(const term *t, const explain_model *m, int word, int head, const block *blocks,
                                  int count)
{
    static const char *const matrices[] = {"W_Q", "W_K", "W_V"}, *const sums[] = {"q", "k", "v"};
    const float *results[] = {m->q, m->k, m->v};
    char name[16];
    print_spaces(INDENT);
    term_right(t, X_WIDTH, TERM_FAINT, "x");
    for (int i = 0; i < count; i++) {
        print_spaces(GAP - 1);
        term_left(t, 3, TERM_FAINT, matrices[blocks[i].matrix]);
        for (int d = 0; d < blocks[i].count; d++) {
            snprintf(name, sizeof name, "%d", blocks[i].first + d + 1);
            term_right(t, d ? ENTRY : ENTRY - 2, TERM_FAINT, name);
        }
    }
    printf("\n");
    for (int n = 0; n < m->M; n++) {
        print_spaces(INDENT);
        term_left(t, X_WIDTH - 7, TERM_PLAIN, m->slot[n]);
        explain_number(t, 7, TERM_PLAIN, (double)m->x[word * m->M + n]);
        for (int i = 0; i < count; i++) {
            print_spaces(GAP);
            for (int d = 0; d < blocks[i].count; d++)
                explain_number(t, ENTRY, TERM_PLAIN, (double)element(m, &blocks[i], head, n, d));
        }
        printf("\n");
    }
    term_rule(t, INDENT, MEASURE);
    print_spaces(INDENT + X_WIDTH);
    for (int i = 0; i < count; i++) {
        print_spaces(GAP - 1);
        term_left(t, 1, TERM_FAINT, sums[blocks[i].matrix]);
        for (int d = 0; d < blocks[i].count; d++)
            explain_number(t, ENTRY, TERM_BOLD,
                           (double)results[blocks[i].matrix][explain_of(m, word, head, blocks[i].first + d)]);
    }
    printf("\n\n");
}

/* As many blocks side by side as fit. With --cross there is one x for W_Q only: keys and values of this head are in the
 * next tables. */
static void draw_projection(const term *t, const explain_model *m, int word, int head)
{
    block blocks[3 * (EXPLAIN_WIDTH / BLOCK_MOST + 1)];
    char shapes[64];
    int count = cut_blocks(blocks, m->D);
    snprintf(shapes, sizeof shapes, "(%d) (%d, %d) = (%d)", m->M, m->M, m->D, m->D);
    formula(t, "1  Project",
            m->cross ? "q = x W_Q     (k = z W_K, v = z W_V)" : "q = x W_Q     k = x W_K     v = x W_V", shapes);
    printf("\n");
    while (m->cross && blocks[count - 1].matrix > 0) count--;
    for (int first = 0, end; first < count; first = end) {
        int width = X_WIDTH;
        for (end = first; end < count; end++) {
            width += GAP + ENTRY * blocks[end].count;
            if (width > MEASURE) break;
        }
        draw_projection_table(t, m, word, head, blocks + first, end - first);
    }
}

/* ---- 2: the query against every key ----------------------------------------------------------------------------- */

enum { HALF = 7, SCORE = 9, EXP = 8, WEIGHT = 7 };

static const char *part_name(char out[16], const explain_model *m, int column)
{
    (void)m;
    snprintf(out, 16, "%d", column + 1);
    return out;
}

static void score_formulas(const term *t, const explain_model *m)
{
    char text[80], shapes[64];
    snprintf(shapes, sizeof shapes, "(%d) (%d, %d) = (%d)", m->D, m->D, m->K, m->K);
    formula(t, "2  Score", term_pick(t, "s = q \u00b7 k", "s = q . k"), shapes);
    snprintf(text, sizeof text, term_pick(t, "scaled = s / \u221a%d", "scaled = s / sqrt(%d)"), m->D);
    formula(t, "   Scale", text, "");
    if (m->causal) formula(t, "   Mask", "later words are hidden: their score becomes -infinity", "");
    snprintf(shapes, sizeof shapes, "softmax (%d) = (%d)", m->K, m->K);
    formula(
        t, "   Softmax",
        term_pick(t, "exp = exp(scaled - max), weight = exp / \u03a3", "exp = exp(scaled - max), weight = exp / sum"),
        shapes);
    printf("\n");
}

/* Keys of two numbers are part of the table of scores; wider ones have a table of their own. */
static bool keys_inside(const explain_model *m) { return m->D == 2; }

static void draw_keys(const term *t, const explain_model *m, int word, int head)
{
    explain_sentence only = {.count = 1, .word = {"q"}};
    explain_table q = {"", &only, 0, m->D, 8, part_name, m->q + explain_of(m, word, head, 0), m->H * m->D};
    explain_table k = {"k", &m->key, -1, m->D, 8, part_name, m->k + head * m->D, m->H * m->D};
    explain_draw_table(t, m, &q);
    explain_draw_table(t, m, &k);
}

static void score_columns(const term *t, const explain_model *m)
{
    print_spaces(INDENT + WORD);
    if (keys_inside(m)) {
        term_right(t, HALF, TERM_FAINT, "k 1");
        term_right(t, HALF, TERM_FAINT, "k 2");
    }
    term_right(t, SCORE, TERM_FAINT, "s");
    term_right(t, SCORE, TERM_FAINT, "scaled");
    if (m->causal) term_right(t, SCORE, TERM_FAINT, "masked");
    term_right(t, EXP, TERM_FAINT, "exp");
    term_right(t, 5 + WEIGHT, TERM_FAINT, "weight");
    printf("\n");
}

static void score_row(const term *t, const explain_model *m, int word, int head, int key, double exponential)
{
    int at = explain_at(m, head, word, key);
    double weight = (double)m->weights[at];
    print_spaces(INDENT);
    word_label(t, WORD, m->key.word[key]);
    for (int d = 0; keys_inside(m) && d < m->D; d++)
        explain_number(t, HALF, TERM_PLAIN, (double)m->k[explain_of(m, key, head, d)]);
    explain_number(t, SCORE, TERM_PLAIN, (double)m->raw[at]);
    explain_number(t, SCORE, TERM_PLAIN, (double)m->scaled[at]);
    if (m->causal) explain_number(t, SCORE, TERM_PLAIN, (double)m->masked[at]);
    explain_number(t, EXP, TERM_PLAIN, exponential);
    print_spaces(2);
    term_heat(t, 3, weight);
    explain_number(t, WEIGHT, weight >= 0.25 ? TERM_BOLD : TERM_PLAIN, weight);
    printf("\n");
}

static void draw_scores(const term *t, const explain_model *m, int word, int head)
{
    double largest = -INFINITY, total = 0, one = 0, exponentials[EXPLAIN_WORDS] = {0};
    const float *masked = m->masked + explain_at(m, head, word, 0),
                *weights = m->weights + explain_at(m, head, word, 0);
    for (int j = 0; j < m->K; j++) /* not fmax: gcc 12 fails on that loop on Arm */
        if ((double)masked[j] > largest) largest = (double)masked[j];
    for (int j = 0; j < m->K; j++) {
        total += exponentials[j] = exp((double)masked[j] - largest);
        one += (double)weights[j];
    }
    score_formulas(t, m);
    if (!keys_inside(m)) draw_keys(t, m, word, head);
    score_columns(t, m);
    for (int j = 0; j < m->K; j++) score_row(t, m, word, head, j, exponentials[j]);
    term_rule(t, INDENT, MEASURE);
    print_spaces(INDENT + WORD + (keys_inside(m) ? 2 * HALF : 0) + (m->causal ? 3 : 2) * SCORE);
    explain_number(t, EXP, TERM_PLAIN, total);
    explain_number(t, 5 + WEIGHT, TERM_PLAIN, one);
    printf("\n\n");
}

/* ---- 3: the weighted sum of the values -------------------------------------------------------------------------- */

enum { VALUES_MOST = 3 };

static void draw_values(const term *t, const explain_model *m, int word, int head, int first, int end)
{
    char name[16];
    print_spaces(INDENT + WORD);
    term_right(t, WEIGHT, TERM_FAINT, "weight");
    for (int product = 0; product < 2; product++) {
        print_spaces(2);
        for (int d = first; d < end; d++) {
            snprintf(name, sizeof name, product ? term_pick(t, "\u00d7 v %d", "* v %d") : "v %d", d + 1);
            term_right(t, ENTRY, TERM_FAINT, name);
        }
    }
    printf("\n");
    for (int j = 0; j < m->K; j++) {
        double weight = (double)m->weights[explain_at(m, head, word, j)];
        const float *v = m->v + explain_of(m, j, head, 0);
        print_spaces(INDENT);
        word_label(t, WORD, m->key.word[j]);
        explain_number(t, WEIGHT, TERM_PLAIN, weight);
        print_spaces(2);
        for (int d = first; d < end; d++) explain_number(t, ENTRY, TERM_PLAIN, (double)v[d]);
        print_spaces(2);
        for (int d = first; d < end; d++) explain_number(t, ENTRY, TERM_PLAIN, weight * (double)v[d]);
        printf("\n");
    }
    term_rule(t, INDENT, MEASURE);
    print_spaces(INDENT + WORD + WEIGHT + 3 + (end - first) * ENTRY);
    term_left(t, 1, TERM_FAINT, "o");
    for (int d = first; d < end; d++)
        explain_number(t, ENTRY, TERM_BOLD, (double)m->concat[explain_of(m, word, head, d)]);
    printf("\n\n");
}

static void draw_sum(const term *t, const explain_model *m, int word, int head)
{
    char shapes[64];
    snprintf(shapes, sizeof shapes, "(%d) (%d, %d) = (%d)", m->K, m->K, m->D, m->D);
    formula(t, "3  Sum", term_pick(t, "o = \u03a3 weight \u00d7 v", "o = sum of weight * v"), shapes);
    printf("\n");
    for (int first = 0; first < m->D; first += VALUES_MOST)
        draw_values(t, m, word, head, first, first + VALUES_MOST < m->D ? first + VALUES_MOST : m->D);
}

/* ---- 4: all heads side by side ---------------------------------------------------------------------------------- */

static const char *concat_name(char out[16], const explain_model *m, int column)
{
    int head = column / m->D, part = column % m->D;
    if (part) snprintf(out, 16, "%d", part + 1);
    else snprintf(out, 16, "h%d: 1", head + 1);
    return out;
}

/* "1 next, 2 partner, 3 clause, 4 whole", on as many lines as they take. */
static void draw_head_names(const term *t, const explain_model *m)
{
    char text[40];
    int at = MEASURE;
    for (int h = 0; h < m->H; h++) {
        snprintf(text, sizeof text, "h%d %s%s", h + 1, m->head[h].name, h + 1 < m->H ? "," : "");
        int width = term_columns(text) + (at < MEASURE);
        if (at + width > MEASURE) {
            printf("%s%*s", h ? "\n" : "", INDENT, "");
            at = 0;
        } else printf(" ");
        term_left(t, 0, TERM_FAINT, text);
        at += width;
    }
    printf("\n\n");
}

static void draw_concat(const term *t, const explain_model *m, int word)
{
    char shapes[64];
    int wide = m->H * m->D;
    int most = m->D <= 8 ? 8 / m->D * m->D : 8; /* heads are not cut unless they must be */
    explain_table table = {"concat", &m->query, word, wide, most, concat_name, m->concat, wide};
    snprintf(shapes, sizeof shapes, "%d x (%d, %d) = (%d, %d)", m->H, m->T, m->D, m->T, wide);
    formula(t, "4  Concat", "the results of all heads, side by side", shapes);
    printf("\n");
    draw_head_names(t, m);
    explain_draw_table(t, m, &table);
}

/* ---- 5: concat times the output matrix -------------------------------------------------------------------------- */

enum { PART = 14, OUT = 8, COLUMN = 7, OUT_MOST = (MEASURE - PART - OUT - 2) / COLUMN };

static const char *y_name(char out[16], const explain_model *m, int column)
{
    static const char *const own[] = {"doer", "deed", "next s", "next v", "rel s", "rel v", "mean s", "mean v"};
    if (m->own) snprintf(out, 16, "%s", own[column]);
    else snprintf(out, 16, "y%d", column + 1);
    return out;
}

static void draw_output_table(const term *t, const explain_model *m, int word, int head, int first, int end)
{
    char name[40];
    print_spaces(INDENT + PART);
    term_right(t, OUT, TERM_FAINT, "concat");
    print_spaces(2);
    for (int n = first; n < end; n++) term_right(t, COLUMN, TERM_FAINT, y_name(name, m, n));
    printf("\n");
    for (int e = 0; e < m->H * m->D; e++) {
        if (e % m->D == 0) snprintf(name, sizeof name, "h%d %s", e / m->D + 1, m->head[e / m->D].name);
        print_spaces(INDENT);
        term_left(t, PART - 2, TERM_PLAIN, e % m->D ? "" : name);
        snprintf(name, sizeof name, "%d", e % m->D + 1);
        term_right(t, 2, TERM_FAINT, name);
        explain_number(t, OUT, e / m->D == head ? TERM_BOLD : TERM_PLAIN, (double)m->concat[word * m->H * m->D + e]);
        print_spaces(2);
        for (int n = first; n < end; n++) explain_number(t, COLUMN, TERM_PLAIN, (double)explain_out(m, e, n));
        printf("\n");
    }
    term_rule(t, INDENT, MEASURE);
    print_spaces(INDENT + PART + OUT);
    term_left(t, 2, TERM_FAINT, "y");
    for (int n = first; n < end; n++) explain_number(t, COLUMN, TERM_BOLD, (double)m->y[word * m->M + n]);
    printf("\n\n");
}

static void draw_output(const term *t, const explain_model *m, int word, int head)
{
    char shapes[64];
    int wide = m->H * m->D, groups = (m->M + OUT_MOST - 1) / OUT_MOST, size = (m->M + groups - 1) / groups;
    snprintf(shapes, sizeof shapes, "(%d) (%d, %d) = (%d)", wide, wide, m->M, m->M);
    formula(t, "5  Output", "y = concat W_O", shapes);
    if (m->own) {
        formula(t, "", "doer and deed find the main clause; other columns are subjects", "");
        formula(t, "", "and verbs (s, v) of next word and clause, and the mean of heads", "");
    }
    printf("\n");
    for (int first = 0; first < m->M; first += size)
        draw_output_table(t, m, word, head, first, first + size < m->M ? first + size : m->M);
    explain_table y = {"Y", &m->query, word, m->M, 8, y_name, m->y, m->M};
    explain_draw_table(t, m, &y);
}

void explain_draw_steps(const term *t, const explain_model *m, int word, int head)
{
    char title[200], shortened[EXPLAIN_BYTES + 8];
    snprintf(title, sizeof title, "Step by step: %s in head %d, %s",
             explain_shorten(shortened, t, m->query.word[word], 20), head + 1, m->head[head].habit);
    print_spaces(INDENT);
    term_left(t, 0, TERM_BOLD, title);
    printf("\n");
    term_rule(t, INDENT, MEASURE);
    print_spaces(INDENT);
    term_left(t, 0, TERM_FAINT, "Multiply down each column, add up at the line.");
    printf("\n\n");
    draw_projection(t, m, word, head);
    draw_scores(t, m, word, head);
    draw_sum(t, m, word, head);
    draw_concat(t, m, word);
    draw_output(t, m, word, head);
}
