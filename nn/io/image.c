/* Image files: reading the bytes, detecting the format, and PGM.
 *
 * A PGM is a text header (the magic, columns, rows, maximum; comments from # to the end of the line) and samples: text
 * in P2; in P5 one byte each, or two, big-endian, if the maximum is above 255. */
#include "io/image.h"
#include "io/image_png.h"
#include "io/replace.h"
#include "io/source.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Bytes ------------------------------------------------------------------------------------------------------ */

/* All bytes of a source, in a growing buffer: the length of a gzipped file is known only at its end. */
static unsigned char *read_all(nn_source *from, size_t *size)
{
    unsigned char *bytes = NULL;
    size_t room = 0, got = 0;
    do {
        room = room ? 2 * room : 1 << 16;
        if (room > NN_IMAGE_BYTES_MOST || from->size > NN_IMAGE_BYTES_MOST) {
            nn_source_fail(from, MHA_BAD_FILE, "an image file may have at most %d bytes", NN_IMAGE_BYTES_MOST);
            break;
        }
        unsigned char *grown = realloc(bytes, room);
        if (!grown) {
            nn_source_fail(from, MHA_NO_MEMORY, "not enough memory for its bytes");
            break;
        }
        bytes = grown;
        got += nn_source_take(from, bytes + got, room - got);
    } while (got == room);
    *size = got;
    return bytes;
}

static mha_status parse_as(nn_image *out, int channels, const void *bytes, size_t size, const char *name, char *error,
                           size_t error_size);

static mha_status open_as(nn_image *out, int channels, const char *path, char *error, size_t error_size)
{
    nn_source from;
    size_t size = 0;
    unsigned char *bytes = nn_source_open(&from, path, error, error_size) ? NULL : read_all(&from, &size);
    mha_status status = from.failed;
    if (!status) status = parse_as(out, channels, bytes, size, path, error, error_size);
    nn_source_close(&from);
    free(bytes);
    return status;
}

mha_status nn_image_open(nn_image *out, const char *path, char *error, size_t error_size)
{
    return open_as(out, 1, path, error, error_size);
}

mha_status nn_image_open_colours(nn_image *out, const char *path, char *error, size_t error_size)
{
    return open_as(out, 3, path, error, error_size);
}

mha_status nn_image_make(nn_image *out, uint64_t rows, uint64_t columns, int channels, const nn_failure *to)
{
    *out = (nn_image){0};
    if (!rows || !columns)
        return nn_error(to, MHA_BAD_FILE, "an image of %" PRIu64 " x %" PRIu64 " has no pixels", columns, rows);
    if (rows > NN_IMAGE_SIDE_MOST || columns > NN_IMAGE_SIDE_MOST || rows * columns > NN_IMAGE_PIXELS_MOST)
        return nn_error(to, MHA_BAD_FILE,
                        "an image of %" PRIu64 " x %" PRIu64
                        " is too large: a side has %d at most, all of it %d pixels",
                        columns, rows, NN_IMAGE_SIDE_MOST, NN_IMAGE_PIXELS_MOST);
    unsigned char *pixels = malloc((size_t)(rows * columns) * (size_t)channels);
    if (!pixels) return nn_error(to, MHA_NO_MEMORY, "not enough memory for its pixels");
    *out = (nn_image){(int64_t)rows, (int64_t)columns, pixels};
    return MHA_OK;
}

void nn_image_free(nn_image *picture)
{
    free(picture->pixels);
    *picture = (nn_image){0};
}

/* ---- Grey ------------------------------------------------------------------------------------------------------- */

static unsigned luminance(const unsigned char *p) { return (299u * p[0] + 587u * p[1] + 114u * p[2] + 500) / 1000; }

