/* Heads of a model as people write them: "1.3,2.0" is head 3 of block 1 and head 0 of block 2, counted from 0. */
#ifndef HEAD_LIST_H
#define HEAD_LIST_H

#include "cli/common/options.h"
#include "cli/common/session.h"

/* Sets named[n] for each head of the list, counted through all blocks from 0; the others are false. `given` is the option
 * and its value. Prints an error and returns NULL on failure: a list that is malformed, or names a head that does not
 * exist or one head twice. To be freed. */
bool *head_list_parse(const cli_given *given, const session *s);

/* Switches the heads of the list `without` off in the model of the session; *off is NULL if `without` is, and to be freed.
 * Prints an error and returns false on failure. */
bool head_list_off(bool **off, const session *s, const char *without);

/* Prints "head 1.3", or "heads 1.3, 2.0 and 2.1", from column `indent` on, without a newline at the end; lines have at
 * most 78 columns. */
void head_list_print(const bool *named, const mha_model *model, int indent);

#endif
