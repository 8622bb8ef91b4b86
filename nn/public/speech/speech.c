/* Speech behind the public header: sound files, features, and the prompt of a model that transcribes. */
#include "data/mel.h"
#include "data/wav.h"
#include "public/check.h"
#include "public/model.h"
#include <math.h>
#include <mha_speech.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)MHA_SPEECH_RATE == NN_MEL_RATE && (int)MHA_SPEECH_HOP == NN_MEL_HOP, "features have one rate");
_Static_assert((int)MHA_SPEECH_TOKENS == NN_SPEECH_PROMPT, "prompts have one size");

struct mha_sound {
    nn_wav wav;
};

/* ---- Sounds ----------------------------------------------------------------------------------------------------- */

mha_status mha_sound_open(mha_context *ctx, mha_sound **sound, const char *path)
{
    char error[500] = "";
    mha_status status;
    if (!ctx || !sound) return MHA_BAD_ARGUMENT;
    *sound = NULL;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, path, "path"))) return status;
    mha_sound *own = calloc(1, sizeof *own);
    if (!own) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for a sound");
    if ((status = nn_wav_open(&own->wav, path, MHA_SPEECH_RATE, error, sizeof error)))
        mha_context_fail(ctx, status, error);
    else if (!own->wav.count) status = nn_public_fail(ctx, MHA_BAD_FILE, "%s: has no samples", path);
    if (status) mha_sound_free(own);
    else *sound = own;
    return status;
}

void mha_sound_free(mha_sound *sound)
{
    if (sound) nn_wav_free(&sound->wav);
    free(sound);
}

const float *mha_sound_samples(const mha_sound *sound, int64_t *count)
{
    if (count) *count = sound ? sound->wav.count : 0;
    return sound ? sound->wav.samples : NULL;
}

/* ---- Features --------------------------------------------------------------------------------------------------- */

mha_status mha_speech_features(mha_context *ctx, mha_tensor features, const float *samples, int64_t count)
{
    mha_status status;
    int first = features.rank - 2; /* the axis of bins */
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, features.data, "features")) || (status = nn_public_need(ctx, samples, "samples")))
        return status;
    if ((features.rank != 2 && features.rank != 3) || (features.rank == 3 && features.size[0] != 1))
        return nn_public_fail(ctx, MHA_BAD_SHAPE, "features: must be (bins,frames) or (1,bins,frames)");
    int64_t bins = features.size[first], frames = features.size[first + 1];
    if (features.type != MHA_FLOAT32) return nn_public_fail(ctx, MHA_BAD_TYPE, "features: must be float32");
    if (bins < 1 || bins > NN_MEL_MAX_BINS || frames < NN_MEL_MIN_FRAMES || frames > 1 << 24)
        return nn_public_fail(ctx, MHA_BAD_SHAPE, "features: %lld bins of %lld frames cannot be computed",
                              (long long)bins, (long long)frames);
    if (features.stride[first + 1] != 1 || features.stride[first] != frames)
        return nn_public_fail(ctx, MHA_BAD_SHAPE, "features: must be dense");
    if ((uintptr_t)features.data % sizeof(float) || (uintptr_t)samples % sizeof(float))
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "%s: data is not aligned for float32",
                              (uintptr_t)features.data % sizeof(float) ? "features" : "samples");
    for (int64_t n = 0; n < count && n < frames * NN_MEL_HOP; n++)
        if (!isfinite(samples[n]))
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "samples: number %lld is not finite", (long long)n);
    if (count < 0) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "count: is %lld", (long long)count);
    if (!nn_mel_features(features.data, (int)bins, frames, samples, count)) return MHA_OK;
    return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the features");
}

/* ---- Prompts ---------------------------------------------------------------------------------------------------- */

void mha_speech_defaults(mha_speech_options *options, size_t size)
{
    mha_speech_options all = MHA_SPEECH_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

/* The language with the largest logit behind the start token. */
static mha_status detect(mha_context *ctx, nn_speech_prompt *p, mha_model *model, mha_tensor features)
{
    int64_t V = nn_public_classes(model);
    mha_status status = nn_public_need(ctx, features.data, "features");
    if (status) return status;
    if (features.rank == 2) {
        features.rank = 3;
        for (int n = 2; n > 0; n--)
            features.size[n] = features.size[n - 1], features.stride[n] = features.stride[n - 1];
        features.size[0] = 1, features.stride[0] = 0;
    }
    float *logits = malloc((size_t)V * sizeof *logits);
    if (!logits) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for the logits");
    mha_model_inputs in = {.features = features, .decoder_tokens = mha_tensor_2d(p->tokens, MHA_INT32, 1, 1)};
    mha_model_outputs out = {.logits = mha_tensor_3d(logits, MHA_FLOAT32, 1, 1, V)};
    status = mha_model_run(ctx, model, &out, &in);
    if (!status && (p->tokens[p->detect] = nn_speech_detect(&model->speech, logits, V)) < 0)
        status = nn_public_fail(ctx, MHA_BAD_ARGUMENT, "generation_config.json: lang_to_id has no token below %lld",
                                (long long)V);
    free(logits);
    return status;
}

mha_status mha_speech_start(mha_context *ctx, mha_speech_prompt *prompt, mha_model *model, mha_tensor features,
                            const mha_speech_options *options)
{
    char error[400] = "";
    mha_speech_options o = MHA_SPEECH_DEFAULTS;
    mha_speech_prompt all = {.size = sizeof all};
    nn_speech_prompt p;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, prompt, "prompt")) || (status = nn_public_need(ctx, model, "model")) ||
        (status = nn_public_takes(ctx, prompt, sizeof all, "mha_speech_prompt")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_SPEECH_DEFAULTS")))
        return status;
    if (!nn_description_is_pair(&model->d) || model->d.encoder.input.kind != NN_INPUT_FRAMES)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "model: does not read audio");
    int32_t start = model->generation.decoder_start >= 0 ? model->generation.decoder_start : model->generation.bos;
    if (start < 0)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "generation_config.json: has no decoder_start_token_id");
    if (!nn_speech_prompt_make(&p, &model->speech, start, o.language, o.task,
                               &(nn_failure){"generation_config.json", error, sizeof error}))
        return nn_public_reason(ctx, error);
    if (p.detect >= 0 && (status = detect(ctx, &p, model, features))) return status;
    all.count = p.count;
    all.detected = p.detect >= 0;
    memcpy(all.tokens, p.tokens, sizeof p.tokens);
    nn_speech_names_of(all.language, all.task, &model->speech, &p);
    return nn_public_give(ctx, prompt, &all, sizeof all, "mha_speech_prompt");
}
