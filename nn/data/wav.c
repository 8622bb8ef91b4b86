/* WAV: a RIFF file is a list of chunks, each a name of four letters, a little-endian length and as many bytes, padded to
 * an even number. `fmt ` says what the samples are, `data` has them; other chunks are skipped, and what follows the data
 * is not read. A program that writes into a pipe cannot know the length and leaves 0xffffffff: then the data go on to
 * the end of the file. */
#include "data/wav.h"
#include "io/failure.h"
#include "io/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PCM = 1, FLOAT = 3, EXTENSIBLE = 0xfffe };
enum { FORMAT_BYTES = 16, EXTENSIBLE_BYTES = 40, BLOCK = 1 << 14 };
static const uint32_t UNKNOWN = 0xffffffff;

typedef struct format {
    unsigned tag, channels, bits;
    uint32_t rate;
    size_t frame; /* bytes of one sample of all channels */
} format;

static unsigned little16(const unsigned char *p) { return p[0] | (unsigned)p[1] << 8; }
static uint32_t little32(const unsigned char *p) { return little16(p) | (uint32_t)little16(p + 2) << 16; }

/* Reads exactly `size` bytes. */
static mha_status read_exactly(nn_source *from, void *out, size_t size, const char *where)
{
    if (nn_source_take(from, out, size) == size) return MHA_OK;
    return nn_source_fail(from, MHA_BAD_FILE, "the file ends within %s; it is truncated", where);
}

static mha_status skip(nn_source *from, uint64_t size)
{
    unsigned char bytes[4096];
    for (size_t n; size; size -= n) {
        n = size < sizeof bytes ? (size_t)size : sizeof bytes;
        TRY(read_exactly(from, bytes, n, "a chunk before the samples"));
    }
    return MHA_OK;
}

/* The tag of an extensible format is the beginning of an identifier whose rest is fixed. */
static bool is_standard(const unsigned char *identifier)
{
    static const unsigned char rest[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71};
    return memcmp(identifier + 2, rest, sizeof rest) == 0;
}

static mha_status check_format(nn_source *from, const format *is, uint32_t rate)
{
    bool pcm = is->tag == PCM && is->bits % 8 == 0 && is->bits >= 8 && is->bits <= 32;
    if (!pcm && !(is->tag == FLOAT && is->bits == 32))
        return nn_source_fail(
            from, MHA_BAD_FILE,
            "has samples of format %u with %u bits; PCM of 8, 16, 24 or 32 bits and float32 can be read; "
            "convert it with: ffmpeg -i IN.wav -ar %" PRIu32 " OUT.wav",
            is->tag, is->bits, rate);
    if (is->frame == 0 || is->frame != (size_t)is->channels * is->bits / 8)
        return nn_source_fail(from, MHA_BAD_FILE,
                              "%u channels of %u bits do not make frames of %zu bytes; the header is damaged",
                              is->channels, is->bits, is->frame);
    if (is->rate != rate)
        return nn_source_fail(from, MHA_BAD_FILE,
                              "has %" PRIu32 " samples per second, but %" PRIu32
                              " are needed; convert it with: ffmpeg -i IN.wav -ar %" PRIu32 " OUT.wav",
                              is->rate, rate, rate);
    return MHA_OK;
}

static mha_status read_format(nn_source *from, format *is, uint32_t size, uint32_t rate)
{
    unsigned char bytes[EXTENSIBLE_BYTES];
    size_t head = size < sizeof bytes ? size : sizeof bytes;
    if (size < FORMAT_BYTES)
        return nn_source_fail(from, MHA_BAD_FILE, "its fmt chunk has %" PRIu32 " bytes, but needs %d", size,
                              FORMAT_BYTES);
    TRY(read_exactly(from, bytes, head, "the fmt chunk"));
    *is = (format){.tag = little16(bytes),
                   .channels = little16(bytes + 2),
                   .bits = little16(bytes + 14),
                   .rate = little32(bytes + 4),
                   .frame = little16(bytes + 12)};
    if (is->tag == EXTENSIBLE && size >= EXTENSIBLE_BYTES && is_standard(bytes + 24)) is->tag = little16(bytes + 24);
    TRY(check_format(from, is, rate));
    return skip(from, (uint64_t)size + size % 2 - head);
}

/* Reads chunks up to the beginning of the data; `left` becomes their length. */
static mha_status find_data(nn_source *from, format *is, uint32_t *left, uint32_t rate)
{
    unsigned char head[12];
    TRY(read_exactly(from, head, sizeof head, "the header"));
    if (memcmp(head, "RIFF", 4) != 0 || memcmp(head + 8, "WAVE", 4) != 0)
        return nn_source_fail(from, MHA_BAD_FILE, "not a WAV file: it does not begin with RIFF and WAVE");
    for (;;) {
        if (nn_source_take(from, head, 8) != 8)
            return nn_source_fail(from, MHA_BAD_FILE, "has no samples: there is no data chunk");
        uint32_t size = little32(head + 4);
        if (memcmp(head, "data", 4) == 0) {
            *left = size;
            return MHA_OK;
        }
        TRY(memcmp(head, "fmt ", 4) == 0 ? read_format(from, is, size, rate) : skip(from, (uint64_t)size + size % 2));
    }
}

