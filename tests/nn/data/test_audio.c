/* Sound: WAV files of every format give back what was written, bad ones one clear line, which is compared whole; log-mel
 * features are compared with sums over the definition in float64, and with those of `transformers` where a file of them is
 * given (MHA_MEL, written by tests/families/mel.py). */
#include "support/harness.h"
#include "data/mel.h"
#include "data/wav.h"
#include "io/safetensors.h"

#include <mha_speech.h>
#include <unistd.h>

enum { RATE = 16000, ROOM = 1 << 16 };
enum { PCM = 1, FLOAT = 3, EXTENSIBLE = 0xfffe };

/* ---- Building files --------------------------------------------------------------------------------------------- */

typedef struct maker {
    unsigned char bytes[ROOM];
    size_t size;
} maker;

static void put(maker *to, uint32_t number, int bytes)
{
    for (int i = 0; i < bytes; i++) to->bytes[to->size++] = (unsigned char)(number >> 8 * i);
}

static void put_text(maker *to, const char *text, size_t size)
{
    memcpy(to->bytes + to->size, text, size);
    to->size += size;
}

typedef struct kind {
    unsigned tag, bits, channels, rate;
    bool extensible, junk; /* junk: other chunks before and behind fmt, one of an odd length */
} kind;

static void put_format(maker *to, kind k)
{
    put_text(to, "fmt ", 4);
    put(to, k.extensible ? 40 : 16, 4);
    put(to, k.extensible ? (uint32_t)EXTENSIBLE : k.tag, 2);
    put(to, k.channels, 2);
    put(to, k.rate, 4);
    put(to, k.rate * k.channels * k.bits / 8, 4);
    put(to, k.channels * k.bits / 8, 2);
    put(to, k.bits, 2);
    if (!k.extensible) return;
    put(to, 22, 2);
    put(to, k.bits, 2);
    put(to, 4, 4);
    put(to, k.tag, 2);
    put_text(to, "\0\0\0\0\x10\0\x80\0\0\xaa\0\x38\x9b\x71", 14);
}

/* A file up to its samples, which are `bytes` long. */
static void begin(maker *to, kind k, uint32_t bytes)
{
    to->size = 0;
    put_text(to, "RIFF\x24\0\0\0WAVE", 12);
    if (k.junk) put_text(to, "LIST\3\0\0\0abc\0", 12);
    put_format(to, k);
    if (k.junk) put_text(to, "fact\4\0\0\0....", 12);
    put_text(to, "data", 4);
    put(to, bytes, 4);
}

/* Parses a copy of its exact length, so that the address sanitizer sees the first byte read outside. */
static bool parse(nn_wav *wav, const maker *from, char error[300])
{
    unsigned char *exact = malloc(from->size ? from->size : 1);
    memcpy(exact, from->bytes, from->size);
    error[0] = 0;
    bool ok = !nn_wav_parse(wav, exact, from->size, "x.wav", RATE, error, 300);
    free(exact);
    return ok;
}

static void refused(const maker *from, const char *line)
{
    char error[300];
    nn_wav wav;
    bool ok = parse(&wav, from, error);
    expect(!ok && strcmp(error, line) == 0, "said '%s' (%s), not '%s'", error, ok ? "accepted" : "refused", line);
    expect(!wav.samples && wav.count == 0, "left something behind");
    nn_wav_free(&wav);
}

/* ---- Formats ---------------------------------------------------------------------------------------------------- */

/* The bytes of x in [-1, 1] as a sample, rounded to its bits, and the number that these bits are. */
static double put_sample(maker *to, double x, kind k)
{
    if (k.tag == FLOAT) {
        float number = (float)x;
        uint32_t bits;
        memcpy(&bits, &number, sizeof bits);
        put(to, bits, 4);
        return number;
    }
    double steps = ldexp(1, (int)k.bits - 1), whole = fmin(nearbyint(x * steps), steps - 1);
    put(to, (uint32_t)(int64_t)(whole + (k.bits == 8 ? 128 : 0)), (int)k.bits / 8);
    return whole / steps;
}

