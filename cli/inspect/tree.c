/* The tree of a model: parts, and under them their tensors. The order is that of the computation: input, blocks, final
 * norm, output. */
#include "cli/common/cli.h"
#include "cli/inspect/inspect.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAME = 44, SHAPE = 16, COUNT = 13, SHARE = 7 };
_Static_assert(NAME + SHAPE + COUNT + SHARE == 80, "a line fits");

/* ---- Text ------------------------------------------------------------------------------------------------------- */

const char *inspect_commas(char out[INSPECT_NUMBER], int64_t number)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)number), n = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0) out[n++] = ',';
        out[n++] = digits[i];
    }
    out[n] = 0;
    return out;
}

const char *inspect_shape(char out[INSPECT_SHAPE], const mha_tensor *t)
{
    size_t n = (size_t)snprintf(out, INSPECT_SHAPE, "(");
    for (int i = 0; i < t->rank; i++)
        n += (size_t)snprintf(out + n, INSPECT_SHAPE - n, i ? ", %lld" : "%lld", (long long)t->size[i]);
    snprintf(out + n, INSPECT_SHAPE - n, ")");
    return out;
}

int64_t inspect_numbers(const mha_tensor *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->rank; i++) count *= t->size[i];
    return count;
}

bool inspect_same(const mha_model_place *a, const mha_model_place *b)
{
    return a->block == b->block && strcmp(a->stack, b->stack) == 0 && strcmp(a->part, b->part) == 0;
}

/* ---- What the model is ------------------------------------------------------------------------------------------ */

__attribute__((format(printf, 3, 4))) static void put_row(const term *t, const char *what, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fputs("  ", stdout);
    term_left(t, 12, TERM_FAINT, what);
    cli_print(stdout, "%s\n", text);
}

static void put_about(const session *s, const term *t)
{
    const mha_model_info *i = &s->about;
    char heads[MODEL_WORDS], count[INSPECT_NUMBER], bytes[INSPECT_NUMBER];
    put_row(t, "file", "%s", s->from->file);
    put_row(t, "family", "%s", i->family);
    if (i->patch) {
        put_row(t, "input", "images of %lld x %lld x %lld in patches of %lld x %lld", (long long)i->channels,
                (long long)i->rows, (long long)i->columns, (long long)i->patch, (long long)i->patch);
        put_row(t, "", "%lld tokens%s", (long long)i->tokens, i->class_token ? ", the first a class token" : "");
    }
    put_row(t, "blocks", "%lld of width %lld, with %s of width %lld%s", (long long)i->blocks, (long long)i->width,
            model_heads_words(heads, s->model), (long long)mha_model_attention_get(s->model, 0).width,
            i->causal ? ", causal" : "");
    put_row(t, "", "MLP of width %lld, activation %s", (long long)i->mlp, i->activation);
    put_row(t, "", "%s norm %s each branch%s, epsilon %g", i->norm, i->norm_place,
            i->final_norm ? " and at the end" : "", (double)i->epsilon);
    if (i->classes) put_row(t, "output", "%lld classes", (long long)i->classes);
    put_row(t, "parameters", "%s, %s bytes as float32", inspect_commas(count, i->parameters),
            inspect_commas(bytes, 4 * i->parameters));
}

/* ---- The tree --------------------------------------------------------------------------------------------------- */

typedef struct tree {
    const mha_model *model;
    const term *t;
    int64_t count, total; /* tensors, numbers */
} tree;

static mha_model_place place_of(const tree *x, int64_t n) { return mha_model_parameter_place(x->model, n); }

static void put_line(const tree *x, const char *name, term_style style, const char *shape, int64_t numbers, bool share)
{
    char count[INSPECT_NUMBER], part[16];
    fputs("  ", stdout);
    term_left(x->t, NAME - 2, style, name);
    term_left(x->t, SHAPE, TERM_FAINT, shape);
    term_right(x->t, COUNT, style, inspect_commas(count, numbers));
    snprintf(part, sizeof part, "%.1f%%", 100.0 * (double)numbers / (double)(x->total ? x->total : 1));
    if (share) term_right(x->t, SHARE, TERM_FAINT, part);
    printf("\n");
}

/* The name of a tensor with the number of its block as {l}, if the line stands for several blocks. */
static void name_of(char out[200], const tree *x, int64_t n, bool several)
{
    const char *name = mha_model_parameter_get(x->model, n).name;
    char number[24];
    size_t length = (size_t)snprintf(number, sizeof number, ".%lld.", (long long)place_of(x, n).block);
    const char *at = several ? strstr(name, number) : NULL;
    if (at) snprintf(out, 200, "%.*s.{l}.%s", (int)(at - name), name, at + length);
    else snprintf(out, 200, "%s", name);
}

