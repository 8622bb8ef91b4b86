/* What a generation asks of a model: the logits behind the tokens that each row of a cache has had. Rows are sequences, or
 * beams of sequences. model_decoder.h has the one over nn_model; tests have others. */
#ifndef NN_GENERATE_DECODER_H
#define NN_GENERATE_DECODER_H

#include <mha.h>

typedef struct nn_decoder nn_decoder;
struct nn_decoder {
    int64_t rows, vocabulary;
    int64_t capacity; /* tokens that a row can have */

    /* Row r gets the tokens starts[r] to starts[r+1] - 1, also none, behind those that it has had. Returns logits
     * (rows,vocabulary) behind the last of them, which stay until the next call; those of rows that got none are
     * undefined. At least one row gets some. NULL on error, with the reason in the context: then no row got any. */
    const float *(*run)(nn_decoder *d, mha_context *ctx, const int32_t *tokens, const int64_t *starts);

    /* Row r becomes what row from[r] was, for all rows at once. False on error, with the reason in the context. */
    bool (*reorder)(nn_decoder *d, mha_context *ctx, const int64_t *from);

    void (*release)(nn_decoder *d);
};

static inline void nn_decoder_free(nn_decoder *d)
{
    if (d) d->release(d);
}

#endif
