/* The sheet of heads with a training curve, and the drawing of a digit with all its heads: what `mha demo` calls and no
 * option of another command reaches. */
#define COMMAND "false" /* none is run */
#include "cli/draw/heads_draw.h"
#include "page.h"
#include "cli/draw/sheet.h"
#include "small_vit.h"

enum { POINTS = 1000 };

static bool make(small_vit *v, int64_t depth, int64_t heads)
{
    nn_vit_config config = small_config();
    config.body.depth = depth;
    config.body.heads = heads;
    return small_make(v, &config, "m.safetensors");
}

/* ---- The sheet -------------------------------------------------------------------------------------------------- */

/* A page with that curve; the image is a digit, or that one. */
static const char *page_with(const small_vit *v, const sheet_point *curve, int64_t count, const unsigned char *image_of)
{
    static char page[1 << 19];
    unsigned char pixels[784];
    char error[400] = "";
    nn_digits_draw(pixels, 4, 1, NN_DIGITS_TEST, 4);
    if (image_of) memcpy(pixels, image_of, sizeof pixels);
    sheet_image image = {pixels, 4, NULL};
    sheet s = {.title = "A & B",
               .curve = curve,
               .point_count = count,
               .curve_unit = "epoch",
               .images = &image,
               .image_count = 1};
    bool ok = sheet_write("page.html", v->net, v->ctx, small_input, &s, error, sizeof error);
    slurp(expect(ok, "%s", error) ? "page.html" : "none", page, sizeof page);
    expect_closed(page);
    expect_alone(page);
    expect(!strstr(page, "nan") && !strstr(page, "inf"), "a number that is none");
    return page;
}

static const char *page_of(const small_vit *v, const sheet_point *curve, int64_t count)
{
    return page_with(v, curve, count, NULL);
}

/* The points of the n-th line of the page, x and y in turn. */
static int line_of(const char *page, int n, double *xy, int most)
{
    static char line[1 << 16];
    for (; n >= 0; n--)
        if (!(page = strstr(page, "class=\"line\" d=\""))) return 0;
        else page += 15;
    snprintf(line, sizeof line, "%.*s", (int)strcspn(page + 1, "\""), page + 1);
    return numbers_of(line, xy, most) / 2;
}

TEST(a_curve_is_drawn)
{
    static sheet_point curve[POINTS];
    static double xy[2 * POINTS];
    small_vit v;
    if (make(&v, 2, 2)) {
        /* A loss at every point, which falls; an accuracy at every hundredth, which rises. */
        for (int i = 0; i < POINTS; i++)
            curve[i] = (sheet_point){i / 100.0, 2.5 * exp(-i / 300.0), i % 100 == 99 ? 0.5 + i / 2500.0 : NAN};
        const char *page = page_of(&v, curve, POINTS);
        int count = line_of(page, 0, xy, 2 * POINTS);
        expect(count > 100 && count <= 200, "a loss of %d points", count);
        for (int i = 1; i < count; i++)
            expect(xy[2 * i] > xy[2 * i - 2] && xy[2 * i + 1] >= xy[2 * i - 1], "point %d", i);
        count = line_of(page, 1, xy, 2 * POINTS);
        expect(count == 10, "an accuracy of %d points", count);
        for (int i = 1; i < count; i++)
            expect(xy[2 * i] > xy[2 * i - 2] && xy[2 * i + 1] < xy[2 * i - 1], "point %d", i);
        expect(strstr(page, "Loss of training, from 2.4") && strstr(page, ">89.96<") && strstr(page, "epoch 9.99<"),
               "no words");
    }
    small_free(&v);
}

/* One point is no line, none at all is no chart, all equal is a flat line. */
TEST(few_points_are_drawn_or_left_out)
{
    sheet_point curve[3] = {{1, 0.5, NAN}, {2, 0.5, 0.9}, {3, 0.5, NAN}};
    double xy[10];
    small_vit v;
    if (make(&v, 2, 2)) {
        expect(!strstr(page_of(&v, NULL, 0), "class=\"chart\""), "a chart of nothing");
        expect(!strstr(page_of(&v, curve, 1), "class=\"chart\""), "a chart of one point");
        const char *page = page_of(&v, curve, 3);
        expect(count_of(page, "class=\"chart\"") == 1 && line_of(page, 0, xy, 10) == 3, "a line of three points");
        expect(xy[1] == xy[3] && xy[3] == xy[5], "not flat");
        expect(strstr(page, "<h1>A &amp; B</h1>"), "no title");
    }
    small_free(&v);
}

