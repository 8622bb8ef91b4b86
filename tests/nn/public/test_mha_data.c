/* The public data sets: what they hold, and what they refuse. */
#include "public/data.h"
#include "support/contexts.h"
#include "support/harness.h"
#include <string.h>

static mha_context *make_context(void) { return context_make(NULL, 1, (mha_parallel){NULL, NULL}, NULL); }

TEST(synthetic_digits_have_labels_and_sizes)
{
    mha_context *ctx = make_context();
    mha_data *data;
    mha_data_info info = {.size = sizeof info};
    if (!expect(!mha_data_open(ctx, &data, "synthetic:60", NULL), "%s", mha_context_error(ctx))) return;
    expect(!mha_data_about(ctx, data, &info), "%s", mha_context_error(ctx));
    expect(info.size == sizeof info && info.synthetic && info.train == 60 && info.test == 10 && info.rows == 28 &&
               info.columns == 28 && info.classes == 10 && strstr(info.about, "60 + 10 images of 28 x 28"),
           "%s", info.about);
    for (int64_t n = 0; n < 10; n++) expect(mha_data_label(data, MHA_DATA_TEST, n) == n, "label %lld", (long long)n);
    const unsigned char *a = mha_data_image(data, MHA_DATA_TRAIN, 0), *b = mha_data_image(data, MHA_DATA_TRAIN, 59);
    expect(a && b && b - a == 59 * 28 * 28, "images of one block");
    expect(!mha_data_image(data, MHA_DATA_TEST, 10) && !mha_data_image(data, MHA_DATA_TEST, -1), "no such image");
    expect(mha_data_label(data, MHA_DATA_TRAIN, 60) == -1 && mha_data_label(data, (mha_data_part)2, 0) == -1 &&
               mha_data_label(NULL, MHA_DATA_TEST, 0) == -1,
           "no such label");
    mha_data_free(data);
    mha_context_free(ctx);
}

/* The images of the test part do not depend on how many there are for training. */
TEST(the_test_part_alone_is_the_same)
{
    mha_context *ctx = make_context();
    mha_data *all, *alone;
    mha_data_options options = MHA_DATA_DEFAULTS;
    options.test_only = true;
    mha_data_info info = {.size = sizeof info};
    if (!expect(!mha_data_open(ctx, &all, "synthetic:60", NULL), "%s", mha_context_error(ctx))) return;
    if (!expect(!mha_data_open(ctx, &alone, "synthetic:60", &options), "%s", mha_context_error(ctx))) return;
    mha_data_about(ctx, alone, &info);
    expect(info.train == 1 && info.test == 10, "%s", info.about);
    expect(memcmp(mha_data_image(all, MHA_DATA_TEST, 0), mha_data_image(alone, MHA_DATA_TEST, 0), 10 * 28 * 28) == 0,
           "other images");
    mha_data_free(all);
    mha_data_free(alone);
    mha_context_free(ctx);
}

TEST(wrong_places_and_options_are_refused)
{
    static const char *const places[] = {"synthetic:",
                                         "synthetic:0",
                                         "synthetic:-1",
                                         "synthetic:x",
                                         "synthetic:6x",
                                         "synthetic:10000001",
                                         "synthetic:99999999999999999999"};
    mha_context *ctx = make_context();
    mha_data *data = (mha_data *)ctx;
    mha_data_options zero = {0};
    for (size_t n = 0; n < sizeof places / sizeof *places; n++) {
        expect(mha_data_open(ctx, &data, places[n], NULL) == MHA_BAD_ARGUMENT && !data, "%s was taken", places[n]);
        expect(strstr(mha_context_error(ctx), places[n]), "%s", mha_context_error(ctx));
    }
    expect(mha_data_open(ctx, &data, "no such folder", NULL) == MHA_BAD_FILE && !data, "a folder that is not there");
    expect(strstr(mha_context_error(ctx), "no such folder"), "%s", mha_context_error(ctx));
    expect(mha_data_open(ctx, &data, NULL, NULL) == MHA_BAD_ARGUMENT, "NULL");
    expect(mha_data_open(ctx, &data, "synthetic", &zero) == MHA_BAD_ARGUMENT && !data, "zeroed options");
    expect(strstr(mha_context_error(ctx), "MHA_DATA_DEFAULTS"), "%s", mha_context_error(ctx));
    expect(mha_data_open(NULL, &data, "synthetic", NULL) == MHA_BAD_ARGUMENT, "no context");
    mha_data_info info = {0};
    expect(mha_data_about(ctx, NULL, &info) == MHA_BAD_ARGUMENT, "no data");
    if (!expect(!mha_data_open(ctx, &data, "synthetic:1", NULL), "%s", mha_context_error(ctx))) return;
    expect(mha_data_about(ctx, data, &info) == MHA_BAD_ARGUMENT, "an info without a size");
    expect(mha_data_check(ctx, data, NULL) == MHA_BAD_ARGUMENT, "no model");
    mha_data_free(data);
    mha_data_free(NULL);
    mha_context_free(ctx);
}
