/* The page around the digits. It is written to memory first: what fails on the way leaves no file. */
#include "cli/draw/sheet.h"
#include "cli/draw/sheet_parts.h"

#include <inttypes.h>
#include <stdio.h>

void sheet_text(nn_buffer *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<') nn_buffer_puts(out, "&lt;");
        else if (*text == '>') nn_buffer_puts(out, "&gt;");
        else if (*text == '&') nn_buffer_puts(out, "&amp;");
        else if (*text == '"') nn_buffer_puts(out, "&quot;");
        else nn_buffer_putc(out, *text);
    }
}

static void put_fact(nn_buffer *out, const char *what, const char *text)
{
    if (!text) return;
    nn_buffer_printf(out, "<div><dt>%s</dt><dd>", what);
    sheet_text(out, text);
    nn_buffer_puts(out, "</dd></div>\n");
}

static void put_head(nn_buffer *out, const sheet *s)
{
    nn_buffer_puts(out, "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                        "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    sheet_text(out, s->title);
    nn_buffer_puts(out, "</title>\n");
    sheet_style(out);
    nn_buffer_puts(out, "</head>\n<body>\n<header>\n<h1>");
    sheet_text(out, s->title);
    nn_buffer_puts(out, "</h1>\n<dl>\n");
    put_fact(out, "model", s->model);
    put_fact(out, "data", s->data);
    nn_buffer_puts(out, "</dl>\n</header>\n<main>\n");
}

/* The lines between the patches, for every picture to use. */
static void put_grid(nn_buffer *out, const nn_vit_config *c)
{
    nn_buffer_puts(
        out, "<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\"><path id=\"grid\" d=\"");
    for (int64_t y = c->patch; y < c->rows; y += c->patch)
        nn_buffer_printf(out, "M0 %" PRId64 "h%" PRId64, y, c->columns);
    for (int64_t x = c->patch; x < c->columns; x += c->patch)
        nn_buffer_printf(out, "M%" PRId64 " 0v%" PRId64, x, c->rows);
    nn_buffer_puts(out, "\"/></svg>\n");
}

/* How the maps are read: in words, and as the scale that they are painted with. */
static void put_legend(nn_buffer *out, const nn_vit_config *c)
{
    nn_buffer_printf(
        out,
        "<section class=\"legend\" aria-labelledby=\"read\">\n<div><h2 id=\"read\">How to read the maps</h2>\n"
        "<p>The model cuts an image into %" PRId64 " &times; %" PRId64
        " patches, and in every block each head decides %s. A map shows that over the picture: the brightest patch "
        "gets the largest share of the head&rsquo;s attention, and the number under the map says how large that "
        "is. &ldquo;Like 12&rdquo; is how wide the head looks: as if it shared its attention evenly among "
        "12 patches.</p></div>\n<div class=\"scale\"><svg viewBox=\"0 0 %d 1\" "
        "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"The colour scale, from dark blue for an equal "
        "share or less over violet, rose and orange to pale yellow for the head&rsquo;s strongest patch\">",
        c->rows / c->patch, c->columns / c->patch,
        c->mean_pool ? "how much each patch is looked at, here on the mean of all that look"
                     : "how much the class token, from which the answer is read, looks at each of them",
        SHEET_STEPS);
    for (int i = 0; i < SHEET_STEPS; i++) nn_buffer_printf(out, "<path class=\"h%d\" d=\"M%d 0h1v1h-1z\"/>", i, i);
    nn_buffer_puts(out,
                   "</svg><span>an equal share or less</span><span>the head&rsquo;s strongest patch</span></div>\n");
    put_grid(out, c);
    nn_buffer_puts(out, "</section>\n");
}

/* A picture of each image, which leads to its place. */
static void put_index(nn_buffer *out, const sheet *s, const nn_vit_config *c)
{
    if (s->image_count < 2) return;
    nn_buffer_puts(out, "<nav aria-label=\"Images\">\n");
    for (int64_t n = 0; n < s->image_count; n++) {
        char name[40];
        snprintf(name, sizeof name, "image %" PRId64, n + 1);
        nn_buffer_printf(out, "<a href=\"#image%" PRId64 "\" aria-label=\"", n + 1);
        sheet_text(out, s->images[n].name ? s->images[n].name : name);
        nn_buffer_printf(out,
                         "\"><svg class=\"picture ink\" viewBox=\"0 0 %" PRId64 " %" PRId64
                         "\" aria-hidden=\"true\"><use href=\"#p%" PRId64 "\"/></svg></a>\n",
                         c->columns, c->rows, n + 1);
    }
    nn_buffer_puts(out, "</nav>\n");
}

static bool put_page(nn_buffer *out, nn_vit *net, mha_context *ctx, nn_vit_input input, const sheet *s, char *error,
                     size_t error_size)
{
    const nn_vit_config *c = nn_vit_shape(net);
    put_head(out, s);
    sheet_curves(out, s);
    put_legend(out, c);
    put_index(out, s, c);
    for (int64_t n = 0; n < s->image_count; n++) {
        nn_heads_view view;
        if (!nn_heads_look(&view, net, ctx, input, s->images[n].pixels, error, error_size)) return false;
        sheet_digit(out, s, n, c, &view);
        nn_heads_free(&view);
    }
    nn_buffer_puts(out, "</main>\n</body>\n</html>\n");
    return true;
}

bool sheet_write(const char *path, nn_vit *net, mha_context *ctx, nn_vit_input input, const sheet *s, char *error,
                 size_t error_size)
{
    nn_buffer out = {0};
    bool ok = put_page(&out, net, ctx, input, s, error, error_size) && nn_buffer_save(&out, path, error, error_size);
    nn_buffer_free(&out);
    return ok;
}
