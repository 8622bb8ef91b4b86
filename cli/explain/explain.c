/* mha explain: attention over a sentence, with every number, in 80 columns of the terminal, as JSON or as a diagram.
 *
 * words.c splits the text, patterns.c writes the heads, compute.c calls the library; maps.c and steps.c print. */
#include "cli/explain/explain.h"
#include "cli/common/diagram.h"
#include "cli/common/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WIDTH = 80, OWN_HEADS = 4, OWN_WIDTH = 8, OWN_WORD = 1, OWN_HEAD = 1 }; /* "cat" in head 2 */

/* ---- Arguments -------------------------------------------------------------------------------------------------- */

typedef struct request {
    const char *text, *cross, *word, *out;
    int64_t heads, width, head; /* head from 1; 0: the default */
    bool causal, json, diagram;
    term_when when;
} request;

static const cli_option options[] = {
    {"--text", "TEXT", "1 to 24 words; Chinese and Japanese characters are words", CLI_TEXT(request, text)},
    {"--causal", NULL, "each word sees itself and the words before it", CLI_FLAG(request, causal),
     .excludes = "--cross", .why = "--causal compares positions in one sentence"},
    {"--cross", "TEXT", "the words of --text attend to those of another sentence", CLI_TEXT(request, cross)},
    {"--heads", "N", "1 to 16", CLI_NUMBER(request, heads, 1, EXPLAIN_HEADS), .preset = "4"},
    {"--width", "N", "numbers per word, 6 to 64", CLI_NUMBER(request, width, EXPLAIN_NARROW, EXPLAIN_WIDTH),
     .otherwise = "8, or the smallest width that has two numbers for each head"},
    {"--word", "WORD", "the word whose steps are printed, or its number", CLI_TEXT(request, word)},
    {"--head", "N", "the head whose steps are printed", CLI_NUMBER(request, head, 1, EXPLAIN_HEADS)},
    {"--json", NULL, "print all numbers as one JSON object", CLI_FLAG(request, json), .excludes = "--diagram"},
    {DIAGRAM_ROW(request, diagram)},
    {DIAGRAM_OUT_ROW(request, out)},
    {CLI_COLOR(request, when)},
    CLI_END};

/* The number of the word that --word names, from 0; -1 after an error. */
static int find_word(const request *r, const explain_model *m)
{
    char *end;
    if (!r->word) return m->own ? OWN_WORD : (m->T - 1) / 2;
    for (int i = 0; i < m->T; i++)
        if (!strcasecmp(r->word, m->query.word[i])) return i;
    long number = strtol(r->word, &end, 10);
    if (*r->word && !*end && number >= 1 && number <= m->T) return (int)number - 1;
    cli_refuse("--word must be a word of the sentence or a number from 1 to %d, not '%s'", m->T, r->word);
    return -1;
}

static bool choose_sizes(const request *r, explain_model *m)
{
    m->H = (int)r->heads;
    m->M = r->width ? (int)r->width : OWN_WIDTH;
    if (!r->width && m->H * 2 > m->M) m->M = m->H * 2;
    while (!r->width && m->M % m->H) m->M++;
    int multiple = m->M / m->H * m->H + m->H;
    if (m->M % m->H)
        return cli_refuse("--width %d is not a multiple of --heads %d; %d would be", m->M, m->H,
                          multiple <= EXPLAIN_WIDTH ? multiple : multiple - m->H);
    m->D = m->M / m->H;
    if (m->D < 2)
        return cli_refuse("--width %d leaves %d heads one number each, but they need two; --width %d would do", m->M,
                          m->H, 2 * m->H);
    if (r->head > m->H) return cli_refuse("--head must be a number from 1 to %d, not '%lld'", m->H, (long long)r->head);
    return true;
}

static bool choose_model(const request *r, explain_model *m)
{
    if (!diagram_can_write(r->out, NULL) || !choose_sizes(r, m)) return false;
    if (!explain_split(&m->query, "--text", r->text)) return false;
    m->key = m->query;
    m->cross = r->cross;
    m->causal = r->causal;
    if (m->cross && !explain_split(&m->key, "--cross", r->cross)) return false;
    m->T = m->query.count;
    m->K = m->key.count;
    m->own = !m->cross && strcmp(r->text, explain_text) == 0 && m->H == OWN_HEADS && m->M == OWN_WIDTH;
    if ((m->query.right_to_left || m->key.right_to_left) && !r->json && !r->diagram)
        return cli_refuse("tables cannot show right-to-left scripts; use --json or --diagram");
    return true;
}

