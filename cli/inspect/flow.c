/* The diagram of a model: input, one block in detail, output. The shapes are those of one sequence. */
#include "cli/inspect/inspect.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Where the next node goes, and what it follows. */
typedef struct pen {
    flow *f;
    const session *s;
    int row, group;
    int last;                /* the node that the next one follows; -1 for none */
    char carries[FLOW_TEXT]; /* the shape of what the next arrow carries, or "" */
} pen;

__attribute__((format(printf, 5, 6))) static int put(pen *p, flow_kind kind, double column, const char *title,
                                                     const char *shape, ...)
{
    flow_node n = {.kind = kind, .column = column, .row = p->row, .group = p->group};
    va_list args;
    va_start(args, shape);
    snprintf(n.title, sizeof n.title, "%s", title);
    vsnprintf(n.shape, sizeof n.shape, shape, args);
    va_end(args);
    return flow_put(p->f, n);
}

/* Puts a node in the middle, below the last one. */
#define FOLLOW(p, kind, ...) follow(p, put(p, kind, 1, __VA_ARGS__))
static int follow(pen *p, int node)
{
    if (p->last >= 0) flow_link(p->f, p->last, node, p->carries);
    p->last = node;
    p->row++;
    return node;
}

static void carry(pen *p, int64_t rows, int64_t columns)
{
    snprintf(p->carries, sizeof p->carries, "(%lld, %lld)", (long long)rows, (long long)columns);
}

static void put_norm(pen *p)
{
    const mha_model_info *i = &p->s->about;
    FOLLOW(p, FLOW_WEIGHT, strcmp(i->norm, "rms") == 0 ? "RMS norm" : "LayerNorm", "(%lld)", (long long)i->width);
}

/* x + f(x): the sum of the last node and the one that the branch began at, with the norm after it if there is one.
 * Returns what the next branch begins at. */
