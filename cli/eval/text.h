/* The loss of a language model on a text. */
#ifndef EVAL_TEXT_H
#define EVAL_TEXT_H

#include "cli/common/session.h"

typedef struct eval_request {
    session_from from;
    mha_data_part part;
    const char *without;          /* heads to switch off, as head_list_parse reads them; or NULL */
    const char *text, *tokenizer; /* a file with a text, NULL for images; NULL for the tokenizer beside the model */
    int64_t window, stride;       /* of a text; 0: as the model has positions, and half the window */
    bool json;
    term_when when;
} eval_request;

/* Scores the text and prints the result. Returns the exit code. */
int eval_text(const eval_request *r);

#endif
