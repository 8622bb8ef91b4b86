/* The marks of a drawing and the weights of the roles by content, on drawings that are known: lines, angles, rings. */
#include "support/harness.h"

#include "inspect/role_table.h"

enum { SIDE = 28, PATCH = 4, GRID = SIDE / PATCH, PATCHES = GRID * GRID, PIXELS = SIDE * SIDE };

typedef struct paper {
    unsigned char image[PIXELS];
    nn_drawing d;
} paper;

static paper sheet;

static paper *blank(void)
{
    nn_drawing_free(&sheet.d);
    memset(&sheet, 0, sizeof sheet);
    if (!expect(nn_drawing_create(&sheet.d, SIDE, SIDE), "no memory")) exit(1);
    return &sheet;
}

__attribute__((destructor)) static void clean_up(void) { nn_drawing_free(&sheet.d); }

/* A disc of ink, three pixels wide. */
static void dot(paper *p, double y, double x)
{
    for (int v = 0; v < SIDE; v++)
        for (int u = 0; u < SIDE; u++)
            if (hypot(v - y, u - x) < 1.5) p->image[v * SIDE + u] = 255;
}

static void line(paper *p, double y, double x, double to_y, double to_x)
{
    for (int n = 0; n <= 100; n++) dot(p, y + (to_y - y) * n / 100, x + (to_x - x) * n / 100);
}

/* An arc around the middle, from and to an angle in degrees; 0 is to the right, 90 down. */
static void arc(paper *p, double r, int from, int to)
{
    for (int a = from; a <= to; a++) dot(p, 14 + r * sin(a * 0.0174532925), 14 + r * cos(a * 0.0174532925));
}

static int count(const paper *p, int mark)
{
    int found = 0;
    for (int i = 0; i < PIXELS; i++) found += (p->d.marks[i] & mark) != 0;
    return found;
}

/* The distance of the nearest pixel with a mark. */
static double far_from(const paper *p, int mark, double y, double x)
{
    double best = 1e9;
    for (int i = 0; i < PIXELS; i++)
        if (p->d.marks[i] & mark) best = fmin(best, hypot(i / SIDE - y, i % SIDE - x));
    return best;
}

static void read(paper *p) { nn_drawing_read(&p->d, p->image); }

TEST(straight_lines_have_two_ends_and_nothing_else)
{
    for (int degrees = 0; degrees < 180; degrees += 9) {
        double c = cos(degrees * 0.0174532925), s = sin(degrees * 0.0174532925);
        paper *p = blank();
        line(p, 14 - 9 * s, 14 - 9 * c, 14 + 9 * s, 14 + 9 * c);
        read(p);
        expect(count(p, NN_DRAWING_END) == 2, "%d degrees: %d ends", degrees, count(p, NN_DRAWING_END));
        expect(far_from(p, NN_DRAWING_END, 14 - 9 * s, 14 - 9 * c) < 4 &&
                   far_from(p, NN_DRAWING_END, 14 + 9 * s, 14 + 9 * c) < 4,
               "%d degrees: the ends are elsewhere", degrees);
        expect(!count(p, NN_DRAWING_CORNER | NN_DRAWING_CURVE | NN_DRAWING_HOLE), "%d degrees: not straight", degrees);
        expect(count(p, NN_DRAWING_LINE) >= 11 && count(p, NN_DRAWING_LINE) <= 28, "%d degrees: a line of %d", degrees,
               count(p, NN_DRAWING_LINE));
    }
}

/* A line along the top, and one down from its end, straight or slanted. */
TEST(angles_have_a_corner)
{
    for (int to = 7; to <= 21; to += 7) {
        paper *p = blank();
        line(p, 6, 7, 6, 21);
        line(p, 6, 21, 21, to);
        read(p);
        expect(far_from(p, NN_DRAWING_CORNER, 6, 21) < 4, "down to %d: no corner", to);
        expect(count(p, NN_DRAWING_CORNER) <= 7, "down to %d: %d pixels of corners", to, count(p, NN_DRAWING_CORNER));
        expect(count(p, NN_DRAWING_END) == 2 && !count(p, NN_DRAWING_CURVE | NN_DRAWING_HOLE), "down to %d: more", to);
    }
}

TEST(rings_have_a_hole_and_curve)
{
    for (int r = 6; r <= 9; r++) {
        paper *p = blank();
        arc(p, r, 0, 360);
        read(p);
        double area = 3.14159 * (r - 1.5) * (r - 1.5);
        expect(fabs(count(p, NN_DRAWING_HOLE) - area) < 0.25 * area, "radius %d: a hole of %d pixels, not %.0f", r,
               count(p, NN_DRAWING_HOLE), area);
        expect(!count(p, NN_DRAWING_END | NN_DRAWING_CORNER), "radius %d: ends or corners", r);
        expect(2 * count(p, NN_DRAWING_CURVE) > count(p, NN_DRAWING_LINE), "radius %d: %d of %d pixels are curved", r,
               count(p, NN_DRAWING_CURVE), count(p, NN_DRAWING_LINE));
    }
}

TEST(open_rings_have_a_gap)
{
    for (int turn = 0; turn < 360; turn += 90) {
        paper *p = blank();
        arc(p, 8, turn + 40, turn + 320);
        read(p);
        expect(!count(p, NN_DRAWING_HOLE), "open at %d: a hole", turn);
        expect(p->d.marks[14 * SIDE + 14] & NN_DRAWING_GAP, "open at %d: no gap in the middle", turn);
        expect(count(p, NN_DRAWING_END) == 2, "open at %d: %d ends", turn, count(p, NN_DRAWING_END));
        expect(!(p->d.marks[SIDE + 1] & NN_DRAWING_GAP), "open at %d: a gap outside", turn);
    }
}

