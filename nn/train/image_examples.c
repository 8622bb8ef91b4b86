#include "train/image_examples.h"

nn_pixels nn_pixels_of(const nn_mnist *set, const nn_mnist_part *part, const nn_description *d,
                       const nn_augment_options *augment)
{
    nn_pixels p = {part->images, part->labels,     part->count,     set->rows,
                   set->columns, NN_MNIST_CLASSES, {.deviation = 1}};
    if (augment) p.augment = *augment;
    p.augment.mean = d->encoder.input.mean;
    p.augment.deviation = d->encoder.input.deviation;
    return p;
}

static void load(const nn_examples *e, nn_slab *slab, int64_t b, int64_t i, const nn_variation *vary)
{
    const nn_pixels *p = e->self;
    const unsigned char *image = p->images + i * e->pixels;
    float *to = slab->images + b * e->pixels;
    slab->labels[b] = p->labels ? p->labels[i] : -1;
    if (!vary) nn_augment_plain(to, image, e->pixels, &p->augment);
    else nn_augment_image(to, image, p->rows, p->columns, &p->augment, vary->seed, vary->epoch, (uint64_t)i);
}

nn_examples nn_image_examples(const nn_pixels *pixels)
{
    return (nn_examples){.self = pixels,
                         .count = pixels->count,
                         .pixels = pixels->rows * pixels->columns,
                         .rows = pixels->rows,
                         .columns = pixels->columns,
                         .labels = 1,
                         .classes = pixels->classes,
                         .load = load};
}

void nn_image_set_make(nn_image_set *images, const nn_mnist *set, const nn_description *d,
                       const nn_augment_options *augment)
{
    images->train_pixels = nn_pixels_of(set, &set->train, d, augment);
    images->test_pixels = nn_pixels_of(set, &set->test, d, NULL);
    images->train = nn_image_examples(&images->train_pixels);
    images->test = nn_image_examples(&images->test_pixels);
}
