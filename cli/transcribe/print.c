/* What `mha transcribe` prints: texts, JSON, and how fast it was. */
#include "cli/transcribe/transcribe.h"

#include <string.h>

static size_t count_spaces(const char *text, size_t length)
{
    size_t n = 0;
    while (n < length && text[n] == ' ') n++;
    return n;
}

bool transcribe_show(const char *text, size_t length, bool *begun)
{
    size_t skip = *begun ? 0 : count_spaces(text, length);
    if (skip < length) *begun = true;
    return length == skip || language_show(text + skip, length - skip);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

static void put_window(nn_buffer *out, const transcribe_window *w, bool first)
{
    nn_buffer_printf(out,
                     "%s\n       {\"start\": %.4f, \"end\": %.4f, \"finish\": \"%s\", \"text\": ", first ? "" : ",",
                     w->start, w->end, language_finishes[w->finish]);
    language_quote(out, w->text.bytes, w->text.size);
    nn_buffer_puts(out, ", \"tokens\": [");
    for (int64_t n = 0; n < w->count; n++) nn_buffer_printf(out, n ? ", %d" : "%d", w->tokens[n]);
    nn_buffer_puts(out, "]}");
}

static void put_name(nn_buffer *out, const char *key, const char *name)
{
    nn_buffer_printf(out, ", \"%s\": ", key);
    if (*name) language_quote(out, name, strlen(name));
    else nn_buffer_puts(out, "null");
}

static void put_file(nn_buffer *out, const transcribe_file *f)
{
    nn_buffer all = {0};
    nn_buffer_puts(out, "\n    {\"file\": ");
    language_quote(out, f->path, strlen(f->path));
    nn_buffer_printf(out, ", \"seconds\": %.4f", f->windows[f->count - 1].end);
    put_name(out, "language", f->prompt.language);
    put_name(out, "task", f->prompt.task);
    nn_buffer_puts(out, ", \"prompt\": [");
    for (int64_t n = 0; n < f->prompt.count; n++) nn_buffer_printf(out, n ? ", %d" : "%d", f->prompt.tokens[n]);
    nn_buffer_puts(out, "],\n     \"text\": ");
    for (int64_t n = 0; n < f->count; n++) nn_buffer_put(&all, f->windows[n].text.bytes, f->windows[n].text.size);
    size_t skip = count_spaces(all.bytes, all.size);
    language_quote(out, all.size ? all.bytes + skip : "", all.size - skip);
    nn_buffer_puts(out, ",\n     \"windows\": [");
    for (int64_t n = 0; n < f->count; n++) put_window(out, &f->windows[n], n == 0);
    nn_buffer_puts(out, "\n     ]}");
    if (all.failed) out->failed = true;
    nn_buffer_free(&all);
}

bool transcribe_print_json(const transcribe_request *r, const transcribe_file *files, const transcribe_times *t)
{
    nn_buffer out = {0};
    nn_buffer_puts(&out, "{\n  \"model\": ");
    language_quote(&out, r->model, strlen(r->model));
    nn_buffer_puts(&out, ",\n  \"files\": [");
    for (int n = 0; n < r->files.count; n++) {
        if (n) nn_buffer_putc(&out, ',');
        put_file(&out, &files[n]);
    }
    nn_buffer_printf(&out, "\n  ],\n  \"sound_seconds\": %.4f,\n  \"seconds\": %.6f,\n  \"tokens\": %lld\n}\n",
                     t->sound, t->seconds, (long long)t->tokens);
    return language_put(&out);
}

void transcribe_print_times(const transcribe_times *t)
{
    fprintf(stderr, "%.1f s of sound in %.1f s, %lld token%s\n", t->sound, t->seconds, (long long)t->tokens,
            t->tokens == 1 ? "" : "s");
}
