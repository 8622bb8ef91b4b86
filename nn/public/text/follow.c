/* Heads of models with two stacks whose decoder reads the tokens of the encoder, as BART's classifier does. */
#include "public/check.h"
#include "public/model.h"

#include <stdlib.h>

int32_t *nn_public_follow(const int32_t *ids, int64_t B, int64_t T, int32_t start)
{
    int32_t *shifted = malloc((size_t)(B * T) * sizeof *shifted);
    for (int64_t i = 0; shifted && i < B * T; i++) shifted[i] = i % T ? ids[i - 1] : start;
    return shifted;
}

mha_status nn_public_ends(mha_context *ctx, const mha_model *m, int64_t **ends, const int32_t *tokens,
                          const int64_t *lengths, int64_t first, int64_t B, int64_t T)
{
    int64_t end = m->d.output.end;
    *ends = NULL;
    if (m->d.output.pool != NN_POOL_PICKED) return MHA_OK;
    *ends = malloc((size_t)B * sizeof **ends);
    if (!*ends) return nn_public_fail(ctx, MHA_NO_MEMORY, "not enough memory for hidden states");
    for (int64_t b = 0; b < B; b++) {
        int64_t n = first + b, t = lengths && lengths[n] < T ? lengths[n] : T;
        const int32_t *ids = tokens + n * T;
        do t--;
        while (t >= 0 && ids[t] != end);
        if (t >= 0) {
            (*ends)[b] = b * T + t;
            continue;
        }
        free(*ends);
        *ends = NULL;
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT,
                              "tokens: sequence %lld has no end token, %lld, where the result is read", (long long)n,
                              (long long)end);
    }
    return MHA_OK;
}
