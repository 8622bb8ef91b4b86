/* Pictures of digits, made to look like MNIST's: whatever the size, place, polarity, paper and noise of a picture, the
 * same digit comes out; what already looks like that stays; and what is no digit is called so. */
#include "data/digits.h"
#include "data/fit/fit.h"
#include "nn/data/own_pictures.h"
#include "support/harness.h"

#include <stdlib.h>
#include <string.h>

static nn_fit fit_as(unsigned char *out, const nn_image *p, nn_when fit, nn_when invert)
{
    nn_fit found;
    memset(out, 77, PIXELS);
    expect(!nn_fit_digit(out, SIDE, SIDE, &found, p, fit, invert), "out of memory");
    return found;
}

static nn_fit fit(unsigned char *out, const nn_image *p) { return fit_as(out, p, NN_WHEN_AUTO, NN_WHEN_AUTO); }

/* A synthetic digit that looks like MNIST's. */
static void mnist_like(unsigned char *out, int i)
{
    unsigned char digit[PIXELS];
    nn_digits_draw(digit, i % 10, 1, NN_DIGITS_TEST, (uint64_t)i);
    fit_as(out, &(nn_image){SIDE, SIDE, digit}, NN_WHEN_YES, NN_WHEN_AUTO);
}

/* The mean difference per pixel. */
static double off_by(const unsigned char *a, const unsigned char *b)
{
    double sum = 0;
    for (int i = 0; i < PIXELS; i++) sum += abs(a[i] - b[i]);
    return sum / PIXELS;
}

/* ---- One digit, many pictures ----------------------------------------------------------------------------------- */

/* It is blurred by the way there and back, but nearer to the digit than to any other one. */
TEST(the_same_digit_comes_out)
{
    enum { COUNT = 20 };
    static unsigned char all[COUNT][PIXELS], got[PIXELS];
    rng r = rng_make(1, 13);
    for (int i = 0; i < COUNT; i++) mnist_like(all[i], i);
    for (int i = 0; i < COUNT; i++) {
        const unsigned char *want = all[i];
        for (size_t n = 0; n < sizeof ways / sizeof *ways; n++) {
            if (!sampled()) continue;
            nn_image p = picture_of(want, &ways[n].on, &r);
            nn_fit found = fit(got, &p);
            expect(found.fitted && !found.blank, "%s: not fitted", ways[n].name);
            expect(found.inverted == (ways[n].on.ink < ways[n].on.paper), "%s: wrong side", ways[n].name);
            expect(off_by(got, want) < ways[n].off, "%s: digit %d is off by %.1f", ways[n].name, i % 10,
                   off_by(got, want));
            for (int j = 0; j < COUNT; j++)
                expect(j % 10 == i % 10 || off_by(got, all[j]) > off_by(got, want), "%s: digit %d is nearer to %d",
                       ways[n].name, i % 10, j % 10);
            expect(!*found.doubt, "%s: digit %d: %s", ways[n].name, i % 10, found.doubt);
            nn_image_free(&p);
        }
    }
}

typedef struct ink {
    int top, left, bottom, right; /* of what is at least a quarter as bright as can be */
    double y, x;                  /* centre of mass */
    int most;
} ink;

static ink ink_of(const unsigned char *pixels)
{
    ink found = {SIDE, SIDE, 0, 0, 0, 0, 0};
    double sum = 0;
    for (int i = 0; i < PIXELS; i++) {
        int y = i / SIDE, x = i % SIDE;
        sum += pixels[i];
        found.y += pixels[i] * (y + 0.5);
        found.x += pixels[i] * (x + 0.5);
        if (pixels[i] > found.most) found.most = pixels[i];
        if (pixels[i] < 64) continue;
        if (y < found.top) found.top = y;
        if (x < found.left) found.left = x;
        if (y >= found.bottom) found.bottom = y + 1;
        if (x >= found.right) found.right = x + 1;
    }
    found.y /= sum;
    found.x /= sum;
    return found;
}

