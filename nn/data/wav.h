/* Sound from WAV files: PCM of 8, 16, 24 or 32 bits or float32, plain or as WAVE_FORMAT_EXTENSIBLE. Several channels are
 * averaged. The file may be gzipped, as nn_source reads it. Errors are one line such as
 *
 *     talk.wav: has 44100 samples per second, but 16000 are needed; convert it with: ffmpeg -i IN.wav -ar 16000 OUT.wav
 *
 * Memory: the samples. It grows as they are read, so a header that claims too much costs nothing. */
#ifndef NN_DATA_WAV_H
#define NN_DATA_WAV_H

#include <mha.h>

typedef struct nn_wav {
    int64_t count;
    float *samples; /* (count), in [-1, 1] unless the file has floats beyond; owned by the caller; never NULL */
} nn_wav;

/* Reads a file, or `size` bytes of one in memory (`name` replaces the path in messages), which must have `rate` samples
 * per second. On error, `error`, of `error_size` bytes (240 are enough unless the path is long), gets one line, and `wav`
 * is zeroed. */
mha_status nn_wav_open(nn_wav *wav, const char *path, uint32_t rate, char *error, size_t error_size);
mha_status nn_wav_parse(nn_wav *wav, const void *bytes, size_t size, const char *name, uint32_t rate, char *error,
                        size_t error_size);

/* Frees the samples. A zeroed wav is legal. */
void nn_wav_free(nn_wav *wav);

#endif
