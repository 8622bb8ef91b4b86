/* The prompts of `mha generate`: texts from the command line and from a file, or ids. */
#include "cli/generate/generate.h"

#include <stdlib.h>
#include <string.h>

void generate_free(generate_prompts *p)
{
    language_texts given = {p->text, p->text ? p->count : 0};
    language_free(&given);
    free(p->tokens);
    free(p->starts);
    *p = (generate_prompts){0};
}

/* ---- Texts ------------------------------------------------------------------------------------------------------ */

static bool encode_prompts(generate_prompts *p, mha_context *ctx, const mha_tokenizer *tokenizer)
{
    int64_t count, all = 0;
    for (int64_t n = 0; n < p->count; n++) {
        size_t length = strlen(p->text[n]);
        p->starts[n] = all;
        if (mha_tokenizer_encode(ctx, tokenizer, NULL, 0, &count, p->text[n], length, NULL))
            return cli_refuse("prompt %lld: %s", (long long)n + 1, cli_reason(ctx));
        int32_t *more = realloc(p->tokens, (size_t)(all + count + 1) * sizeof *more);
        if (!more) return cli_refuse("not enough memory for the prompts");
        p->tokens = more;
        if (count && mha_tokenizer_encode(ctx, tokenizer, more + all, count, &count, p->text[n], length, NULL))
            return cli_refuse("prompt %lld: %s", (long long)n + 1, cli_reason(ctx));
        all += count;
    }
    p->starts[p->count] = all;
    return true;
}

/* ---- All of them ------------------------------------------------------------------------------------------------ */

static bool read_ids(generate_prompts *p, const generate_request *r)
{
    size_t room = 1;
    int64_t all = 0;
    for (int n = 0; n < r->ids.count; n++) room += strlen(r->ids.all[n]) / 2 + 1;
    if (!(p->tokens = malloc(room * sizeof *p->tokens))) return cli_refuse("not enough memory for the prompts");
    for (p->count = 0; p->count < r->ids.count; p->count++) {
        p->starts[p->count] = all;
        const cli_given given = {.name = "--ids", .value = r->ids.all[p->count]};
        if (!language_ids(&given, p->tokens, &all)) return false;
    }
    p->starts[p->count] = all;
    return true;
}

bool generate_read(generate_prompts *p, mha_context *ctx, const generate_request *r, const mha_tokenizer *tokenizer)
{
    language_texts given = {0};
    bool good = true;
    for (int n = 0; good && n < r->texts.count; n++)
        good = language_add(&given, r->texts.all[n], strlen(r->texts.all[n]));
    if (good && r->file) good = language_add_lines(&given, r->file, "prompt");
    p->text = given.all, p->count = given.count;
    if (!good) return false;
    int64_t most = r->ids.count ? r->ids.count : p->count;
    if (!(p->starts = calloc((size_t)most + 1, sizeof *p->starts)))
        return cli_refuse("not enough memory for the prompts");
    return r->ids.count ? read_ids(p, r) : encode_prompts(p, ctx, tokenizer);
}
