/* Diagrams as SVG.
 *
 * Rows are laid out first: each is as high as its highest node, with a constant gap, and a frame adds room above and
 * below its nodes. Arrows run from the bottom of a node to the top of the next one as curves with vertical ends. */
#include "cli/draw/flow.h"
#include "cli/draw/markup.h"
#include "cli/draw/scale.h"
#include "io/printable.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Pixels. */
enum { MARGIN = 36, COLUMN = 236, BETWEEN = 32, GAP = 40, HEAD = 92, FOOT = 64 };
enum {
    LINE = 19,
    PAD = 12,
    CARD = 5,
    SUM = 26,
    MAP_LEAST = 72,
    MAP_MOST = 136,
    MAP_GAP = 20,
    CAPTION = 18,
    FRAME = 20,
    FRAME_TITLE = 26
};
enum { AROUND = 26, ROWS = 48, COLOURS = 6 };

static const char style[] =
    "<style>\n"
    "  svg { --paper: #fcfcfb; --ink: #1d1d1b; --soft: #6b6a65; --grid: #e6e5e0; --arrow: #8a8983; --frame: #f5f4f0;\n"
    "        --orange: #c2570c; --blue: #1f6fb5; --data: #e9f2fb; --weight: #fdf1e4; --step: #ffffff;\n"
    "        --h0: #1f6fb5; --h1: #c2570c; --h2: #2e8540; --h3: #8b3fa8; --h4: #b0303f; --h5: #5f6b1f }\n"
    "  @media (prefers-color-scheme: dark) {\n"
    "    svg { --paper: #191918; --ink: #f2f1ec; --soft: #a3a29b; --grid: #33322f; --arrow: #85847d; --frame: "
    "#201f1e;\n"
    "          --orange: #f0924a; --blue: #6cb2f0; --data: #1a2836; --weight: #35261a; --step: #242322;\n"
    "          --h0: #6cb2f0; --h1: #f0924a; --h2: #6fcf7f; --h3: #cf8fe8; --h4: #f0808d; --h5: #c3d06a }\n"
    "  }\n"
    "  text { font: 13px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif; fill: var(--soft);\n"
    "         font-variant-numeric: tabular-nums }\n"
    "  .headline { font-size: 19px; font-weight: 600; fill: var(--ink) }\n"
    "  .title { font-size: 14px; font-weight: 600; fill: var(--ink) }\n"
    "  .small { font-size: 11.5px } .middle { text-anchor: middle } .end { text-anchor: end }\n"
    "  .data { fill: var(--data); stroke: var(--blue); stroke-width: 1.25 }\n"
    "  .weight { fill: var(--weight); stroke: var(--orange); stroke-width: 1.25 }\n"
    "  .step { fill: var(--step); stroke: var(--arrow); stroke-width: 1.25 }\n"
    "  .frame { fill: var(--frame); stroke: var(--grid); stroke-width: 1.25 }\n"
    "  .part { fill: var(--colour); fill-opacity: 0.16; stroke: var(--colour) } .name { fill: var(--colour) }\n"
    "  .arrow { fill: none; stroke: var(--arrow); stroke-width: 1.5; marker-end: url(#tip) }\n"
    "  .tip { fill: var(--arrow) }\n"
    "  .label { font-size: 11.5px; stroke: var(--paper); stroke-width: 4; paint-order: stroke }\n"
    "</style>\n"
    "<defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" "
    "orient=\"auto\"><path class=\"tip\" d=\"M0 0.6L8 4L0 7.4z\"/></marker></defs>\n";

static const char *const classes[] = {[FLOW_DATA] = "data", [FLOW_WEIGHT] = "weight", [FLOW_STEP] = "step",
                                      [FLOW_SUM] = "step",  [FLOW_MAPS] = "data",     [FLOW_JOINED] = "data"};

/* ---- Layout ----------------------------------------------------------------------------------------------------- */

typedef struct box {
    double left, top, width, height;
} box;

typedef struct layout {
    const flow *f;
    double top[ROWS], high[ROWS]; /* of each row */
    double left;                  /* of the grid */
    double width, height;         /* of the picture */
} layout;

static double node_width(const flow_node *n)
{
    if (n->kind == FLOW_SUM) return SUM;
    return (n->span > 0 ? n->span : 1) * COLUMN - BETWEEN;
}

/* The larger side of a map: as large as it can be with all maps in one row, within limits. */
static double map_side(const flow_node *n)
{
    double side = (node_width(n) - 2 * PAD + MAP_GAP) / n->parts - MAP_GAP;
    return fmin(fmax(side, MAP_LEAST), MAP_MOST);
}

