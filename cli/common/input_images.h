/* The input images of a command: files, and test images of a data set by index.
 *
 *     input_images e = {.model = "vit.safetensors", .config = &model.config};
 *     if (input_images_add(&e, "seven.png") && input_images_add(&e, "18")) ... e.all[0].pixels, e.all[1].label ...
 *     input_images_free(&e);
 *
 * The data set is opened for the first index and stays open as e.set. */
#ifndef INPUT_IMAGES_H
#define INPUT_IMAGES_H

#include "cli/common/data.h"
#include "cli/common/options.h"

extern const cli_word input_whens[]; /* mha_when, of --fit and --invert */

#define INPUT_IMAGES_DATA_ROW(type, field) \
    "--data", "DIR", "folder with the test images, or 'synthetic'", CLI_NAME(type, field), .otherwise = DATA_DEFAULT
#define INPUT_IMAGES_FIT_ROW(type, field)                                                     \
    "--fit", "WHEN",                                                                          \
        "make an image look like MNIST's: scale the bounding box of the ink to 20/28 of the " \
        "side, centre its mass, map paper to 0 and ink to 255, remove specks, thicken thin "  \
        "strokes:",                                                                           \
        CLI_CHOICE(type, field, input_whens), .preset = "auto", .otherwise = "if it does not look so"
#define INPUT_IMAGES_INVERT_ROW(type, field)                                                                          \
    "--invert", "WHEN", "turn dark ink on light paper into light ink on dark:", CLI_CHOICE(type, field, input_whens), \
        .preset = "auto", .otherwise = "if it is darker than the paper"

typedef struct input_image {
    const char *word;      /* the argument; "" for an image that was chosen by default */
    char *name;            /* for display */
    unsigned char *pixels; /* (rows,columns) of the model; of a picture in colours, its luminance */
    float *values;         /* (channels,rows,columns) of a picture in colours, as mha_model_run reads it; else NULL */
    int64_t index;         /* in the test set; -1 for a file */
    int label;             /* -1 if unknown */
} input_image;

typedef struct input_images {
    const char *file; /* the model, for messages */
    mha_context *ctx;
    const mha_model *model;
    const char *folder;   /* of the data set; NULL for data_default */
    mha_when fit, invert; /* for files: as in mha_fit_options */
    mha_data *set;
    input_image *all;
    int count;
} input_images;

/* Adds an image: a test image if the word is a number, otherwise a file. Prints an error and returns false on failure.
 * */
bool input_images_add(input_images *e, const char *word);

/* Adds the first `each` test images of every class, in class order; fewer if a class has fewer. Prints an error and
 * returns false on failure. */
bool input_images_add_some(input_images *e, int each);

/* Opens the data set if it is not open yet. Prints an error and returns false on failure, or if the images do not fit
 * the model. */
bool input_images_open_set(input_images *e);

void input_images_free(input_images *e); /* an empty list is legal */

#endif
