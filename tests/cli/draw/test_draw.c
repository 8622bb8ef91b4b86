/* Charts, and the drawing of a digit with all its heads: what is drawn, for input that no command can be made to give. */
#define COMMAND "false" /* none is run */
#include "cli/draw/chart.h"
#include "cli/draw/flow.h"
#include "cli/draw/heads_draw.h"
#include "cli/draw/markup.h"
#include "cli/page.h"
#include "cli/small_vit.h"

/* ---- Charts ----------------------------------------------------------------------------------------------------- */

enum { POINTS = 100 };

/* The file of a chart with one panel. */
static const char *drawn(const chart_panel *panel)
{
    static char text[1 << 17];
    char error[300] = "";
    chart c = {.name = "Loss & more", .headline = "<b>\"1\"</b>\n", .panels = panel, .panel_count = 1};
    expect(chart_write("chart.svg", &c, error, sizeof error), "%s", error);
    slurp("chart.svg", text, sizeof text);
    expect_closed(text);
    expect(!strstr(text, "nan") && !strstr(text, "inf"), "a number that is none");
    expect(strstr(text, "<title>Loss &amp; more</title>") && strstr(text, ">&lt;b&gt;&quot;1&quot;&lt;/b&gt;?<"),
           "text");
    return text;
}

/* The points of line n, x and y in turn; how many points. */
static int line_of(const char *svg, int n, double *xy)
{
    static char line[1 << 14];
    for (; n >= 0; n--) {
        if (!(svg = strstr(svg, "class=\"line\" d=\""))) return 0;
        svg += strlen("class=\"line\" d=\"");
    }
    snprintf(line, sizeof line, "%.*s", (int)strcspn(svg, "\""), svg);
    return numbers_of(line, xy, 2 * POINTS) / 2;
}

/* How far down the label stands that begins so; -1: there is none. */
static double label_at(const char *svg, const char *name)
{
    for (const char *at = svg; (at = strstr(at, "<text class=\"label ")); at++) {
        const char *text = strchr(at, '>'), *y = strstr(at, " y=\"");
        if (text && y && strncmp(text + 1, name, strlen(name)) == 0) return strtod(y + 4, NULL);
    }
    return -1;
}

/* A tenth of a value is as far down everywhere. Where y is an error rate, it is up; and x may run to the left. */
TEST(equal_factors_are_equal_steps)
{
    static const chart_point points[] = {{1, 1}, {2, 0.1}, {4, 0.01}};
    chart_series series = {.name = "it", .points = points, .count = 3};
    for (int errors = 0; errors < 2; errors++) {
        double xy[2 * POINTS];
        chart_panel panel = {.x_label = "epoch",
                             .left = errors ? 4 : 1,
                             .right = errors ? 1 : 4,
                             .scale = errors ? CHART_ERRORS : CHART_VALUES,
                             .series = &series,
                             .count = 1};
        const char *svg = drawn(&panel);
        double way = errors ? -1 : 1;
        if (!expect(line_of(svg, 0, xy) == 3, "not three points")) return;
        expect(way * (xy[2] - xy[0]) > 0 && fabs(2 * (xy[2] - xy[0]) - (xy[4] - xy[2])) < 0.3, "x");
        expect(way * (xy[3] - xy[1]) > 0 && fabs((xy[3] - xy[1]) - (xy[5] - xy[3])) < 0.3, "y");
        expect(strstr(svg, errors ? ">it 99.00 %<" : ">it 0.0100<") && strstr(svg, ">epoch<"), "no label");
        expect(strstr(svg, errors ? ">90 %<" : ">0.1<") && strstr(svg, ">3<"), "no ticks");
    }
}