/* The longer side has 20 pixels, the centre of mass is MNIST's, and the strongest ink is white. */
TEST(it_is_as_large_and_where_mnists_are)
{
    unsigned char digit[PIXELS], got[PIXELS];
    rng r = rng_make(1, 14);
    for (int i = 0; i < 40; i++) {
        nn_digits_draw(digit, i % 10, 1, NN_DIGITS_TEST, (uint64_t)i);
        sheet on = {200, 200, 2.5 + i % 4, 10 + i, 40 - i, 230, 20, 0, 0, 0};
        nn_image p = picture_of(digit, &on, &r);
        fit(got, &p);
        ink k = ink_of(got);
        int longer = k.bottom - k.top > k.right - k.left ? k.bottom - k.top : k.right - k.left;
        expect(longer >= 19 && longer <= 21, "digit %d: %d long", i % 10, longer);
        expect(fabs(k.y - 14.5) < 0.1 && fabs(k.x - 14.5) < 0.1, "digit %d: centre at %.2f %.2f", i % 10, k.y, k.x);
        expect(k.most == 255, "digit %d: %d at most", i % 10, k.most);
        nn_image_free(&p);
    }
}

/* ---- What needs nothing ----------------------------------------------------------------------------------------- */

TEST(what_looks_like_mnist_stays)
{
    unsigned char digit[PIXELS], dark[PIXELS], light[PIXELS], got[PIXELS];
    for (int i = 0; i < 60; i++) {
        mnist_like(light, i);
        nn_image p = {SIDE, SIDE, light};
        nn_fit found = fit(got, &p);
        expect(!found.fitted && !found.inverted && !memcmp(got, light, PIXELS), "image %d was changed", i);
        for (int n = 0; n < PIXELS; n++) dark[n] = (unsigned char)(255 - light[n]);
        p.pixels = dark;
        found = fit(got, &p);
        expect(!found.fitted && found.inverted && !memcmp(got, light, PIXELS), "image %d: not only inverted", i);
        found = fit_as(got, &p, NN_WHEN_NO, NN_WHEN_NO);
        expect(!found.fitted && !found.inverted && !memcmp(got, dark, PIXELS), "image %d was changed on no request", i);
        nn_digits_draw(digit, i % 10, 1, NN_DIGITS_TEST, (uint64_t)i);
        p.pixels = digit;
        found = fit_as(got, &p, NN_WHEN_NO, NN_WHEN_AUTO);
        expect(!found.fitted && !memcmp(got, digit, PIXELS), "image %d was fitted", i);
    }
}

/* Of real MNIST, that is nearly everything. */
TEST(mnist_looks_like_mnist)
{
    char error[300];
    unsigned char got[PIXELS];
    const char *folder = getenv("MHA_MNIST");
    nn_mnist *set = NULL;
    if (folder) nn_mnist_open(&set, folder, error, sizeof error);
    if (!set) {
        not_given("MHA_MNIST names no folder with MNIST");
        return;
    }
    int64_t changed = 0, doubtful = 0;
    for (int64_t i = 0; i < set->test.count; i++) {
        if (!sampled()) continue;
        nn_image p = {SIDE, SIDE, (unsigned char *)(uintptr_t)nn_mnist_image(set, &set->test, i)};
        nn_fit found = fit(got, &p);
        changed += found.fitted || found.inverted;
        doubtful += *found.doubt != 0;
        expect(found.fitted || !memcmp(got, p.pixels, PIXELS), "image %d has other bytes", (int)i);
    }
    expect(changed <= 5 && doubtful <= 5, "%d of %d were changed, %d doubted", (int)changed, (int)set->test.count,
           (int)doubtful);
    nn_mnist_free(set);
}

/* ---- Strokes ---------------------------------------------------------------------------------------------------- */

/* Lines of a seven, `wide` pixels wide, on white. */
static nn_image seven(int side, double wide)
{
    nn_image p = {side, side, malloc((size_t)side * (size_t)side)};
    for (int i = 0; i < side * side; i++) {
        double y = (i / side + 0.5) / side, x = (i % side + 0.5) / side, half = wide / side / 2;
        bool bar = fabs(y - 0.2) < half && x > 0.3 && x < 0.7;
        bool leg = y > 0.2 && y < 0.8 && fabs(x - (0.7 - (y - 0.2) / 2)) < half * 1.118;
        p.pixels[i] = bar || leg ? 0 : 255;
    }
    return p;
}

