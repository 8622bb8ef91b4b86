/* mha heads MODEL --relations FILE: how well heads follow dependencies and coreference. */
#ifndef HEADS_RELATIONS_H
#define HEADS_RELATIONS_H

#include "cli/heads/text.h"

/* Reads the file, measures all heads of an open model and prints the result. Prints an error and returns false on failure. */
bool text_relations(const heads_request *r, session *s);

#endif
