/* Grey images with labels, as examples. */
#ifndef NN_TRAIN_IMAGE_EXAMPLES_H
#define NN_TRAIN_IMAGE_EXAMPLES_H

#include "data/augment.h"
#include "data/mnist.h"
#include "train/examples.h"

typedef struct nn_pixels {
    const unsigned char *images; /* (count,rows,columns): 0 for paper and 255 for ink */
    const unsigned char *labels; /* (count), or NULL: none */
    int64_t count, rows, columns;
    int64_t classes;            /* that a label may have */
    nn_augment_options augment; /* mean and deviation are those of the model's input */
} nn_pixels;

/* The images of a part, as a model of this description reads them; varied as `augment` says, or not at all if it is
 * NULL. */
nn_pixels nn_pixels_of(const nn_mnist *set, const nn_mnist_part *part, const nn_description *d,
                       const nn_augment_options *augment);

/* `pixels` must live as long. */
nn_examples nn_image_examples(const nn_pixels *pixels);

/* Both parts of a data set. Its examples point to its pixels: not to be moved. */
typedef struct nn_image_set {
    nn_pixels train_pixels, test_pixels;
    nn_examples train, test;
} nn_image_set;
void nn_image_set_make(nn_image_set *images, const nn_mnist *set, const nn_description *d,
                       const nn_augment_options *augment);

#endif
