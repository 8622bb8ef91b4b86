#include "cli/classify/contributions.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { INDENT = 2, NAME = 24, CELL = 10, BAR = 20 };

/* ---- Text ------------------------------------------------------------------------------------------------------- */

/* What the lines of the table have in common. */
typedef struct sheet {
    const term *t;
    const contribution *c;
    int best, second; /* classes; second is -1 if there is one class */
    double most;      /* of the bars */
} sheet;

static int runner_up(const heads_view *v)
{
    int second = -1;
    for (int c = 0; c < v->classes; c++)
        if (c != v->best && (second < 0 || v->probabilities[c] > v->probabilities[second])) second = c;
    return second;
}

static void put_number(const sheet *s, double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.3f", x);
    term_right(s->t, CELL, TERM_PLAIN, fabs(x) < 0.0005 ? "0.000" : text);
}

/* A bar to the right for what favours the predicted class, with a sign for the side. */
static void put_bar(const sheet *s, double x)
{
    int length = s->most > 0 ? (int)lround(BAR * fmin(fabs(x) / s->most, 1)) : 0;
    if (!length) return;
    printf("  %s%s", term_style_on(s->t, x < 0 ? TERM_FAINT : TERM_PLAIN), x < 0 ? "-" : "+");
    for (int i = 0; i < length; i++) fputs(term_pick(s->t, x < 0 ? "\u2591" : "\u2588", x < 0 ? "-" : "#"), stdout);
    fputs(term_style_on(s->t, TERM_PLAIN), stdout);
}

/* The sum of `count` rows from `row` on; heads have bars. */
static void put_line(const sheet *s, const char *name, int64_t row, int64_t count, bool bar)
{
    double best = contribution_sum(s->c, row, count, s->best);
    printf("%*s", INDENT, "");
    term_left(s->t, NAME, TERM_PLAIN, name);
    put_number(s, best);
    if (s->second >= 0) {
        double second = contribution_sum(s->c, row, count, s->second);
        put_number(s, second);
        put_number(s, best - second);
        if (bar) put_bar(s, best - second);
    }
    printf("\n");
}

static void put_names(const sheet *s)
{
    char name[48];
    printf("%*s", INDENT, "");
    term_left(s->t, 0, TERM_BOLD, "Added to the logits");
    printf("  through the final norm and the classification head\n%*s", INDENT + NAME, "");
    snprintf(name, sizeof name, "of %d", s->best);
    term_right(s->t, CELL, TERM_FAINT, name);
    snprintf(name, sizeof name, "of %d", s->second);
    if (s->second >= 0) term_right(s->t, CELL, TERM_FAINT, name);
    snprintf(name, sizeof name, "%d - %d", s->best, s->second);
    if (s->second >= 0) term_right(s->t, CELL, TERM_FAINT, name);
    printf("\n");
    term_rule(s->t, INDENT, 80 - 2 * INDENT);
}

/* The largest difference that a head with a line makes. */
static double largest(const sheet *s, int64_t first, int64_t end)
{
    double most = 0;
    if (s->second < 0) return 0;
    for (int64_t n = first; n < end; n++) {
        int64_t head = contribution_head(n);
        double difference = fabs(contribution_of(s->c, head, s->best) - contribution_of(s->c, head, s->second));
        if (difference > most) most = difference;
    }
    return most;
}

/* All heads outside of [first,end): the first of them, then the others. */
static void put_other_heads(const sheet *s, int64_t first, int64_t end)
{
    double others[2] = {0, 0};
    const int classes[2] = {s->best, s->second};
    if (end - first == s->c->heads) return;
    for (int k = 0; k < 2 && classes[k] >= 0; k++)
        others[k] = contribution_sum(s->c, contribution_head(0), first, classes[k]) +
                    contribution_sum(s->c, contribution_head(end), s->c->heads - end, classes[k]);
    printf("%*s", INDENT, "");
    term_left(s->t, NAME, TERM_PLAIN, "heads of other blocks");
    put_number(s, others[0]);
    if (s->second >= 0) put_number(s, others[1]);
    if (s->second >= 0) put_number(s, others[0] - others[1]);
    printf("\n");
}

void contributions_print(const term *t, const contribution *c, const heads_view *view, int64_t first, int64_t end)
{
    sheet s = {t, c, view->best, runner_up(view), 0};
    s.most = largest(&s, view->first[first], view->first[end]);
    put_names(&s);
    for (int64_t b = first; b < end; b++)
        for (int64_t h = 0; h < heads_view_in(view, b); h++) {
            char name[64];
            snprintf(name, sizeof name, "head %" PRId64 ".%" PRId64, b, h);
            put_line(&s, name, contribution_head(view->first[b] + h), 1, true);
        }
    put_other_heads(&s, view->first[first], view->first[end]);
    put_line(&s, "MLPs", contribution_mlp(c, 0), c->blocks, false);
    put_line(&s, "embedding", CONTRIBUTION_EMBEDDING, 1, false);
    put_line(&s, "biases", contribution_biases(c), 1, false);
    term_rule(t, INDENT, 80 - 2 * INDENT);
    put_line(&s, "logit", 0, contribution_biases(c) + 1, false);
    printf("\n");
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

/* The numbers of a row; row -1: the logits, sums of all rows. */
static void put_row(const contribution *c, int64_t row)
{
    printf("[");
    for (int64_t k = 0; k < c->classes; k++)
        printf("%s%.9g", k ? ", " : "",
               row < 0 ? contribution_sum(c, 0, contribution_biases(c) + 1, k) : contribution_of(c, row, k));
    printf("]");
}

void contributions_print_json(const contribution *c, const heads_view *view)
{
    printf(",\n     \"logits\": ");
    put_row(c, -1);
    printf(",\n     \"contributions\": {\"embedding\": ");
    put_row(c, CONTRIBUTION_EMBEDDING);
    printf(", \"heads\": [");
    for (int64_t b = 0; b < c->blocks; b++)
        for (int64_t h = 0; h < heads_view_in(view, b); h++) {
            printf("%s\n      {\"block\": %" PRId64 ", \"head\": %" PRId64 ", \"logits\": ", b || h ? "," : "", b, h);
            put_row(c, contribution_head(view->first[b] + h));
            printf("}");
        }
    printf("],\n     \"mlps\": [");
    for (int64_t b = 0; b < c->blocks; b++) {
        if (b) printf(", ");
        put_row(c, contribution_mlp(c, b));
    }
    printf("], \"biases\": ");
    put_row(c, contribution_biases(c));
    printf("}");
}
