/* mha_speech: from a sound file to the prompt of a speech model such as Whisper, whose text mha_text.h generates. Part
 * of libmha-model; the rules of mha_model.h hold.
 *
 *     mha_model_info info = {.size = sizeof info};
 *     mha_speech_prompt prompt = {.size = sizeof prompt};
 *     int64_t count;
 *     mha_status status = mha_sound_open(ctx, &sound, "talk.wav");
 *     const float *samples = mha_sound_samples(sound, &count);
 *     if (!status) status = mha_model_about(ctx, model, &info);
 *     mha_tensor features = mha_tensor_3d(numbers, MHA_FLOAT32, 1, info.bins, info.frames);
 *     if (!status) status = mha_speech_features(ctx, features, samples, count);
 *     if (!status) status = mha_speech_start(ctx, &prompt, model, features, NULL);
 *     mha_generation_inputs in = {.count = 1, .features = features, .decoder_tokens = prompt.tokens,
 *                                 .decoder_starts = (const int64_t[]){0, prompt.count}};
 *     if (!status) status = mha_generation_create(ctx, &g, model, &in, &options);
 *
 * A model reads a window of 160 * frames samples: 30 seconds with 3000 frames. A longer sound needs several. */
#ifndef MHA_SPEECH_H
#define MHA_SPEECH_H

#include <mha_text.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    MHA_SPEECH_RATE = 16000, /* samples per second */
    MHA_SPEECH_HOP = 160,    /* samples per frame */
    MHA_SPEECH_TOKENS = 16   /* maximum number of tokens of a prompt */
};

typedef struct mha_sound mha_sound;

/* Reads a WAV file of rate MHA_SPEECH_RATE: PCM of 8, 16, 24 or 32 bits or float32, plain or gzipped. Channels are
 * averaged. On error *sound is NULL.
 * Returns MHA_OK, MHA_BAD_ARGUMENT, MHA_BAD_FILE (also for another rate or no samples) or MHA_NO_MEMORY. */
MHA_API mha_status mha_sound_open(mha_context *ctx, mha_sound **sound, const char *path);
MHA_API void mha_sound_free(mha_sound *sound); /* NULL is legal */

/* The samples (count) of a sound, usually from -1 to 1; valid as long as the sound. NULL and 0 for NULL. */
MHA_API const float *mha_sound_samples(const mha_sound *sound, int64_t *count);

/* Log-mel features, as Whisper's feature extractor computes them, of `count` samples, padded with silence or cut to
 * the window:
 *
 *   features (bins,frames) or (1,bins,frames), MHA_FLOAT32, dense
 *
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a sample that is not finite), MHA_BAD_SHAPE, MHA_BAD_TYPE or
 * MHA_NO_MEMORY. */
MHA_API mha_status mha_speech_features(mha_context *ctx, mha_tensor features, const float *samples, int64_t count);

typedef struct mha_speech_options {
    size_t size;          /* of this struct */
    const char *language; /* "en" or "<|en|>"; NULL: as generation_config.json says, or else detected */
    const char *task;     /* "transcribe", or "translate" into English; NULL: as generation_config.json says, or else
                             "transcribe" */
} mha_speech_options;

/* clang-format off */
#define MHA_SPEECH_DEFAULTS {sizeof(mha_speech_options), NULL, NULL}
/* clang-format on */

MHA_API void mha_speech_defaults(mha_speech_options *options, size_t size);

/* The first tokens of the decoder: start, language, task and "no timestamps", as far as generation_config.json has
 * them (lang_to_id, task_to_id, no_timestamps_token_id; without a language and a task, forced_decoder_ids). */
typedef struct mha_speech_prompt {
    size_t size;                       /* of this struct, set by the caller; the rest is filled in */
    int64_t count;                     /* number of tokens */
    int32_t tokens[MHA_SPEECH_TOKENS]; /* (count): the tokens */
    char language[24];                 /* the language that the tokens name; "" for none */
    char task[24];                     /* the task that the tokens name; "" for none */
    bool detected;                     /* the language was detected from the features */
} mha_speech_prompt;

/* Fills `prompt`. To detect the language, the model runs over `features` of mha_speech_features, which may be none
 * otherwise. `options` NULL means MHA_SPEECH_DEFAULTS.
 * Returns MHA_OK, MHA_BAD_ARGUMENT (also for a model that does not read audio or does not know the language or task),
 * MHA_BAD_SHAPE, MHA_BAD_TYPE, MHA_NO_MEMORY or MHA_NO_DEVICE. */
MHA_API mha_status mha_speech_start(mha_context *ctx, mha_speech_prompt *prompt, mha_model *model, mha_tensor features,
                                    const mha_speech_options *options);

#ifdef __cplusplus
}
#endif

#endif
