/* What `mha generate` prints: texts, JSON, and how fast it was. */
#include "cli/generate/generate.h"

#include <stdlib.h>
#include <string.h>

static void print_ids(const mha_generated *q, bool new_only)
{
    int64_t first = new_only ? q->prompt : 0;
    for (int64_t t = first; t < q->count; t++) printf("%s%d", t > first ? " " : "", q->tokens[t]);
}

void generate_print(const mha_generation *g, const generate_prompts *p, bool new_only, bool encoder)
{
    for (int64_t n = 0; n < p->count; n++) {
        mha_generated q = mha_generation_get(g, n);
        if (p->count > 1) printf("%s[%lld] ", n ? "\n" : "", (long long)n + 1);
        if (!p->text && !q.length) print_ids(&q, new_only || encoder);
        else {
            if (p->text && !new_only && !encoder) language_show(p->text[n], strlen(p->text[n]));
            language_show(q.text, q.length);
        }
        putchar('\n');
    }
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void put_ids(nn_buffer *out, const char *key, const int32_t *ids, int64_t count)
{
    nn_buffer_printf(out, ", \"%s\": [", key);
    for (int64_t n = 0; n < count; n++) nn_buffer_printf(out, n ? ", %d" : "%d", ids[n]);
    nn_buffer_putc(out, ']');
}

static void put_sequence(nn_buffer *out, const mha_generated *q, const generate_prompts *p, int64_t n, bool as_text)
{
    nn_buffer_puts(out, n ? ",\n    {\"prompt\": " : "\n    {\"prompt\": ");
    if (p->text) language_quote(out, p->text[n], strlen(p->text[n]));
    else nn_buffer_puts(out, "null");
    nn_buffer_puts(out, ", \"text\": ");
    if (as_text) language_quote(out, q->text, q->length);
    else nn_buffer_puts(out, "null");
    nn_buffer_printf(out, ", \"finish\": \"%s\"", language_finishes[q->finish]);
    if (q->score < 0) nn_buffer_printf(out, ", \"score\": %.9g", (double)q->score);
    put_ids(out, "prompt_tokens", p->tokens + p->starts[n], p->starts[n + 1] - p->starts[n]);
    put_ids(out, "tokens", q->tokens + q->prompt, q->count - q->prompt);
    nn_buffer_putc(out, '}');
}

static double rate(int64_t tokens, double seconds) { return seconds > 0 ? (double)tokens / seconds : 0; }

bool generate_print_json(const mha_generation *g, const generate_prompts *p, const generate_request *r,
                         const generate_times *t)
{
    nn_buffer out = {0};
    nn_buffer_puts(&out, "{\n  \"model\": ");
    language_quote(&out, r->model, strlen(r->model));
    nn_buffer_printf(&out, ",\n  \"seed\": %llu,\n  \"sequences\": [", (unsigned long long)r->how.seed);
    for (int64_t n = 0; n < p->count; n++) {
        mha_generated q = mha_generation_get(g, n);
        put_sequence(&out, &q, p, n, p->text || q.length);
    }
    nn_buffer_printf(&out,
                     "\n  ],\n  \"prompt_tokens\": %lld,\n  \"new_tokens\": %lld,\n  \"prompt_seconds\": %.6f,\n"
                     "  \"seconds\": %.6f,\n  \"prompt_tokens_per_second\": %.2f,\n  \"tokens_per_second\": %.2f\n}\n",
                     (long long)t->prompt_tokens, (long long)t->new_tokens, t->prompt, t->prompt + t->rest,
                     rate(t->prompt_tokens, t->prompt), rate(t->rest_tokens, t->rest));
    return language_put(&out);
}

void generate_print_times(const generate_times *t)
{
    fprintf(stderr, "prompt: %lld token%s, %.1f tokens/s", (long long)t->prompt_tokens,
            t->prompt_tokens == 1 ? "" : "s", rate(t->prompt_tokens, t->prompt));
    fprintf(stderr, "; new: %lld token%s", (long long)t->new_tokens, t->new_tokens == 1 ? "" : "s");
    if (t->rest_tokens) fprintf(stderr, ", %.1f tokens/s", rate(t->rest_tokens, t->rest));
    fputc('\n', stderr);
}
