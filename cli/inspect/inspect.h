/* What `mha inspect` prints of a model. */
#ifndef INSPECT_H
#define INSPECT_H

#include "cli/common/session.h"
#include "cli/draw/flow.h"
#include "cli/draw/term.h"

#include <mha_text.h>

enum { INSPECT_NUMBER = 32 };

/* A number with commas: 241,482. Returns `out`. */
const char *inspect_commas(char out[INSPECT_NUMBER], int64_t number);

/* A shape: "(64, 1, 4, 4)". Returns `out`. */
enum { INSPECT_SHAPE = 96 };
const char *inspect_shape(char out[INSPECT_SHAPE], const mha_tensor *t);

int64_t inspect_numbers(const mha_tensor *t); /* how many */

/* Whether two places are the same part of the model. */
bool inspect_same(const mha_model_place *a, const mha_model_place *b);

/* The tokenizer that lies beside a model. */
typedef struct inspect_tokenizer {
    bool there;
    mha_tokenizer_info about; /* if there is one; */
    char problem[400];        /* else why it cannot be read, or "" */
} inspect_tokenizer;

/* Prints what the model is. */
void inspect_print_about(const session *s, const term *t, const inspect_tokenizer *k);

/* Prints that and the tree. Blocks of the same shapes are one branch unless `all` is set. */
void inspect_print_tree(const session *s, const term *t, const inspect_tokenizer *k, bool all);

/* Prints everything as one JSON object. Returns false if memory ran out. */
bool inspect_print_json(const session *s, const inspect_tokenizer *k);

/* Prints the steps that the model runs: as a table, in which blocks with the same steps are listed once unless `all` is
 * set, or as JSON. Prints an error and returns false if that fails. */
bool inspect_print_program(const session *s, const term *t, const mha_program_options *options, bool all, bool json);

/* The diagram of the model. */
void inspect_flow(flow *f, const session *s);

#endif