static int maps_across(const flow_node *n)
{
    int most = (int)((node_width(n) - 2 * PAD + MAP_GAP) / (map_side(n) + MAP_GAP));
    return n->parts < most ? n->parts : most;
}

static double map_cell(const flow_node *n)
{
    int64_t most = n->map_rows > n->map_columns ? n->map_rows : n->map_columns;
    return map_side(n) / (double)(most ? most : 1);
}

static double map_height(const flow_node *n) { return map_cell(n) * (double)n->map_rows; }

static int lines_of(const flow_node *n) { return (*n->title != 0) + (*n->shape != 0) + (*n->note != 0); }

/* How many cards lie behind the first one. */
static int cards_of(const flow_node *n) { return n->copies > 4 ? 3 : n->copies > 1 ? n->copies - 1 : 0; }

static double node_height(const flow_node *n)
{
    if (n->kind == FLOW_SUM) return SUM;
    double high = 2 * PAD + LINE * (double)lines_of(n) - 5;
    if (n->kind == FLOW_JOINED) high += CAPTION + 14;
    if (n->kind == FLOW_MAPS) {
        int across = maps_across(n), rows = (n->parts + across - 1) / across;
        high += rows * (map_height(n) + CAPTION + 10) + 4;
    }
    return high;
}

static box box_of(const layout *l, const flow_node *n)
{
    int row = (int)n->row;
    double width = node_width(n), height = node_height(n), centre = l->left + (n->column + 0.5) * COLUMN;
    return (box){centre - width / 2, l->top[row] + (l->high[row] - height) / 2, width, height};
}

/* The frame around the nodes of a group. */
static box frame_of(const layout *l, int group)
{
    double left = INFINITY, right = -INFINITY, top = INFINITY, bottom = -INFINITY;
    for (int i = 0; i < l->f->node_count; i++) {
        if (l->f->nodes[i].group != group) continue;
        box b = box_of(l, &l->f->nodes[i]);
        left = fmin(left, b.left), right = fmax(right, b.left + b.width);
        top = fmin(top, b.top), bottom = fmax(bottom, b.top + b.height);
    }
    return (box){left - FRAME - AROUND, top - FRAME - FRAME_TITLE, right - left + 2 * (FRAME + AROUND),
                 bottom - top + 2 * FRAME + FRAME_TITLE};
}

/* Whether a group begins, or ends, at this row. */
static bool edge_of_group(const flow *f, int row, bool begins)
{
    for (int g = 1; g <= f->group_count; g++) {
        int first = ROWS, last = -1;
        for (int i = 0; i < f->node_count; i++) {
            int at = (int)f->nodes[i].row;
            if (f->nodes[i].group != g) continue;
            if (at < first) first = at;
            if (at > last) last = at;
        }
        if (row == (begins ? first : last)) return true;
    }
    return false;
}

static layout lay_out(const flow *f)
{
    layout l = {.f = f, .left = MARGIN};
    double leftmost = 0, rightmost = 0, y = *f->about ? HEAD : HEAD - LINE;
    int rows = 0;
    for (int i = 0; i < f->node_count; i++) {
        const flow_node *n = &f->nodes[i];
        int row = (int)n->row;
        assert(row >= 0 && row < ROWS);
        l.high[row] = fmax(l.high[row], node_height(n));
        rows = row + 1 > rows ? row + 1 : rows;
        double half = (n->span > 0 ? n->span : 1) / 2;
        leftmost = fmin(leftmost, n->column + 0.5 - half), rightmost = fmax(rightmost, n->column + 0.5 + half);
    }
    for (int row = 0; row < rows; row++) {
        if (edge_of_group(f, row, true)) y += FRAME + FRAME_TITLE;
        l.top[row] = y;
        y += l.high[row] + GAP;
        if (edge_of_group(f, row, false)) y += FRAME;
    }
    double side = f->group_count ? FRAME + AROUND - BETWEEN / 2.0 : 0, around = 0;
    for (int i = 0; i < f->link_count; i++)
        if (f->links[i].around && !f->group_count) around = AROUND;
    l.left = MARGIN + side - leftmost * COLUMN - BETWEEN / 2.0;
    l.width = ceil(2 * (MARGIN + side) + around + (rightmost - leftmost) * COLUMN - BETWEEN);
    l.height = ceil(y - GAP + FOOT);
    return l;
}

/* ---- Drawing ---------------------------------------------------------------------------------------------------- */

static void put_text(nn_buffer *out, const char *class, double x, double y, const char *text)
{
    char shown[8 * FLOW_TEXT];
    if (!*text) return;
    nn_buffer_printf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
    markup_text(out, nn_printable(shown, sizeof shown, text));
    nn_buffer_puts(out, "</text>\n");
}

