/* What `mha eval` has counted, and how it is printed. */
#ifndef EVAL_PRINT_H
#define EVAL_PRINT_H

#include "data/mnist.h"
#include "cli/draw/term.h"
#include "model/vit_model.h"

enum { EVAL_WORST = 8 };

typedef struct eval_mistake {
    int64_t index; /* in its part of the set */
    int label, answer;
    double probability, of_label; /* of the answer, and of the label */
} eval_mistake;

typedef struct eval_scores {
    int64_t count, correct;
    double loss;                                           /* mean cross-entropy */
    int64_t confusion[NN_MNIST_CLASSES][NN_MNIST_CLASSES]; /* [label][answer] */
    eval_mistake worst[EVAL_WORST];                        /* the labels that got least, first */
    int worst_count;
    double seconds; /* that the predictions took */
} eval_scores;

/* What was asked, for the lines around it. */
typedef struct eval_setting {
    const char *file;   /* of the model */
    const char *folder; /* as given; NULL: none */
    const nn_mnist *set;
    const nn_vit_model *model;
    const char *part, *type; /* "test" or "train"; "f32" or "bf16" */
    int threads;
    const char *isa;
} eval_setting;

/* How many of the answers were right, and of the labels were found; NAN of none. */
double eval_precision(const eval_scores *s, int class);
double eval_recall(const eval_scores *s, int class);

void eval_print_text(const term *t, const eval_setting *set, const eval_scores *s);
void eval_print_json(const eval_setting *set, const eval_scores *s);

#endif
