/* Descriptions of tiny models of every family, from a config.json that has the keys of all of them. */
#ifndef FAMILY_DESCRIPTIONS_H
#define FAMILY_DESCRIPTIONS_H

#include "model/description.h"

/* Number n of all: each family, some of them with several configurations, with each of its heads and without one. `words`
 * (100) says which it is. Returns false behind the last, and ends the program where a family does not take the config. */
bool family_description(nn_description *d, int64_t n, char words[100]);

#endif
