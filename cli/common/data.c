/* Data sets for commands. */
#include "cli/common/data.h"
#include "cli/common/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 10000000 };

static const char drawn[] = "synthetic";

bool data_is_synthetic(const char *place)
{
    size_t length = sizeof drawn - 1;
    return strncmp(place, drawn, length) == 0 && (!place[length] || place[length] == ':');
}

const char *data_default(bool tells)
{
    static char place[1024];
    char why[1100] = "neither HOME nor XDG_CACHE_HOME is set";
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = cache && cache[0] == '/'; /* the specification says to ignore a relative path */
    if (own || (home && *home)) {
        int length = snprintf(place, sizeof place, "%s%s/mha/mnist", own ? cache : home, own ? "" : "/.cache");
        if (length < (int)sizeof place && access(place, F_OK) == 0) return place;
        snprintf(why, sizeof why, "%s does not exist", place);
    }
    if (tells)
        cli_refuse("using synthetic digits instead of MNIST: %s; './dev data mnist' downloads MNIST, "
                   "--data selects a folder",
                   why);
    return drawn;
}

mha_data *data_open(mha_context *ctx, const char *place, bool test_only)
{
    mha_data_options options = MHA_DATA_DEFAULTS;
    mha_data *data;
    int64_t count;
    if (!place) place = data_default(true);
    if (data_is_synthetic(place) && place[sizeof drawn - 1]) {
        cli_given given = {.name = "--data synthetic:N", .value = place + sizeof drawn};
        if (!cli_number(&given, 1, MOST, &count)) return NULL;
    }
    options.test_only = test_only;
    if (mha_data_open(ctx, &data, place, &options)) cli_error("%s", cli_reason(ctx));
    return data;
}

mha_data_info data_about(mha_context *ctx, const mha_data *data)
{
    mha_data_info about = {.size = sizeof about};
    mha_data_about(ctx, data, &about);
    return about;
}

bool data_fits(mha_context *ctx, const mha_data *data, const mha_model *model, const char *path)
{
    if (!mha_data_check(ctx, data, model)) return true;
    return cli_error("%s: %s", path, cli_reason(ctx));
}
