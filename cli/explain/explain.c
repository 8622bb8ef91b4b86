/* mha explain: eight words and four heads, in 80 columns of the terminal.
 *
 * First the attention weights of each head, as a heatmap and as numbers; then the arithmetic of one word in one head.
 * words.c computes, steps.c prints the arithmetic, this file prints the rest and parses the options. */
#include "cli/common/options.h"
#include "cli/explain/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LABEL = 11, CELL = 3, NUMBER = 5, WIDTH = 80 };
_Static_assert(LABEL + T * CELL + 1 + T * NUMBER == MEASURE, "the maps are as wide as the tables");

static void help(void)
{
    puts("Examples:\n"
         "  mha explain           the four heads, and the steps of \"saw\" in head 1\n"
         "  mha explain --word cat --head 3\n"
         "                        the steps of another word in another head\n"
         "  mha explain --color always | less -R\n"
         "\n"
         "Usage: mha explain [OPTIONS]\n"
         "  --word WORD           a word of \"The cat that I saw yesterday ran away\", or\n"
         "                        its number from 1 to 8\n"
         "  --head N              1 previous word, 2 next word, 3 same word class,\n"
         "                        4 first word\n" CLI_HELP_COLOR "\n"
         "'auto' is off if NO_COLOR is set or TERM is dumb.");
}

/* ---- Output ----------------------------------------------------------------------------------------------------- */

/* The sentence, with the number of each word above it and its class below. */
static void draw_sentence(const term *t)
{
    for (int line = 0; line < 3; line++) {
        printf("%*s", INDENT, "");
        for (int i = 0; i < T; i++) {
            char number[12];
            snprintf(number, sizeof number, "%d", i + 1);
            int word = term_columns(explain_words[i].text), kind = term_columns(explain_words[i].word_class);
            int width = i + 1 < T ? (word > kind ? word : kind) + 4 : 0;
            const char *text = line == 0 ? number : line == 1 ? explain_words[i].text : explain_words[i].word_class;
            term_left(t, width, line == 1 ? TERM_BOLD : TERM_FAINT, text);
        }
        printf("\n");
    }
    printf("\n");
}

static void draw_header(const term *t)
{
    const char *arrow = term_pick(t, "\u2192", "->");
    printf("\n%*s", INDENT, "");
    term_left(t, 0, TERM_BOLD, "Multi-head attention: one sentence, four heads");
    printf("\n");
    term_rule(t, INDENT, MEASURE);
    draw_sentence(t);
    printf("  Each word is embedded as eight numbers: its position, as the hand of a clock\n"
           "  that points at 1 to 8; a constant; its class. Four hand-written heads attend\n"
           "  to the words, in a single call of mha_attention_forward:\n\n");
    printf("  X (8 words, 8) %s Q, K, V (4 heads, 8, 2) %s weights (4, 8, 8) %s Y (8, 8)\n\n", arrow, arrow, arrow);
    printf("  Rows are queries, columns are keys. Each row sums to 1; a dot is a weight that\n"
           "  rounds to 0.\n\n%*s",
           INDENT, "");
    term_left(t, LABEL, TERM_FAINT, "weight");
    term_heat_legend(t);
    printf("\n\n");
}

/* First letters, which are unique, above the cells; words above the numbers. */
static void draw_map_columns(const term *t)
{
    printf("%*s", INDENT + LABEL, "");
    for (int j = 0; j < T; j++) {
        char letter[2] = {explain_words[j].text[0], 0};
        term_right(t, CELL - 1, TERM_FAINT, letter);
        printf(" ");
    }
    printf(" ");
    for (int j = 0; j < T; j++) term_right(t, NUMBER, TERM_FAINT, explain_words[j].brief);
    printf("\n");
}

/* The row of the selected word is marked. */
static void draw_map_row(const term *t, const explain_model *m, int head, int row, bool chosen)
{
    printf("%s ", chosen ? term_pick(t, "\u203a", ">") : " ");
    term_left(t, LABEL, chosen ? TERM_BOLD : TERM_PLAIN, explain_words[row].text);
    for (int j = 0; j < T; j++) term_heat(t, CELL, (double)m->weights[head][row][j]);
    printf(" ");
    for (int j = 0; j < T; j++) {
        double weight = (double)m->weights[head][row][j];
        term_number(t, NUMBER, 2, weight >= 0.25 ? TERM_BOLD : TERM_PLAIN, weight);
    }
    printf("\n");
}

