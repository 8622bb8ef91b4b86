/* mha_model_fit and mha_model_picture with digits: the bytes are those of nn_fit_digit, channels become grey, and wrong
 * arguments are refused. */
#include "data/digits.h"
#include "data/fit/fit.h"
#include "digit_model.h"
#include "nn/data/own_pictures.h"

enum { LARGE = 5 * SIDE };

static mha_context *ctx;
static mha_model *model;

static bool prepare(void)
{
    nn_description d = digit_description();
    if (!ctx) ctx = make_context(1);
    if (!model) model = digit_model(ctx, &d, NULL);
    return model;
}

__attribute__((destructor)) static void clean_up(void)
{
    mha_model_free(model);
    mha_context_free(ctx);
}

/* A digit on a large sheet: (LARGE,LARGE,channels), dark ink on white; with four channels, on nothing. To be freed. */
static unsigned char *white_sheet(int channels)
{
    unsigned char digit[PIXELS], *pixels = malloc((size_t)LARGE * LARGE * (size_t)channels);
    nn_digits_draw(digit, 3, 1, NN_DIGITS_TEST, 3);
    for (int i = 0; i < LARGE * LARGE; i++) {
        unsigned char ink = digit[i / LARGE / 5 * SIDE + i % LARGE / 5];
        memset(pixels + i * channels, channels == 4 ? 0 : 255 - ink, (size_t)channels);
        if (channels == 4) pixels[4 * i + 3] = ink;
    }
    return pixels;
}

TEST(a_digit_comes_out_of_any_channels)
{
    unsigned char want[PIXELS], got[PIXELS], *grey = white_sheet(1);
    nn_fit as;
    nn_image picture = {LARGE, LARGE, grey};
    if (!prepare()) return;
    expect(!nn_fit_digit(want, SIDE, SIDE, &as, &picture, NN_WHEN_AUTO, NN_WHEN_AUTO), "out of memory");
    for (int channels = 1; channels <= 4; channels += channels == 1 ? 2 : 1) {
        mha_fit fit = {.size = sizeof fit};
        unsigned char *pixels = white_sheet(channels);
        mha_status status = mha_model_fit(ctx, model, got, &fit, pixels, LARGE, LARGE, channels, NULL);
        expect(!status, "%d channels: %s", channels, mha_context_error(ctx));
        expect(!memcmp(got, want, PIXELS), "%d channels: another image", channels);
        expect(fit.fitted && fit.inverted && !fit.blank && !*fit.doubt, "%d channels: other words", channels);
        expect(fit.rows == as.rows && fit.columns == as.columns && fit.top == as.top && fit.left == as.left,
               "%d channels: %d x %d at %d, %d", channels, (int)fit.columns, (int)fit.rows, (int)fit.left,
               (int)fit.top);
        free(pixels);
    }
    free(grey);
}

TEST(options_are_followed)
{
    unsigned char got[PIXELS], pixels[PIXELS] = {0};
    mha_fit fit = {.size = sizeof fit};
    mha_fit_options o = MHA_FIT_DEFAULTS;
    if (!prepare()) return;
    expect(!mha_model_fit(ctx, model, got, &fit, pixels, SIDE, SIDE, 1, &o) && fit.blank, "black is not blank");
    for (int i = 0; i < PIXELS; i++) pixels[i] = (unsigned char)(i % 251);
    o.fit = MHA_WHEN_NO, o.invert = MHA_WHEN_NO;
    expect(!mha_model_fit(ctx, model, got, NULL, pixels, SIDE, SIDE, 1, &o) && !memcmp(got, pixels, PIXELS), "%s",
           mha_context_error(ctx));
    o.invert = MHA_WHEN_YES;
    expect(!mha_model_fit(ctx, model, got, NULL, pixels, SIDE, SIDE, 1, &o) && got[5] == 255 - pixels[5], "%s",
           mha_context_error(ctx));
}

/* Nothing is written on error. */
static void refuse(mha_status want, const char *says, int64_t rows, int64_t columns, int64_t channels,
                   const mha_fit_options *o, size_t size)
{
    unsigned char got[PIXELS], pixels[4] = {0};
    mha_fit fit = {.size = size};
    memset(got, 77, sizeof got);
    mha_status status = mha_model_fit(ctx, model, got, &fit, pixels, rows, columns, channels, o);
    expect(status == want && strstr(mha_context_error(ctx), says), "status %d: '%s', not '%s'", (int)status,
           mha_context_error(ctx), says);
    for (int i = 0; i < PIXELS; i++)
        if (!expect(got[i] == 77, "something was written")) return;
}

