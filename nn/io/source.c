/* Bytes from a file or from memory, plain or gzipped.
 *
 * zlib's inflate is used instead of gzread, which treats a file that is not gzipped as plain, ignores data after the
 * compressed part, and opens the file itself. */
#include "io/source.h"
#include "io/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

mha_status nn_source_fail(nn_source *from, mha_status status, const char *format, ...)
{
    char line[300];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (!from->failed)
        from->failed = nn_error_because(&(nn_failure){from->name, from->error, from->error_size}, status, line);
    return from->failed;
}

/* ---- Plain bytes ------------------------------------------------------------------------------------------------ */

static size_t take_plain(nn_source *from, void *out, size_t room)
{
    size_t n = room < from->left ? room : (size_t)from->left;
    if (from->failed || !n) return 0;
    if (!from->file) {
        memcpy(out, from->bytes, n);
        from->bytes += n;
    } else if (fread(out, 1, n, from->file) != n) {
        nn_source_fail(from, MHA_BAD_FILE, "%s",
                       ferror(from->file) ? strerror(errno) : "the file was truncated while it was read");
        return 0;
    }
    from->left -= n;
    return n;
}

/* ---- Gzip ------------------------------------------------------------------------------------------------------- */

#ifdef MHA_HAS_ZLIB

#include <zlib.h>

enum {
    GZIP_ONLY = 16 + 15, /* windowBits of inflateInit2: only the gzip format, the largest window */
    DEFLATE_RATIO = 1032 /* deflate's maximum ratio: 258 bytes in two bits */
};

struct gunzip {
    z_stream stream;
    bool ended; /* the last member is complete */
    unsigned char packed[1 << 15];
};

static mha_status gunzip_begin(nn_source *from)
{
    struct gunzip *g = calloc(1, sizeof *g);
    if (!g || inflateInit2(&g->stream, GZIP_ONLY) != Z_OK) {
        free(g);
        return nn_source_fail(from, MHA_NO_MEMORY, "out of memory while decompressing");
    }
    from->unpacker = g;
    return MHA_OK;
}

static void gunzip_end(nn_source *from)
{
    if (from->unpacker) inflateEnd(&from->unpacker->stream);
    free(from->unpacker);
}

/* Provides compressed input and, after the end of a member, starts the next one; a gzip file may have any number.
 * False at the end or after an error. */
static bool gunzip_refill(nn_source *from)
{
    struct gunzip *g = from->unpacker;
    if (!g->stream.avail_in) {
        g->stream.next_in = g->packed;
        g->stream.avail_in = (uInt)take_plain(from, g->packed, sizeof g->packed);
        if (!g->stream.avail_in) {
            if (!g->ended) nn_source_fail(from, MHA_BAD_FILE, "the gzip file is truncated");
            return false;
        }
    }
    if (g->ended) inflateReset(&g->stream);
    g->ended = false;
    return true;
}

static size_t take_gzipped(nn_source *from, void *out, size_t room)
{
    struct gunzip *g = from->unpacker;
    const size_t step = (size_t)1 << 30; /* zlib counts in 32 bits */
    size_t got = 0;
    while (got < room && !from->failed && gunzip_refill(from)) {
        size_t part = room - got < step ? room - got : step;
        g->stream.next_out = (unsigned char *)out + got;
        g->stream.avail_out = (uInt)part;
        int code = inflate(&g->stream, Z_NO_FLUSH);
        got += part - g->stream.avail_out;
        g->ended = code == Z_STREAM_END;
        if (code == Z_MEM_ERROR) nn_source_fail(from, MHA_NO_MEMORY, "out of memory while decompressing");
        else if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
            nn_source_fail(from, MHA_BAD_FILE, "the gzip file is damaged: %s",
                           g->stream.msg ? g->stream.msg : "no reason given");
    }
    return from->failed ? 0 : got;
}

bool nn_source_reads_gzip(void) { return true; }

#else

enum { DEFLATE_RATIO = 1 };

static mha_status gunzip_begin(nn_source *from)
{
    return nn_source_fail(from, MHA_BAD_FILE,
                          "the file is compressed, but this build has no zlib; decompress it first");
}

static void gunzip_end(nn_source *from) { (void)from; }

static size_t take_gzipped(nn_source *from, void *out, size_t room)
{
    (void)from, (void)out, (void)room;
    return 0;
}

bool nn_source_reads_gzip(void) { return false; }

#endif

/* ---- Both ------------------------------------------------------------------------------------------------------- */

size_t nn_source_take(nn_source *from, void *out, size_t room)
{
    return from->unpacker ? take_gzipped(from, out, room) : take_plain(from, out, room);
}

