/* Data sets for commands. */
#include "cli/common/data.h"
#include "data/digits.h"
#include "cli/common/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRAIN = 6000, SHARE = 6, SEED = 1, MOST = 10000000 };

static const char drawn[] = "synthetic";

bool data_is_synthetic(const char *place)
{
    size_t length = sizeof drawn - 1;
    return strncmp(place, drawn, length) == 0 && (!place[length] || place[length] == ':');
}

const char *data_default(const char *command)
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
    if (command)
        cli_error("%s: using synthetic digits instead of MNIST: %s; './dev data mnist' downloads MNIST, "
                  "--data selects a folder",
                  command, why);
    return drawn;
}

nn_mnist *data_open(const char *command, const char *place, bool test_alone)
{
    char error[400];
    long count = TRAIN;
    nn_mnist *set;
    if (!place) place = data_default(command);
    if (!data_is_synthetic(place)) {
        set = nn_mnist_open(place, error, sizeof error);
    } else {
        const char *number = place[sizeof drawn - 1] ? place + sizeof drawn : NULL;
        if (number && !cli_number(command, "--data synthetic:N", number, 1, MOST, &count)) return NULL;
        set = nn_digits_make(test_alone ? 1 : count, count < SHARE ? 1 : count / SHARE, SEED, error, sizeof error);
    }
    if (!set) cli_error("%s", error);
    return set;
}

bool data_fits(const nn_mnist *set, const nn_description *config, const char *path)
{
    if (config->output.classes != NN_MNIST_CLASSES)
        cli_error("%s: the model has %lld classes, the data set has %d", path, (long long)config->output.classes,
                  NN_MNIST_CLASSES);
    else if (config->encoder.input.rows != set->rows || config->encoder.input.columns != set->columns)
        cli_error("%s: the model needs images of %lld x %lld pixels, the data set has %lld x %lld", path,
                  (long long)config->encoder.input.rows, (long long)config->encoder.input.columns, (long long)set->rows,
                  (long long)set->columns);
    else return true;
    return false;
}
