/* Styles, columns and the colour scale of term.h.
 *
 * The scale is viridis: its lightness rises evenly from dark violet to yellow, so it works for colour-blind readers, in
 * greyscale print and on either background. It is stored as nine points, interpolated linearly, and as eight colours of
 * the 256-colour table, chosen by eye so that their lightness rises too (the nearest ones of the table turn grey in the
 * middle). Without colour, the scale is a dot and four shades of block, or ASCII characters ordered by darkness. */
#include "cli/draw/term.h"
#include "io/printable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct colour {
    int red, green, blue; /* 0 to 255 */
} colour;

static const colour scale[] = {{68, 1, 84},    {71, 45, 123}, {59, 82, 139},  {44, 114, 142}, {33, 145, 140},
                               {40, 174, 128}, {94, 201, 98}, {173, 220, 48}, {253, 231, 37}};
static const int scale_256[] = {53, 54, 24, 30, 36, 77, 148, 220};
static const char *const shades[][2] = {
    {"\u00b7", "."}, {"\u2591", ":"}, {"\u2592", "+"}, {"\u2593", "#"}, {"\u2588", "@"}};

enum {
    STEPS = sizeof scale / sizeof *scale - 1,
    STEPS_256 = sizeof scale_256 / sizeof *scale_256 - 1,
    SHADES = sizeof shades / sizeof *shades
};

/* ---- What the terminal can show --------------------------------------------------------------------------------- */

static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value ? value : "";
}

/* The first of the three variables that is set decides, as in POSIX. setlocale is not used, because the terminal may
 * support UTF-8 even if the locale is not installed. */
static bool locale_is_utf8(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = environment(names[i]);
        if (!*value) continue;
        const char *charset = strchr(value, '.');
        return charset && (!strncasecmp(charset, ".utf-8", 6) || !strncasecmp(charset, ".utf8", 5));
    }
    return false;
}

static term_depth colour_depth(term_when when)
{
    const char *name = environment("TERM"), *deep = environment("COLORTERM");
    bool able = isatty(STDOUT_FILENO) && *name && strcmp(name, "dumb") != 0 && !*environment("NO_COLOR");
    if (when == TERM_NEVER || (when == TERM_AUTO && !able)) return TERM_MONO;
    return !strcmp(deep, "truecolor") || !strcmp(deep, "24bit") ? TERM_TRUE : TERM_256;
}

static int columns_of_output(void)
{
    struct winsize size;
    if (!isatty(STDOUT_FILENO) || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size)) return 0;
    return size.ws_col;
}

term term_detect(term_when when)
{
    return (term){.depth = colour_depth(when), .utf8 = locale_is_utf8(), .width = columns_of_output()};
}

/* ---- Text in columns -------------------------------------------------------------------------------------------- */

/* Faint is a middle grey of the 256-colour table, not the "dim" attribute, which some terminals ignore and others
 * render illegibly on a light background. This grey has enough contrast on black and on white. */
int term_error_columns(void)
{
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || !size.ws_col ? 80 : size.ws_col;
}

bool term_redraws(void)
{
    const char *name = getenv("TERM");
    return isatty(STDERR_FILENO) && name && *name && strcmp(name, "dumb") != 0;
}

const char *term_style_on(const term *t, term_style style)
{
    static const char *const escapes[] = {"\033[0m", "\033[1m", "\033[38;5;244m"};
    return t->depth == TERM_MONO ? "" : escapes[style];
}

const char *term_pick(const term *t, const char *utf8, const char *ascii) { return t->utf8 ? utf8 : ascii; }

enum { SHOWN_MOST = 8192 }; /* bytes of a text on one line */

static void styled(const term *t, term_style style, const char *text)
{
    if (style == TERM_PLAIN || !*text) fputs(text, stdout);
    else printf("%s%s%s", term_style_on(t, style), text, term_style_on(t, TERM_PLAIN));
}

void term_right(const term *t, int width, term_style style, const char *text)
{
    char shown[SHOWN_MOST];
    int pad = width - term_columns(nn_printable(shown, sizeof shown, text));
    printf("%*s", pad > 0 ? pad : 0, "");
    styled(t, style, shown);
}

void term_left(const term *t, int width, term_style style, const char *text)
{
    char shown[SHOWN_MOST];
    int pad = width - term_columns(nn_printable(shown, sizeof shown, text));
    styled(t, style, shown);
    printf("%*s", pad > 0 ? pad : 0, "");
}

void term_number(const term *t, int width, int decimals, term_style style, double value)
{
    char text[32];
    bool zero = fabs(value) < 0.5 * pow(10, -decimals);
    snprintf(text, sizeof text, "%.*f", decimals, value);
    if (zero) term_right(t, width, TERM_FAINT, term_pick(t, "\u00b7", "."));
    else term_right(t, width, style, text);
}

void term_rule(const term *t, int indent, int width)
{
    printf("%*s%s", indent, "", term_style_on(t, TERM_FAINT));
    for (int i = 0; i < width; i++) fputs(term_pick(t, "\u2500", "-"), stdout);
    printf("%s\n", term_style_on(t, TERM_PLAIN));
}

/* ---- The scale -------------------------------------------------------------------------------------------------- */

static int between(int from, int to, double part) { return (int)lround(from + part * (to - from)); }

static colour colour_at(double value)
{
    int step = value < 1 ? (int)(value * STEPS) : STEPS - 1;
    double part = value * STEPS - step;
    const colour *a = &scale[step], *b = &scale[step + 1];
    return (colour){between(a->red, b->red, part), between(a->green, b->green, part), between(a->blue, b->blue, part)};
}

static void heat_background(const term *t, double value)
{
    double inside = fmin(fmax(value, 0), 1);
    colour c = colour_at(inside);
    if (t->depth == TERM_TRUE) printf("\033[48;2;%d;%d;%dm", c.red, c.green, c.blue);
    else printf("\033[48;5;%dm", scale_256[lround(inside * STEPS_256)]);
}

/* The value from which a shade is used: the first one from 0.05 on, the others at equal steps. */
static double shade_start(int shade) { return shade == 1 ? 0.05 : (double)(shade - 1) / (SHADES - 1); }

static const char *shade_of(const term *t, double value)
{
    int shade = 0;
    while (shade + 1 < SHADES && value >= shade_start(shade + 1)) shade++;
    return term_pick(t, shades[shade][0], shades[shade][1]);
}

/* An empty cell without colour has a dot in its middle, so that the grid stays visible. */
void term_heat(const term *t, int width, double value)
{
    if (t->depth != TERM_MONO) {
        heat_background(t, value);
        printf("%*s%s", width, "", term_style_on(t, TERM_PLAIN));
    } else if (value < shade_start(1)) {
        int left = (width - 1) / 2;
        printf("%*s%s%*s", left, "", shade_of(t, value), width - 1 - left, "");
    } else {
        for (int i = 0; i < width; i++) fputs(shade_of(t, value), stdout);
    }
}

void term_heat_legend(const term *t)
{
    enum { STRIP = 40 };
    if (t->depth != TERM_MONO) {
        printf("0 ");
        for (int i = 0; i < STRIP; i++) term_heat(t, 1, (i + 0.5) / STRIP);
        printf(" 1");
        return;
    }
    printf("%s 0", shade_of(t, 0));
    for (int i = 1; i < SHADES; i++) {
        printf("   ");
        term_heat(t, 2, shade_start(i));
        printf(" %.2f", shade_start(i));
    }
    printf("   to 1");
}
