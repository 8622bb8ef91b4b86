/* The results of `mha eval`, and their output. */
#ifndef EVAL_PRINT_H
#define EVAL_PRINT_H

#include "cli/draw/term.h"

#include <mha_model.h>

enum { EVAL_WORST = 8 };

typedef struct eval_error {
    int64_t index; /* in its part of the data set */
    int label, answer;
    double probability, of_label; /* of the prediction, and of the label */
} eval_error;

typedef struct eval_scores {
    mha_score score;
    int classes;
    int64_t *confusion;           /* (classes,classes): [label][prediction] */
    eval_error worst[EVAL_WORST]; /* lowest probability of the label first */
    int worst_count;
    double seconds; /* of the predictions */
} eval_scores;

/* The parameters of the evaluation, for the output. */
typedef struct eval_setting {
    const char *file;   /* of the model */
    const char *folder; /* as given, or NULL */
    mha_data_info set;
    const mha_model *model;
    mha_model_info about;    /* the model */
    const char *part, *type; /* "test" or "train"; "f32" or "bf16" */
    int threads;
    const char *isa;
    const bool *off; /* (heads of all blocks): switched off; NULL for none */
} eval_setting;

/* Precision and recall of a class; NAN if there are no predictions or no labels. */
double eval_precision(const eval_scores *s, int class);
double eval_recall(const eval_scores *s, int class);

void eval_print_text(const term *t, const eval_setting *set, const eval_scores *s);
void eval_print_json(const eval_setting *set, const eval_scores *s);

#endif