/* ---- Output ----------------------------------------------------------------------------------------------------- */

/* The word with the largest value in one slot of y. */
static int best_word(const explain_model *m, int slot)
{
    int best = 0;
    for (int i = 1; i < m->T; i++)
        if (m->y[i * m->M + slot] > m->y[best * m->M + slot]) best = i;
    return best;
}

/* The result of all heads together, and what to try next. */
static void draw_closing(const term *t, const explain_model *m)
{
    if (m->own) {
        int doer = best_word(m, EXPLAIN_DOER), deed = best_word(m, EXPLAIN_DEED);
        printf("  The first two outputs find the subject (doer) and the verb (deed) of the main\n"
               "  clause. Largest values: doer %s %.2f, deed %s %.2f.\n",
               m->query.word[doer], (double)m->y[doer * m->M + EXPLAIN_DOER], m->query.word[deed],
               (double)m->y[deed * m->M + EXPLAIN_DEED]);
        if (m->causal) printf("  With a causal mask, \"cat\" cannot see its verb, which comes later.\n\n");
        else printf("  One head alone could not: \"I saw\" is a subject and its verb, too.\n\n");
    }
    printf("  All numbers come from the library, step by step. One call of mha_layer_forward\n"
           "  gives the same Y; the largest difference is %.1e.\n\n",
           m->difference);
    printf("  %sTry next%s  %s explain %s\n\n", term_style_on(t, TERM_BOLD), term_style_on(t, TERM_PLAIN),
           cli_program(), m->own ? "--text \"to be or not to be\" --causal" : "--diagram -o flow.svg");
}

static int print_model(const request *r, const explain_model *m, int word)
{
    if (r->diagram) {
        static flow f;
        explain_flow(&f, m);
        return diagram_write(&f, r->out);
    }
    if (r->json) {
        if (explain_print_json(m)) return CLI_OK;
        cli_refuse("not enough memory for the JSON");
        return CLI_USAGE;
    }
    term t = term_detect(r->when);
    if (t.width && t.width < WIDTH) cli_refuse("the tables need %d columns, but this terminal has %d", WIDTH, t.width);
    explain_draw_maps(&t, m, word);
    explain_draw_steps(&t, m, word, r->head ? (int)r->head - 1 : m->own ? OWN_HEAD : 0);
    draw_closing(&t, m);
    return CLI_OK;
}

static int run_explain(void *asked)
{
    const request *r = asked;
    explain_model *m = calloc(1, sizeof *m);
    int code = CLI_USAGE, word = -1;
    if (!m) cli_refuse("not enough memory");
    else if (choose_model(r, m) && (word = find_word(r, m)) >= 0) {
        code = explain_compute(m);
        if (code == CLI_OK) code = print_model(r, m, word);
        explain_free(m);
    }
    free(m);
    return code;
}

static const request defaults = {.text = explain_text};

const cli_command explain_command = {
    .name = "explain",
    .summary = "compute attention step by step on a sentence",
    .usage = "[OPTIONS]",
    .examples = "  mha explain           \"The cat that I saw yesterday ran away\" in four heads,\n"
                "                        and the steps of \"cat\" in head 2\n"
                "  mha explain --text \"to be or not to be\" --causal\n"
                "  mha explain --text \"the cat sat\" --cross \"a dog and the cat\" --head 4\n"
                "  mha explain --diagram -o flow.svg\n"
                "  mha explain --json | jq '.per_head[1].weights'\n",
    .notes = "The default sentence has four heads of its own, of width 8: next word, subject\n"
             "and verb, relative clause, whole sentence. With other words, heads or widths,\n"
             "heads 1 to 5 are next, previous and first word, same word, and whole sentence;\n"
             "further heads are random. The width must be a multiple of the heads, and twice\n"
             "as large at least. Right-to-left scripts need --json or --diagram. 'auto' is off\n"
             "if NO_COLOR is set or TERM is dumb.\n"
             "\n"
             "JSON keys: words, cross (null without --cross), causal, width, heads,\n"
             "head_width, scale, written_for_text, slots, x, z (null without --cross),\n"
             "per_head: [{number, name, attends_to, random, w_q, w_k, w_v, q, k, v, scores,\n"
             "scaled, masked (null where hidden), weights, out}], concat, w_o, y,\n"
             "layer_difference (largest, from the y of a single call of mha_layer_forward).\n",
    .options = options,
    .request_size = sizeof(request),
    .defaults = &defaults,
    .run = run_explain};