TEST(wrong_arguments)
{
    mha_fit_options o = MHA_FIT_DEFAULTS, zero = {0};
    unsigned char out[PIXELS], pixels[4] = {0};
    size_t size = sizeof(mha_fit);
    if (!prepare()) return;
    refuse(MHA_BAD_SHAPE, "pixels: must be (rows,columns,channels) with 1, 3 or 4 channels", 0, 1, 1, NULL, size);
    refuse(MHA_BAD_SHAPE, "with 1, 3 or 4 channels", 1, 1, 2, NULL, size);
    refuse(MHA_TOO_LARGE, "pixels: a side has 16384 at most", 1, 20000, 1, NULL, size);
    refuse(MHA_BAD_ARGUMENT, "mha_fit", 1, 1, 1, NULL, 0);
    refuse(MHA_BAD_ARGUMENT, "MHA_FIT_DEFAULTS", 1, 1, 1, &zero, size);
    o.invert = (mha_when)7;
    refuse(MHA_BAD_ARGUMENT, "must be MHA_WHEN_AUTO, YES or NO", 1, 1, 1, &o, size);
    o.invert = MHA_WHEN_AUTO, o.fit = MHA_WHEN_NO;
    refuse(MHA_BAD_SHAPE, "the image is 2 x 1 pixels, the model needs 28 x 28, unless it is fitted", 1, 2, 1, &o, size);
    expect(mha_model_fit(ctx, NULL, out, NULL, pixels, 1, 1, 1, NULL) == MHA_BAD_ARGUMENT, "no model");
    expect(mha_model_fit(ctx, model, NULL, NULL, pixels, 1, 1, 1, NULL) == MHA_BAD_ARGUMENT, "no out");
    expect(mha_model_fit(ctx, model, out, NULL, NULL, 1, 1, 1, NULL) == MHA_BAD_ARGUMENT, "no pixels");
    expect(mha_model_fit(NULL, model, out, NULL, pixels, 1, 1, 1, NULL) == MHA_BAD_ARGUMENT, "no context");
}

/* A file of a digit, by mha_model_picture. */
TEST(a_file_becomes_a_digit)
{
    unsigned char want[PIXELS], seen[3 * PIXELS], *grey = white_sheet(1);
    float image[PIXELS];
    char path[300], error[300] = "";
    const char *folder = getenv("TMPDIR");
    if (!prepare()) return;
    snprintf(path, sizeof path, "%s/mha_fit_%d.pgm", folder ? folder : "/tmp", (int)getpid());
    expect(!nn_image_write_pgm(path, grey, LARGE, LARGE, error, sizeof error), "%s", error);
    expect(!mha_model_fit(ctx, model, want, NULL, grey, LARGE, LARGE, 1, NULL), "%s", mha_context_error(ctx));
    expect(!mha_model_picture(ctx, model, image, seen, path), "%s", mha_context_error(ctx));
    for (int i = 0; i < PIXELS; i++)
        expect(image[i] == (float)want[i] / 255.0f && seen[3 * i] == want[i] && seen[3 * i + 2] == want[i],
               "pixel %d: %g", i, (double)image[i]);
    memset(grey, 9, (size_t)LARGE * LARGE);
    expect(!nn_image_write_pgm(path, grey, LARGE, LARGE, error, sizeof error), "%s", error);
    expect(mha_model_picture(ctx, model, image, seen, path) == MHA_BAD_FILE &&
               strstr(mha_context_error(ctx), ": there is no ink in the image"),
           "%s", mha_context_error(ctx));
    remove(path);
    expect(mha_model_picture(ctx, model, image, seen, path) == MHA_BAD_FILE, "a file that is gone");
    free(grey);
}

