/* The pictures that a model is to look at: files, and test images of a data set by their numbers.
 *
 *     exhibits e = {.command = "classify", .model = "vit.safetensors", .config = &model.config};
 *     if (exhibits_add(&e, "seven.png") && exhibits_add(&e, "18")) ... e.all[0].pixels, e.all[1].label ...
 *     exhibits_free(&e);
 *
 * The data set is opened when the first number comes, and stays: e.set. */
#ifndef EXHIBIT_H
#define EXHIBIT_H

#include "cli/common/data.h"

typedef enum exhibit_invert { INVERT_AUTO, INVERT_YES, INVERT_NO } exhibit_invert;

typedef struct exhibit {
    const char *word;      /* as it was asked for; "" of one that nobody asked for */
    char *name;            /* for people */
    unsigned char *pixels; /* (rows,columns) of the model */
    int64_t index;         /* in the test set; -1: a file */
    int label;             /* -1: not known */
} exhibit;

typedef struct exhibits {
    const char *command, *model; /* for messages: who asks, and the file of the model */
    const nn_vit_config *config;
    const char *folder;    /* of the data set; NULL: data_default */
    exhibit_invert invert; /* of files: dark ink on light paper becomes light on dark */
    bool fit;              /* of files: a picture of another size is made to fit */
    nn_mnist *set;
    exhibit *all;
    int count;
} exhibits;

/* One more: the number of a test image if the word is one, else a file. False, having said why. */
bool exhibits_add(exhibits *e, const char *word);

/* The first `each` test images of every class, class by class, as far as there are so many. False, having said why. */
bool exhibits_add_some(exhibits *e, int each);

/* Opens the data set, unless it is open. False, having said why, also if it does not suit the model. */
bool exhibits_open_set(exhibits *e);

void exhibits_free(exhibits *e); /* one without pictures is legal */

#endif