/* Points without a logarithm are left out, and so is a line of nothing else; one point, and equal ones, are drawn. */
TEST(odd_points)
{
    static const chart_point odd[] = {{1, NAN}, {2, 0.5}, {3, 0}, {4, INFINITY}, {5, 0.5}, {6, -1}, {NAN, 2}};
    double xy[2 * POINTS];
    chart_series series[] = {{.name = "odd", .points = odd, .count = 7},
                             {.name = "none", .points = odd + 2, .count = 2},
                             {.name = "empty"},
                             {.name = "one", .points = odd + 1, .count = 1, .ring = true}};
    chart_panel panel = {.left = 1, .right = 6, .series = series, .count = 4};
    const char *svg = drawn(&panel);
    expect(line_of(svg, 0, xy) == 2 && xy[1] == xy[3] && line_of(svg, 1, xy) == 1 && !line_of(svg, 2, xy), "lines");
    expect(count_of(svg, "<circle") == 3 && count_of(svg, "class=\"ring\"") == 1, "points");
    expect(label_at(svg, "odd 0.500") > 0 && label_at(svg, "none") < 0 && label_at(svg, "empty") < 0, "labels");
    panel = (chart_panel){.left = 1, .right = 1, .series = series + 1, .count = 2};
    expect(!line_of(drawn(&panel), 0, xy), "a line of nothing");
    panel = (chart_panel){.left = 2, .right = 2, .scale = CHART_ERRORS, .series = series + 3, .count = 1};
    expect(line_of(drawn(&panel), 0, xy) == 1, "no point");
}

/* Bars reach both values of the axis, in either order and on either scale, and stay inside the plot; one without a
 * logarithm is left out. */
TEST(bars_are_inside_the_plot)
{
    static const chart_point points[] = {{0, 0.1}, {1, 0.2}, {2, 0.1}};
    static const chart_range ranges[] = {{0.01, 0.2}, {0.9, 0.02}, {0, 1}};
    chart_series series = {.name = "", .points = points, .count = 3, .ranges = ranges};
    for (int scale = CHART_VALUES; scale <= CHART_ERRORS; scale++) {
        chart_panel panel = {.right = 2, .scale = (chart_scale)scale, .series = &series, .count = 1};
        const char *at = drawn(&panel), *bar = "class=\"range\" d=\"M";
        expect(count_of(at, bar) == 2, "%d bars", count_of(at, bar));
        double high = INFINITY, low = 0;
        while ((at = strstr(at, bar))) {
            char *end;
            strtod(at += strlen(bar), &end);
            double a = strtod(end, &end), b = strtod(end + 1, NULL);
            expect((a < b) == ((scale == CHART_ERRORS) != (high < INFINITY)), "upside down");
            high = fmin(high, fmin(a, b));
            low = fmax(low, fmax(a, b));
        }
        expect(high > 98 && high < 120 && low > 310 && low < 338, "from %g to %g", high, low);
    }
}

/* Ticks and groups have the texts that are given; those that would overlap are left out. A gap interrupts the line. */
TEST(named_ticks_and_gaps)
{
    static const chart_point points[] = {{0, 1}, {1, 2}, {NAN, NAN}, {2, 1}, {3, 2}};
    static const chart_tick ticks[] = {{0, "<a>"}, {0.01, "hidden"}, {1, "b"}, {2, "c"}, {3, "d"}};
    static const chart_tick groups[] = {{0.5, "left"}, {2.5, "right"}};
    chart_series series = {.name = "", .points = points, .count = 5, .gaps = true};
    chart_panel panel = {
        .right = 3, .series = &series, .count = 1, .ticks = ticks, .tick_count = 5, .groups = groups, .group_count = 2};
    const char *svg = drawn(&panel), *line = strstr(svg, "class=\"line\" d=\"");
    expect(strstr(svg, ">&lt;a&gt;<") && strstr(svg, ">d<") && !strstr(svg, "hidden") && strstr(svg, ">right<"),
           "texts");
    if (!expect(line, "no line")) return;
    char path[200];
    snprintf(path, sizeof path, "%.*s", (int)strcspn(line + 16, "\""), line + 16);
    expect(count_of(path, "M") == 2 && count_of(path, "L") == 2, "%s", path);
}

/* Panels are two in a row, under each other where there are more. */
TEST(text_in_markup_is_escaped)
{
    nn_buffer out = {0};
    markup_text(&out, "a<b>&\"\x01 \xe2\x80\xae\xd8\x9c\xc2\x85 \xd7\x90\xc3\xa9 \xe2\x80");
    nn_buffer_putc(&out, 0);
    expect(!out.failed && !strcmp(out.bytes, "a&lt;b&gt;&amp;&quot;? \\u202e\\u061c\\u0085 \xd7\x90\xc3\xa9 \xe2\x80"),
           "%s", out.bytes);
    nn_buffer_free(&out);
}

