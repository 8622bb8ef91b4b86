/* Images: PGM and PNG give back what was written, of any depth and kind; what is wrong with a file is one line, told
 * before there is memory for its pixels; any bytes are refused or read, never more; and pictures of all sizes and both
 * papers become digits as MNIST has them.
 *
 * The allocator is wrapped (-Wl,--wrap in files.cmake): it knows the largest block that was asked for. */
#include "io/image.h"
#include "support/numbers.h"
#include "support/saving.h"

#ifdef MHA_HAS_PNG
#include <png.h>
#endif

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

static size_t largest; /* block that was asked for */

void *__wrap_malloc(size_t bytes)
{
    if (bytes > largest) largest = bytes;
    return __real_malloc(bytes);
}

/* The pixels of some bytes in a block of their exact length, so that the address sanitizer sees the first one read
 * outside; `line` gets the error. */
static nn_image parse(const void *bytes, size_t size, char line[300])
{
    nn_image picture;
    unsigned char *copy = __real_malloc(size ? size : 1);
    memcpy(copy, bytes, size);
    line[0] = 0;
    bool ok = !nn_image_parse(&picture, copy, size, "f", line, 300);
    expect(ok == (picture.pixels != NULL) && ok == !*line, "pixels with an error, or neither: %s", line);
    free(copy);
    return picture;
}

/* ---- PGM -------------------------------------------------------------------------------------------------------- */

static void expect_pixels(const char *what, nn_image picture, int64_t rows, int64_t columns, const unsigned char *want)
{
    if (expect(picture.pixels && picture.rows == rows && picture.columns == columns, "%s: %d x %d", what,
               (int)picture.columns, (int)picture.rows))
        for (int64_t i = 0; i < rows * columns; i++)
            expect(picture.pixels[i] == want[i], "%s: pixel %d is %d, not %d", what, (int)i, picture.pixels[i],
                   want[i]);
    nn_image_free(&picture);
}

TEST(a_pgm_of_any_kind_is_read)
{
    static const struct {
        const char *what, *bytes;
        size_t size;
        int rows, columns;
        unsigned char want[6];
    } good[] = {
        {"plain", "P2\n3 2\n255\n0 1 2\n253 254 255\n", 0, 2, 3, {0, 1, 2, 253, 254, 255}},
        {"no newline at the end", "P2 3 1 255 7 8 9", 0, 1, 3, {7, 8, 9}},
        {"comments", "P2 # a\n#b\n3#c\n1 255#d\n 7 # e\r8\t9 # the end", 0, 1, 3, {7, 8, 9}},
        {"a maximum of 1", "P2 3 1 1 0 1 0", 0, 1, 3, {0, 255, 0}},
        {"a maximum of 15", "P2 3 1 15 0 7 15", 0, 1, 3, {0, 119, 255}},
        {"a maximum of 65535", "P2 3 1 65535 0 32768 65535", 0, 1, 3, {0, 128, 255}},
        {"bytes", "P5\n3 1\n255\n\n#\xff", 14, 1, 3, {10, 35, 255}},
        {"bytes and a newline", "P5 3 1 255\nabc\n", 15, 1, 3, {'a', 'b', 'c'}},
        {"bytes to 100", "P5 3 1 100\n\0\x32\x64", 14, 1, 3, {0, 128, 255}},
        {"two bytes", "P5 3 1 65535\n\0\0\x80\0\xff\xff", 19, 1, 3, {0, 128, 255}},
        {"two bytes to 256", "P5 3 1 256\n\0\0\0\x80\1\0", 17, 1, 3, {0, 128, 255}},
        {"one pixel", "P5 1 1 255\nx", 12, 1, 1, {'x'}},
        {"a column", "P5 1 3 255\nxyz", 14, 3, 1, {'x', 'y', 'z'}},
    };
    char line[300];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        nn_image picture = parse(good[i].bytes, good[i].size ? good[i].size : strlen(good[i].bytes), line);
        expect(!*line, "%s: %s", good[i].what, line);
        expect_pixels(good[i].what, picture, good[i].rows, good[i].columns, good[i].want);
    }
}

