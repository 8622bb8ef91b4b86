/* Models for commands. */
#include "cli/common/model.h"
#include "cli/common/cli.h"
#include "cli/terminal/progress.h"

#include <stdio.h>

mha_status model_load(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *options)
{
    progress_begin("opening %s", path);
    mha_status status = mha_model_open(ctx, model, path, options);
    progress_end();
    return status;
}

bool model_open(mha_model **model, mha_context *ctx, const char *path, const mha_model_options *options, char *error,
                size_t error_size)
{
    if (model_load(ctx, model, path, options)) {
        snprintf(error, error_size, "%s", cli_reason(ctx));
        return false;
    }
    const char *assumed = model_about(ctx, *model).assumed;
    if (*assumed) cli_error("%s: not in the metadata, assumed: %s", path, assumed);
    return true;
}

mha_model_info model_about(mha_context *ctx, const mha_model *model)
{
    mha_model_info about = {.size = sizeof about};
    mha_model_about(ctx, model, &about);
    return about;
}

const char *model_heads_words(char out[MODEL_WORDS], const mha_model *model, bool decoder)
{
    int64_t least = 0, most = 0, count = mha_model_attention_count(model);
    bool pair = count && mha_model_attention_get(model, count - 1).cross;
    for (int64_t n = 0; n < count; n++) {
        mha_model_attention a = mha_model_attention_get(model, n);
        if (pair && a.decoder != decoder) continue;
        if (!least || a.heads < least) least = a.heads;
        if (a.heads > most) most = a.heads;
    }
    if (least < most) snprintf(out, MODEL_WORDS, "%lld to %lld heads", (long long)least, (long long)most);
    else snprintf(out, MODEL_WORDS, "%lld head%s", (long long)most, most == 1 ? "" : "s");
    return out;
}
