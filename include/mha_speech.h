/* mha_speech.h: what is said in a sound file, by a model such as Whisper. Part of libmha-model; the rules of mha_model.h hold.
 *
 *     mha_sound *sound;
 *     mha_speech_prompt prompt = {.size = sizeof prompt};
 *     int64_t count;
 *     if (mha_sound_open(ctx, &sound, "talk.wav")) return puts(mha_context_error(ctx)), 1;
 *     const float *samples = mha_sound_samples(sound, &count);
 *     mha_tensor features = mha_tensor_3d(numbers, MHA_FLOAT32, 1, info.bins, info.frames);
 *     mha_speech_features(ctx, features, samples, count);
 *     mha_speech_start(ctx, &prompt, model, features, NULL);
 *     mha_generation_inputs in = {.count = 1, .features = features, .decoder_tokens = prompt.tokens,
 *                                 .decoder_starts = (const int64_t[]){0, prompt.count}};
 *     mha_generation_create(ctx, &g, model, &in, &options);
 *
 * A model reads a window of 160 * frames samples, 30 seconds with 3000 frames; a longer sound needs several. */
#ifndef MHA_SPEECH_H
#define MHA_SPEECH_H

#include <mha_text.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MHA_SPEECH_RATE = 16000, /* samples per second */
    MHA_SPEECH_HOP = 160,    /* samples of a frame */
    MHA_SPEECH_TOKENS = 16   /* most tokens of a prompt */
};

typedef struct mha_sound mha_sound;

/* Reads a WAV file of MHA_SPEECH_RATE: PCM of 8, 16, 24 or 32 bits or float32, plain or gzipped; channels are averaged. On
 * error *sound is NULL. Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (also for another rate, and for a file without
 * samples) or MHA_NO_MEMORY. */
MHA_API mha_status mha_sound_open(mha_context *ctx, mha_sound **sound, const char *path);
MHA_API void mha_sound_free(mha_sound *sound); /* NULL is legal */

/* Its samples (count), from -1 to 1 unless the file has floats beyond; valid as long as the sound. */
MHA_API const float *mha_sound_samples(const mha_sound *sound, int64_t *count);

/* Log-mel features, as the feature extractor of Whisper computes them, of `count` finite samples at MHA_SPEECH_RATE, which
 * are padded with silence or cut to the window:
 *
 *   features (bins,frames) or (1,bins,frames), MHA_FLOAT32, dense
 *
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a sample that is not finite), MHA_BAD_SHAPE, MHA_BAD_TYPE or MHA_NO_MEMORY. */
MHA_API mha_status mha_speech_features(mha_context *ctx, mha_tensor features, const float *samples, int64_t count);

typedef struct mha_speech_options {
    size_t size;          /* of this struct */
    const char *language; /* as the model names it: "en" or "<|en|>"; NULL: as its file says, or detected */
    const char *task;     /* "transcribe", or "translate" into English; NULL: as its file says, or "transcribe" */
} mha_speech_options;

/* clang-format off */
#define MHA_SPEECH_DEFAULTS {sizeof(mha_speech_options), NULL, NULL}
/* clang-format on */

MHA_API void mha_speech_defaults(mha_speech_options *options, size_t size);

/* What the decoder starts with: the start token, the language, the task, and the token for "no timestamps", as far as the
 * model's generation_config.json has them (lang_to_id, task_to_id, no_timestamps_token_id; without a language and a task,
 * its forced_decoder_ids). */
typedef struct mha_speech_prompt {
    size_t size; /* of this struct, set by the caller; the rest is filled in */
    int64_t count;
    int32_t tokens[MHA_SPEECH_TOKENS]; /* (count) */
    char language[24], task[24];       /* of these tokens; "" if none of them names one */
    bool detected;                     /* the language is the most likely one of these features */
} mha_speech_prompt;

/* Where the language is to be detected, the model runs over `features`, as mha_speech_features gives them; else they may be
 * MHA_NO_TENSOR. `options` NULL means MHA_SPEECH_DEFAULTS. Returns MHA_OK, MHA_BAD_ARGUMENT (also for a model that does not
 * read audio, or does not know the language or the task), MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_speech_start(mha_context *ctx, mha_speech_prompt *prompt, mha_model *model, mha_tensor features,
                                    const mha_speech_options *options);

#ifdef __cplusplus
}
#endif

#endif