TEST(panels_in_rows)
{
    static const chart_point points[] = {{0, 1}, {1, 2}};
    char error[300] = "", text[1 << 15];
    chart_series series = {.name = "", .points = points, .count = 2};
    chart_panel panels[4];
    for (int i = 0; i < 4; i++) panels[i] = (chart_panel){.title = "title", .right = 1, .series = &series, .count = 1};
    for (int count = 1; count <= 4; count++) {
        chart c = {.name = "", .headline = "", .panels = panels, .panel_count = count};
        expect(chart_write("chart.svg", &c, error, sizeof error), "%s", error);
        slurp("chart.svg", text, sizeof text);
        char size[80];
        snprintf(size, sizeof size, "viewBox=\"0 0 %d %d\"", count > 1 ? 960 : 840, count > 2 ? 762 : 422);
        expect(strstr(text, size) && count_of(text, ">title<") == count, "%d panels are not %s", count, size);
        expect(count_of(text, "y=\"78.0\">title<") == (count < 2 ? 1 : 2), "the first row of %d", count);
    }
}

/* Labels have the order of the ends of their lines, do not overlap, and stay beside the plot, whether all ends are at its
 * bottom or at its top. */
TEST(labels_do_not_overlap)
{
    static chart_point points[4][POINTS];
    static const char *const names[] = {"a", "b", "c", "d"}, *const order[] = {"d ", "b ", "c ", "a "};
    static const double part[] = {1, 1.003, 1.002, 1.004};
    chart_series series[4];
    for (int rises = 0; rises < 2; rises++) {
        for (int i = 0; i < 4; i++) {
            for (int n = 0; n < POINTS; n++) points[i][n] = (chart_point){n, part[i] * exp((rises ? n : -n) / 10.0)};
            series[i] = (chart_series){.name = names[i], .points = points[i], .count = POINTS};
        }
        chart_panel panel = {.right = POINTS - 1, .series = series, .count = 4};
        const char *svg = drawn(&panel);
        expect(count_of(svg, "<circle") == 4, "more dots than the last of each line");
        for (int i = 0; i < 4; i++) {
            double y = label_at(svg, order[i]), above = i ? label_at(svg, order[i - 1]) : 0;
            expect(y - above >= 16.9 && y >= 98 && y <= 98 + 240 + 14, "label %sat %g, the one above at %g", order[i],
                   y, above);
        }
    }
}

/* ---- Heads in the terminal -------------------------------------------------------------------------------------- */

static bool make(small_vit *v, int64_t depth, int64_t heads)
{
    nn_description config = small_config();
    config.encoder.blocks.depth = depth;
    config.encoder.blocks.heads = heads;
    return small_make(v, &config, "m.safetensors");
}

/* What heads_draw_digit prints in such a terminal. */
static const char *drawing(const small_vit *v, const term *t)
{
    static char text[1 << 19];
    char error[300] = "";
    unsigned char pixels[784];
    heads_view view;
    mha_model *model;
    nn_digits_draw(pixels, 4, 1, NN_DIGITS_TEST, 4);
    if (!expect(!mha_model_open(v->ctx, &model, "m.safetensors", NULL), "%s", mha_context_error(v->ctx))) return "";
    bool made = heads_view_make(&view, v->ctx, model, pixels, error, sizeof error);
    mha_model_free(model);
    if (!expect(made, "%s", error)) return "";
    heads_drawing d = {.name = "a digit", .image = pixels, .rows = 28, .columns = 28, .view = &view, .label = 4};
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    if (!expect(kept >= 0 && freopen("drawn", "w", stdout), "no file")) return "";
    heads_draw_digit(t, &d);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    heads_view_free(&view);
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
            snprintf(last, sizeof last, depth < 10 ? "block %d" : "b. %d", (int)depth - 1);
            snprintf(row, sizeof row, "  head %d ", (int)heads - 1);
            for (int i = 0; i < 5; i++) {
                char *text = (char *)(uintptr_t)drawing(&v, &terminals[i]);
                expect((terminals[i].depth == TERM_MONO) == !strchr(text, '\x1b'), "terminal %d: escapes", i);
                strip(text);
                expect(widest_columns(text) <= 80, "terminal %d: %d columns", i, widest_columns(text));
                expect(strstr(text, "a digit\n") && strstr(text, "label 4: ") && strstr(text, last) &&
                           strstr(text, row),
                       "terminal %d: %.300s", i, text);
                for (const char *c = text; !terminals[i].utf8 && *c; c++) expect((unsigned char)*c < 128, "not ASCII");
            }
        }
        small_free(&v);
    }
}

/* ---- Columns ---------------------------------------------------------------------------------------------------- */