/* The sum over the tensors of a block (part NULL), or of one part of it. */
static int64_t sum_of(const tree *x, const mha_model_place *p, bool whole_block)
{
    int64_t sum = 0;
    for (int64_t n = 0; n < x->count; n++) {
        mha_model_place q = place_of(x, n);
        mha_tensor t = mha_model_parameter_get(x->model, n).tensor;
        if (whole_block ? q.block == p->block && strcmp(q.stack, p->stack) == 0 : inspect_same(p, &q))
            sum += inspect_numbers(&t);
    }
    return sum;
}

/* The tensors of one part, after its name and its sum. `several` blocks have the same. */
static void put_part(const tree *x, const mha_model_place *p, int depth, int64_t several)
{
    char line[260], name[200], shape[INSPECT_SHAPE];
    const char *branch = term_pick(x->t, "\u251c ", "|-"), *last = term_pick(x->t, "\u2514 ", "`-");
    int64_t end = -1, sum = sum_of(x, p, false);
    for (int64_t n = 0; n < x->count; n++) {
        mha_model_place q = place_of(x, n);
        if (inspect_same(p, &q)) end = n;
    }
    snprintf(line, sizeof line, "%*s%s", 2 * depth, "", p->part);
    put_line(x, line, depth ? TERM_PLAIN : TERM_BOLD, "", sum * several, true);
    for (int64_t n = 0; n <= end; n++) {
        mha_model_place q = place_of(x, n);
        mha_tensor t = mha_model_parameter_get(x->model, n).tensor;
        if (!inspect_same(p, &q)) continue;
        name_of(name, x, n, several > 1);
        snprintf(line, sizeof line, "%*s%s%s", 2 * depth, "", n == end ? last : branch, name);
        put_line(x, line, TERM_PLAIN, inspect_shape(shape, &t), inspect_numbers(&t), false);
    }
}

/* Whether the next tensor belongs to a part that no tensor before it belongs to. */
static bool is_new(const tree *x, int64_t n)
{
    mha_model_place p = place_of(x, n);
    for (int64_t i = 0; i < n; i++) {
        mha_model_place q = place_of(x, i);
        if (inspect_same(&p, &q)) return false;
    }
    return true;
}

/* Whether the tensors of two blocks have the same parts and shapes, one by one. */
static bool same_blocks(const tree *x, const char *stack, int64_t a, int64_t b)
{
    int64_t i = 0, j = 0;
    for (;;) {
        while (i < x->count && (place_of(x, i).block != a || strcmp(place_of(x, i).stack, stack) != 0)) i++;
        while (j < x->count && (place_of(x, j).block != b || strcmp(place_of(x, j).stack, stack) != 0)) j++;
        if (i == x->count || j == x->count) return i == x->count && j == x->count;
        mha_tensor s = mha_model_parameter_get(x->model, i++).tensor, t = mha_model_parameter_get(x->model, j++).tensor;
        if (s.rank != t.rank || memcmp(s.size, t.size, sizeof s.size) != 0) return false;
    }
}

static void put_blocks(const tree *x, const char *stack, bool all)
{
    int64_t most = -1;
    char line[80];
    for (int64_t n = 0; n < x->count; n++)
        if (strcmp(place_of(x, n).stack, stack) == 0 && place_of(x, n).block > most) most = place_of(x, n).block;
    for (int64_t first = 0, end; first <= most; first = end) {
        mha_model_place block = {stack, first, ""};
        for (end = first + 1; !all && end <= most && same_blocks(x, stack, first, end);) end++;
        if (end - first > 1)
            snprintf(line, sizeof line, "blocks %lld to %lld, all alike", (long long)first, (long long)end - 1);
        else snprintf(line, sizeof line, "block %lld", (long long)first);
        put_line(x, line, TERM_BOLD, "", sum_of(x, &block, true) * (end - first), true);
        for (int64_t n = 0; n < x->count; n++) {
            mha_model_place p = place_of(x, n);
            if (p.block == first && strcmp(p.stack, stack) == 0 && is_new(x, n)) put_part(x, &p, 1, end - first);
        }
    }
}

/* The part of a stack that belongs to no block. */
static void put_outside(const tree *x, const char *stack, const char *part)
{
    mha_model_place p = {stack, -1, part};
    if (sum_of(x, &p, false)) put_part(x, &p, 0, 1);
}

void inspect_print_tree(const session *s, const term *t, bool all)
{
    static const char *const stacks[] = {"encoder", "decoder"};
    tree x = {s->model, t, mha_model_parameter_count(s->model), s->about.parameters};
    put_about(s, t);
    fputs("\n  ", stdout);
    term_left(t, NAME - 2, TERM_FAINT, "part");
    term_left(t, SHAPE, TERM_FAINT, "shape");
    term_right(t, COUNT, TERM_FAINT, "parameters");
    printf("\n");
    for (int i = 0; i < 2; i++) {
        put_outside(&x, stacks[i], "input");
        put_blocks(&x, stacks[i], all);
        put_outside(&x, stacks[i], "final norm");
    }
    put_outside(&x, "", "output");
    put_line(&x, "total", TERM_BOLD, "", x.total, true);
}