/* Pictures have three channels, and there are four numbers to normalise by. */
TEST(a_picture_for_other_channels_is_refused)
{
    if (!prepare()) return;
    mha_model other = *model;
    float image[PIXELS];
    for (int64_t channels = 2; channels <= 64; channels += channels == 2 ? 2 : 30) {
        other.d.encoder.input.channels = channels;
        other.pictures = true;
        other.picture = (nn_picture_config){.scale = 1, .deviation = {1, 1, 1, 1}};
        expect(mha_model_picture(ctx, &other, image, NULL, "picture.png") == MHA_BAD_ARGUMENT &&
                   strstr(mha_context_error(ctx), "channels, but a file of a picture has 3 or 1"),
               "%s", mha_context_error(ctx));
    }
}

/* ---- What a trained model makes of own pictures ------------------------------------------------------------------ */

/* Whether the model reads an image as that digit. */
static bool reads(mha_model *m, const unsigned char *image, int64_t label)
{
    float pixels[PIXELS], logits[10];
    for (int i = 0; i < PIXELS; i++) pixels[i] = (float)image[i] / 255.0f;
    mha_model_inputs in = {.images = mha_tensor_4d(pixels, MHA_FLOAT32, 1, 1, SIDE, SIDE)};
    mha_model_outputs out = {.logits = mha_tensor_2d(logits, MHA_FLOAT32, 1, 10)};
    int best = 0;
    if (!expect(!mha_model_run(ctx, m, &out, &in), "%s", mha_context_error(ctx))) return false;
    for (int c = 1; c < 10; c++)
        if (logits[c] > logits[best]) best = c;
    return best == label;
}

/* The nearest pixels of a picture, scaled to the frame, and inverted if its corner is light: what a caller might do. */
static void squeeze(unsigned char *out, const nn_image *p)
{
    for (int i = 0; i < PIXELS; i++) {
        unsigned char grey = p->pixels[i / SIDE * p->rows / SIDE * p->columns + i % SIDE * p->columns / SIDE];
        out[i] = (unsigned char)(p->pixels[0] > 127 ? 255 - grey : grey);
    }
}

/* MNIST's test digits on all kinds of sheets: nearly as many are read as of those that MNIST has itself. */
TEST(a_trained_model_reads_own_pictures)
{
    const char *models = getenv("MHA_MODELS"), *folder = getenv("MHA_MNIST");
    char path[600];
    mha_model *trained = NULL;
    mha_data *data = NULL;
    enum { COUNT = 60, CELLS_MOST = 100000 }; /* larger pictures take long to make */
    if (!prepare()) return;
    snprintf(path, sizeof path, "%s/vit-mnist.safetensors", models ? models : "");
    if (!models || !folder || mha_model_open(ctx, &trained, path, NULL) || mha_data_open(ctx, &data, folder, NULL)) {
        not_given("MHA_MODELS and MHA_MNIST do not name a folder with vit-mnist.safetensors and MNIST");
        mha_model_free(trained);
        return;
    }
    rng r = rng_make(1, 17);
    int plain = 0;
    for (int i = 0; i < COUNT; i++)
        plain += reads(trained, mha_data_image(data, MHA_DATA_TEST, i), mha_data_label(data, MHA_DATA_TEST, i));
    printf("    %-24s %5.1f %%\n", "as MNIST has them", 100.0 * plain / COUNT);
    for (size_t n = 0; n < sizeof ways / sizeof *ways; n++) {
        int before = 0, after = 0;
        if (ways[n].on.rows * ways[n].on.columns > CELLS_MOST || !sampled()) continue;
        for (int i = 0; i < COUNT; i++) {
            unsigned char out[PIXELS];
            int64_t label = mha_data_label(data, MHA_DATA_TEST, i);
            nn_image p = picture_of(mha_data_image(data, MHA_DATA_TEST, i), &ways[n].on, &r);
            squeeze(out, &p);
            before += reads(trained, out, label);
            expect(!mha_model_fit(ctx, trained, out, NULL, p.pixels, p.rows, p.columns, 1, NULL), "%s",
                   mha_context_error(ctx));
            after += reads(trained, out, label);
            nn_image_free(&p);
        }
        printf("    %-24s %5.1f %%, not fitted %5.1f %%\n", ways[n].name, 100.0 * after / COUNT,
               100.0 * before / COUNT);
        expect(after >= plain - COUNT * 4 / 100, "%s: %d of %d", ways[n].name, after, COUNT);
    }
    mha_data_free(data);
    mha_model_free(trained);
}
