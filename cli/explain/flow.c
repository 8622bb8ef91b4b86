/* The diagram of one attention layer over a sentence, with its shapes and the attention maps of its heads. */
#include "cli/explain/explain.h"

#include <stdarg.h>
#include <stdio.h>

/* A node with a title and a shape, both formatted. */
__attribute__((format(printf, 6, 7))) static int put(flow *f, flow_kind kind, double column, int row, const char *title,
                                                     const char *shape, ...)
{
    flow_node n = {.kind = kind, .column = column, .row = row};
    va_list args;
    va_start(args, shape);
    snprintf(n.title, sizeof n.title, "%s", title);
    vsnprintf(n.shape, sizeof n.shape, shape, args);
    va_end(args);
    return flow_put(f, n);
}

/* A sentence, cut to so many columns. */
static void join_words(char out[2 * FLOW_TEXT], const explain_sentence *s, int columns)
{
    char text[EXPLAIN_WORDS * (EXPLAIN_BYTES + 1)];
    size_t n = 0;
    for (int i = 0; i < s->count; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "", s->word[i]);
    size_t fits = term_fitting(text, columns);
    if (fits > FLOW_TEXT) fits = term_fitting(text, columns / 4);
    snprintf(out, 2 * FLOW_TEXT, "%.*s%s", (int)fits, text, text[fits] ? "\u2026" : "");
}

static void put_titles(flow *f, const explain_model *m)
{
    char other[2 * FLOW_TEXT], heads[40];
    join_words(f->headline, &m->query, 60);
    join_words(other, &m->key, 40);
    snprintf(heads, sizeof heads, "%d head%s of width %d", m->H, m->H == 1 ? "" : "s", m->D);
    if (m->cross) snprintf(f->about, sizeof f->about, "Multi-head cross-attention to: %.100s; %s", other, heads);
    else
        snprintf(f->about, sizeof f->about, "Multi-head self-attention: %d word%s, %s%s", m->T, m->T == 1 ? "" : "s",
                 heads, m->causal ? ", causal" : "");
}

/* From the words to Q, K and V; their nodes go to `heads`. Returns the row after them. */
static int put_projections(flow *f, const explain_model *m, int heads[3])
{
    static const char *const names[][2] = {{"\u00d7 W_Q", "Q"}, {"\u00d7 W_K", "K"}, {"\u00d7 W_V", "V"}};
    int x = put(f, FLOW_DATA, m->cross ? 0 : 1, 0, m->cross ? "X, the queries' words" : "X, the words", "(%d, %d)",
                m->T, m->M);
    int z = m->cross ? put(f, FLOW_DATA, 1.5, 0, "Z, the other words", "(%d, %d)", m->K, m->M) : x;
    for (int i = 0; i < 3; i++) {
        int step = put(f, FLOW_WEIGHT, i, 1, names[i][0], "(%d, %d)", m->M, m->M);
        heads[i] = put(f, FLOW_DATA, i, 2, names[i][1], "(%d heads, %d, %d)", m->H, i ? m->K : m->T, m->D);
        f->nodes[heads[i]].copies = m->H;
        flow_link(f, i ? z : x, step, "");
        flow_link(f, step, heads[i], "");
    }
    return 3;
}

/* From Q and K to the weights. Returns the node of the weights; *row is the one after it. */
static int put_weights(flow *f, const explain_model *m, const int heads[3], int *row)
{
    char text[32];
    int scores = put(f, FLOW_DATA, 0.5, (*row)++, "S = Q K\u1d40", "(%d heads, %d, %d)", m->H, m->T, m->K);
    f->nodes[scores].copies = m->H;
    flow_link(f, heads[0], scores, "");
    flow_link(f, heads[1], scores, "");
    snprintf(text, sizeof text, "\u00f7 \u221a%d", m->D);
    int last = scores, step = put(f, FLOW_STEP, 0.5, (*row)++, text, "%s", "");
    flow_link(f, last, step, "");
    last = step;
    if (m->causal) {
        step = put(f, FLOW_STEP, 0.5, (*row)++, "causal mask", "%s", "hides later words");
        flow_link(f, last, step, "");
        last = step;
    }
    step = put(f, FLOW_STEP, 0.5, (*row)++, "softmax", "%s", "over the keys");
    flow_link(f, last, step, "");
    flow_node maps = {.kind = FLOW_MAPS,
                      .column = 1,
                      .row = (*row)++,
                      .span = 3,
                      .title = "attention weights",
                      .parts = m->H,
                      .maps = m->weights,
                      .map_rows = m->T,
                      .map_columns = m->K};
    snprintf(maps.shape, sizeof maps.shape, "(%d heads, %d, %d)", m->H, m->T, m->K);
    for (int h = 0; h < m->H; h++) maps.names[h] = m->head[h].name;
    int weights = flow_put(f, maps);
    flow_link(f, step, weights, "");
    return weights;
}

void explain_flow(flow *f, const explain_model *m)
{
    int heads[3];
    *f = (flow){0};
    put_titles(f, m);
    int row = put_projections(f, m, heads), weights = put_weights(f, m, heads, &row);
    int out = put(f, FLOW_STEP, 1, row++, "weights \u00d7 V", "(%d heads, %d, %d)", m->H, m->T, m->D);
    f->nodes[out].copies = 1;
    flow_link(f, weights, out, "");
    flow_link_around(f, heads[2], out);
    flow_node joined = {.kind = FLOW_JOINED, .column = 1, .row = row++, .span = 3, .title = "concat", .parts = m->H};
    snprintf(joined.shape, sizeof joined.shape, "(%d, %d)", m->T, m->H * m->D);
    for (int h = 0; h < m->H; h++) joined.names[h] = m->head[h].name;
    int concat = flow_put(f, joined);
    flow_link(f, out, concat, "");
    int step = put(f, FLOW_WEIGHT, 1, row++, "\u00d7 W_O", "(%d, %d)", m->H * m->D, m->M);
    flow_link(f, concat, step, "");
    int y = put(f, FLOW_DATA, 1, row++, "Y, the result", "(%d, %d)", m->T, m->M);
    flow_link(f, step, y, "");
}
