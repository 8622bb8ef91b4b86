/* Log-mel features, the input of Whisper, as its feature extractor computes them:
 *
 *     windows of 400 samples every 160, centred (the sound is reflected at its ends), times a Hann window
 *     P[f,t] = |DFT|^2, f of 201
 *     S[m,t] = log10(max(sum_f filter[m,f] P[f,t], 1e-10)), triangular filters on Slaney's mel scale from 0 to 8000 Hz
 *     features[m,t] = (max(S[m,t], max S - 8) + 4) / 4
 *
 * in float64. */
#ifndef NN_DATA_MEL_H
#define NN_DATA_MEL_H

#include <mha.h>

enum { NN_MEL_RATE = 16000, NN_MEL_HOP = 160, NN_MEL_MIN_FRAMES = 2, NN_MEL_MAX_BINS = 1024 };

/* features (bins, frames) of `count` samples at NN_MEL_RATE, padded with silence or cut to frames * NN_MEL_HOP samples:
 * 3000 frames are the 30 seconds of Whisper. At least NN_MEL_MIN_FRAMES frames, 1 to NN_MEL_MAX_BINS bins; samples are
 * finite. Returns MHA_OK, MHA_BAD_SHAPE (a size is out of range) or MHA_NO_MEMORY. */
mha_status nn_mel_features(float *features, int bins, int64_t frames, const float *samples, int64_t count);

#endif