static void read_back(maker *file, kind k, int frames, bool piped)
{
    char error[300];
    nn_wav wav;
    rng r = rng_make(7, k.bits + k.channels);
    double *expected = malloc(sizeof *expected * (size_t)(frames + 1));
    begin(file, k, piped ? 0xffffffff : (uint32_t)frames * k.channels * k.bits / 8);
    for (int i = 0; i < frames; i++) {
        double sum = 0;
        for (unsigned c = 0; c < k.channels; c++)
            sum += put_sample(file, i < 2 ? 1 - 2 * i : 2 * rng_uniform(&r) - 1, k);
        expected[i] = sum / k.channels;
    }
    if (!piped) put_text(file, "LIST\xff\xff\0\0", 8); /* behind the samples nothing is read */
    bool ok = parse(&wav, file, error);
    expect(ok && wav.count == frames, "%u bits, %u channels: %s, %d samples", k.bits, k.channels, error,
           (int)wav.count);
    for (int i = 0; ok && i < frames; i++)
        expect(fabs(wav.samples[i] - expected[i]) <= 6e-8 * fabs(expected[i]) + 1e-12, "sample %d is %.9g, not %.9g", i,
               wav.samples[i], expected[i]);
    nn_wav_free(&wav);
    free(expected);
}

TEST(wav_gives_back_every_format)
{
    static maker file;
    static const struct {
        unsigned tag, bits;
    } formats[] = {{PCM, 8}, {PCM, 16}, {PCM, 24}, {PCM, 32}, {FLOAT, 32}};
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        for (unsigned channels = 1; channels <= 3; channels++)
            for (int variant = 0; variant < 8; variant++) {
                kind k = {formats[f].tag, formats[f].bits, channels, RATE, variant & 1, variant & 2};
                read_back(&file, k, variant & 4 ? 4000 / (int)channels : 5, variant & 4);
            }
}

TEST(wav_may_be_empty_and_have_many_channels)
{
    static maker file;
    read_back(&file, (kind){PCM, 16, 1, RATE, false, false}, 0, false);
    read_back(&file, (kind){PCM, 16, 700, RATE, false, false}, 20, false); /* frames beyond an even share of a block */
    read_back(&file, (kind){PCM, 8, 11000, RATE, false, false}, 3, false);
}

TEST(wav_of_a_file)
{
    static maker file;
    char error[300] = "", path[] = "/tmp/mha-wav-XXXXXX";
    nn_wav wav = {0};
    int at = mkstemp(path);
    begin(&file, (kind){PCM, 16, 1, RATE, false, false}, 4);
    put(&file, 0x4000, 2);
    put(&file, 0xc000, 2);
    expect(write(at, file.bytes, file.size) == (ssize_t)file.size, "cannot write");
    close(at);
    expect(!nn_wav_open(&wav, path, RATE, error, sizeof error) && wav.count == 2 && wav.samples[0] == 0.5f &&
               wav.samples[1] == -0.5f,
           "%s", error);
    nn_wav_free(&wav);
    unlink(path);
    expect(nn_wav_open(&wav, path, RATE, error, sizeof error) && strstr(error, path) == error, "said '%s'", error);
}

/* ---- Errors ----------------------------------------------------------------------------------------------------- */

TEST(wav_of_another_rate_is_refused)
{
    static maker file;
    begin(&file, (kind){PCM, 16, 2, 44100, false, true}, 0);
    refused(&file, "x.wav: has 44100 samples per second, but 16000 are needed; convert it with: ffmpeg -i IN.wav -ar "
                   "16000 OUT.wav");
    begin(&file, (kind){FLOAT, 32, 1, 0, false, false}, 0);
    refused(&file, "x.wav: has 0 samples per second, but 16000 are needed; convert it with: ffmpeg -i IN.wav -ar 16000 "
                   "OUT.wav");
}

TEST(wav_of_other_formats_is_refused)
{
    static maker file;
    static const kind kinds[] = {{7, 8, 1, RATE, false, false},      {PCM, 12, 1, RATE, false, false},
                                 {PCM, 64, 1, RATE, true, false},    {PCM, 0, 1, RATE, false, false},
                                 {FLOAT, 64, 1, RATE, false, false}, {FLOAT, 16, 1, RATE, true, false}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char line[300];
        begin(&file, kinds[i], 0);
        snprintf(line, sizeof line,
                 "x.wav: has samples of format %u with %u bits; PCM of 8, 16, 24 or 32 bits and float32 can be read; "
                 "convert it with: ffmpeg -i IN.wav -ar 16000 OUT.wav",
                 kinds[i].tag, kinds[i].bits);
        refused(&file, line);
    }
    begin(&file, (kind){PCM, 16, 1, RATE, true, false}, 0); /* an identifier that is not the standard's */
    file.bytes[12 + 8 + 39] ^= 1;
    refused(&file,
            "x.wav: has samples of format 65534 with 16 bits; PCM of 8, 16, 24 or 32 bits and float32 can be read; "
            "convert it with: ffmpeg -i IN.wav -ar 16000 OUT.wav");
}

