/* A survey as text in 80 columns: one line per head, then a small attention map of each. */
#ifndef HEADS_TABLE_H
#define HEADS_TABLE_H

#include "cli/common/survey.h"
#include "cli/draw/term.h"

/* The last three are those of text models, which have no importance. */
typedef enum heads_sort {
    HEADS_BY_BLOCK,
    HEADS_BY_IMPORTANCE,
    HEADS_BY_ENTROPY,
    HEADS_BY_DISTANCE,
    HEADS_BY_INDUCTION,
    HEADS_BY_PREVIOUS,
    HEADS_BY_FIRST
} heads_sort;

typedef struct heads_setting {
    const char *file;
    mha_data_info set;
    heads_sort sort; /* highest importance, lowest entropy or lowest distance first */
    double seconds;
    bool asked; /* the data set was named by --data */
} heads_setting;

/* The numbers of the heads in that order, to be freed; NULL if out of memory. */
int64_t *heads_order(const survey *s, heads_sort sort);

/* Returns false, without printing anything, if out of memory. */
bool heads_table(const term *t, const survey *s, const heads_setting *setting);

#endif