TEST(what_is_wrong_with_a_pgm_is_one_line)
{
    static const char head[] = "f: invalid PGM header: expected P2 or P5, columns, rows and the maximum sample";
    static const struct {
        const char *bytes, *line;
    } bad[] = {
        {"", "f: it is empty"},
        {"P5", "f: neither a PNG nor a PGM (P2 or P5)"},
        {"P6 1 1 255 abc", "f: neither a PNG nor a PGM (P2 or P5)"},
        {"P55 1 1 255 a", "f: neither a PNG nor a PGM (P2 or P5)"},
        {"GIF89a.....", "f: neither a PNG nor a PGM (P2 or P5)"},
        {"P5 3", head},
        {"P5 3 1 255", head},
        {"P5 3 -1 255 abc", head},
        {"P5 3 1 2x5 abc", head},
        {"P5 3 1 1000000 abc", head},
        {"P2 # 3 1 255 1 2 3", head},
        {"P5 3 1 0 abc", "f: the maximum sample is 0; PGM allows 1 to 65535"},
        {"P5 3 1 65536 abcdef", "f: the maximum sample is 65536; PGM allows 1 to 65535"},
        {"P5 0 3 255 abc", "f: an image of 0 x 3 has no pixels"},
        {"P2 3 0 255 ", "f: an image of 3 x 0 has no pixels"},
        {"P5 3 2 255 abcde", "f: 3 x 2 samples need 6 bytes, but 5 follow the header; the file is truncated"},
        {"P5 3 2 256 abcdefghijk", "f: 3 x 2 samples need 12 bytes, but 11 follow the header; the file is truncated"},
        {"P5 16384 16384 255 abc",
         "f: 16384 x 16384 samples need 268435456 bytes, but 3 follow the header; the file is truncated"},
        {"P5 999999 1 255 abc",
         "f: an image of 999999 x 1 is too large: a side has 16384 at most, all of it 33554432 pixels"},
        {"P2 3 1 255 1", "f: 3 x 1 samples need 5 bytes at least, but 2 follow the header; the file is truncated"},
        {"P2 3 1 255 100 200", "f: the file ends within the samples"},
        {"P2 3 1 255 1 two 3", "f: sample 1 is no number"},
        {"P2 3 1 255 1 -2 3", "f: sample 1 is no number"},
        {"P2 3 1 255 1 2 300", "f: sample 2 is 300, above the largest, 255"},
        {"P5 3 1 98 abc", "f: sample 2 is 99, above the largest, 98"},
        {"P5 3 1 255 abcd", "f: unexpected data after the 3 x 1 samples"},
        {"P2 3 1 255 1 2 3 4", "f: unexpected data after the 3 x 1 samples"},
    };
    char line[300];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        largest = 0;
        nn_image picture = parse(bad[i].bytes, strlen(bad[i].bytes), line);
        expect(strcmp(line, bad[i].line) == 0, "\"%s\", not \"%s\"", line, bad[i].line);
        expect(largest < 1000, "%s: %zu bytes", bad[i].line, largest);
        nn_image_free(&picture);
    }
}

TEST(files_that_cannot_be_read)
{
    char line[600], want[600];
    nn_image picture;
    const char *path = in_folder("none.pgm");
    snprintf(want, sizeof want, "%s: No such file or directory", path);
    expect(nn_image_open(&picture, path, line, sizeof line) && strcmp(line, want) == 0, "%s", line);
    snprintf(want, sizeof want, "%s: not a regular file", saving_folder);
    expect(nn_image_open(&picture, saving_folder, line, sizeof line) && strcmp(line, want) == 0, "%s", line);
}

/* Across the sizes at which the reader asks for more memory, too. */
TEST(what_is_written_as_pgm_comes_back)
{
    static const int64_t sizes[][2] = {{1, 1}, {28, 28}, {3, 257}, {255, 257}, {512, 128}, {512, 255}};
    char error[600] = "";
    const char *path = in_folder("a.pgm");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t rows = sizes[i][0], columns = sizes[i][1];
        unsigned char *pixels = array(rows * columns, 1);
        for (int64_t n = 0; n < rows * columns; n++) pixels[n] = (unsigned char)(n % 251);
        expect(!nn_image_write_pgm(path, pixels, rows, columns, error, sizeof error), "%s", error);
        nn_image picture = {0};
        expect(!nn_image_open(&picture, path, error, sizeof error), "%s", error);
        expect_pixels("written", picture, rows, columns, pixels);
        free(pixels);
    }
    expect(nn_image_write_pgm(in_folder("no/such/a.pgm"), (const unsigned char *)"", 1, 1, error, sizeof error),
           "written");
    expect(leftovers(true) == 0, "temporary files");
}

/* ---- PNG -------------------------------------------------------------------------------------------------------- */

#ifdef MHA_HAS_PNG

