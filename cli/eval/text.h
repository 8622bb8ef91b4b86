/* The loss of a language model on a text. */
#ifndef EVAL_TEXT_H
#define EVAL_TEXT_H

#include <mha_model.h>

typedef struct eval_text_request {
    const char *model, *text, *tokenizer; /* `text` is a file; `tokenizer` NULL: the one beside the model */
    int64_t window, stride, threads;      /* 0: as the model has positions; half the window; all */
    mha_type type;
    bool json;
} eval_text_request;

/* Scores the text and prints the result. Returns the exit code. */
int eval_text(const eval_text_request *r);

#endif
