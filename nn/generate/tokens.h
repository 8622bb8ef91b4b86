/* Lists of tokens, as the parts of a generation hand them to each other. */
#ifndef NN_GENERATE_TOKENS_H
#define NN_GENERATE_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct nn_tokens {
    const int32_t *ids; /* (count) */
    int64_t count;
} nn_tokens;

static inline bool nn_tokens_have(nn_tokens list, int32_t id)
{
    for (int64_t n = 0; n < list.count; n++)
        if (list.ids[n] == id) return true;
    return false;
}

/* What a sequence consists of when its next token is chosen. */
typedef struct nn_history {
    const int32_t *tokens; /* (count): the prompt of the decoder and what followed it */
    int64_t count, prompt; /* how many tokens, and how many of them are the prompt */
    nn_tokens encoder;     /* of an encoder-decoder, what the encoder read */
} nn_history;

#endif