/* Nothing is read beyond the border, and nothing depends on what was drawn before. */
TEST(all_ink_and_no_ink_are_drawings)
{
    paper *p = blank();
    read(p);
    expect(!count(p, 255), "marks on blank paper");
    memset(p->image, 255, PIXELS);
    read(p);
    expect(count(p, NN_DRAWING_INK) == PIXELS && !count(p, NN_DRAWING_HOLE | NN_DRAWING_GAP), "all ink");
    memset(p->image, 0, PIXELS);
    read(p);
    expect(!count(p, 255), "marks are left");
}

/* ---- Weights ---------------------------------------------------------------------------------------------------- */

static const nn_grid grid = {GRID, GRID, PATCH};

static int role(const char *key)
{
    for (int n = 0; n < NN_ROLES; n++)
        if (!strcmp(nn_roles_table[n].key, key)) return n;
    expect(false, "no role %s", key);
    return NN_ROLES - 1;
}

/* The sum of a role's weights, and the part in one patch. */
static double sum_of(const paper *p, const char *key, int64_t patch, double *there)
{
    float weights[PATCHES];
    double sum = 0;
    nn_roles_table[role(key)].on(weights, &grid, &p->d);
    for (int j = 0; j < PATCHES; j++) sum += (double)weights[j];
    *there = (double)weights[patch];
    return sum;
}

/* Strokes along - | / and \ have their weight in that direction. */
TEST(strokes_have_a_direction)
{
    static const char *const keys[] = {"horizontal", "vertical", "rising", "falling"};
    static const double ways[][2] = {{0, 1}, {1, 0}, {-0.7071, 0.7071}, {0.7071, 0.7071}};
    for (int drawn = 0; drawn < 4; drawn++) {
        double there, sums[4];
        paper *p = blank();
        line(p, 14 - 9 * ways[drawn][0], 14 - 9 * ways[drawn][1], 14 + 9 * ways[drawn][0], 14 + 9 * ways[drawn][1]);
        read(p);
        for (int n = 0; n < 4; n++) sums[n] = sum_of(p, keys[n], 0, &there);
        for (int n = 0; n < 4; n++)
            expect(n == drawn || sums[n] < 0.35 * sums[drawn], "%s: %g, but %s: %g", keys[drawn], sums[drawn], keys[n],
                   sums[n]);
    }
}

TEST(weights_lie_where_the_marks_are)
{
    double there, sum;
    paper *p = blank();
    line(p, 5, 5.5, 5, 21.5); /* from the middle of patch (1,1) to that of (1,5) */
    read(p);
    sum = sum_of(p, "ink", GRID + 3, &there);
    expect(sum > 2 && there > 0.5, "ink: %g of %g in the stroke", there, sum);
    sum_of(p, "background", 3 * GRID + 3, &there);
    expect(there == 1, "background without ink: %g", there);
    sum = sum_of(p, "ends", GRID + 1, &there);
    expect(fabs(sum - 2) < 1e-5 && there > 0.4, "ends: %g, and %g in the first patch", sum, there);
    expect(sum_of(p, "loops", 0, &there) == 0 && sum_of(p, "corners", 0, &there) == 0, "what is not there");
    sum = sum_of(p, "centre", GRID + 3, &there);
    expect(fabs(sum - 1) < 1e-5 && there > 0.6, "the centre: %g of %g", there, sum);
    p = blank();
    arc(p, 8, 0, 360);
    read(p);
    sum = sum_of(p, "loops", 3 * GRID + 3, &there);
    expect(there > 15 && sum > 6 * there, "loop: %g of %g", there, sum);
    sum = sum_of(p, "curves", 0, &there);
    expect(sum > 20 && there == 0, "curves: %g, and %g in the first patch", sum, there);
}

TEST(roles_by_position_are_those_of_the_grid)
{
    nn_grid g = {3, 5, 4};
    double (*local)(const nn_grid *, int64_t, int64_t) = nn_roles_table[role("local")].between;
    double (*global)(const nn_grid *, int64_t, int64_t) = nn_roles_table[role("global")].between;
    double (*upside)(const nn_grid *, int64_t, int64_t) = nn_roles_table[role("top_bottom")].between;
    double (*sideways)(const nn_grid *, int64_t, int64_t) = nn_roles_table[role("left_right")].between;
    expect(local(&g, 6, 6) == 1 && fabs(local(&g, 6, 7) - exp(-0.5)) < 1e-12, "local");
    expect(global(&g, 6, 6) == 0 && fabs(global(&g, 0, 6) - sqrt(2)) < 1e-12, "global");
    expect(upside(&g, 1, 11) == 1 && upside(&g, 1, 1) < 0.2, "top and bottom");
    expect(sideways(&g, 1, 3) == 1 && sideways(&g, 1, 1) < 0.2, "left and right");
    for (int n = 0; n < NN_ROLES; n++) {
        const nn_role *r = &nn_roles_table[n];
        expect(!r->between == (n >= NN_ROLES_BY_POSITION) && !r->on == (n < NN_ROLES_BY_POSITION), "%s", r->key);
    }
}
