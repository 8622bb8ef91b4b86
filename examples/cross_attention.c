/* Cross-attention: the words of one sentence attend to those of another.
 *
 * Queries come from the sentence that is being written, keys and values from the one that is being translated. Each word
 * is a vector of four numbers that says what it means; both languages share these vectors, as a trained model would have
 * learned. W_Q, W_K and W_V are diagonal, so that a word matches the word with the same meaning.
 *
 *     cc cross_attention.c $(pkg-config --cflags --libs mha) && ./a.out
 *
 * It prints:
 *
 *     queries (1, 3, 4), keys and values (1, 4, 4), weights (1, 1, 3, 4)
 *                the    black      cat     runs
 *     le        0.87     0.04     0.04     0.04
 *     chat      0.04     0.04     0.87     0.04
 *     noir      0.04     0.87     0.04     0.04
 */
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { TQ = 3, TK = 4, M = 4 };

static const char *const written[TQ] = {"le", "chat", "noir"}, *const source[TK] = {"the", "black", "cat", "runs"};

/* Article, cat, black, run. */
static const float queries[TQ][M] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}};
static const float memory[TK][M] = {{1, 0, 0, 0}, {0, 0, 1, 0}, {0, 1, 0, 0}, {0, 0, 0, 1}};

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), ctx ? mha_context_error(ctx) : "");
    exit(1);
}

/* Sets the diagonal of a matrix (M,M) of zeros. */
static void set_diagonal(mha_tensor matrix, float value)
{
    for (int i = 0; i < M; i++) ((float *)matrix.data)[i * M + i] = value;
}

int main(void)
{
    mha_context *ctx;
    must(NULL, mha_context_create(&ctx, NULL));
    mha_layer_options options = MHA_LAYER_DEFAULTS;
    options.width = M;
    options.heads = 1;
    options.in_bias = false;
    options.out_projection = false;
    options.out_bias = false;
    mha_layer *layer;
    must(ctx, mha_layer_create(ctx, &layer, &options, NULL));
    mha_layer_parts parts = mha_layer_view(layer, NULL); /* zeros so far */
    set_diagonal(parts.q_weight, 6);                     /* scores are 6 / sqrt(4) = 3 where meanings match, else 0 */
    set_diagonal(parts.k_weight, 1);
    set_diagonal(parts.v_weight, 1);

    /* `key` makes it cross-attention; without `value`, values come from the keys' input. */
    float y[TQ][M], weights[TQ][TK];
    mha_layer_inputs inputs = {.query = mha_tensor_3d(queries, MHA_FLOAT32, 1, TQ, M),
                               .key = mha_tensor_3d(memory, MHA_FLOAT32, 1, TK, M)};
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.weights = mha_tensor_4d(weights, MHA_FLOAT32, 1, 1, TQ, TK);
    must(ctx, mha_layer_forward(ctx, layer, mha_tensor_3d(y, MHA_FLOAT32, 1, TQ, M), &extras, &inputs, NULL, NULL));

    printf("queries (1, %d, %d), keys and values (1, %d, %d), weights (1, 1, %d, %d)\n", TQ, M, TK, M, TQ, TK);
    printf("%5s", "");
    for (int j = 0; j < TK; j++) printf("%9s", source[j]);
    printf("\n");
    for (int i = 0; i < TQ; i++) {
        printf("%-5s", written[i]);
        for (int j = 0; j < TK; j++) printf("%9.2f", (double)weights[i][j]);
        printf("\n");
    }

    mha_layer_free(layer);
    mha_context_free(ctx);
    return 0;
}