/* The grey value behind transparent pixels (count,4). */
static unsigned backdrop(const unsigned char *pixels, int64_t count)
{
    uint64_t opaque = 0, light = 0;
    for (int64_t i = 0; i < count; i++) {
        opaque += pixels[4 * i + 3];
        light += (uint64_t)pixels[4 * i + 3] * luminance(pixels + 4 * i);
    }
    bool mostly = 2 * opaque < 255 * (uint64_t)count; /* transparent */
    return mostly && light > 127 * opaque ? 0 : 255;
}

void nn_image_to_grey(unsigned char *out, const unsigned char *pixels, int64_t count, int channels)
{
    unsigned behind = channels == 4 ? backdrop(pixels, count) : 0;
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *p = pixels + i * channels;
        unsigned alpha = channels == 4 ? p[3] : 255, grey = channels == 1 ? *p : luminance(p);
        out[i] = (unsigned char)((grey * alpha + behind * (255 - alpha) + 127) / 255);
    }
}

/* ---- PGM -------------------------------------------------------------------------------------------------------- */

typedef struct text {
    const unsigned char *at, *end;
} text;

static bool is_space(unsigned char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static void skip_space(text *t)
{
    bool comment = false;
    for (; t->at < t->end; t->at++) {
        if (comment) comment = *t->at != '\n' && *t->at != '\r';
        else if (*t->at == '#') comment = true;
        else if (!is_space(*t->at)) break;
    }
}

/* The next word as an integer below a million; -1 if it is invalid or the text ends. */
static int32_t read_number(text *t)
{
    int32_t number = 0;
    skip_space(t);
    const unsigned char *start = t->at;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9' && t->at - start < 6; t->at++)
        number = 10 * number + (*t->at - '0');
    bool ends = t->at == t->end || is_space(*t->at) || *t->at == '#';
    return t->at > start && ends ? number : -1;
}

/* The header of a PGM. */
typedef struct head {
    bool plain; /* P2 */
    int32_t rows, columns, most;
} head;

static mha_status read_head(head *h, text *t, const nn_failure *to)
{
    h->plain = t->at[1] == '2';
    t->at += 2;
    h->columns = read_number(t);
    h->rows = h->columns < 0 ? -1 : read_number(t);
    h->most = h->rows < 0 ? -1 : read_number(t);
    if (h->most < 0 || t->at == t->end)
        return nn_error(to, MHA_BAD_FILE,
                        "invalid PGM header: expected P2 or P5, columns, rows and the maximum sample");
    if (h->most < 1 || h->most > 65535)
        return nn_error(to, MHA_BAD_FILE, "the maximum sample is %d; PGM allows 1 to 65535", (int)h->most);
    if (!h->plain) t->at += is_space(*t->at); /* the samples begin after this byte */
    return MHA_OK;
}

static mha_status sample_too_large(const nn_failure *to, int64_t i, int32_t sample, int32_t most)
{
    return nn_error(to, MHA_BAD_FILE, "sample %" PRId64 " is %d, above the largest, %d", i, (int)sample, (int)most);
}

static unsigned char to_byte(int32_t sample, int32_t most) { return (unsigned char)((sample * 255 + most / 2) / most); }

static mha_status read_plain(nn_image *out, text *t, int32_t most, const nn_failure *to)
{
    for (int64_t i = 0; i < out->rows * out->columns; i++) {
        int32_t sample = read_number(t);
        if (sample < 0 && t->at == t->end) return nn_error(to, MHA_BAD_FILE, "the file ends within the samples");
        if (sample < 0) return nn_error(to, MHA_BAD_FILE, "sample %" PRId64 " is no number", i);
        if (sample > most) return sample_too_large(to, i, sample, most);
        out->pixels[i] = to_byte(sample, most);
    }
    return MHA_OK;
}

static mha_status read_binary(nn_image *out, text *t, int32_t most, const nn_failure *to)
{
    for (int64_t i = 0; i < out->rows * out->columns; i++) {
        int32_t sample = *t->at++;
        if (most > 255) sample = sample << 8 | *t->at++;
        if (sample > most) return sample_too_large(to, i, sample, most);
        out->pixels[i] = to_byte(sample, most);
    }
    return MHA_OK;
}

/* A text sample takes at least two bytes, except the last. */
static mha_status parse_pgm(nn_image *out, text *t, const nn_failure *to)
{
    head h;
    TRY(read_head(&h, t, to));
    int64_t count = (int64_t)h.rows * h.columns, left = t->end - t->at;
    int64_t need = h.plain ? 2 * count - 1 : h.most > 255 ? 2 * count : count;
    bool sound = h.rows > 0 && h.columns > 0 && h.rows <= NN_IMAGE_SIDE_MOST && h.columns <= NN_IMAGE_SIDE_MOST;
    if (sound && left < need)
        return nn_error(to, MHA_BAD_FILE,
                        "%d x %d samples need %" PRId64 " bytes%s, but %" PRId64
                        " follow the header; the file is truncated",
                        (int)h.columns, (int)h.rows, need, h.plain ? " at least" : "", left);
    TRY(nn_image_make(out, (uint64_t)h.rows, (uint64_t)h.columns, 1, to));
    TRY((h.plain ? read_plain : read_binary)(out, t, h.most, to));
    skip_space(t);
    if (t->at == t->end) return MHA_OK;
    return nn_error(to, MHA_BAD_FILE, "unexpected data after the %d x %d samples", (int)h.columns, (int)h.rows);
}

/* ---- Both formats ----------------------------------------------------------------------------------------------- */

/* Grey pixels as three channels that are alike. */
static mha_status spread(nn_image *out, const nn_failure *to)
{
    nn_image grey = *out;
    mha_status status = nn_image_make(out, (uint64_t)grey.rows, (uint64_t)grey.columns, 3, to);
    for (int64_t i = 0; !status && i < 3 * grey.rows * grey.columns; i++) out->pixels[i] = grey.pixels[i / 3];
    nn_image_free(&grey);
    return status;
}

static mha_status parse(nn_image *out, int channels, const unsigned char *bytes, size_t size, const nn_failure *to)
{
    static const unsigned char png[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    text t = {bytes, bytes + size};
    if (!size) return nn_error(to, MHA_BAD_FILE, "it is empty");
    if (size > 3 && bytes[0] == 'P' && (bytes[1] == '2' || bytes[1] == '5') &&
        (is_space(bytes[2]) || bytes[2] == '#')) {
        TRY(parse_pgm(out, &t, to));
        return channels == 1 ? MHA_OK : spread(out, to);
    }
    if (size >= sizeof png && memcmp(bytes, png, sizeof png) == 0)
        return nn_image_png_parse(out, channels, bytes, size, to);
    return nn_error(to, MHA_BAD_FILE, "neither a PNG nor a PGM (P2 or P5)");
}

static mha_status parse_as(nn_image *out, int channels, const void *bytes, size_t size, const char *name, char *error,
                           size_t error_size)
{
    *out = (nn_image){0};
    mha_status status = parse(out, channels, bytes, size, &(nn_failure){name, error, error_size});
    if (status) nn_image_free(out);
    return status;
}

mha_status nn_image_parse(nn_image *out, const void *bytes, size_t size, const char *name, char *error,
                          size_t error_size)
{
    return parse_as(out, 1, bytes, size, name, error, error_size);
}

mha_status nn_image_write_pgm(const char *path, const unsigned char *pixels, int64_t rows, int64_t columns, char *error,
                              size_t error_size)
{
    nn_replacement to;
    char start[60];
    int n = snprintf(start, sizeof start, "P5\n%" PRId64 " %" PRId64 "\n255\n", columns, rows);
    nn_replacement_begin(&to, path, error, error_size);
    nn_replacement_put(&to, start, (size_t)n);
    nn_replacement_put(&to, pixels, (size_t)(rows * columns));
    return nn_replacement_end(&to);
}
