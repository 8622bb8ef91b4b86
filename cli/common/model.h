/* The model of a command: opening its file, and the rows of its options. */
#ifndef MODEL_H
#define MODEL_H

#include "cli/common/options.h"

#include <mha_model.h>

/* The option for the number of heads per block, for files whose metadata lack it. The same name in all commands: --heads
 * means something else in classify and prune. */
#define MODEL_HEADS "--model-heads"
enum { MODEL_HEADS_MOST = 1 << 20 };

#define MODEL_HEADS_ROW(names, type, field)                                                                   \
    names, "N", "heads per block, if FILE does not specify it", CLI_NUMBER(type, field, 1, MODEL_HEADS_MOST), \
        .argument = "options.heads"

/* The description of FILE in the help. */
#define MODEL_HELP                                                                                                   \
    "a Vision Transformer for greyscale images, as saved by 'mha train', or a safetensors file with timm's tensor "  \
    "names. Width, depth, patch size and classes follow from the tensors; heads, epsilon, activation, mean and "     \
    "deviation of the pixels from the metadata. Missing metadata default to timm's values (1e-6, gelu) and to mean " \
    "0, deviation 1, with a note"

/* mha_model_open, with a line of progress, as files may be large. */
mha_status model_load(mha_context *ctx, mha_model **model, const char *path, const mha_model_options *options);

/* Opens a model. Notes on standard error what was assumed. Returns false on error, with one line in `error`. */
bool model_open(mha_model **model, mha_context *ctx, const char *path, const mha_model_options *options, char *error,
                size_t error_size);

/* What is known of an open model. */
mha_model_info model_about(mha_context *ctx, const mha_model *model);

/* "4 heads", or "2 to 4 heads" if blocks differ; of a model with two stacks, of the decoder's or the encoder's. Returns
 * `out`. */
enum { MODEL_WORDS = 80 };
const char *model_heads_words(char out[MODEL_WORDS], const mha_model *model, bool decoder);

#endif