/* "saw attends to itself (0.48) and ran (0.48)": every key with a weight of 0.25 or more. */
static void print_attended(const explain_model *m, int head, int word)
{
    int said = 0;
    printf("%*s%s attends to", INDENT, "", explain_words[word].text);
    for (int j = 0; j < T; j++) {
        double weight = (double)m->weights[head][word][j];
        if (weight < 0.25) continue;
        printf("%s %s (%.2f)", said++ ? " and" : "", j == word ? "itself" : explain_words[j].text, weight);
    }
    printf(".\n");
}

static void draw_head(const term *t, const explain_model *m, int head, int word)
{
    char title[64];
    snprintf(title, sizeof title, "Head %d  %s", head + 1, explain_heads[head].habit);
    printf("%*s", INDENT, "");
    term_left(t, 0, TERM_BOLD, title);
    term_right(t, MEASURE - term_columns(title), TERM_FAINT, explain_heads[head].how);
    printf("\n");
    print_attended(m, head, word);
    draw_map_columns(t);
    for (int i = 0; i < T; i++) draw_map_row(t, m, head, i, i == word);
    printf("\n");
}

/* The word with the largest value in one slot of y. */
static int best_word(const explain_model *m, int slot)
{
    int best = 0;
    for (int i = 1; i < T; i++)
        if (m->y[i][slot] > m->y[best][slot]) best = i;
    return best;
}

/* The result of all heads together, and what to try next. */
static void draw_closing(const term *t, const explain_model *m)
{
    int doer = best_word(m, DOER), deed = best_word(m, DEED);
    printf("  The 256 weights match a plain softmax in float64 to within 1e-6.\n\n");
    printf("  The first two outputs detect a doer (a thing before an act) and a deed (an act\n"
           "  after a thing). Largest values: doer %s %.2f, deed %s %.2f. Four heads and one\n"
           "  matrix find \"%s %s\". Finding \"cat ran\", a clause apart, needs a second layer.\n\n",
           explain_words[doer].text, (double)m->y[doer][DOER], explain_words[deed].text, (double)m->y[deed][DEED],
           explain_words[doer].text, explain_words[deed].text);
    printf("  %sTry next%s  %s explain --word cat --head 3\n\n", term_style_on(t, TERM_BOLD),
           term_style_on(t, TERM_PLAIN), cli_program());
}

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    int word;     /* from 0 */
    int64_t head; /* from 1 */
    term_when when;
} request;

static bool parse_word(const cli_given *given, void *to)
{
    const char *text = given->value;
    request *r = to;
    char *end;
    long number = strtol(text, &end, 10);
    r->word = *text && !*end && number >= 1 && number <= T ? (int)number - 1 : -1;
    for (int i = 0; i < T && r->word < 0; i++)
        if (!strcasecmp(text, explain_words[i].text)) r->word = i;
    if (r->word >= 0) return true;
    return cli_error("explain: --word must be in \"The cat that I saw yesterday ran away\" or from 1 to %d, not '%s'",
                     T, text);
}

static const cli_option options[] = {CLI_OWN("--word", parse_word), CLI_NUMBER("--head", request, head, 1, H),
                                     CLI_COLOR(request, when), CLI_END};

int cmd_explain(int argc, char **argv)
{
    request r = {.word = 4, .head = 1, .when = TERM_AUTO};
    int stop = cli_parse("explain", argc, argv, options, help, &r);
    if (stop) return stop - 1;
    explain_model model;
    int failed = explain_compute(&model);
    if (failed) return failed;
    term t = term_detect(r.when);
    if (t.width && t.width < WIDTH)
        cli_error("explain: the tables need %d columns, but this terminal has %d", WIDTH, t.width);
    draw_header(&t);
    for (int h = 0; h < H; h++) draw_head(&t, &model, h, r.word);
    explain_draw_steps(&t, &model, r.word, (int)r.head - 1);
    draw_closing(&t, &model);
    return CLI_OK;
}