static void put_box(nn_buffer *out, const char *class, box b, double radius)
{
    nn_buffer_printf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%.1f\"/>\n",
                     class, b.left, b.top, b.width, b.height, radius);
}

/* A name in the colour of its head, cut to the room that it has at about 6 pixels per character. */
static void put_name(nn_buffer *out, int part, double x, double y, double room, const char *name)
{
    char text[FLOW_TEXT];
    int most = (int)(room / 6.2);
    size_t bytes = term_fitting(name, most);
    snprintf(text, sizeof text, "%.*s%s", (int)(name[bytes] ? term_fitting(name, most - 1) : bytes), name,
             name[bytes] ? "\u2026" : "");
    nn_buffer_printf(out, "<g style=\"--colour: var(--h%d)\">", part % COLOURS);
    put_text(out, "small middle name", x, y, text);
    nn_buffer_puts(out, "</g>");
}

static void put_map(nn_buffer *out, const flow_node *n, int part, double left, double top)
{
    int64_t rows = n->map_rows, columns = n->map_columns;
    double side = map_side(n), cell = map_cell(n), inset = (side - cell * (double)columns) / 2;
    const float *map = n->maps + part * rows * columns;
    nn_buffer_puts(out, "<g shape-rendering=\"crispEdges\">");
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            scale_colour c = scale_at((double)map[i * columns + j]);
            nn_buffer_printf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"#%02x%02x%02x\"/>",
                             left + inset + cell * (double)j, top + cell * (double)i, cell + 0.05, cell + 0.05,
                             (unsigned)c.red, (unsigned)c.green, (unsigned)c.blue);
        }
    nn_buffer_puts(out, "</g>\n");
    put_name(out, part, left + side / 2, top + map_height(n) + CAPTION - 3, side + MAP_GAP - 4, n->names[part]);
}

static void put_maps(nn_buffer *out, const flow_node *n, box b, double y)
{
    int across = maps_across(n);
    double step = map_side(n) + MAP_GAP;
    for (int i = 0; i < n->parts; i++) {
        int in_row = n->parts - i / across * across < across ? n->parts - i / across * across : across;
        double left = b.left + (b.width - in_row * step + MAP_GAP) / 2;
        int row = i / across, column = i % across;
        put_map(out, n, i, left + column * step, y + row * (map_height(n) + CAPTION + 10));
    }
}

static void put_joined(nn_buffer *out, const flow_node *n, box b, double y)
{
    double width = (b.width - 2 * PAD) / n->parts;
    for (int i = 0; i < n->parts; i++) {
        box part = {b.left + PAD + i * width, y, width, CAPTION + 8};
        nn_buffer_printf(out, "<g style=\"--colour: var(--h%d)\">", i % COLOURS);
        put_box(out, "part", part, 0);
        nn_buffer_puts(out, "</g>");
        put_name(out, i, part.left + width / 2, y + CAPTION - 1, width - 4, n->names[i]);
    }
}

static void put_node(nn_buffer *out, const layout *l, const flow_node *n)
{
    box b = box_of(l, n);
    const char *class = classes[n->kind];
    double radius = n->kind == FLOW_SUM ? SUM / 2.0 : n->kind == FLOW_STEP ? b.height / 2 : 7;
    for (int i = cards_of(n); i > 0; i--)
        put_box(out, class, (box){b.left + i * CARD, b.top - i * CARD, b.width, b.height}, radius);
    put_box(out, class, b, radius);
    double x = b.left + b.width / 2, y = b.top + PAD + 11;
    if (n->kind == FLOW_SUM) y = b.top + SUM / 2.0 + 5;
    const char *const texts[] = {n->title, n->shape, n->note};
    for (int i = 0; i < 3; i++) {
        if (!*texts[i]) continue;
        put_text(out, i == 0 ? "title middle" : i == 1 ? "middle" : "small middle", x, y, texts[i]);
        y += LINE;
    }
    if (n->kind == FLOW_MAPS) put_maps(out, n, b, y - 6);
    if (n->kind == FLOW_JOINED) put_joined(out, n, b, y - 8);
}

/* How many arrows from above end at a node. */
static int arrows_into(const flow *f, int node)
{
    int count = 0;
    for (int i = 0; i < f->link_count; i++) count += f->links[i].to == node && !f->links[i].around;
    return count;
}

/* Whether an arrow that runs around others leaves the node; it takes the room of a label. */
static bool leaves_around(const flow *f, int node)
{
    for (int i = 0; i < f->link_count; i++)
        if (f->links[i].around && f->links[i].from == node) return true;
    return false;
}

