/* The table of a text model's heads, one for each kind of attention. */
#include "cli/common/cli.h"
#include "cli/heads/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INDENT = 2, NAME = 8, BLOCK = 5, HEAD = 5, GAP = 2, WORDS = 24, COLUMNS = 5 };
enum { SHORT = 64 }; /* below that many tokens, numbers and words depend on the text more than on the head */

/* ---- Columns ---------------------------------------------------------------------------------------------------- */

/* A number of a head: its column's name, width and decimals; from `bold` on it stands out. */
typedef struct column {
    const char *name;
    size_t at;
    int width, decimals;
    double bold;
} column;

#define AT(field) offsetof(mha_text_head, field)
static const column decoder_columns[COLUMNS] = {{"entropy", AT(entropy), 8, 2, INFINITY},
                                                {"distance", AT(distance), 9, 1, INFINITY},
                                                {"previous", AT(previous), 9, 2, 0.5},
                                                {"first", AT(first), 6, 2, 0.5},
                                                {"induction", AT(induction), 10, 2, 0.3}};
static const column encoder_columns[COLUMNS] = {{"entropy", AT(entropy), 8, 2, INFINITY},
                                                {"previous", AT(previous), 9, 2, 0.5},
                                                {"next", AT(next), 9, 2, 0.5},
                                                {"first", AT(first), 6, 2, 0.5},
                                                {"last", AT(last), 10, 2, 0.5}};
static const column cross_columns[COLUMNS] = {{"entropy", AT(entropy), 8, 2, INFINITY},
                                              {"largest", AT(largest), 9, 2, 0.5},
                                              {"first", AT(first), 9, 2, 0.5},
                                              {"last", AT(last), 6, 2, 0.5},
                                              {"in order", AT(monotone), 10, 2, 0.7}};

static const column *columns_of(const mha_text_head *h)
{
    return h->cross ? cross_columns : h->decoder ? decoder_columns : encoder_columns;
}

static double column_value(const mha_text_head *h, const column *c)
{
    return *(const double *)(const void *)((const char *)h + c->at);
}

static void put_value(const term *t, const column *c, double x)
{
    if (!isfinite(x)) term_right(t, c->width, TERM_FAINT, "-");
    else term_number(t, c->width, c->decimals, x >= c->bold ? TERM_BOLD : TERM_PLAIN, x);
}

/* ---- Order ------------------------------------------------------------------------------------------------------ */

static double sort_value(const mha_text_head *h, heads_sort sort)
{
    double x = sort == HEADS_BY_ENTROPY     ? h->entropy
               : sort == HEADS_BY_DISTANCE  ? h->distance
               : sort == HEADS_BY_INDUCTION ? -h->induction
               : sort == HEADS_BY_PREVIOUS  ? -h->previous
               : sort == HEADS_BY_FIRST     ? -h->first
                                            : 0;
    return isnan(x) ? 0 : x;
}

/* The heads from `first` to below `end`, in that order; ties keep the order of blocks. */
static void sort_heads(int64_t *order, const text_survey *s, int64_t first, int64_t end, heads_sort sort)
{
    for (int64_t n = first; n < end; n++) {
        int64_t at = n;
        for (; at > first && sort_value(&s->heads[order[at - 1]], sort) > sort_value(&s->heads[n], sort); at--)
            order[at] = order[at - 1];
        order[at] = n;
    }
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

static void put_title(const term *t, const text_survey *s, const char *file, const char *text)
{
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, "model");
    cli_print(stdout, "%s: %" PRId64 " head%s\n", file, s->info.heads, plural(s->info.heads));
    printf("%*s", INDENT, "");
    term_left(t, NAME, TERM_FAINT, s->audio ? "audio" : "text");
    const char *what = s->pair && !s->audio ? "line" : "window";
    cli_print(stdout, "%s: %" PRId64 " token%s", text, s->tokens, plural(s->tokens));
    printf("; %" PRId64 " %s%s", s->info.windows, what, plural(s->info.windows));
    if (s->window && !s->pair) printf(" of %" PRId64, s->window);
    printf("; %.1f s\n", s->seconds);
    if (s->unused)
        printf("%*s%" PRId64 " token%s in no window: --window and --sample choose the windows\n", INDENT + NAME, "",
               s->unused, s->unused == 1 ? " is" : "s are");
    if (s->tokens - s->unused < SHORT)
        printf("%*sshort: results of fewer than %d tokens say little about a head\n", INDENT + NAME, "", SHORT);
    if (s->info.repeats)
        printf("%*sinduction: %" PRId64 " sequence%s of %" PRId64 " random token%s, each repeated once\n",
               INDENT + NAME, "", s->info.repeats, plural(s->info.repeats), s->info.repeat_length,
               plural(s->info.repeat_length));
}

