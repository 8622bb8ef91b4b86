#include "cli/common/tokenizer.h"
#include "cli/terminal/progress.h"
#include "io/hub/hub.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Where the tokenizer of a model lies. Returns false if the path is too long. */
static bool find_tokenizer(char *path, size_t room, const char *model)
{
    struct stat about;
    const char *slash = strrchr(model, '/'), *dot = strrchr(model, '.');
    if (stat(model, &about) == 0 && S_ISDIR(about.st_mode)) return snprintf(path, room, "%s", model) < (int)room;
    int stem = (int)(dot && (!slash || dot > slash) ? dot - model : (long)strlen(model));
    if (snprintf(path, room, "%.*s.tokenizer.json", stem, model) >= (int)room) return false;
    if (stat(path, &about) == 0) return true;
    return snprintf(path, room, "%.*s", slash ? (int)(slash - model) : 1, slash ? model : ".") < (int)room;
}

bool tokenizer_open(mha_tokenizer **tokenizer, mha_context *ctx, const char *model, const char *given, bool target)
{
    char path[4096];
    mha_tokenizer_options o = MHA_TOKENIZER_DEFAULTS;
    o.target = target;
    char place[4096], why[600];
    if (nn_hub_place(place, sizeof place, model, why, sizeof why)) return !mha_context_fail(ctx, MHA_BAD_FILE, why);
    if (!given && !find_tokenizer(path, sizeof path, place))
        return !mha_context_fail(ctx, MHA_BAD_ARGUMENT, "the path of the model is too long");
    progress_begin("opening the tokenizer of %s", model);
    mha_status status = mha_tokenizer_open(ctx, tokenizer, given ? given : path, &o);
    progress_end();
    if (!status) return true;
    if (!given && strstr(cli_reason(ctx), "has no file of a tokenizer")) {
        char line[sizeof path + 120];
        snprintf(line, sizeof line,
                 "%s: has no tokenizer beside it, such as tokenizer.json; --tokenizer PATH gives one", model);
        mha_context_fail(ctx, MHA_BAD_FILE, line);
    }
    return false;
}