/* A PNG of that format from pixels of it, packed by libpng itself. */
static unsigned char *png_of(size_t *size, png_uint_32 format, uint32_t rows, uint32_t columns, const void *pixels,
                             const void *palette, uint32_t colours)
{
    png_image png = {.version = PNG_IMAGE_VERSION, .width = columns, .height = rows, .format = format};
    png_alloc_size_t room = 1 << 16;
    png.colormap_entries = colours;
    unsigned char *bytes = array(1 << 16, 1);
    expect(png_image_write_to_memory(&png, bytes, &room, 0, pixels, 0, palette), "%s", png.message);
    *size = room;
    return bytes;
}

static void expect_png(const char *what, png_uint_32 format, const void *pixels, const void *palette, uint32_t colours,
                       const unsigned char want[4])
{
    char line[300];
    size_t size;
    unsigned char *bytes = png_of(&size, format, 2, 2, pixels, palette, colours);
    nn_image picture = parse(bytes, size, line);
    expect(!*line, "%s: %s", what, line);
    expect_pixels(what, picture, 2, 2, want);
    free(bytes);
}

/* Grey by luminance; what is transparent is white. */
TEST(a_png_of_any_kind_is_read)
{
    static const unsigned char grey[] = {0, 100, 200, 255}, grey_alpha[] = {0, 255, 100, 255, 100, 0, 0, 128};
    static const unsigned char rgb[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 50, 100, 150};
    static const unsigned char rgba[] = {255, 0, 0, 255, 0, 255, 0, 0, 0, 0, 255, 128, 255, 255, 255, 7};
    static const unsigned char palette[] = {255, 0, 0, 0, 0, 255}, indices[] = {0, 1, 1, 0};
    expect_png("grey", PNG_FORMAT_GRAY, grey, NULL, 0, grey);
    expect_png("grey and alpha", PNG_FORMAT_GA, grey_alpha, NULL, 0, (unsigned char[]){0, 100, 255, 127});
    expect_png("colour", PNG_FORMAT_RGB, rgb, NULL, 0, (unsigned char[]){76, 150, 29, 91});
    expect_png("colour and alpha", PNG_FORMAT_RGBA, rgba, NULL, 0, (unsigned char[]){76, 255, 142, 255});
    expect_png("palette", PNG_FORMAT_RGB_COLORMAP, indices, palette, 2, (unsigned char[]){76, 29, 29, 76});
}

/* 16 bits of light are made sRGB, by libpng's tables; 16 bits that do not say what they are are taken for sRGB. */
TEST(a_png_of_16_bits_is_read)
{
    static const uint16_t samples[] = {0, 65535, 14045, 3604};
    static const int light[] = {0, 255, 128, 66}, plain[] = {0, 255, 55, 14};
    enum { HEAD = 33 }; /* bytes before the chunks that say what the samples are */
    size_t size;
    unsigned char *bytes = png_of(&size, PNG_FORMAT_LINEAR_Y, 2, 2, samples, NULL, 0);
    for (int which = 0; which < 2; which++) {
        char line[300];
        nn_image picture = parse(bytes, size, line);
        expect(!*line, "%s", line);
        for (int i = 0; picture.pixels && i < 4; i++)
            expect(abs(picture.pixels[i] - (which ? plain : light)[i]) <= (which ? 1 : 3), "%s: %d is %d",
                   which ? "plain" : "light", samples[i], picture.pixels[i]);
        nn_image_free(&picture);
        size_t data = HEAD;
        while (memcmp(bytes + data + 4, "IDAT", 4) != 0) data++;
        memmove(bytes + HEAD, bytes + data, size - data);
        size -= data - HEAD;
    }
    free(bytes);
}

/* Each cut is refused, but for those behind the last pixel. */
TEST(a_png_that_is_cut_short_is_refused)
{
    unsigned char pixels[64];
    char line[300];
    size_t size;
    for (int i = 0; i < 64; i++) pixels[i] = (unsigned char)(i * 37);
    unsigned char *bytes = png_of(&size, PNG_FORMAT_GRAY, 8, 8, pixels, NULL, 0);
    enum { END = 12 }; /* bytes of the last chunk, which holds nothing */
    for (size_t n = 1; n + END < size; n++) {
        nn_image picture = parse(bytes, n, line);
        expect(n < 8 ? strstr(line, "neither a PNG") != NULL
                     : strstr(line, "f: the PNG is damaged or truncated: ") == line,
               "%zu of %zu bytes: '%s'", n, size, line);
        nn_image_free(&picture);
    }
    nn_image picture = parse(bytes, size, line);
    expect_pixels("whole", picture, 8, 8, pixels);
    free(bytes);
}

