/* Tokens and texts of `mha tokenize`, for people and for programs. */
#include "cli/common/language.h"
#include "cli/draw/term.h"
#include "cli/tokenize/tokenize.h"
#include "io/printable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int digits(int64_t number)
{
    char text[24];
    return snprintf(text, sizeof text, "%lld", (long long)number);
}

void tokenize_print(const mha_encoding *tokens, size_t bytes)
{
    enum { WIDTH = 80 };
    int64_t count = mha_encoding_count(tokens), largest = 0, last = 0;
    for (int64_t i = 0; i < count; i++) {
        mha_token t = mha_encoding_get(tokens, i);
        if (t.id > largest) largest = t.id;
        if (t.end > last) last = t.end;
    }
    int number = digits(count) < 5 ? 5 : digits(count), id = digits(largest) < 3 ? 3 : digits(largest);
    int place = 2 * digits(last) + 2 < 5 ? 5 : 2 * digits(last) + 2, piece = WIDTH - number - id - place - 8;
    printf("%*s  %*s  %-*s  piece\n", number, "token", id, "id", place, "bytes");
    for (int64_t i = 0; i < count; i++) {
        char range[64] = "added", shown[512];
        mha_token t = mha_encoding_get(tokens, i);
        if (t.text >= 0) snprintf(range, sizeof range, "%lld..%lld", (long long)t.start, (long long)t.end);
        nn_printable(shown, sizeof shown, t.piece);
        size_t fits = term_fitting(shown, piece);
        printf("%*lld  %*d  %-*s  %.*s%s\n", number, (long long)i, id, t.id, place, range, (int)fits, shown,
               shown[fits] ? "..." : "");
    }
    printf("%lld token%s, %zu byte%s\n", (long long)count, count == 1 ? "" : "s", bytes, bytes == 1 ? "" : "s");
}

bool tokenize_print_json(const tokenize_request *r, const mha_tokenizer_info *about, const mha_encoding *tokens)
{
    nn_buffer out = {0};
    int64_t count = mha_encoding_count(tokens);
    nn_buffer_puts(&out, "{\n  \"tokenizer\": ");
    language_quote(&out, r->tokenizer, strlen(r->tokenizer));
    nn_buffer_printf(&out, ",\n  \"kind\": \"%s\",\n  \"format\": \"%s\",\n  \"vocabulary\": %lld,\n  \"ids\": [",
                     about->kind, about->format, (long long)about->tokens);
    for (int64_t i = 0; i < count; i++) nn_buffer_printf(&out, i ? ", %d" : "%d", mha_encoding_get(tokens, i).id);
    nn_buffer_puts(&out, "],\n  \"tokens\": [");
    for (int64_t i = 0; i < count; i++) {
        mha_token t = mha_encoding_get(tokens, i);
        nn_buffer_printf(&out, "%s\n    {\"id\": %d, \"piece\": ", i ? "," : "", t.id);
        language_quote(&out, t.piece, t.piece_length);
        if (t.text < 0) nn_buffer_puts(&out, ", \"text\": null, \"start\": null, \"end\": null");
        else
            nn_buffer_printf(&out, ", \"text\": %d, \"start\": %lld, \"end\": %lld", t.text, (long long)t.start,
                             (long long)t.end);
        nn_buffer_printf(&out, ", \"type\": %d, \"special\": %s}", t.type, t.special ? "true" : "false");
    }
    nn_buffer_puts(&out, count ? "\n  ]\n}\n" : "]\n}\n");
    return language_put(&out);
}

bool tokenize_print_text(const tokenize_request *r, const char *text, size_t length)
{
    nn_buffer out = {0};
    if (r->json) {
        nn_buffer_puts(&out, "{\"text\": ");
        language_quote(&out, text, length);
        nn_buffer_puts(&out, "}\n");
        return language_put(&out);
    }
    if (!isatty(STDOUT_FILENO)) {
        nn_buffer_put(&out, text, length);
        nn_buffer_putc(&out, '\n');
        return language_put(&out);
    }
    while (length) { /* line by line, as line feeds stay */
        const char *end = memchr(text, '\n', length);
        size_t n = end ? (size_t)(end - text) : length;
        nn_buffer line = {0};
        nn_buffer_put(&line, text, n);
        nn_buffer_putc(&line, 0);
        char *shown = line.failed ? NULL : malloc(n * NN_PRINTABLE_WIDEST + 1);
        if (shown) nn_buffer_puts(&out, nn_printable(shown, n * NN_PRINTABLE_WIDEST + 1, line.bytes));
        else out.failed = true;
        free(shown);
        nn_buffer_free(&line);
        nn_buffer_putc(&out, '\n');
        text += n + (end != NULL);
        length -= n + (end != NULL);
    }
    return language_put(&out);
}
