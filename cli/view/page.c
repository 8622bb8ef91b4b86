/* Assembles the page, and writes the elements of its JSON. */
#include "cli/view/page.h"
#include "io/json.h"
#include "cli/draw/markup.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ---- Pieces of JSON --------------------------------------------------------------------------------------------- */

/* With `spell`, the page sees the escape of a character in place of the character. */
static void put_string(nn_buffer *out, const char *text, bool spell)
{
    nn_buffer_putc(out, '"');
    for (size_t at = 0, length = strlen(text); at < length;) {
        nn_json_character c;
        size_t bytes = nn_json_escape(&c, text + at, length - at);
        if (spell && c.text[0] == '\\' && c.text[1] == 'u') nn_buffer_putc(out, '\\');
        nn_buffer_puts(out, text[at] == '<' ? "\\u003c" : c.text);
        at += bytes;
    }
    nn_buffer_putc(out, '"');
}

void view_string(nn_buffer *out, const char *text) { put_string(out, text, false); }
void view_name(nn_buffer *out, const char *text) { put_string(out, text, true); }

void view_number(nn_buffer *out, double x)
{
    if (isfinite(x)) nn_buffer_printf(out, "%.9g", x);
    else nn_buffer_puts(out, "null");
}

static void put_base64(nn_buffer *out, const void *bytes, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *from = bytes;
    for (size_t i = 0; i < size; i += 3) {
        uint32_t three = (uint32_t)from[i] << 16;
        if (i + 1 < size) three |= (uint32_t)from[i + 1] << 8;
        if (i + 2 < size) three |= from[i + 2];
        char four[] = {digits[three >> 18], digits[three >> 12 & 63], '=', '='};
        if (i + 1 < size) four[2] = digits[three >> 6 & 63];
        if (i + 2 < size) four[3] = digits[three & 63];
        nn_buffer_put(out, four, sizeof four);
    }
}

void view_base64(nn_buffer *out, const void *bytes, size_t size)
{
    nn_buffer_putc(out, '"');
    put_base64(out, bytes, size);
    nn_buffer_putc(out, '"');
}

const char *view_title(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- The page --------------------------------------------------------------------------------------------------- */

typedef struct parts {
    const char *title;
    const nn_buffer *data;
    view_module engine;
} parts;

/* Styles are also set by attributes, and pictures are made on the page. */
static void put_policy(nn_buffer *out, const parts *p)
{
    unsigned char hash[32];
    (void)p;
    for (size_t i = 0; i < sizeof hash; i++) {
        const char digits[] = {view_script_hash[2 * i], view_script_hash[2 * i + 1], 0};
        hash[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    nn_buffer_puts(out,
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'sha256-");
    put_base64(out, hash, sizeof hash);
    nn_buffer_puts(out, "' 'wasm-unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
                        "form-action 'none'\">");
}

static void put_title(nn_buffer *out, const parts *p) { markup_text(out, p->title); }

static void put_style(nn_buffer *out, const parts *p)
{
    (void)p;
    nn_buffer_puts(out, "<style>\n");
    nn_buffer_put(out, view_style, view_style_size);
    nn_buffer_puts(out, "</style>");
}

static void put_data(nn_buffer *out, const parts *p)
{
    nn_buffer_puts(out, "<script type=\"application/json\" id=\"mha-data\">");
    nn_buffer_put(out, p->data->bytes, p->data->size);
    nn_buffer_puts(out, "</script>");
}

static void put_engine(nn_buffer *out, const parts *p)
{
    const unsigned char *const engines[] = {NULL, view_engine, view_text_engine};
    const size_t sizes[] = {0, view_engine_size, view_text_engine_size};
    if (!sizes[p->engine]) return;
    nn_buffer_puts(out, "<script type=\"text/plain\" id=\"mha-engine\">");
    put_base64(out, engines[p->engine], sizes[p->engine]);
    nn_buffer_puts(out, "</script>");
}

static void put_script(nn_buffer *out, const parts *p)
{
    (void)p;
    nn_buffer_puts(out, "<script type=\"module\">");
    nn_buffer_put(out, view_script, view_script_size);
    nn_buffer_puts(out, "</script>");
}

static void put_page(nn_buffer *out, const parts *p)
{
    static const struct {
        const char *comment;
        void (*put)(nn_buffer *out, const parts *p);
    } places[] = {{"<!-- policy -->", put_policy}, {"<!-- title -->", put_title},   {"<!-- style -->", put_style},
                  {"<!-- data -->", put_data},     {"<!-- engine -->", put_engine}, {"<!-- script -->", put_script}};
    enum { PLACES = sizeof places / sizeof *places };
    const char *at = (const char *)view_frame, *next;
    for (; (next = strstr(at, "<!-- ")); at = next) {
        nn_buffer_put(out, at, (size_t)(next - at));
        size_t which = 0, length = 1;
        while (which < PLACES && strncmp(next, places[which].comment, strlen(places[which].comment)) != 0) which++;
        if (which < PLACES) {
            places[which].put(out, p);
            length = strlen(places[which].comment);
        } else {
            nn_buffer_putc(out, '<');
        }
        next += length;
    }
    nn_buffer_puts(out, at);
}

bool view_page_write(const char *path, const char *title, const nn_buffer *data, view_module engine, size_t *bytes,
                     char *error, size_t error_size)
{
    parts p = {title, data, engine};
    nn_buffer out = {0};
    put_page(&out, &p);
    if (data->failed) out.failed = true; /* never write a page with incomplete data */
    bool ok = !nn_buffer_save(&out, path, error, error_size);
    *bytes = out.size;
    nn_buffer_free(&out);
    return ok;
}
