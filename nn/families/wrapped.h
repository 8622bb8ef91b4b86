/* Checkpoints of models that read pictures and text, of which the text model alone is opened: its config.json lies in that of
 * the whole, as text_config, and its tensors have names of their own. */
#ifndef NN_FAMILIES_WRAPPED_H
#define NN_FAMILIES_WRAPPED_H

#include "families/config.h"
#include "io/failure.h"

/* Replaces the config of such a checkpoint, which was opened with nn_config_open, by that of its text model, in which
 * "text_of" is the model_type of the whole; leaves any other as it is. Returns false with one line in the error. */
bool nn_wrapped_open(nn_config *c, const nn_failure *to);

/* Of what a config is the text model, or NULL. */
const char *nn_wrapped_type(const nn_config *c);

/* The name that a tensor of the text model has in such a checkpoint, for n from 0, or NULL beyond the last. */
const char *nn_wrapped_name(char *out, size_t room, const char *name, int n);

/* Whether a tensor belongs to the text model. */
bool nn_wrapped_is_text(const char *name);

#endif
