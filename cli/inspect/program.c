/* The program of a model: its steps as a table or as JSON. A step takes two lines: what it does, then its weights. Blocks
 * with the same steps are listed once unless `all` is set. */
#include "cli/common/cli.h"
#include "cli/inspect/inspect.h"
#include "io/json.h"

#include <stdio.h>
#include <string.h>

enum { OPERATION = 19, READS = 19, WRITES = 11, SHAPE = 15 };
_Static_assert(4 + 2 + OPERATION + READS + WRITES + SHAPE + 10 == 80, "a line fits");

typedef struct listing {
    mha_context *ctx;
    const mha_program *program;
    const term *t;
} listing;

static mha_program_step step_at(const listing *l, int64_t n)
{
    mha_program_step step = {.size = sizeof step};
    mha_program_step_get(l->ctx, l->program, n, &step);
    return step;
}

/* ---- Blocks of the same steps ------------------------------------------------------------------------------------ */

static bool same_block(const mha_program_step *a, const mha_program_step *b)
{
    return a->block == b->block && strcmp(a->stack, b->stack) == 0;
}

/* The first step behind the block, or the steps outside blocks, that step n belongs to. */
static int64_t end_of_block(const listing *l, int64_t n)
{
    mha_program_step first = step_at(l, n);
    for (; n < mha_program_step_count(l->program); n++) {
        mha_program_step step = step_at(l, n);
        if (!same_block(&first, &step)) break;
    }
    return n;
}

/* Whether the block that begins at step `b` has the steps of the one from `a` to before `end`. */
static bool alike(const listing *l, int64_t a, int64_t end, int64_t b)
{
    if (b >= mha_program_step_count(l->program) || end_of_block(l, b) - b != end - a) return false;
    for (int64_t n = 0; n < end - a; n++) {
        mha_program_step x = step_at(l, a + n), y = step_at(l, b + n);
        if (x.block < 0 || y.block < 0 || strcmp(x.operation, y.operation) != 0 || strcmp(x.shape, y.shape) != 0 ||
            strcmp(x.stack, y.stack) != 0 || x.operations != y.operations)
            return false;
    }
    return true;
}

/* ---- The table ------------------------------------------------------------------------------------------------------ */

/* A number in at most six characters: 768, 1.77M, 12.3G. */
static const char *in_short(char out[16], double number)
{
    static const char units[] = " kMGTP";
    int unit = 0;
    for (; number >= 999.5 && unit < 5; unit++) number /= 1000;
    if (!unit) snprintf(out, 16, "%.0f", number);
    else snprintf(out, 16, "%.3g%c", number, units[unit]);
    return out;
}

/* A list that begins at column `at` and goes on below in lines of 80 columns. */
static void put_list(const char *label, const char *list, int at)
{
    int column = at;
    if (!*list) return;
    printf("%*s%s ", at - (int)strlen(label) - 1, "", label);
    while (*list) {
        int length = (int)strcspn(list, ",") + (list[strcspn(list, ",")] == ',');
        if (column > at && column + length + 1 > 80) printf("\n%*s", at, ""), column = at;
        printf("%s%.*s", column > at ? " " : "", length, list);
        column += length + (column > at);
        list += length;
        while (*list == ' ') list++;
    }
    putchar('\n');
}

static void put_step(const listing *l, int64_t n)
{
    char number[16];
    mha_program_step s = step_at(l, n);
    printf("%4lld  %-*s%-*s%-*s%-*s%10s\n", (long long)n, OPERATION, s.operation, READS, s.reads, WRITES, s.writes,
           SHAPE, s.shape, in_short(number, s.operations));
    put_list("weights", s.weights, 15);
    put_list("kept", s.kept, 15);
}

static void put_steps(const listing *l, bool all)
{
    int64_t count = mha_program_step_count(l->program);
    for (int64_t n = 0; n < count;) {
        mha_program_step first = step_at(l, n);
        int64_t end = end_of_block(l, n), next = end, more = 0;
        for (int64_t k = n; k < end; k++) put_step(l, k);
        for (; !all && alike(l, n, end, next); more++) next = end_of_block(l, next);
        if (more == 1) printf("      block %lld has the same steps\n", (long long)first.block + 1);
        int64_t last = first.block + more;
        if (more > 1)
            printf("      blocks %lld to %lld have the same steps\n", (long long)first.block + 1, (long long)last);
        n = next;
    }
}

static void print_table(const listing *l, bool all)
{
    char title[120], numbers[2][16], memory[16];
    double operations = 0, bytes = 0;
    int64_t count = mha_program_step_count(l->program);
    snprintf(title, sizeof title, "%4s  %-*s%-*s%-*s%-*s%10s", "step", OPERATION, "operation", READS, "reads", WRITES,
             "writes", SHAPE, "shape", "operations");
    printf("%s%s%s\n", term_style_on(l->t, TERM_BOLD), title, term_style_on(l->t, TERM_PLAIN));
    put_steps(l, all);
    for (int64_t n = 0; n < count; n++) {
        mha_program_step s = step_at(l, n);
        operations += s.operations, bytes += s.bytes;
    }
    printf(
        "\n%lld steps; %s multiplications and additions, %sB read and written, and\n%sB of memory for values, for one "
        "sequence\n",
        (long long)count, in_short(numbers[0], operations), in_short(numbers[1], bytes),
        in_short(memory, (double)mha_program_memory(l->program)));
}

/* ---- JSON ----------------------------------------------------------------------------------------------------------- */

static void put_text(nn_buffer *out, const char *key, const char *text)
{
    char quoted[4096];
    nn_buffer_printf(out, ", \"%s\": %s", key, nn_json_quote(quoted, sizeof quoted, text));
}

static bool print_json(const listing *l)
{
    nn_buffer out = {0};
    int64_t count = mha_program_step_count(l->program);
    nn_buffer_printf(&out, "{\"memory\": %lld, \"steps\": [", (long long)mha_program_memory(l->program));
    for (int64_t n = 0; n < count; n++) {
        mha_program_step s = step_at(l, n);
        nn_buffer_printf(&out, "%s\n    {\"step\": %lld", n ? "," : "", (long long)n);
        put_text(&out, "operation", s.operation);
        put_text(&out, "stack", s.stack);
        if (s.block < 0) nn_buffer_puts(&out, ", \"block\": null");
        else nn_buffer_printf(&out, ", \"block\": %lld", (long long)s.block);
        put_text(&out, "reads", s.reads);
        put_text(&out, "writes", s.writes);
        put_text(&out, "weights", s.weights);
        put_text(&out, "shape", s.shape);
        put_text(&out, "kept", s.kept);
        nn_buffer_printf(&out, ", \"operations\": %.0f, \"bytes\": %.0f}", s.operations, s.bytes);
    }
    nn_buffer_puts(&out, "\n]}\n");
    bool whole = !out.failed;
    if (whole) fwrite(out.bytes, 1, out.size, stdout);
    nn_buffer_free(&out);
    return whole;
}

/* ---- Both ----------------------------------------------------------------------------------------------------------- */

bool inspect_print_program(const session *s, const term *t, const mha_program_options *options, bool all, bool json)
{
    mha_program *program = NULL;
    if (mha_program_make(s->ctx, &program, s->model, options)) return cli_refuse("%s", cli_reason(s->ctx));
    listing l = {s->ctx, program, t};
    bool done = true;
    if (!json) print_table(&l, all);
    else done = print_json(&l) || cli_refuse("not enough memory for the JSON");
    mha_program_free(program);
    return done;
}