TEST(thin_strokes_are_thickened)
{
    unsigned char thin[PIXELS], usual[PIXELS];
    nn_image lines = seven(280, 2), strokes = seven(280, 18);
    nn_fit found = fit(thin, &lines);
    expect(found.thickened && found.stroke < 0.5, "a stroke of %g", found.stroke);
    nn_fit other = fit(usual, &strokes);
    expect(!other.thickened && other.stroke > 1.6 && other.stroke < 2.6, "a stroke of %g", other.stroke);
    expect(off_by(thin, usual) < 9, "they differ by %.1f", off_by(thin, usual));
    nn_image_free(&lines);
    nn_image_free(&strokes);
}

/* A block with a long thin tail at one side: its centre of mass cannot come to the middle, for the tail would be cut
 * off. A frame of other sides has its own box. */
TEST(a_fit_keeps_all_ink)
{
    enum { ROWS = 56, COLUMNS = 84, LONG = 60, THICK = 2 };
    static unsigned char out[ROWS * COLUMNS];
    for (int turn = 0; turn < 2; turn++) {
        nn_image p = {100, 100, calloc(100, 100)};
        nn_fit found;
        for (int y = 40; y < 60; y++)
            for (int x = 20; x < 34; x++) p.pixels[y * 100 + (turn ? 99 - x : x)] = 255;
        for (int y = 50; y < 50 + THICK; y++)
            for (int x = 20; x < 80; x++) p.pixels[y * 100 + (turn ? 99 - x : x)] = 255;
        expect(!nn_fit_digit(out, ROWS, COLUMNS, &found, &p, NN_WHEN_AUTO, NN_WHEN_AUTO), "out of memory");
        expect(found.fitted && !found.thickened && found.rows == 20 && found.columns == LONG, "%d x %d",
               (int)found.rows, (int)found.columns);
        double sum = 0;
        int left = COLUMNS, right = 0;
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            sum += out[i] / 255.0;
            if (out[i] && i % COLUMNS < left) left = i % COLUMNS;
            if (out[i] && i % COLUMNS >= right) right = i % COLUMNS + 1;
        }
        expect(right - left == LONG && (turn ? left == 0 : right == COLUMNS), "turn %d: from %d to %d", turn, left,
               right);
        expect(fabs(sum - (20 * 14 + THICK * (LONG - 14))) < 1, "turn %d: ink of %g", turn, sum);
        nn_image_free(&p);
    }
}

/* ---- No digits -------------------------------------------------------------------------------------------------- */

TEST(paper_alone_is_blank)
{
    static const unsigned char papers[] = {0, 1, 128, 200, 255};
    unsigned char out[PIXELS];
    rng r = rng_make(1, 15);
    for (int n = 0; n < 15; n++) {
        int rows = (int[]){28, 1, 300}[n % 3], columns = (int[]){28, 90, 200}[n % 3];
        nn_image p = {rows, columns, malloc((size_t)rows * (size_t)columns)};
        double noise = n < 10 ? 0 : 4, fall = n < 10 ? 0 : 50;
        for (int i = 0; i < rows * columns; i++) {
            double paper = papers[n / 3 % 5] + fall * (i % columns) / columns;
            p.pixels[i] = to_byte(noise > 0 ? 60 + paper / 2 + noise * normal(&r) : paper);
        }
        nn_fit found = fit(out, &p);
        expect(found.blank && !found.fitted, "paper %d, noise %g: ink of %d x %d", papers[n / 3 % 5], noise,
               (int)found.columns, (int)found.rows);
        for (int i = 0; i < PIXELS; i++) expect(!out[i], "paper %d: a pixel of %d", papers[n / 3 % 5], out[i]);
        nn_image_free(&p);
    }
}