static int put_sum(pen *p, int from)
{
    int sum = FOLLOW(p, FLOW_SUM, "+", "%s", "");
    flow_link_around(p->f, from, sum);
    if (strcmp(p->s->about.norm_place, "behind") == 0) put_norm(p);
    return p->last;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------ */

static void put_input(pen *p)
{
    const mha_model_info *i = &p->s->about;
    int64_t patches = i->tokens - i->class_token, pixels = i->channels * i->patch * i->patch;
    FOLLOW(p, FLOW_DATA, "image", "(%lld, %lld, %lld)", (long long)i->channels, (long long)i->rows,
           (long long)i->columns);
    FOLLOW(p, FLOW_STEP, "cut into patches", "%lld x %lld pixels each", (long long)i->patch, (long long)i->patch);
    carry(p, patches, pixels);
    FOLLOW(p, FLOW_WEIGHT, "\u00d7 W, + bias", "(%lld, %lld)", (long long)pixels, (long long)i->width);
    carry(p, patches, i->width);
    FOLLOW(p, FLOW_WEIGHT, i->class_token ? "class token, + positions" : "+ positions", "(%lld, %lld)",
           (long long)i->tokens, (long long)i->width);
    carry(p, i->tokens, i->width);
    FOLLOW(p, FLOW_DATA, "X, the tokens", "(%lld, %lld)", (long long)i->tokens, (long long)i->width);
}

/* From the last node to Q, K and V, cut into heads; their nodes go to `cut`. */
static void put_heads(pen *p, int cut[3], const char *heads)
{
    static const char *const names[][2] = {
        {"\u00d7 W_Q, + bias", "Q"}, {"\u00d7 W_K, + bias", "K"}, {"\u00d7 W_V, + bias", "V"}};
    const mha_model_info *i = &p->s->about;
    mha_model_attention a = mha_model_attention_get(p->s->model, 0);
    for (int n = 0; n < 3; n++) {
        int step =
            put(p, FLOW_WEIGHT, n, names[n][0], "(%lld, %s x %lld)", (long long)i->width, heads, (long long)a.width);
        flow_link(p->f, p->last, step, "");
        p->row++;
        cut[n] = put(p, FLOW_DATA, n, names[n][1], "(%s, %lld, %lld)", heads, (long long)i->tokens, (long long)a.width);
        p->f->nodes[cut[n]].copies = (int)(a.heads > 4 ? 4 : a.heads);
        flow_link(p->f, step, cut[n], "");
        p->row--;
    }
    p->row += 2;
}

static void put_attention(pen *p)
{
    const mha_model_info *i = &p->s->about;
    mha_model_attention a = mha_model_attention_get(p->s->model, 0);
    char heads[MODEL_WORDS], title[FLOW_TEXT];
    int cut[3];
    put_heads(p, cut, model_heads_words(heads, p->s->model, true));
    snprintf(title, sizeof title, "softmax(Q K\u1d40 / \u221a%lld)", (long long)a.width);
    int weights = put(p, FLOW_DATA, 0.5, title, "(%s, %lld, %lld)", heads, (long long)i->tokens, (long long)i->tokens);
    p->f->nodes[weights].copies = p->f->nodes[cut[0]].copies;
    if (i->causal) snprintf(p->f->nodes[weights].note, FLOW_TEXT, "causal");
    p->row++;
    flow_link(p->f, cut[0], weights, "");
    flow_link(p->f, cut[1], weights, "");
    p->last = weights;
    p->carries[0] = 0;
    int sums = FOLLOW(p, FLOW_STEP, "weights \u00d7 V, concat", "%s", "");
    flow_link(p->f, cut[2], sums, "");
    FOLLOW(p, FLOW_WEIGHT, "\u00d7 W_O, + bias", "(%s x %lld, %lld)", heads, (long long)a.width, (long long)i->width);
    carry(p, i->tokens, i->width);
}

static void put_mlp(pen *p)
{
    const mha_model_info *i = &p->s->about;
    FOLLOW(p, FLOW_WEIGHT, "\u00d7 W_1, + bias", "(%lld, %lld)", (long long)i->width, (long long)i->mlp);
    carry(p, i->tokens, i->mlp);
    FOLLOW(p, FLOW_STEP, i->activation, "%s", "");
    FOLLOW(p, FLOW_WEIGHT, "\u00d7 W_2, + bias", "(%lld, %lld)", (long long)i->mlp, (long long)i->width);
    carry(p, i->tokens, i->width);
}

static void put_block(pen *p)
{
    char title[FLOW_TEXT];
    bool before = strcmp(p->s->about.norm_place, "before") == 0;
    int from = p->last;
    snprintf(title, sizeof title, p->s->about.blocks == 1 ? "1 block" : "%lld blocks, one after another",
             (long long)p->s->about.blocks);
    p->group = flow_frame(p->f, title);
    if (before) put_norm(p);
    put_attention(p);
    from = put_sum(p, from);
    if (before) put_norm(p);
    put_mlp(p);
    put_sum(p, from);
    p->group = 0;
}

static void put_output(pen *p)
{
    const mha_model_info *i = &p->s->about;
    if (i->final_norm) put_norm(p);
    FOLLOW(p, FLOW_STEP, i->class_token ? "row of the class token" : "mean of all rows", "%s", "");
    snprintf(p->carries, sizeof p->carries, "(%lld)", (long long)i->width);
    FOLLOW(p, FLOW_WEIGHT, "\u00d7 W, + bias", "(%lld, %lld)", (long long)i->width, (long long)i->classes);
    snprintf(p->carries, sizeof p->carries, "(%lld)", (long long)i->classes);
    FOLLOW(p, FLOW_DATA, "logits", "%lld classes", (long long)i->classes);
}

void inspect_flow(flow *f, const session *s)
{
    char count[INSPECT_NUMBER];
    const char *slash = strrchr(s->from->file, '/');
    pen p = {.f = f, .s = s, .last = -1};
    *f = (flow){0};
    snprintf(f->headline, sizeof f->headline, "%.150s", slash ? slash + 1 : s->from->file);
    snprintf(f->about, sizeof f->about, "%s, %s parameters, %lld block%s of width %lld", s->about.family,
             inspect_commas(count, s->about.parameters), (long long)s->about.blocks, s->about.blocks == 1 ? "" : "s",
             (long long)s->about.width);
    put_input(&p);
    put_block(&p);
    put_output(&p);
}
