/* One image on the sheet: the picture, the answer, a map for each head.
 *
 * Squares of one grey value, or of one step of the scale, are a single path of runs: a tenth of what a shape for each
 * would take. The picture is drawn once and used under and over every map. */
#include "cli/draw/scale.h"
#include "cli/draw/sheet_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* The squares of a grid (rows,columns) that have that level, as the runs of a path; nothing if there is none. */
static void put_level(nn_buffer *out, const char *class, const unsigned char *levels, int64_t rows, int64_t columns,
                      int level)
{
    bool begun = false;
    for (int64_t y = 0; y < rows; y++) {
        for (int64_t x = 0; x < columns; x++) {
            int64_t start = x;
            while (x < columns && levels[y * columns + x] == level) x++;
            if (x == start) continue;
            if (!begun) nn_buffer_printf(out, "<path class=\"%s%d\" d=\"", class, level);
            begun = true;
            nn_buffer_printf(out, "M%" PRId64 " %" PRId64 "h%" PRId64 "v1h-%" PRId64 "z", start, y, x - start,
                             x - start);
        }
    }
    if (begun) nn_buffer_puts(out, "\"/>");
}

/* The picture for others to use, under the name p1, p2 and so on. */
static void put_picture(nn_buffer *out, int64_t n, const unsigned char *pixels, const nn_vit_config *c)
{
    int64_t count = c->rows * c->columns;
    unsigned char *levels = malloc((size_t)count);
    if (!levels) out->failed = true;
    nn_buffer_printf(out,
                     "<svg class=\"picture ink\" viewBox=\"0 0 %" PRId64 " %" PRId64
                     "\" role=\"img\" aria-label=\"The picture\"><g id=\"p%" PRId64 "\">",
                     c->columns, c->rows, n + 1);
    for (int64_t i = 0; levels && i < count; i++) levels[i] = (unsigned char)((pixels[i] * SHEET_INK + 127) / 255);
    for (int level = 1; levels && level <= SHEET_INK; level++) put_level(out, "i", levels, c->rows, c->columns, level);
    nn_buffer_puts(out, "</g><use href=\"#grid\"/></svg>\n");
    free(levels);
}

/* ---- The answer ------------------------------------------------------------------------------------------------- */

static void put_bars(nn_buffer *out, const nn_heads_view *v, int label)
{
    nn_buffer_puts(out, "<ol class=\"bars\">\n");
    for (int64_t c = 0; c < v->classes; c++) {
        double share = 100 * (double)v->probabilities[c];
        const char *class = c == v->best ? " class=\"best\"" : "";
        nn_buffer_printf(out,
                         "<li%s><b>%" PRId64 "</b><span class=\"bar\"><span style=\"width:%.2f%%\"></span></span><span "
                         "class=\"share\">%.2f&thinsp;%%</span>%s</li>\n",
                         class, c, isfinite(share) ? share : 0, share, c == label ? "<em>label</em>" : "<em></em>");
    }
    nn_buffer_puts(out, "</ol>\n");
}

static void put_answer(nn_buffer *out, const sheet_image *image, const nn_heads_view *v)
{
    nn_buffer_printf(out, "<h2>The model says %d <small>%.2f&thinsp;%%</small></h2>\n<p>", v->best,
                     100 * (double)v->probabilities[v->best]);
    if (image->name) sheet_text(out, image->name);
    if (image->label >= 0)
        nn_buffer_printf(out, "%she label says %d: <strong class=\"%s\">%s</strong>", image->name ? "; t" : "T",
                         image->label, image->label == v->best ? "right" : "wrong",
                         image->label == v->best ? "right" : "wrong");
    nn_buffer_puts(out, "</p>\n");
    put_bars(out, v, image->label);
}

/* ---- The heads -------------------------------------------------------------------------------------------------- */

/* What a map shows, in words. */
static void put_words(nn_buffer *out, const nn_heads_focus *f, int64_t block, int64_t head, bool mean)
{
    nn_buffer_printf(out,
                     "Block %" PRId64 " head %" PRId64 ": %.0f %% on the patch in row %" PRId64 ", column %" PRId64
                     "; as wide as %.0f patch%s",
                     block + 1, head + 1, 100 * f->strongest, f->row + 1, f->column + 1, f->patches,
                     f->patches < 1.5 ? "" : "es");
    if (!mean) nn_buffer_printf(out, "; %.0f %% on the class token itself", 100 * f->itself);
}

static void put_map(nn_buffer *out, const nn_heads_view *v, int64_t block, int64_t head, int64_t n,
                    const nn_vit_config *c)
{
    nn_heads_focus f = nn_heads_focus_of(v, block, head);
    const float *map = nn_heads_map(v, block, head);
    int64_t count = v->rows * v->columns;
    unsigned char *levels = malloc((size_t)count);
    if (!levels) out->failed = true;
    nn_buffer_puts(out, "<figure><svg class=\"map ink\" viewBox=\"0 0 ");
    nn_buffer_printf(out, "%" PRId64 " %" PRId64 "\" role=\"img\" aria-label=\"", c->columns, c->rows);
    put_words(out, &f, block, head, c->mean_pool);
    nn_buffer_puts(out, "\"><title>");
    put_words(out, &f, block, head, c->mean_pool);
    nn_buffer_printf(out, "</title><use href=\"#p%" PRId64 "\"/><g transform=\"scale(%" PRId64 ")\">", n + 1, c->patch);
    for (int64_t i = 0; levels && i < count; i++)
        levels[i] =
            (unsigned char)lround((SHEET_STEPS - 1) * scale_weight((double)map[i], 1 / (double)v->tokens, f.strongest));
    for (int level = 1; levels && level < SHEET_STEPS; level++) put_level(out, "h", levels, v->rows, v->columns, level);
    nn_buffer_printf(out,
                     "</g><use href=\"#grid\"/><use class=\"over\" href=\"#p%" PRId64
                     "\"/></svg><figcaption>block %" PRId64 " head %" PRId64
                     "<br><small>%.0f&thinsp;%%, like %.0f</small></figcaption></figure>\n",
                     n + 1, block + 1, head + 1, 100 * f.strongest, f.patches);
    free(levels);
}

void sheet_digit(nn_buffer *out, const sheet *s, int64_t n, const nn_vit_config *config, const nn_heads_view *view)
{
    const sheet_image *image = &s->images[n];
    nn_buffer_printf(out, "<article id=\"image%" PRId64 "\">\n<div class=\"answer\">\n", n + 1);
    put_picture(out, n, image->pixels, config);
    nn_buffer_puts(out, "<div>\n");
    put_answer(out, image, view);
    nn_buffer_printf(out, "</div>\n</div>\n<div class=\"blocks\" style=\"--n:%" PRId64 "\">\n",
                     view->heads < 8 ? view->heads : 8);
    for (int64_t b = 0; b < view->blocks; b++) {
        nn_buffer_puts(out, "<div class=\"heads\">\n");
        for (int64_t h = 0; h < nn_heads_in(view, b); h++) put_map(out, view, b, h, n, config);
        nn_buffer_puts(out, "</div>\n");
    }
    nn_buffer_puts(out, "</div>\n</article>\n");
}
