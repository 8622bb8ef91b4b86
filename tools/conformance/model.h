/* One case of a model, for the files of this folder. */
#ifndef CONFORMANCE_MODEL_H
#define CONFORMANCE_MODEL_H

#include "io/safetensors.h"
#include <mha_model.h>

typedef struct model_case {
    mha_context *ctx;
    mha_model *model;
    nn_safetensors *expected;
    bool pair, pooled;
    int64_t B, T[2]; /* tokens of the encoder and of the decoder; 0: there is none */
    int64_t classes, depth, width, encoder_depth, encoder_width;
    int64_t *lengths;  /* (B) of the first stack; NULL: all are T */
    double difference; /* the largest share of the largest number */
    int unanswered;    /* continuations that could not be compared */
    char why[400];
} model_case;

/* Records why the case failed. Returns false. */
__attribute__((format(printf, 2, 3))) bool model_case_fail(model_case *c, const char *format, ...);

/* A tensor of expected.safetensors, or NULL. */
const nn_safetensors_tensor *model_case_tensor(model_case *c, const char *name);

/* Continuations, greedy and with beams, where the case has them. */
bool model_case_generate(model_case *c);

#endif
