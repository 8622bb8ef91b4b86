/* mha explain: eight words through four heads, drawn for the terminal in 80 columns.
 *
 * First what each head looks at, as a heatmap with the numbers beside it; then the arithmetic of one word in one head.
 * explain_words.c computes, explain_steps.c draws the arithmetic, this file draws the rest and reads the options. */
#include "cli/common/cli.h"
#include "cli/explain/explain.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LABEL = 11, CELL = 3, NUMBER = 5, WIDTH = 80 };
_Static_assert(LABEL + T * CELL + 1 + T * NUMBER == MEASURE, "the maps are as wide as the tables");

static const char usage[] = "Examples:\n"
                            "  mha explain                      the four heads, the steps of saw in head 1\n"
                            "  mha explain --word cat --head 3  the steps of another word in another head\n"
                            "  mha explain --color always | less -R\n"
                            "\n"
                            "Usage: mha explain [--word WORD] [--head N] [--color WHEN]\n"
                            "  --word WORD    a word of \"The cat that I saw yesterday ran away\", or 1 to 8\n"
                            "  --head N       1 previous word, 2 next word, 3 same word class, 4 first word\n"
                            "  --color WHEN   auto, always or never; auto means on a terminal, unless\n"
                            "                 NO_COLOR is set or TERM is dumb\n";

/* ---- What the reader sees --------------------------------------------------------------------------------------- */

/* The sentence as linguists gloss one: the number of each word above it, its class below. */
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
    printf("  Each word becomes eight numbers: its place, as the hand of a clock that\n"
           "  points at 1 to 8; a constant; its class. Four heads, not trained but written\n"
           "  down, look at the words in four ways, in one call of mha_attention_forward:\n\n");
    printf("  X (8 words, 8) %s Q, K, V (4 heads, 8, 2) %s weights (4, 8, 8) %s Y (8, 8)\n\n", arrow, arrow, arrow);
    printf("  Rows are the words that look, columns the words looked at. A row adds up\n"
           "  to 1; what rounds to 0 is a dot.\n\n%*s",
           INDENT, "");
    term_left(t, LABEL, TERM_FAINT, "weight");
    term_heat_legend(t);
    printf("\n\n");
}

/* Over the cells the first letters, which are all different; over the numbers the words. */
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

/* The row of the chosen word carries a mark: it is the one that the sentence above and the steps speak of. */
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

/* "saw looks at itself with 0.48 and at ran with 0.48": every word that gets a quarter or more. */
static void say_where(const explain_model *m, int head, int word)
{
    int said = 0;
    printf("%*s%s looks", INDENT, "", explain_words[word].text);
    for (int j = 0; j < T; j++) {
        double weight = (double)m->weights[head][word][j];
        if (weight < 0.25) continue;
        printf("%s at %s with %.2f", said++ ? " and" : "", j == word ? "itself" : explain_words[j].text, weight);
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
    say_where(m, head, word);
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

/* What the four heads found together, and where to go from here. */
static void draw_closing(const term *t, const explain_model *m)
{
    int doer = best_word(m, DOER), deed = best_word(m, DEED);
    printf("  The library's 256 weights agree with a plain softmax in float64 within 1e-6.\n\n");
    printf("  A doer is a thing before an act, a deed is an act after a thing. Strongest\n"
           "  of all eight words: doer %s %.2f, deed %s %.2f. Four heads and one matrix\n"
           "  have found \"%s %s\". That the cat ran, a clause away, takes a second layer.\n\n",
           explain_words[doer].text, (double)m->y[doer][DOER], explain_words[deed].text, (double)m->y[deed][DEED],
           explain_words[doer].text, explain_words[deed].text);
    printf("  %sTry next%s  %s explain --word cat --head 3\n\n", term_style_on(t, TERM_BOLD),
           term_style_on(t, TERM_PLAIN), cli_program());
}

/* ---- What the reader asks --------------------------------------------------------------------------------------- */

typedef struct request {
    int word, head; /* from 0 */
    term_when when;
    bool help;
} request;

/* The index that `text` names, from 0, as a number from 1 to `count`; -1 if it is none. */
static int parse_number(const char *text, int count)
{
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    return errno || end == text || *end || number < 1 || number > count ? -1 : (int)number - 1;
}

static bool parse_word(request *r, const char *text)
{
    r->word = parse_number(text, T);
    for (int i = 0; i < T && r->word < 0; i++)
        if (!strcasecmp(text, explain_words[i].text)) r->word = i;
    if (r->word >= 0) return true;
    cli_error("explain: --word '%s' is not in \"The cat that I saw yesterday ran away\", nor from 1 to %d", text, T);
    return false;
}

static bool parse_head(request *r, const char *text)
{
    r->head = parse_number(text, H);
    if (r->head >= 0) return true;
    cli_error("explain: --head '%s' is not a number from 1 to %d", text, H);
    return false;
}

static bool parse_when(request *r, const char *text)
{
    static const char *const names[] = {"auto", "always", "never"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(text, names[i])) {
            r->when = (term_when)i;
            return true;
        }
    cli_error("explain: --color '%s' is not auto, always or never", text);
    return false;
}

static bool parse(request *r, int argc, char **argv)
{
    static const char *const names[] = {"--word", "--head", "--color", "--help", NULL};
    static bool (*const parsers[])(request *, const char *) = {parse_word, parse_head, parse_when};
    enum { WITH_VALUE = sizeof parsers / sizeof *parsers };
    for (int i = 1; i < argc; i += 2) {
        int known = 0;
        if (cli_wants_help(argv[i])) return r->help = true;
        while (known < WITH_VALUE && strcmp(argv[i], names[known]) != 0) known++;
        if (known == WITH_VALUE) {
            cli_unknown_option("explain", argv[i], names);
            return false;
        }
        if (i + 1 == argc) {
            cli_error("explain: %s needs a value; 'mha explain --help' shows how", argv[i]);
            return false;
        }
        if (!parsers[known](r, argv[i + 1])) return false;
    }
    return true;
}

int cmd_explain(int argc, char **argv)
{
    request r = {.word = 4, .head = 0, .when = TERM_AUTO};
    if (!parse(&r, argc, argv)) return CLI_USAGE;
    if (r.help) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    explain_model model;
    int failed = explain_compute(&model);
    if (failed) return failed;
    term t = term_detect(r.when);
    if (t.width && t.width < WIDTH)
        cli_error("explain: the tables need %d columns, this terminal has %d", WIDTH, t.width);
    draw_header(&t);
    for (int h = 0; h < H; h++) draw_head(&t, &model, h, r.word);
    explain_draw_steps(&t, &model, r.word, r.head);
    draw_closing(&t, &model);
    return CLI_OK;
}