/* Where an arrow meets a node: the middle, or as near to the other end as it can if the node is wide, so that the arrow
 * runs straight, or if several arrows end there, so that they keep apart. */
static double end_of(box b, double other, bool shared)
{
    double middle = b.left + b.width / 2, reach = b.width > COLUMN ? b.width / 2 - 2 * PAD : shared ? COLUMN / 5.0 : 0;
    return fmin(fmax(other, middle - reach), middle + reach);
}

/* Leaves below the node and runs to the right of all nodes in the rows up to the other end. */
static void put_around(nn_buffer *out, const layout *l, const flow_edge *e)
{
    enum { BELOW = 12, RADIUS = 12 };
    const flow_node *nodes = l->f->nodes;
    box a = box_of(l, &nodes[e->from]), b = box_of(l, &nodes[e->to]);
    double x = a.left + a.width / 2, y = a.top + a.height, to_x = b.left + b.width + 2, to_y = b.top + b.height / 2;
    double turn = b.left + b.width, r = RADIUS;
    for (int i = 0; i < l->f->node_count; i++) {
        box c = box_of(l, &nodes[i]);
        if (nodes[i].row > nodes[e->from].row && nodes[i].row <= nodes[e->to].row)
            turn = fmax(turn, c.left + c.width + cards_of(&nodes[i]) * CARD);
    }
    turn += AROUND - 4;
    nn_buffer_printf(
        out, "<path class=\"arrow\" d=\"M%.1f %.1fv%dH%.1fQ%.1f %.1f %.1f %.1fV%.1fQ%.1f %.1f %.1f %.1fH%.1f\"/>\n", x,
        y, BELOW, turn - r, turn, y + BELOW, turn, y + BELOW + r, to_y - r, turn, to_y, turn - r, to_y, to_x);
}

static void put_link(nn_buffer *out, const layout *l, const flow_edge *e)
{
    box a = box_of(l, &l->f->nodes[e->from]), b = box_of(l, &l->f->nodes[e->to]);
    if (e->around) {
        put_around(out, l, e);
        return;
    }
    double a_middle = a.left + a.width / 2, b_middle = b.left + b.width / 2, y = a.top + a.height;
    double x = a.width > b.width ? end_of(a, b_middle, false) : a_middle;
    double to = end_of(b, x, arrows_into(l->f, e->to) > 1);
    double to_y = b.top - 2 - cards_of(&l->f->nodes[e->to]) * CARD, bend = fmin((to_y - y) * 0.55, 60);
    nn_buffer_printf(out, "<path class=\"arrow\" d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\"/>\n", x, y, x, y + bend,
                     to, to_y - bend, to, to_y);
    if (!leaves_around(l->f, e->from)) put_text(out, "label", (x + to) / 2 + 9, (y + to_y) / 2 + 3, e->label);
}

static void put_legend(nn_buffer *out, const layout *l)
{
    static const struct {
        const char *class, *text;
        int width;
    } entries[] = {{"data", "numbers", 100}, {"weight", "step with parameters", 180}, {"step", "step without", 0}};
    double x = MARGIN, y = l->height - 24;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        put_box(out, entries[i].class, (box){x, y - 10, 18, 12}, i == 2 ? 6 : 3);
        put_text(out, "small", x + 26, y, entries[i].text);
        x += entries[i].width;
    }
}

void flow_put_svg(nn_buffer *out, const flow *f)
{
    layout l = lay_out(f);
    char shown[8 * FLOW_TEXT];
    nn_buffer_printf(out,
                     "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" "
                     "height=\"%.0f\" role=\"img\">\n<title>",
                     l.width, l.height, l.width, l.height);
    markup_text(out, nn_printable(shown, sizeof shown, f->headline));
    nn_buffer_printf(out, "</title>\n%s<rect width=\"%.0f\" height=\"%.0f\" fill=\"var(--paper)\"/>\n", style, l.width,
                     l.height);
    put_text(out, "headline", MARGIN, 40, f->headline);
    put_text(out, "about", MARGIN, 62, f->about);
    for (int g = 1; g <= f->group_count; g++) {
        box b = frame_of(&l, g);
        put_box(out, "frame", b, 12);
        put_text(out, "title", b.left + 16, b.top + 24, f->groups[g - 1]);
    }
    for (int i = 0; i < f->link_count; i++) put_link(out, &l, &f->links[i]);
    for (int i = 0; i < f->node_count; i++) put_node(out, &l, &f->nodes[i]);
    put_legend(out, &l);
    nn_buffer_puts(out, "</svg>\n");
}
