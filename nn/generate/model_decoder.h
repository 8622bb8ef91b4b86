/* The decoder of generation.h over a model and a cache of its own.
 *
 * A prompt runs in pieces of NN_PIECE tokens, counted from its own beginning: so scratch does not grow with the prompt, and
 * the bits of a row depend on that row alone. Rotary embeddings that depend on the length (dynamic, LongRoPE) are those of the
 * whole prompt in all of its pieces, and rows of different lengths run apart where theirs differ. As in `transformers`, keys
 * stay in the cache as they are when a sequence outgrows the embedding that they were turned with; Phi 3 computes all of
 * them anew. */
#ifndef NN_GENERATE_MODEL_DECODER_H
#define NN_GENERATE_MODEL_DECODER_H

#include "generate/decoder.h"
#include "program/model.h"

enum { NN_PIECE = 512 };

/* For `rows` sequences of up to `capacity` tokens over a model that was made for a batch of so many, with decoder_tokens of
 * at least `piece`, which is the length of the longest prompt or NN_PIECE, whichever is smaller. The model must stay. `type`
 * is that of the cache. NULL on error, with the reason in the context. */
nn_decoder *nn_model_decoder_create(nn_model *model, mha_context *ctx, int64_t rows, int64_t capacity, int64_t piece,
                                    mha_type type);

/* Of a model with an encoder: what the encoder reads, before the first run. tokens (count) one sequence behind another from
 * starts (B+1) on, or, if they are NULL, features (B,bins,2*T). Sequence b serves the rows b*rows/B and following. False on
 * error, with the reason in the context. */
bool nn_model_decoder_encode(nn_decoder *d, mha_context *ctx, int64_t B, const int32_t *tokens, const int64_t *starts,
                             const float *features);

#endif