static void put_number(unsigned char *at, uint32_t n)
{
    for (int i = 0; i < 4; i++) at[i] = (unsigned char)(n >> (24 - 8 * i));
}

/* The checksum of a chunk, as the standard of PNG defines it. */
static uint32_t checksum(const unsigned char *bytes, size_t size)
{
    uint32_t sum = UINT32_MAX;
    for (size_t i = 0; i < size; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) sum = sum & 1 ? UINT32_C(0xEDB88320) ^ sum >> 1 : sum >> 1;
    }
    return ~sum;
}

/* A sound head that claims a huge image: refused before there is memory for it. */
TEST(a_png_that_claims_too_much_costs_nothing)
{
    static const struct {
        uint32_t columns, rows;
        const char *line;
    } huge[] = {
        {1000000, 1000000, "f: a PNG of 78 bytes cannot hold the 1000000 x 1000000 pixels that it claims"},
        {16384, 2048, "f: a PNG of 78 bytes cannot hold the 16384 x 2048 pixels that it claims"},
        {20000, 8, "f: an image of 20000 x 8 is too large: a side has 16384 at most, all of it 33554432 pixels"},
        {0, 8, "f: the PNG is damaged or truncated: Invalid IHDR data"},
    };
    unsigned char pixels[4] = {1, 2, 3, 4};
    size_t size;
    unsigned char *bytes = png_of(&size, PNG_FORMAT_GRAY, 2, 2, pixels, NULL, 0);
    for (size_t i = 0; i < sizeof huge / sizeof *huge; i++) {
        char line[300], want[300];
        put_number(bytes + 16, huge[i].columns); /* behind the signature, the length and "IHDR" */
        put_number(bytes + 20, huge[i].rows);
        put_number(bytes + 29, checksum(bytes + 12, 17));
        largest = 0;
        nn_image picture = parse(bytes, size, line);
        snprintf(want, sizeof want, "%s", huge[i].line);
        char *at = strstr(want, "78 bytes"); /* which depends on zlib */
        if (at) snprintf(at, sizeof want - (size_t)(at - want), "%zu bytes%s", size, strstr(huge[i].line, " cannot"));
        expect(strcmp(line, want) == 0, "'%s', not '%s'", line, want);
        expect(largest < 1 << 16, "%zu bytes", largest);
        nn_image_free(&picture);
    }
    free(bytes);
}

TEST(what_is_written_as_png_comes_back)
{
    char error[600] = "";
    const char *path = in_folder("a.png");
    unsigned char grey[28 * 30], rgb[3 * 5 * 7], want[5 * 7];
    nn_image picture = {0};
    for (int i = 0; i < 28 * 30; i++) grey[i] = (unsigned char)(i % 251);
    expect(!nn_image_write_png(path, grey, 28, 30, 1, error, sizeof error), "%s", error);
    expect(!nn_image_open(&picture, path, error, sizeof error), "%s", error);
    expect_pixels("grey", picture, 28, 30, grey);
    for (int i = 0; i < 5 * 7; i++) {
        unsigned char *c = rgb + 3 * i;
        c[0] = (unsigned char)(i * 7), c[1] = (unsigned char)(i * 5), c[2] = (unsigned char)(i * 3);
        want[i] = (unsigned char)lround(0.299 * c[0] + 0.587 * c[1] + 0.114 * c[2]);
    }
    expect(!nn_image_write_png(path, rgb, 5, 7, 3, error, sizeof error), "%s", error);
    expect(!nn_image_open(&picture, path, error, sizeof error), "%s", error);
    expect_pixels("colour", picture, 5, 7, want);
    expect(nn_image_write_png(in_folder("no/such/a.png"), grey, 1, 1, 1, error, sizeof error), "written");
    expect(leftovers(true) == 0, "temporary files");
}

#else

TEST(without_libpng_a_png_is_refused)
{
    char line[300];
    nn_image picture = parse("\x89PNG\r\n\x1a\n and more", 17, line);
    expect(strcmp(line, "f: PNG needs a build with libpng (Debian: libpng-dev); use a PGM instead") == 0, "%s", line);
    nn_image_free(&picture);
    expect(!nn_image_knows_png() &&
               nn_image_write_png("a.png", (const unsigned char *)"", 1, 1, 1, line, sizeof line) &&
               strstr(line, "a.png: PNG needs"),
           "%s", line);
}

#endif

