/* A survey as text in 80 columns: one line per head, then a small attention map of each. */
#ifndef HEADS_TABLE_H
#define HEADS_TABLE_H

#include "data/mnist.h"
#include "inspect/survey.h"
#include "cli/draw/term.h"
#include "families/vit_model.h"

typedef enum heads_sort { HEADS_BY_BLOCK, HEADS_BY_IMPORTANCE, HEADS_BY_ENTROPY, HEADS_BY_DISTANCE } heads_sort;

typedef struct heads_setting {
    const char *file;
    const nn_vit_model *model;
    const nn_mnist *set;
    heads_sort sort; /* highest importance, lowest entropy or lowest distance first */
    double seconds;
} heads_setting;

/* Returns false, without printing anything, if out of memory. */
bool heads_table(const term *t, const nn_survey *s, const heads_setting *setting);

#endif
