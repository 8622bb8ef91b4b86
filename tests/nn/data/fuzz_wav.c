/* A fuzz target for the reader of WAV files: any bytes must either be refused with one line, or give samples that can be
 * read, no more of them than the file has room for, all of them finite. */
#include "data/wav.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { SEEDS = 6, FIXED = 12 };
#define LIKED "fmt dataLIST\0\1\2\3\x08\x10\x18\x20\x80\xfe\xff"

static void put(uint8_t *bytes, uint32_t number, int count)
{
    for (int i = 0; i < count; i++) bytes[i] = (uint8_t)(number >> 8 * i);
}

/* PCM of 8 to 32 bits, float32 and an extensible header, with one or two channels and a chunk before the data. */
static size_t make_seed(uint8_t *bytes, size_t room, unsigned which)
{
    static const uint8_t rest[14] = {0, 0, 0, 0, 0x10, 0, 0x80, 0, 0, 0xaa, 0, 0x38, 0x9b, 0x71};
    unsigned kind = which % SEEDS, bits = kind < 4 ? 8 * (kind + 1) : 32, channels = 1 + which / SEEDS % 2;
    unsigned tag = kind < 4 ? 1 : 3, header = kind == 5 ? 40 : 16, data = 12 * channels * bits / 8;
    size_t size = 12 + 8 + header + 10 + 8 + data;
    if (size > room) return 0;
    memset(bytes, 0, size);
    memcpy(bytes, "RIFF\0\0\0\0WAVEfmt ", 16);
    put(bytes + 16, header, 4);
    put(bytes + 20, kind == 5 ? 0xfffe : tag, 2);
    put(bytes + 22, channels, 2);
    put(bytes + 24, 16000, 4);
    put(bytes + 32, channels * bits / 8, 2);
    put(bytes + 34, bits, 2);
    if (kind == 5) {
        put(bytes + 44, tag, 2);
        memcpy(bytes + 46, rest, sizeof rest);
    }
    uint8_t *at = bytes + 20 + header;
    memcpy(at, "LIST\1\0\0\0x", 9);
    memcpy(at + 10, "data", 4);
    put(at + 14, data, 4);
    return size;
}

static void repair(uint8_t *bytes, size_t size)
{
    memcpy(bytes, "RIFF", 4);
    if (size >= 12) memcpy(bytes + 8, "WAVE", 4);
}

#include "support/fuzz.h"

static void require(int held, const char *what)
{
    if (held) return;
    fprintf(stderr, "fuzz_wav: %s\n", what);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    char error[300] = "";
    nn_wav wav;
    if (!nn_wav_parse(&wav, bytes, size, "f", 16000, error, sizeof error)) {
        require((uint64_t)wav.count <= size, "more samples than the file has bytes");
        for (int64_t i = 0; i < wav.count; i++) require(isfinite(wav.samples[i]), "a sample that is not finite");
    } else {
        require(strncmp(error, "f: ", 3) == 0 && !strpbrk(error, "\n\r\x1b"), "an error is not one clean line");
        require(!wav.samples && !wav.count, "samples after an error");
    }
    nn_wav_free(&wav);
    return 0;
}