TEST(damaged_wav_is_refused)
{
    static maker file;
    kind k = {PCM, 16, 2, RATE, false, false};
    file.size = 0;
    refused(&file, "x.wav: the file ends within the header; it is truncated");
    put_text(&file, "RIFX\0\0\0\0WAVE", 12);
    refused(&file, "x.wav: not a WAV file: it does not begin with RIFF and WAVE");
    file.size = 0;
    put_text(&file, "RIFF\0\0\0\0WAVE", 12);
    refused(&file, "x.wav: has no samples: there is no data chunk");
    put_text(&file, "data\0\0\0\0", 8);
    refused(&file, "x.wav: its samples come before the fmt chunk that describes them");
    file.size = 12;
    put_text(&file, "fmt \x0f\0\0\0", 8);
    refused(&file, "x.wav: its fmt chunk has 15 bytes, but needs 16");
    begin(&file, k, 8);
    file.bytes[22] = 0; /* channels */
    refused(&file, "x.wav: 0 channels of 16 bits do not make frames of 4 bytes; the header is damaged");
    begin(&file, k, 8);
    put(&file, 0, 4);
    refused(&file, "x.wav: ends 4 bytes before its last sample; it is truncated");
    begin(&file, k, 6);
    put_text(&file, "123456", 6);
    refused(&file, "x.wav: its last sample is incomplete: frames have 4 bytes");
    begin(&file, k, 0xffffffff);
    put_text(&file, "123456", 6);
    refused(&file, "x.wav: its last sample is incomplete: frames have 4 bytes");
    begin(&file, (kind){FLOAT, 32, 1, RATE, false, false}, 8);
    put(&file, 0, 4);
    put(&file, 0x7fc00000, 4);
    refused(&file, "x.wav: sample 1 is not a number");
    begin(&file, k, 8);
    file.size = 30;
    refused(&file, "x.wav: the file ends within the fmt chunk; it is truncated");
    file.size = 12;
    put_text(&file, "LIST\x10\0\0\0ab", 10);
    refused(&file, "x.wav: the file ends within a chunk before the samples; it is truncated");
}

/* ---- Features --------------------------------------------------------------------------------------------------- */

static double mel_of(double hertz) { return hertz < 1000 ? hertz * 3 / 200 : 15 + 27 * log(hertz / 1000) / log(6.4); }

static double hertz_of(double mel) { return mel < 15 ? mel * 200 / 3 : 1000 * pow(6.4, (mel - 15) / 27); }

/* The definition of data/mel.h, term by term. */
static void naive(double *out, int bins, int frames, const float *samples, int count)
{
    double turn = 2 * acos(-1), most = -10, top = mel_of(8000);
    double *power = malloc(sizeof *power * 201);
    for (int t = 0; t < frames; t++) {
        for (int f = 0; f <= 200; f++) {
            double re = 0, im = 0;
            for (int n = 0; n < 400; n++) {
                int at = abs(160 * t + n - 200), last = 160 * frames - 1;
                if (at > last) at = 2 * last - at;
                double x = at < count ? samples[at] * (0.5 - 0.5 * cos(turn * n / 400)) : 0;
                re += x * cos(turn * (f * n % 400) / 400);
                im -= x * sin(turn * (f * n % 400) / 400);
            }
            power[f] = re * re + im * im;
        }
        for (int m = 0; m < bins; m++) {
            double sum = 0, low = hertz_of(top * m / (bins + 1)), middle = hertz_of(top * (m + 1) / (bins + 1));
            double high = hertz_of(top * (m + 2) / (bins + 1));
            for (int f = 0; f <= 200; f++) {
                double hertz = 40.0 * f,
                       weight = fmin((hertz - low) / (middle - low), (high - hertz) / (high - middle));
                sum += fmax(weight, 0) * 2 / (high - low) * power[f];
            }
            out[m * frames + t] = log10(fmax(sum, 1e-10));
            most = fmax(most, out[m * frames + t]);
        }
    }
    for (int i = 0; i < bins * frames; i++) out[i] = (fmax(out[i], most - 8) + 4) / 4;
    free(power);
}

/* Two gliding tones, a little noise, and silence in the middle. */
static float *sound(int count)
{
    float *samples = malloc(sizeof *samples * (size_t)(count + 1));
    rng r = rng_make(3, (uint64_t)count);
    for (int i = 0; i < count; i++) {
        double t = (double)i / RATE, loud = i / 700 % 3 ? 0.5 : 0;
        samples[i] = (float)(loud * (sin(2000 * t + 9000 * t * t) + 0.3 * sin(30000 * t) + 0.01 * rng_normal(&r)));
    }
    return samples;
}

