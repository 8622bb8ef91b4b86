/* Vision Transformers under timm's tensor names. Their files do not have a config.json of `transformers`: one is made from
 * the shapes of the tensors and from timm's own config.json, {"architecture": "vit_base_patch16_224", ...}, where there is
 * one, and read by the tables of the family like any other. */
#ifndef NN_FAMILIES_TIMM_H
#define NN_FAMILIES_TIMM_H

#include "families/family.h"
#include "io/failure.h"

/* Whether the tensors have timm's names. */
bool nn_timm_is(const nn_shards *shards);

enum { NN_TIMM_TEXT = 1200 };

/* Writes the config. The shapes do not say how many heads a block has: `heads`, if it is not 0; else config.json's
 * model_args.num_heads or metadata "heads"; else as timm has it for this width: heads of 64 numbers up to a width of 1024,
 * and 16 heads for 1152, 1280, 1408 and 1664. Norms have an epsilon of 1e-6, or 1e-5 with a norm before the first block.
 * `config` may be NULL. False, with one line in `to`, if a tensor is missing or misshapen, or the heads are not known. */
bool nn_timm_config(char text[NN_TIMM_TEXT], const nn_shards *shards, const nn_config *config, int64_t heads,
                    const nn_failure *to);

#endif
