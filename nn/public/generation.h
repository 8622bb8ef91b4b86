/* What mha_generation is made of; for the files of this folder. */
#ifndef NN_PUBLIC_GENERATION_H
#define NN_PUBLIC_GENERATION_H

#include "generate/generation.h"
#include "public/model.h"

#include <mha_text.h>

/* What a generation asks of a model: the settings of its generation_config.json, or defaults; and a network over its
 * weights, for so many sequences and tokens, which is the caller's. */
const nn_generation_config *nn_public_generation_config(const mha_model *m);
mha_status nn_public_network(mha_context *ctx, nn_model **net, const mha_model *m, const nn_model_options *options);

/* Options of the caller over those of the model. `ends` (the model's end tokens and the stop tokens) is to be freed. */
mha_status nn_public_generation_setup(mha_context *ctx, nn_generation_setup *setup, int32_t **ends,
                                      const nn_generation_config *config, const mha_generation_options *options);

/* The texts of sequences: what generation_text.c keeps for each of them. */
typedef struct nn_public_texts nn_public_texts;

/* Texts behind prompts of the decoder; NULL on error, with the reason in the context. */
nn_public_texts *nn_public_texts_create(mha_context *ctx, const mha_generation_options *options,
                                        const nn_prompts *prompts);
void nn_public_texts_free(nn_public_texts *t); /* NULL is legal */

/* Adds a token to the text of a sequence. `finish` goes in as it is without the text, and becomes MHA_FINISH_STOP at a stop
 * string. `text` and `length` get what can be shown now beside what was shown before. */
mha_status nn_public_texts_add(mha_context *ctx, nn_public_texts *t, int64_t sequence, int32_t token,
                               mha_finish *finish, const char **text, size_t *length);

/* What has been shown of a text; ends with a NUL. */
const char *nn_public_texts_get(const nn_public_texts *t, int64_t sequence, size_t *length);

#endif