/* A picture of many grey values without paper. */
static nn_image landscape(rng *r)
{
    enum { ROWS = 240, COLUMNS = 320, HILLS = 12 };
    nn_image p = {ROWS, COLUMNS, malloc((size_t)ROWS * COLUMNS)};
    double y[HILLS], x[HILLS], wide[HILLS], high[HILLS];
    for (int n = 0; n < HILLS; n++) {
        y[n] = uniform(r) * ROWS, x[n] = uniform(r) * COLUMNS;
        wide[n] = 15 + 50 * uniform(r), high[n] = 160 * uniform(r) - 80;
    }
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        double grey = 128;
        for (int n = 0; n < HILLS; n++) {
            double down = (i / COLUMNS - y[n]) / wide[n], across = (i % COLUMNS - x[n]) / wide[n];
            grey += high[n] * exp(-down * down - across * across);
        }
        p.pixels[i] = to_byte(grey + 4 * normal(r));
    }
    return p;
}

/* Each is blank or doubtful, but for a few. */
TEST(a_photograph_is_doubted)
{
    enum { COUNT = 40 };
    unsigned char out[PIXELS];
    rng r = rng_make(1, 16);
    int sure = 0;
    for (int n = 0; n < COUNT; n++) {
        nn_image p = landscape(&r);
        nn_fit found = fit(out, &p);
        sure += !found.blank && !*found.doubt;
        nn_image_free(&p);
    }
    expect(sure <= COUNT / 4, "%d of %d landscapes passed as digits", sure, COUNT);
}

TEST(shapes_that_are_no_digits_are_doubted)
{
    unsigned char out[PIXELS];
    nn_image p = {100, 100, calloc(100, 100)};
    for (int i = 0; i < 10000; i++) p.pixels[i] = abs(i / 100 - 50) < 20 && abs(i % 100 - 50) < 20 ? 255 : 0;
    expect(strstr(fit(out, &p).doubt, "fills its frame") != NULL, "a square: '%s'", fit(out, &p).doubt);
    for (int i = 0; i < 10000; i++) p.pixels[i] = i / 100 % 25 < 6 && i % 100 % 25 < 6 ? 255 : 0;
    expect(strstr(fit(out, &p).doubt, "many separate pieces") != NULL, "dots: '%s'", fit(out, &p).doubt);
    nn_image_free(&p);
}

/* Every pair of digits side by side, also where one is lower or smaller; never a digit alone with a speck or a stroke of its own. */
TEST(two_digits_are_doubted)
{
    enum { ROWS = 60, COLUMNS = 80 };
    unsigned char out[PIXELS], digit[2][PIXELS], pixels[ROWS * COLUMNS];
    nn_image p = {ROWS, COLUMNS, pixels};
    for (int n = 0; n < 100; n++) {
        if (!sampled()) continue;
        memset(pixels, 0, sizeof pixels);
        for (int side = 0; side < 2; side++) {
            mnist_like(digit[side], side ? n % 10 : n / 10);
            for (int i = 0; i < PIXELS; i++)
                pixels[(i / SIDE + 10 + n % 7 * side) * COLUMNS + i % SIDE + 8 + 32 * side] = digit[side][i];
        }
        expect(strstr(fit(out, &p).doubt, "two digits") != NULL, "%d and %d: '%s'", n / 10, n % 10, fit(out, &p).doubt);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            if (i % COLUMNS >= 38) pixels[i] = 0;
        expect(!*fit(out, &p).doubt, "%d alone: %s", n / 10, fit(out, &p).doubt);
        for (int i = 0; i < 16; i++) pixels[(20 + i / 4) * COLUMNS + 44 + i % 4] = 255;
        expect(!*fit(out, &p).doubt, "%d and a dot: %s", n / 10, fit(out, &p).doubt);
    }
}

/* Sizes at the edges of everything. */
TEST(tiny_pictures)
{
    unsigned char out[PIXELS], one[] = {200}, row[] = {0, 0, 255, 0, 0};
    nn_image p = {1, 1, one};
    expect(fit(out, &p).blank, "a pixel is not paper");
    p = (nn_image){1, 5, row};
    expect(fit(out, &p).fitted, "a row has no ink");
    p = (nn_image){5, 1, row};
    expect(fit(out, &p).fitted, "a column has no ink");
    expect(ink_of(out).most == 255, "no ink came out");
}
