#include "cli/common/head_list.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool malformed(const cli_given *g)
{
    return cli_refuse("%s must list heads as block.head, such as 1.3,2.0, not '%s'", g->name, g->value);
}

/* Digits, without a sign or space; no number of a block or head has ten of them. */
static bool take_number(const char **at, int64_t *number)
{
    int digits = 0;
    for (*number = 0; **at >= '0' && **at <= '9' && digits < 10; digits++) *number = 10 * *number + *(*at)++ - '0';
    return digits > 0;
}

/* One head of the list. */
static bool take_head(const cli_given *g, const session *s, bool *named, const char **at)
{
    int64_t block, head, first = 0;
    if (!take_number(at, &block) || *(*at)++ != '.' || !take_number(at, &head)) return malformed(g);
    if (block >= s->about.blocks)
        return cli_refuse("%s: there is no head %" PRId64 ".%" PRId64 ": %s has blocks 0 to %" PRId64, g->name, block,
                          head, s->from->file, s->about.blocks - 1);
    int64_t heads = mha_model_attention_get(s->model, block).heads;
    if (head >= heads)
        return cli_refuse("%s: there is no head %" PRId64 ".%" PRId64 ": block %" PRId64
                          " of %s has heads 0 to %" PRId64,
                          g->name, block, head, block, s->from->file, heads - 1);
    for (int64_t l = 0; l < block; l++) first += mha_model_attention_get(s->model, l).heads;
    if (named[first + head]) return cli_refuse("%s names head %" PRId64 ".%" PRId64 " twice", g->name, block, head);
    return named[first + head] = true;
}

bool *head_list_parse(const cli_given *g, const session *s)
{
    bool *named = calloc((size_t)s->about.heads, sizeof *named);
    const char *at = g->value;
    bool ok = named != NULL;
    if (!named) cli_error("out of memory");
    while (ok) {
        ok = take_head(g, s, named, &at);
        if (ok && !*at) return named;
        if (ok && *at++ != ',') ok = malformed(g);
    }
    free(named);
    return NULL;
}

bool head_list_off(bool **off, const session *s, const char *without)
{
    const cli_given given = {.name = "--without", .value = without};
    if (!without) return true;
    if (!(*off = head_list_parse(&given, s))) return false;
    if (!mha_model_switch_off(s->ctx, s->model, *off, s->about.heads)) return true;
    return cli_error("%s: %s", s->from->file, cli_reason(s->ctx));
}

void head_list_print(const bool *named, const mha_model *model, int indent)
{
    enum { WIDTH = 78 };
    int64_t left = 0, n = 0;
    int column = indent + (int)strlen("heads");
    for (int64_t l = 0; l < mha_model_attention_count(model); l++)
        for (int64_t h = 0; h < mha_model_attention_get(model, l).heads; h++) left += named[n++];
    printf(left == 1 ? "head" : "heads");
    n = 0;
    for (int64_t l = 0; l < mha_model_attention_count(model); l++)
        for (int64_t h = 0; h < mha_model_attention_get(model, l).heads; h++) {
            char text[64];
            if (!named[n++]) continue;
            int wide = snprintf(text, sizeof text, " %" PRId64 ".%" PRId64 "%s", l, h,
                                left > 2    ? ","
                                : left == 2 ? " and"
                                            : "");
            if (column + wide > WIDTH) printf("\n%*s", column = indent, "");
            fputs(column == indent ? text + 1 : text, stdout);
            column += wide;
            left--;
        }
}
