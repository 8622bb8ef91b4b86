/* PNG with libpng's simplified interface, which reports errors in a struct instead of using longjmp. It decodes to
 * 8-bit red, green, blue and alpha. */
#include "io/image_png.h"
#include "io/replace.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef MHA_HAS_PNG

#include <png.h>

enum { DEFLATE_RATIO = 1032 }; /* deflate's maximum ratio: 258 bytes in two bits */

bool nn_image_knows_png(void) { return true; }

static uint32_t number_at(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* What libpng would change in colours, and other libraries do not; NULL: nothing. Chunks are length, name, data, checksum. */
static const char *colour_problem(const unsigned char *bytes, size_t size)
{
    enum { DEPTH = 24, FIRST = 8, AROUND = 12, SRGB = 45455, NEAR = 455 };
    if (size > DEPTH && bytes[DEPTH] == 16) return "it has 16 bits per channel; save it with 8";
    for (size_t at = FIRST; at + AROUND + 4 <= size; at += AROUND + number_at(bytes + at)) {
        if (memcmp(bytes + at + 4, "IDAT", 4) == 0 || memcmp(bytes + at + 4, "sRGB", 4) == 0) return NULL;
        if (memcmp(bytes + at + 4, "gAMA", 4) != 0) continue;
        uint32_t gamma = number_at(bytes + at + 8);
        if (gamma > SRGB + NEAR || gamma < SRGB - NEAR) return "it has a gamma of its own; save it as sRGB";
    }
    return NULL;
}

static mha_status read_pixels(nn_image *out, int channels, png_image *png, const nn_failure *to)
{
    unsigned char *rgba = malloc((size_t)(out->rows * out->columns) * 4);
    if (!rgba) return nn_error(to, MHA_NO_MEMORY, "not enough memory for its pixels");
    png->format = PNG_FORMAT_RGBA;
    png->flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* 16-bit samples without other information are sRGB, like 8-bit ones */
    bool ok = png_image_finish_read(png, NULL, rgba, 0, NULL);
    if (ok && channels == 1) nn_image_to_grey(out->pixels, rgba, out->rows * out->columns, 4);
    for (int64_t i = 0; ok && channels > 1 && i < out->rows * out->columns; i++)
        memcpy(out->pixels + 3 * i, rgba + 4 * i, 3);
    free(rgba);
    return ok ? MHA_OK : nn_error(to, MHA_BAD_FILE, "the PNG is damaged or truncated: %s", png->message);
}

/* An uncompressed pixel takes at least one bit. */
static mha_status read_png(nn_image *out, int channels, png_image *png, const void *bytes, size_t size,
                           const nn_failure *to)
{
    if (!png_image_begin_read_from_memory(png, bytes, size))
        return nn_error(to, MHA_BAD_FILE, "the PNG is damaged or truncated: %s", png->message);
    if ((uint64_t)png->width * png->height / 8 > (uint64_t)size * DEFLATE_RATIO)
        return nn_error(to, MHA_BAD_FILE,
                        "a PNG of %zu bytes cannot hold the %" PRIu32 " x %" PRIu32 " pixels that it claims", size,
                        (uint32_t)png->width, (uint32_t)png->height);
    const char *problem = channels > 1 ? colour_problem(bytes, size) : NULL;
    if (problem) return nn_error_because(to, MHA_BAD_FILE, problem);
    TRY(nn_image_make(out, png->height, png->width, channels, to));
    return read_pixels(out, channels, png, to);
}

mha_status nn_image_png_parse(nn_image *out, int channels, const void *bytes, size_t size, const nn_failure *to)
{
    png_image png = {.version = PNG_IMAGE_VERSION};
    mha_status status = read_png(out, channels, &png, bytes, size, to);
    png_image_free(&png);
    return status;
}

mha_status nn_image_write_png(const char *path, const unsigned char *pixels, int64_t rows, int64_t columns,
                              int channels, char *error, size_t error_size)
{
    nn_replacement to;
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)columns,
                     .height = (png_uint_32)rows,
                     .format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
    void *packed = malloc(size);
    nn_replacement_begin(&to, path, error, error_size);
    if (!packed) nn_replacement_fail(&to, MHA_NO_MEMORY, "out of memory");
    else if (!png_image_write_to_memory(&png, packed, &size, 0, pixels, 0, NULL))
        nn_replacement_fail(&to, MHA_BAD_FILE, "%s", png.message);
    else nn_replacement_put(&to, packed, size);
    free(packed);
    return nn_replacement_end(&to);
}

#else

static const char no_png[] = "PNG needs a build with libpng (Debian: libpng-dev)";

bool nn_image_knows_png(void) { return false; }

mha_status nn_image_png_parse(nn_image *out, int channels, const void *bytes, size_t size, const nn_failure *to)
{
    (void)out, (void)channels, (void)bytes, (void)size;
    return nn_error(to, MHA_BAD_FILE, "%s; use a PGM instead", no_png);
}

mha_status nn_image_write_png(const char *path, const unsigned char *pixels, int64_t rows, int64_t columns,
                              int channels, char *error, size_t error_size)
{
    (void)pixels, (void)rows, (void)columns, (void)channels;
    return nn_error_because(&(nn_failure){path, error, error_size}, MHA_BAD_FILE, no_png);
}

#endif