TEST(columns_of_all_scripts)
{
    static const struct {
        const char *text;
        int columns;
    } cases[] = {
        {"", 0},
        {"saw", 3},
        {"na\u00efve", 5},
        {"\u0434\u043e\u043c", 3},
        {"\u732b", 2},
        {"\ud55c\uad6d\uc5b4", 6},
        {"cafe\u0301", 4},
        {"\u0928\u092e\u0938\u094d\u0924\u0947", 4},
        {"\u200b\u200d", 0},
        {"\uff41", 2},
        {"\U0001f600", 2},
        {"\U00020000x", 3},
        {"a\xff\xc0z", 4},
        {"\u2500\u2591\u221a", 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(term_columns(cases[i].text) == cases[i].columns, "'%s' takes %d columns, not %d", cases[i].text,
               term_columns(cases[i].text), cases[i].columns);
}

TEST(text_is_cut_between_characters)
{
    expect(term_fitting("saw", 2) == 2 && term_fitting("saw", 9) == 3 && term_fitting("saw", 0) == 0, "ASCII");
    expect(term_fitting("\u732b\u732b", 3) == 3 && term_fitting("\u732b\u732b", 4) == 6, "wide");
    expect(term_fitting("cafe\u0301s", 4) == 6 && term_fitting("cafe\u0301s", 3) == 3, "a mark and its letter");
}

/* ---- Diagrams --------------------------------------------------------------------------------------------------- */

/* The box of node n in a picture: x, y, width, height. Boxes of the legend come last. */
static bool box_of(const char *svg, int n, double box[4])
{
    static const char *const names[] = {" x=\"", " y=\"", " width=\"", " height=\""};
    for (svg = strstr(svg, "<rect class="); svg && n > 0; n--) svg = strstr(svg + 1, "<rect class=");
    for (int i = 0; svg && i < 4; i++) {
        const char *at = strstr(svg, names[i]);
        if (!at) return false;
        box[i] = strtod(at + strlen(names[i]), NULL);
    }
    return svg;
}

/* Nodes of one row are side by side, those of the next row lie below, a frame lies around its nodes, and all of it is
 * inside the picture. */
TEST(nodes_of_a_diagram_do_not_overlap)
{
    static char text[1 << 16];
    char error[200] = "";
    double a[4], b[4], c[4], frame[4], width, height;
    flow f = {.headline = "Two & \"three\""};
    int x = flow_put(&f, (flow_node){.kind = FLOW_DATA, .column = 0, .row = 0, .title = "<x>", .shape = "(1, 2)"});
    int group = flow_frame(&f, "inside");
    int y = flow_put(&f, (flow_node){.kind = FLOW_WEIGHT, .column = 0, .row = 1, .group = group, .title = "y"});
    int z = flow_put(&f, (flow_node){.kind = FLOW_STEP, .column = 1, .row = 1, .group = group, .title = "z"});
    flow_link(&f, x, y, "label");
    flow_link_around(&f, x, z);
    if (!expect(flow_save(&f, "flow.svg", error, sizeof error), "%s", error)) return;
    slurp("flow.svg", text, sizeof text);
    expect_closed(text);
    expect(strstr(text, "Two &amp; &quot;three&quot;") && strstr(text, ">&lt;x&gt;<") && strstr(text, ">inside<"),
           "text");
    const char *view = strstr(text, "viewBox=\"0 0 ");
    char *rest = NULL;
    if (!expect(view, "no size")) return;
    width = strtod(view + strlen("viewBox=\"0 0 "), &rest);
    height = strtod(rest, NULL);
    if (!expect(box_of(text, 0, frame) && box_of(text, 1, a) && box_of(text, 2, b) && box_of(text, 3, c), "boxes"))
        return;
    expect(a[1] + a[3] < frame[1] && b[1] == c[1] && b[0] + b[2] < c[0], "rows or columns");
    expect(frame[0] < b[0] && frame[1] < b[1] && frame[0] + frame[2] > c[0] + c[2] && frame[1] + frame[3] > b[1] + b[3],
           "the frame");
    expect(frame[0] >= 0 && frame[0] + frame[2] <= width && frame[1] + frame[3] <= height, "outside");
    expect(flow_knows("a.svg") && flow_knows("b/a.mmd") && !flow_knows(".svg") && !flow_knows("a.SVG") &&
               !flow_knows("a"),
           "suffixes");
}