static double sample(const unsigned char *p, const format *is)
{
    float number;
    uint32_t bits;
    if (is->bits == 8) return (p[0] - 128) / 128.0;
    if (is->tag == FLOAT) {
        bits = little32(p);
        memcpy(&number, &bits, sizeof number);
        return number;
    }
    bits = 0; /* the bytes as the high ones of 32, so that the sign is where it belongs */
    for (unsigned i = 0; i < is->bits / 8; i++) bits |= (uint32_t)p[i] << (32 - is->bits + 8 * i);
    return (int32_t)bits / 2147483648.0;
}

/* Appends the averages of `frames` frames. */
static mha_status append(nn_source *from, nn_wav *wav, const unsigned char *bytes, size_t frames, const format *is)
{
    for (size_t i = 0; i < frames; i++) {
        double sum = 0;
        for (unsigned c = 0; c < is->channels; c++) sum += sample(bytes + i * is->frame + c * (is->bits / 8), is);
        if (!isfinite(sum)) return nn_source_fail(from, MHA_BAD_FILE, "sample %" PRId64 " is not a number", wav->count);
        wav->samples[wav->count++] = (float)(sum / is->channels);
    }
    return MHA_OK;
}

static mha_status reserve_samples(nn_source *from, nn_wav *wav, int64_t *room, size_t more)
{
    if (wav->samples && *room - wav->count >= (int64_t)more) return MHA_OK;
    int64_t wanted = 2 * *room + (int64_t)more;
    float *samples =
        (uint64_t)wanted < SIZE_MAX / sizeof *samples ? realloc(wav->samples, (size_t)wanted * sizeof *samples) : NULL;
    if (!samples) return nn_source_fail(from, MHA_NO_MEMORY, "not enough memory for %" PRId64 " samples", wanted);
    wav->samples = samples;
    *room = wanted;
    return MHA_OK;
}

/* Reads whole frames, about BLOCK bytes of them at a time; a frame has at most 65535 * 4 bytes. */
static mha_status read_samples(nn_source *from, nn_wav *wav, const format *is, uint32_t left)
{
    if (!is->frame)
        return nn_source_fail(from, MHA_BAD_FILE, "its samples come before the fmt chunk that describes them");
    size_t block = (BLOCK + is->frame - 1) / is->frame * is->frame;
    unsigned char *bytes = malloc(block);
    int64_t room = 0;
    if (!bytes) return nn_source_fail(from, MHA_NO_MEMORY, "not enough memory for %zu bytes", block);
    mha_status status = reserve_samples(from, wav, &room, 1);
    while (!status && left) {
        size_t wanted = left < block ? left : block, got = nn_source_take(from, bytes, wanted);
        if (got != wanted && left != UNKNOWN)
            nn_source_fail(from, MHA_BAD_FILE, "ends %" PRIu32 " bytes before its last sample; it is truncated",
                           left - (uint32_t)got);
        if (got % is->frame)
            nn_source_fail(from, MHA_BAD_FILE, "its last sample is incomplete: frames have %zu bytes", is->frame);
        status = from->failed;
        if (!status) status = reserve_samples(from, wav, &room, got / is->frame);
        if (!status) status = append(from, wav, bytes, got / is->frame, is);
        if (got < wanted) break;
        if (left != UNKNOWN) left -= (uint32_t)got;
    }
    free(bytes);
    return status;
}

static mha_status read_all(nn_source *from, nn_wav *wav, uint32_t rate)
{
    format is = {0};
    uint32_t left = 0;
    *wav = (nn_wav){0};
    mha_status status = from->failed;
    if (!status) status = find_data(from, &is, &left, rate);
    if (!status) status = read_samples(from, wav, &is, left);
    nn_source_close(from);
    if (status) nn_wav_free(wav);
    return status;
}

mha_status nn_wav_open(nn_wav *wav, const char *path, uint32_t rate, char *error, size_t error_size)
{
    nn_source from;
    nn_source_open(&from, path, error, error_size);
    return read_all(&from, wav, rate);
}

mha_status nn_wav_parse(nn_wav *wav, const void *bytes, size_t size, const char *name, uint32_t rate, char *error,
                        size_t error_size)
{
    nn_source from;
    nn_source_memory(&from, bytes, size, name, error, error_size);
    return read_all(&from, wav, rate);
}

void nn_wav_free(nn_wav *wav)
{
    free(wav->samples);
    *wav = (nn_wav){0};
}
