/* The model that a command is asked about: how its file is opened, and the words of the help for it. */
#ifndef MODEL_H
#define MODEL_H

#include "model/vit_model.h"

/* The option by which a person says how many heads a block of a file without such metadata has. One name for all
 * commands: --heads means other things to classify and prune. */
#define MODEL_HEADS "--model-heads"

/* clang-format off */
#define MODEL_HELP_FILE \
         "FILE    a Vision Transformer for grey images (1 channel): what 'mha train'\n" \
         "        saves, or a safetensors file with timm's names. Its tensors tell width,\n" \
         "        depth, patch and classes. Its metadata tell the rest: heads; epsilon,\n" \
         "        activation, mean and deviation of the pixels, else timm's 1e-6 and gelu,\n" \
         "        0 and 1, with a note\n"
/* clang-format on */

/* The value of the option; false, having said so, if it is none. */
bool model_parse_heads(const char *command, const char *option, const char *value, long *heads);

/* Opens it; `heads` is 0 or what the option says. Says on standard error what was assumed. False on error, with one line
 * in `error`. */
bool model_open(nn_vit_model *model, mha_context *ctx, const char *path, long heads, char *error, size_t error_size);

#endif
