/* A sheet on which a person sees what every head of a Vision Transformer looks at: one HTML file with everything in it,
 * drawn as SVG, without scripts and without a network.
 *
 *     sheet_image images[] = {{pixels, 7, "test image 0"}, ...};
 *     sheet s = {.title = "Ten digits", .model = "6 blocks of 4 heads", .images = images, .image_count = 10};
 *     if (!sheet_write("build/demo/heads.html", net, ctx, input, &s, error, sizeof error)) puts(error);
 *
 * First the training curve, if there is one; then, for each image, the picture, the answer with all probabilities, and
 * the map of every head of every block over the picture. It is light or dark as the reader's system is, fits a phone, and
 * says in words what it shows in colours. */
#ifndef SHEET_H
#define SHEET_H

#include "model/vit_file.h"

/* A point of the training curve. What was not measured there is NAN. */
typedef struct sheet_point {
    double at;       /* in `curve_unit` */
    double loss;     /* of training */
    double accuracy; /* of images that are not trained on, from 0 to 1 */
} sheet_point;

typedef struct sheet_image {
    const unsigned char *pixels; /* (rows,columns) of the model, 0 for paper, 255 for ink */
    int label;                   /* -1: not known */
    const char *name;            /* such as "test image 17"; NULL: none */
} sheet_image;

typedef struct sheet {
    const char *title;
    const char *model, *data; /* a line about each; NULL: none */
    const sheet_point *curve; /* in order */
    int64_t point_count;      /* 0: no curve */
    const char *curve_unit;   /* "epoch" or "step" */
    const sheet_image *images;
    int64_t image_count;
} sheet;

/* Writes it whole or not at all. `net` is not for training. False on error, with one line in `error`. */
bool sheet_write(const char *path, nn_vit *net, mha_context *ctx, nn_vit_input input, const sheet *s, char *error,
                 size_t error_size);

#endif
