/* What heads add to the logits, under the maps of `mha classify --heads` and in its JSON. */
#ifndef CLASSIFY_CONTRIBUTIONS_H
#define CLASSIFY_CONTRIBUTIONS_H

#include "cli/common/contribution.h"
#include "cli/draw/heads_view.h"
#include "cli/draw/term.h"

/* A table for the predicted class and the runner-up: one line per head of the blocks from `first` up to, not including,
 * `end`, then the rest of the sum. */
void contributions_print(const term *t, const contribution *c, const heads_view *view, int64_t first, int64_t end);

/* The JSON members "logits" and "contributions", with a comma before each. */
void contributions_print_json(const contribution *c, const heads_view *view);

#endif
