/* The loss of a language model on a text. */
#ifndef EVAL_TEXT_H
#define EVAL_TEXT_H

#include "cli/common/session.h"

typedef struct eval_text_request {
    session_from from;
    const char *text, *tokenizer; /* `text` is a file; `tokenizer` NULL: the one beside the model */
    const char *without;          /* heads to switch off, as head_list_parse reads them; or NULL */
    int64_t window, stride;       /* 0: as the model has positions; half the window */
    bool json;
} eval_text_request;

/* Scores the text and prints the result. Returns the exit code. */
int eval_text(const eval_text_request *r);

#endif