static void compare(const float *got, const double *expected, int count, double bound, const char *what)
{
    double worst = 0;
    for (int i = 0; i < count; i++) worst = fmax(worst, fabs(got[i] - expected[i]));
    expect(worst <= bound, "%s: off by %g", what, worst);
}

TEST(features_are_those_of_the_definition)
{
    static const struct {
        int bins, frames, count;
    } cases[] = {{80, 40, 40 * 160}, {128, 23, 2000}, {80, 16, 5000}, {3, 2, 320}, {7, 9, 0}, {80, 8, 1}, {1, 2, 100}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int bins = cases[i].bins, frames = cases[i].frames, size = bins * frames;
        float *samples = sound(cases[i].count), *got = malloc(sizeof *got * (size_t)(size + 2));
        double *expected = malloc(sizeof *expected * (size_t)size);
        char what[60];
        snprintf(what, sizeof what, "%d bins, %d frames, %d samples", bins, frames, cases[i].count);
        got[0] = got[size + 1] = 77;
        expect(!nn_mel_features(got + 1, bins, frames, samples, cases[i].count), "%s: refused", what);
        naive(expected, bins, frames, samples, cases[i].count);
        compare(got + 1, expected, size, 1e-6, what);
        expect(got[0] == 77 && got[size + 1] == 77, "%s: wrote outside", what);
        free(samples);
        free(got);
        free(expected);
    }
}

TEST(features_of_silence)
{
    float got[80 * 30], samples[10] = {0};
    expect(!nn_mel_features(got, 80, 30, samples, 10), "refused");
    for (int i = 0; i < 80 * 30; i++) expect(got[i] == -1.5f, "feature %d is %g, not -1.5", i, got[i]);
}

TEST(features_out_of_range_are_refused)
{
    float got[4] = {0}, samples[1] = {0};
    expect(nn_mel_features(got, 0, 2, samples, 1), "0 bins");
    expect(nn_mel_features(got, 1, 1, samples, 1), "1 frame, which cannot be reflected");
    expect(nn_mel_features(got, NN_MEL_MAX_BINS + 1, 2, samples, 1), "too many bins");
}

TEST(features_that_are_not_aligned_are_refused)
{
    mha_context *ctx = NULL;
    float got[4] = {0}, samples[2] = {0};
    if (!expect(!mha_context_create(&ctx, NULL), "no context")) return;
    mha_tensor features = mha_tensor_2d((char *)got + 1, MHA_FLOAT32, 1, 2);
    expect(mha_speech_features(ctx, features, samples, 1) == MHA_BAD_ARGUMENT &&
               strcmp(mha_context_error(ctx), "features: data is not aligned for float32") == 0,
           "%s", mha_context_error(ctx));
    features.data = got;
    expect(mha_speech_features(ctx, features, (const float *)(const void *)((char *)samples + 2), 1) ==
                   MHA_BAD_ARGUMENT &&
               strcmp(mha_context_error(ctx), "samples: data is not aligned for float32") == 0,
           "%s", mha_context_error(ctx));
    expect(!mha_speech_features(ctx, features, samples, 1), "%s", mha_context_error(ctx));
    mha_context_free(ctx);
}

/* It computes in float32, in which quiet frequencies next to loud ones drown: speech and tones differ by up to 3.2e-5. */
TEST(features_are_those_of_transformers)
{
    char error[300] = "";
    const char *path = getenv("MHA_MEL");
    if (!path) {
        not_given("MHA_MEL is not set");
        return;
    }
    nn_safetensors *file;
    nn_safetensors_open(&file, path, error, sizeof error);
    if (!expect(file != NULL, "%s", error)) return;
    const nn_safetensors_tensor *samples = nn_safetensors_find(file, "samples");
    if (!samples) {
        expect(false, "%s: no samples", path);
        nn_safetensors_free(file);
        return;
    }
    for (int bins = 80; bins <= 128; bins += 48) {
        char name[40];
        snprintf(name, sizeof name, "features.%d", bins);
        const nn_safetensors_tensor *features = nn_safetensors_find(file, name);
        if (!expect(features && features->shape[0] == bins, "%s: no %s", path, name)) break;
        int size = (int)features->count;
        float *got = malloc(sizeof *got * (size_t)size);
        double *expected = malloc(sizeof *expected * (size_t)size);
        for (int i = 0; i < size; i++) expected[i] = ((const float *)features->data)[i];
        expect(!nn_mel_features(got, bins, features->shape[1], samples->data, samples->count), "refused");
        compare(got, expected, size, 1e-4, name);
        free(got);
        free(expected);
    }
    nn_safetensors_free(file);
}
