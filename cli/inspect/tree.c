/* The tree of a model: parts, and under them their tensors. The order is that of the computation: input, blocks, final
 * norm, output. */
#include "cli/common/cli.h"
#include "cli/inspect/inspect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 45, SHAPE = 15, COUNT = 13, SHARE = 7 };
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

/* ---- The tree --------------------------------------------------------------------------------------------------- */

typedef struct tree {
    const mha_model *model;
    const term *t;
    int64_t count, total; /* tensors, numbers */
} tree;

static mha_model_place place_of(const tree *x, int64_t n) { return mha_model_parameter_place(x->model, n); }

/* `numbers` below 0: they are those of another tensor. */
static void put_line(const tree *x, const char *name, term_style style, const char *shape, int64_t numbers, bool share)
{
    char count[INSPECT_NUMBER], part[16];
    fputs("  ", stdout);
    term_left(x->t, NAME - 2, style, name);
    term_left(x->t, SHAPE, TERM_FAINT, shape);
    term_right(x->t, COUNT, style, numbers < 0 ? "shared" : inspect_commas(count, numbers));
    snprintf(part, sizeof part, "%.1f%%", 100.0 * (double)numbers / (double)(x->total ? x->total : 1));
    if (share) term_right(x->t, SHARE, TERM_FAINT, part);
    printf("\n");
}

/* What a tensor adds to the numbers of the model: nothing, if they are those of an earlier one. */
static int64_t own_numbers(const tree *x, int64_t n)
{
    mha_model_parameter p = mha_model_parameter_get(x->model, n);
    return p.same < 0 ? inspect_numbers(&p.tensor) : 0;
}

/* Of a tensor of an expert, what follows its number, as in "blocks.0.3.mlp.fc1.weight"; and the number. NULL if it is none. */
static const char *behind_expert(const tree *x, int64_t n, int64_t *expert)
{
    const char *name = mha_model_parameter_get(x->model, n).name;
    char number[24], *end;
    size_t length = (size_t)snprintf(number, sizeof number, ".%lld.", (long long)place_of(x, n).block);
    const char *at = strstr(name, number);
    if (!at || at[length] < '0' || at[length] > '9') return NULL;
    *expert = strtoll(at + length, &end, 10);
    return end + 1;
}

/* The name of a tensor with the number of its block as {l}, if the line stands for several blocks, and that of its expert as
 * {e}, if it stands for several of them. */
static void name_of(char out[200], const tree *x, int64_t n, bool several, bool experts)
{
    const char *name = mha_model_parameter_get(x->model, n).name;
    char number[24], block[24];
    int64_t expert;
    size_t length = (size_t)snprintf(number, sizeof number, ".%lld.", (long long)place_of(x, n).block);
    const char *at = several || experts ? strstr(name, number) : NULL, *rest = behind_expert(x, n, &expert);
    snprintf(block, sizeof block, "%s", several ? ".{l}." : number);
    if (at && experts && rest) snprintf(out, 200, "%.*s%s{e}.%s", (int)(at - name), name, block, rest);
    else if (at && several) snprintf(out, 200, "%.*s.{l}.%s", (int)(at - name), name, at + length);
    else snprintf(out, 200, "%s", name);
}

/* The sum over the tensors of a block (part NULL), or of one part of it. */
static int64_t sum_of(const tree *x, const mha_model_place *p, bool whole_block)
{
    int64_t sum = 0;
    for (int64_t n = 0; n < x->count; n++) {
        mha_model_place q = place_of(x, n);
        if (whole_block ? q.block == p->block && strcmp(q.stack, p->stack) == 0 : inspect_same(p, &q))
            sum += own_numbers(x, n);
    }
    return sum;
}

/* The tensors of one part, after its name and its sum. `several` blocks have the same; tensors of all experts are one line
 * unless `all` are asked for. */
static void put_part(const tree *x, const mha_model_place *p, int depth, int64_t several, bool all)
{
    char line[260], name[200], shape[INSPECT_SHAPE];
    const char *branch = term_pick(x->t, "\u251c ", "|-"), *last = term_pick(x->t, "\u2514 ", "`-");
    int64_t end = -1, expert = 0, sum = sum_of(x, p, false);
    for (int64_t n = 0; n < x->count; n++) {
        mha_model_place q = place_of(x, n);
        if (inspect_same(p, &q) && (all || !behind_expert(x, n, &expert) || !expert)) end = n;
    }
    snprintf(line, sizeof line, "%*s%s", 2 * depth, "", p->part);
    put_line(x, line, depth ? TERM_PLAIN : TERM_BOLD, "", sum * several, true);
    for (int64_t n = 0; n <= end; n++) {
        mha_model_place q = place_of(x, n);
        mha_model_parameter of = mha_model_parameter_get(x->model, n);
        bool experts = behind_expert(x, n, &expert) && !all;
        if (!inspect_same(p, &q) || (experts && expert)) continue;
        name_of(name, x, n, several > 1, experts);
        snprintf(line, sizeof line, "%*s%s%s", 2 * depth, "", n == end ? last : branch, name);
        put_line(x, line, TERM_PLAIN, inspect_shape(shape, &of.tensor), of.same < 0 ? inspect_numbers(&of.tensor) : -1,
                 false);
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
        mha_model_parameter p = mha_model_parameter_get(x->model, i++), q = mha_model_parameter_get(x->model, j++);
        if (p.tensor.rank != q.tensor.rank || memcmp(p.tensor.size, q.tensor.size, sizeof p.tensor.size) != 0 ||
            (p.same < 0) != (q.same < 0))
            return false;
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
            if (p.block == first && strcmp(p.stack, stack) == 0 && is_new(x, n)) put_part(x, &p, 1, end - first, all);
        }
    }
}

/* The part of a stack that belongs to no block. */
static void put_outside(const tree *x, const char *stack, const char *part)
{
    mha_model_place p = {stack, -1, part};
    for (int64_t n = 0; n < x->count; n++) {
        mha_model_place q = place_of(x, n);
        if (inspect_same(&p, &q)) {
            put_part(x, &p, 0, 1, true);
            return;
        }
    }
}

void inspect_print_tree(const session *s, const term *t, const inspect_tokenizer *k, bool all)
{
    static const char *const stacks[] = {"encoder", "decoder"};
    tree x = {s->model, t, mha_model_parameter_count(s->model), s->about.parameters};
    inspect_print_about(s, t, k);
    fputs("\n  ", stdout);
    term_left(t, NAME - 2, TERM_FAINT, "part");
    term_left(t, SHAPE, TERM_FAINT, "shape");
    term_right(t, COUNT, TERM_FAINT, "parameters");
    printf("\n");
    for (int i = 0; i < 2; i++) {
        if (s->about.encoder_blocks) {
            fputs("  ", stdout);
            term_left(t, 0, TERM_BOLD, stacks[i]);
            printf("\n");
        }
        put_outside(&x, stacks[i], "input");
        put_blocks(&x, stacks[i], all);
        put_outside(&x, stacks[i], "final norm");
    }
    put_outside(&x, "", "output");
    put_line(&x, "total", TERM_BOLD, "", x.total, true);
}