/* ---- Shaken files ----------------------------------------------------------------------------------------------- */

/* Bytes of a sound file with a few of them changed, put in or left out: an image within the limits, or one clean line. */
static void shake(const unsigned char *bytes, size_t size, rng *r, int *read, int *refused)
{
    static const char likely[] = "0123456789 \n#P25-x";
    unsigned char copy[2000];
    char line[300];
    memcpy(copy, bytes, size);
    for (int64_t n = rng_between(r, 1, 4); n > 0 && size; n--) {
        size_t at = (size_t)rng_between(r, 0, (int64_t)size - 1);
        unsigned char any = rng_chance(r, 0.5) ? (unsigned char)rng_bits(r)
                                               : (unsigned char)likely[rng_between(r, 0, (int64_t)sizeof likely - 2)];
        if (rng_chance(r, 0.2)) memmove(copy + at, copy + at + 1, --size - at);
        else if (rng_chance(r, 0.2)) memmove(copy + at + 1, copy + at, size++ - at);
        else copy[at] = any;
    }
    nn_image picture = parse(copy, size, line);
    bool ok = picture.pixels;
    if (!ok) expect(strncmp(line, "f: ", 3) == 0 && !strpbrk(line, "\n\r\x1b"), "no clean line: %s", line);
    if (ok)
        expect(picture.rows > 0 && picture.columns > 0 && picture.rows * picture.columns <= NN_IMAGE_PIXELS_MOST,
               "%d x %d", (int)picture.columns, (int)picture.rows);
    *read += ok;
    *refused += !ok;
    nn_image_free(&picture);
}

TEST(a_shaken_file_does_no_harm)
{
    static const char plain[] = "P2 # text\n4 3\n255\n0 1 2 3\n10 20 30 40\n250 251 252 255\n";
    static const char binary[] = "P5\n5 2\n255\n0123456789", wide[] = "P5\n3 2\n1000\n\0\0\1\1\2\2\0\3\0\4\0\5";
    rng r = rng_make((uint64_t)number_from("MHA_SEED", 1), 12);
    int read = 0, refused = 0;
    for (int64_t i = 0, rounds = 4 * cases_from(5000); i < rounds; i++) {
        shake((const unsigned char *)plain, sizeof plain - 1, &r, &read, &refused);
        shake((const unsigned char *)binary, sizeof binary - 1, &r, &read, &refused);
        shake((const unsigned char *)wide, sizeof wide - 1, &r, &read, &refused);
    }
    expect(read > 20 && refused > 20, "%d read, %d refused", read, refused);
#ifdef MHA_HAS_PNG
    unsigned char pixels[64] = {1, 2, 3, 200};
    size_t size;
    unsigned char *bytes = png_of(&size, PNG_FORMAT_GRAY, 8, 8, pixels, NULL, 0);
    refused = 0;
    for (int64_t i = 0, rounds = cases_from(5000); i < rounds; i++) shake(bytes, size, &r, &read, &refused);
    expect(refused > 5, "%d refused", refused);
    free(bytes);
#endif
}

/* ---- Grey ------------------------------------------------------------------------------------------------------- */

TEST(what_is_behind_follows_from_the_ink)
{
    unsigned char out[4];
    static const unsigned char dark[] = {10, 10, 10, 255, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 0};
    static const unsigned char light[] = {250, 250, 250, 255, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 0};
    static const unsigned char paper[] = {250, 250, 250, 255, 240, 240, 240, 255, 255, 255, 255, 255, 0, 0, 0, 0};
    static const unsigned char rgb[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 9, 9};
    nn_image_to_grey(out, dark, 4, 4);
    expect(!memcmp(out, (unsigned char[]){10, 255, 255, 255}, 4), "dark ink: %d on %d", out[0], out[1]);
    nn_image_to_grey(out, light, 4, 4);
    expect(!memcmp(out, (unsigned char[]){250, 0, 0, 0}, 4), "light ink: %d on %d", out[0], out[1]);
    nn_image_to_grey(out, paper, 4, 4);
    expect(!memcmp(out, (unsigned char[]){250, 240, 255, 255}, 4), "a corner of light paper: %d", out[3]);
    nn_image_to_grey(out, rgb, 4, 3);
    expect(!memcmp(out, (unsigned char[]){76, 150, 29, 9}, 4), "colours: %d %d %d %d", out[0], out[1], out[2], out[3]);
    nn_image_to_grey(out, rgb, 4, 1);
    expect(!memcmp(out, rgb, 4), "grey was changed");
}
