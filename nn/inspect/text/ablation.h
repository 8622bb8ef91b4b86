/* The loss of a language model over a text without some of its heads, in many cases at once.
 *
 *     case c: the output of every head with off[c,h] counts as zero
 *
 * Each window passes through the whole model once; a case starts from the rows before the first block in which a head is
 * off, with the outputs of that block's heads. */
#ifndef NN_INSPECT_TEXT_ABLATION_H
#define NN_INSPECT_TEXT_ABLATION_H

#include "inspect/text/pass.h"

typedef struct nn_text_loss {
    int64_t tokens, correct; /* that were predicted from those before them; how many had the largest logit */
    double loss;             /* mean cross-entropy */
} nn_text_loss;

/* Why a model has no such loss; NULL if it has one. */
const char *nn_text_loss_problem(const nn_description *d);

/* losses (cases); off (cases,heads of all attentions). `net` must have room for the longest window. Returns false on error,
 * with one line in `error`. */
bool nn_text_ablation_measure(nn_text_loss *losses, mha_context *ctx, nn_model *net, const nn_text_sequence *windows,
                              int64_t count, const bool *off, int64_t cases, char *error, size_t error_size);

#endif