uint64_t nn_source_most(const nn_source *from)
{
    if (!from->unpacker) return from->size;
    return from->size > UINT64_MAX / DEFLATE_RATIO ? UINT64_MAX : from->size * DEFLATE_RATIO;
}

static mha_status detect_gzip(nn_source *from)
{
    static const unsigned char gzip[2] = {0x1f, 0x8b};
    unsigned char first[2];
    if (from->size < sizeof first) return MHA_OK;
    take_plain(from, first, sizeof first);
    TRY(from->failed);
    from->left = from->size;
    if (from->file) rewind(from->file);
    else from->bytes -= sizeof first;
    return memcmp(first, gzip, sizeof gzip) == 0 ? gunzip_begin(from) : MHA_OK;
}

mha_status nn_source_memory(nn_source *from, const void *bytes, size_t size, const char *name, char *error,
                            size_t error_size)
{
    *from = (nn_source){.name = name, .error = error, .error_size = error_size, .bytes = bytes, .size = size};
    from->left = size;
    return detect_gzip(from);
}

/* Without O_NONBLOCK, opening a pipe without a writer would block. */
mha_status nn_source_open(nn_source *from, const char *path, char *error, size_t error_size)
{
    struct stat about;
    *from = (nn_source){.name = path, .error = error, .error_size = error_size};
    int descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    bool there = descriptor >= 0 && fstat(descriptor, &about) == 0;
    if (there && S_ISREG(about.st_mode)) from->file = fdopen(descriptor, "rb");
    if (!from->file) {
        if (there && !S_ISREG(about.st_mode)) nn_source_fail(from, MHA_BAD_FILE, "not a regular file");
        else nn_source_fail(from, nn_status_of(errno), "%s", errno == ENOMEM ? "not enough memory" : strerror(errno));
        if (descriptor >= 0) close(descriptor);
        return from->failed;
    }
    from->size = from->left = (uint64_t)about.st_size;
    return detect_gzip(from);
}

void nn_source_close(nn_source *from)
{
    gunzip_end(from);
    if (from->file) fclose(from->file);
    from->unpacker = NULL;
    from->file = NULL;
}

/* ---- Files of other formats -------------------------------------------------------------------------------------- */

#define PYTORCH                                                                                              \
    "is a file of PyTorch, a pickle, which is not read; save a model with save_pretrained, or tensors with " \
    "safetensors.torch.save_file"

static const struct {
    const char *first;
    const char *is;
} kinds[] = {
    {"version https://git-lfs.github.com/spec/",
     "is a Git LFS pointer, not the file that it stands for; 'git lfs pull' in its folder downloads that"},
    {"PK\x03\x04", PYTORCH},
    {"\x80\x02\x8a\x0al\xfc", PYTORCH}, /* as it was saved before version 1.6 */
    {"GGUF", "is a GGUF file, which is not read; the safetensors files that it was made from are"},
    {"\x89HDF\r\n", "is a file of TensorFlow (HDF5), which is not read; save the model with safe_serialization=True"},
};

const char *nn_source_foreign(const void *first, size_t size)
{
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds; n++) {
        size_t length = strlen(kinds[n].first);
        if (size >= length && memcmp(first, kinds[n].first, length) == 0) return kinds[n].is;
    }
    return NULL;
}

/* ---- Whole texts ------------------------------------------------------------------------------------------------- */

mha_status nn_source_text(char **to, const char *path, size_t most, size_t *size, char *error, size_t error_size)
{
    nn_source from;
    char *text = NULL;
    size_t got = 0;
    *to = NULL;
    if (!nn_source_open(&from, path, error, error_size)) {
        size_t room = nn_source_most(&from) < most ? (size_t)nn_source_most(&from) + 1 : most + 1;
        text = malloc(room + 1);
        if (text) got = nn_source_take(&from, text, room);
        else nn_source_fail(&from, MHA_NO_MEMORY, "out of memory");
        if (got > most) nn_source_fail(&from, MHA_BAD_FILE, "more than %zu bytes", most);
        if (text) text[got] = 0;
        const char *is = text ? nn_source_foreign(text, got) : NULL;
        if (is) nn_source_fail(&from, MHA_BAD_FILE, "%s", is);
        if (text && !from.failed && strlen(text) != got)
            nn_source_fail(&from, MHA_BAD_FILE, "not a text file: it contains a NUL byte");
    }
    nn_source_close(&from);
    if (!from.failed && size) *size = got;
    if (from.failed) free(text);
    else *to = text;
    return from.failed;
}
