/* Data sets of commands: the files in a folder, or synthetic digits. */
#ifndef DATA_H
#define DATA_H

#include "cli/common/options.h"

#include <mha_model.h>

#define DATA_DEFAULT                "the folder of './dev data mnist', or else 'synthetic'"
#define DATA_ROW(help, type, field) "--data", "DIR", help, CLI_NAME(type, field), .otherwise = DATA_DEFAULT
#define DATA_TEST_HELP              "folder with MNIST's four files, or 'synthetic' for 1000 synthetic test digits"

/* Whether the argument of --data is "synthetic" or "synthetic:N" instead of a folder. */
bool data_is_synthetic(const char *place);

/* The default of --data: the cache folder that './dev data mnist' fills, if it exists, otherwise "synthetic". The
 * fallback is reported on standard error, with the reason, only if `tells`. */
const char *data_default(bool tells);

/* Opens the data set in a folder, or draws synthetic digits (mha_data_open). A NULL `place` means data_default(true).
 * With `test_only` only one training image is drawn. Prints an error and returns NULL on failure. Free the result with
 * mha_data_free. */
mha_data *data_open(mha_context *ctx, const char *place, bool test_only);

/* What is known of an open data set. */
mha_data_info data_about(mha_context *ctx, const mha_data *data);

/* Whether the images and classes of the set fit the model, which is in the file `path`; prints an error if not. */
bool data_fits(mha_context *ctx, const mha_data *data, const mha_model *model, const char *path);

#endif
