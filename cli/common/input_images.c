/* Loads files and test images as pixels of the model's input size. */
#include "cli/common/input_images.h"
#include "cli/common/model.h"
#include "io/image.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const cli_word input_whens[] = {{"auto", MHA_WHEN_AUTO}, {"yes", MHA_WHEN_YES}, {"no", MHA_WHEN_NO}, {NULL, 0}};

static bool is_number(const char *word) { return *word && word[strspn(word, "0123456789")] == 0; }

__attribute__((format(printf, 2, 3))) static bool name_it(input_image *to, const char *format, ...)
{
    char name[600];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    if (!(to->name = strdup(name))) cli_error("out of memory");
    return to->name;
}

/* Appends an empty entry. Prints an error and returns NULL on failure. */
static input_image *append(input_images *e, const char *word)
{
    input_image *all = realloc(e->all, (size_t)(e->count + 1) * sizeof *all);
    if (all) {
        e->all = all;
        all[e->count] = (input_image){.word = word, .index = -1, .label = -1};
        mha_model_info about = model_about(e->ctx, e->model);
        all[e->count].pixels = malloc((size_t)(about.rows * about.columns));
    }
    if (all && all[e->count++].pixels) return &all[e->count - 1];
    cli_error("out of memory");
    return NULL;
}

bool input_images_open_set(input_images *e)
{
    if (!e->set) e->set = data_open(e->ctx, e->folder, true);
    return e->set && data_fits(e->ctx, e->set, e->model, e->file);
}

static bool take_image(input_images *e, input_image *to, int64_t index)
{
    mha_data_info set = data_about(e->ctx, e->set);
    memcpy(to->pixels, mha_data_image(e->set, MHA_DATA_TEST, index), (size_t)(set.rows * set.columns));
    to->index = index;
    to->label = (int)mha_data_label(e->set, MHA_DATA_TEST, index);
    return name_it(to, "test image %" PRId64 " %s %s%s", index, set.synthetic ? "drawn by" : "of", set.name,
                   set.synthetic && !e->folder ? " (synthetic: not MNIST)" : "");
}

static bool add_number(input_images *e, input_image *to)
{
    if (!input_images_open_set(e)) return false;
    mha_data_info set = data_about(e->ctx, e->set);
    errno = 0;
    long long index = strtoll(to->word, NULL, 10);
    if (!errno && index < set.test) return take_image(e, to, index);
    return cli_refuse("no test image %s; %s has images 0 to %" PRId64, to->word, set.name, set.test - 1);
}

bool input_images_add_some(input_images *e, int each)
{
    if (!input_images_open_set(e)) return false;
    mha_data_info set = data_about(e->ctx, e->set);
    for (int64_t class = 0; class < set.classes; class ++) {
        int found = 0;
        for (int64_t i = 0; found < each && i < set.test; i++) {
            if (mha_data_label(e->set, MHA_DATA_TEST, i) != class) continue;
            input_image *to = append(e, "");
            if (!to || !take_image(e, to, i)) return false;
            found++;
        }
    }
    return true;
}

/* A picture in colours, as the library of the checkpoint prepares it. */
static bool add_picture(input_images *e, input_image *to, const mha_model_info *in)
{
    size_t pixels = (size_t)(in->rows * in->columns);
    unsigned char *seen = malloc(3 * pixels);
    bool ok = true;
    to->values = calloc(pixels, (size_t)in->channels * sizeof *to->values);
    if (e->fit || e->invert)
        ok = cli_refuse("%s is for digits; %s says how pictures are prepared", e->fit ? "--fit" : "--invert", e->file);
    else if (!seen || !to->values) ok = cli_error("out of memory");
    else if (mha_model_picture(e->ctx, e->model, to->values, seen, to->word)) ok = cli_error("%s", cli_reason(e->ctx));
    for (size_t i = 0; ok && seen && i < pixels; i++) {
        const unsigned char *p = seen + 3 * i;
        to->pixels[i] = (unsigned char)((299u * p[0] + 587u * p[1] + 114u * p[2] + 500) / 1000);
    }
    free(seen);
    return ok && name_it(to, "%s", to->word);
}

/* Says what was done with an image, and whether it may be something else. */
static void print_fit(const input_images *e, const char *word, const mha_fit *f, const mha_model_info *in)
{
    if (f->fitted)
        cli_error("%s: fitted to %" PRId64 " x %" PRId64 ": %sthe digit, %" PRId64 " x %" PRId64
                  " pixels, is scaled and centred%s%s",
                  word, in->columns, in->rows, f->inverted ? "dark ink is inverted, " : "", f->columns, f->rows,
                  f->thickened ? ", its strokes are thickened" : "",
                  e->fit == MHA_WHEN_AUTO ? " (--fit no turns this off)" : "");
    else if (f->inverted && e->invert == MHA_WHEN_AUTO)
        cli_error("%s: inverted, because the ink is darker than the paper (--invert no turns this off)", word);
    if (*f->doubt && e->fit != MHA_WHEN_NO) cli_error("%s: this may not be a digit: %s", word, f->doubt);
}

/* Prints an error and returns false if there is nothing to see. */
static bool fit_file(const input_images *e, input_image *to, const nn_image *picture, const mha_model_info *in)
{
    mha_fit found = {.size = sizeof found};
    mha_fit_options o = MHA_FIT_DEFAULTS;
    o.fit = e->fit;
    o.invert = e->invert;
    if (mha_model_fit(e->ctx, e->model, to->pixels, &found, picture->pixels, picture->rows, picture->columns, 1, &o))
        return cli_error("%s: %s", to->word, cli_reason(e->ctx));
    if (found.blank && e->fit != MHA_WHEN_NO)
        return cli_error("%s: there is no ink in the image%s", to->word,
                         picture->rows == in->rows && picture->columns == in->columns ? "; --fit no takes it as it is"
                                                                                      : "");
    print_fit(e, to->word, &found, in);
    return true;
}

static bool add_file(input_images *e, input_image *to)
{
    mha_model_info in = model_about(e->ctx, e->model);
    if (in.channels > 1) return add_picture(e, to, &in);
    nn_image picture;
    char error[600];
    if (nn_image_open(&picture, to->word, error, sizeof error)) return cli_error("%s", error);
    bool ok = fit_file(e, to, &picture, &in);
    nn_image_free(&picture);
    return ok && name_it(to, "%s", to->word);
}

bool input_images_add(input_images *e, const char *word)
{
    input_image *to = append(e, word);
    return to && (is_number(word) ? add_number(e, to) : add_file(e, to));
}

void input_images_free(input_images *e)
{
    for (int i = 0; i < e->count; i++) {
        free(e->all[i].name);
        free(e->all[i].pixels);
        free(e->all[i].values);
    }
    free(e->all);
    mha_data_free(e->set);
    e->all = NULL;
    e->set = NULL;
    e->count = 0;
}