/* The map of a head is in the page, square by square: as many squares as there are patches that are seen at all. */
TEST(maps_have_a_square_for_each_patch)
{
    small_vit v;
    if (make(&v, 3, 2)) {
        const char *page = page_of(&v, NULL, 0);
        expect(count_of(page, "<svg class=\"map") == 6 && count_of(page, "Block 3 head 2: ") == 2, "%d maps",
               count_of(page, "<svg class=\"map"));
        for (const char *map = strstr(page, "<svg class=\"map"); map; map = strstr(map + 1, "<svg class=\"map")) {
            int squares = 0, brightest = 0;
            const char *end = strstr(map, "</svg>");
            for (const char *p = strstr(map, "<path class=\"h"); p && p < end; p = strstr(p + 1, "<path class=\"h")) {
                for (const char *run = strchr(p, 'M'); run && run < strstr(p, "/>"); run = strchr(run + 1, 'M')) {
                    double n[3] = {0};
                    numbers_of(run, n, 3);
                    expect(n[0] >= 0 && n[0] + n[2] <= 4 && n[1] >= 0 && n[1] < 4, "a run at %g %g of %g", n[0], n[1],
                           n[2]);
                    squares += (int)n[2];
                    if (strncmp(p, "<path class=\"h15\"", 17) == 0) brightest += (int)n[2];
                }
            }
            expect(squares >= 1 && squares <= 16 && brightest >= 1, "%d squares, %d of the brightest", squares,
                   brightest);
        }
    }
    small_free(&v);
}

/* A row of one grey value is one run, and ends with the row. */
TEST(a_picture_is_drawn_in_runs)
{
    unsigned char pixels[784];
    small_vit v;
    if (make(&v, 1, 1)) {
        memset(pixels, 255, sizeof pixels);
        const char *page = page_with(&v, NULL, 0, pixels), *path = strstr(page, "<path class=\"i8\" d=\"");
        expect(path && !strstr(path + 1, "<path class=\"i"), "not one path of ink");
        for (int y = 0; path && y < 28; y++) {
            char run[40];
            snprintf(run, sizeof run, "M0 %dh28v1h-28z", y);
            const char *at = strstr(path, run);
            expect(at && at < strstr(path, "/>"), "no %s", run);
        }
    }
    small_free(&v);
}

/* ---- The drawing ------------------------------------------------------------------------------------------------ */

/* What heads_draw_digit prints in such a terminal. */
static const char *drawing(const small_vit *v, const term *t)
{
    static char text[1 << 19];
    char error[300] = "";
    unsigned char pixels[784];
    nn_heads_view view;
    nn_digits_draw(pixels, 4, 1, NN_DIGITS_TEST, 4);
    if (!expect(nn_heads_look(&view, v->net, v->ctx, small_input, pixels, error, sizeof error), "%s", error)) return "";
    heads_drawing d = {"a digit", pixels, 28, 28, &view, 4};
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    if (!expect(kept >= 0 && freopen("drawn", "w", stdout), "no file")) return "";
    heads_draw_digit(t, &d);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    nn_heads_free(&view);
    slurp("drawn", text, sizeof text);
    return text;
}

TEST(all_heads_fit_the_screen)
{
    static const term terminals[] = {
        {TERM_MONO, false, 0}, {TERM_MONO, true, 0}, {TERM_256, true, 0}, {TERM_TRUE, true, 0}, {TERM_TRUE, false, 0}};
    static const int64_t shapes[][2] = {{6, 4}, {2, 2}, {12, 12}, {1, 1}};
    for (size_t shape = 0; shape < 4; shape++) {
        small_vit v;
        int64_t depth = shapes[shape][0], heads = shapes[shape][1];
        if (make(&v, depth, heads)) {
            char last[40], row[40];
            snprintf(last, sizeof last, depth < 10 ? "block %d" : "b. %d", (int)depth);
            snprintf(row, sizeof row, "  head %d ", (int)heads);
            for (int i = 0; i < 5; i++) {
                char *text = (char *)(uintptr_t)drawing(&v, &terminals[i]);
                expect((terminals[i].depth == TERM_MONO) == !strchr(text, '\x1b'), "terminal %d: escapes", i);
                strip(text);
                expect(widest_columns(text) <= 80, "terminal %d: %d columns", i, widest_columns(text));
                expect(strstr(text, "a digit\n") && strstr(text, "the label says 4") && strstr(text, last) &&
                           strstr(text, row),
                       "terminal %d: %.300s", i, text);
                for (const char *c = text; !terminals[i].utf8 && *c; c++) expect((unsigned char)*c < 128, "not ASCII");
            }
        }
        small_free(&v);
    }
}