static const char *kind_of(const mha_text_head *h)
{
    return h->cross ? "Cross-attention of the decoder" : h->decoder ? "Decoder" : "Encoder";
}

static void put_names(const term *t, const mha_text_head *h, bool pair)
{
    printf("\n");
    if (pair) {
        printf("%*s", INDENT, "");
        term_left(t, 0, TERM_BOLD, kind_of(h));
        printf("\n");
    }
    printf("%*s", INDENT, "");
    term_right(t, BLOCK, TERM_FAINT, "block");
    term_right(t, HEAD, TERM_FAINT, "head");
    printf("%*s", GAP, "");
    term_left(t, WORDS, TERM_FAINT, "attends to");
    for (int c = 0; c < COLUMNS; c++) term_right(t, columns_of(h)[c].width, TERM_FAINT, columns_of(h)[c].name);
    printf("\n");
    term_rule(t, INDENT, 80 - 2 * INDENT);
}

static void put_head(const term *t, const mha_text_head *h)
{
    printf("%*s%*" PRId64 "%*" PRId64 "%*s", INDENT, "", BLOCK, h->block, HEAD, h->head, GAP, "");
    term_left(t, WORDS, strncmp(h->words, "induction", 9) == 0 ? TERM_BOLD : TERM_PLAIN, h->words);
    for (int c = 0; c < COLUMNS; c++) put_value(t, &columns_of(h)[c], column_value(h, &columns_of(h)[c]));
    printf("\n");
}

/* Explains the columns of the attentions that there are. */
static void put_foot(const text_survey *s)
{
    const mha_text_head *h = &s->heads[0], *last = &s->heads[s->info.heads - 1];
    printf("\n%*sentropy: of a query's weights, in nats; equal weights have %.2f\n", INDENT, "", h->uniform);
    printf("%*sprevious, first, ...: mean weight of that token, of queries that have it\n", INDENT, "");
    if (last->decoder && !last->cross)
        printf("%*sdistance: mean distance to the attended tokens, in tokens\n", INDENT, "");
    if (last->decoder && s->info.repeats)
        printf("%*sinduction: mean weight of the token behind an earlier occurrence of the\n"
               "%*squery's token, in repeated random tokens; equal weights have %.3f\n",
               INDENT, "", INDENT, "", h->chance);
    if (last->cross)
        printf("%*slargest: mean of a query's largest weight; in order: correlation of a target\n"
               "%*stoken's place and that of its %s\n",
               INDENT, "", INDENT, "", s->audio ? "frames" : "source tokens");
}

bool text_table(const term *t, const text_survey *s, heads_sort sort, const char *file, const char *text)
{
    int64_t *order = calloc((size_t)s->info.heads, sizeof *order);
    if (!order) return false;
    put_title(t, s, file, text);
    for (int64_t first = 0, end; first < s->info.heads; first = end) {
        const mha_text_head *h = &s->heads[first];
        for (end = first;
             end < s->info.heads && s->heads[end].cross == h->cross && s->heads[end].decoder == h->decoder;)
            end++;
        sort_heads(order, s, first, end, sort);
        put_names(t, h, s->pair);
        for (int64_t n = first; n < end; n++) put_head(t, &s->heads[order[n]]);
    }
    put_foot(s);
    free(order);
    return true;
}
