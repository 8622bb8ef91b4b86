/* Models for commands. */
#include "cli/common/model.h"
#include "cli/common/options.h"

bool model_parse_heads(const char *command, const char *option, const char *value, long *heads)
{
    return cli_number(command, option, value, 1, 1 << 20, heads);
}

bool model_open(nn_vit_model *model, mha_context *ctx, const char *path, long heads, char *error, size_t error_size)
{
    nn_vit_file_options options = {.heads = heads, .heads_word = MODEL_HEADS " N"};
    if (!nn_vit_model_open_with(model, ctx, path, &options, error, error_size)) return false;
    if (*model->assumed) cli_error("%s: not in the metadata, assumed: %s", path, model->assumed);
    return true;
}
