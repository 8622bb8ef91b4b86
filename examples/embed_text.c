/* How similar two texts are: the cosine of their embeddings.
 *
 *     cc embed_text.c $(pkg-config --cflags --libs mha-model) -lm
 *     ./a.out ~/.cache/mha/minilm "A cat sleeps." "A kitten naps."
 *
 * With this model, all-MiniLM-L6-v2, which `./dev data minilm` downloads, it prints:
 *
 *     0.7135
 *
 * Any encoder without a head will do, as a folder that the `transformers` library saves, with its tokenizer.json.
 */
#include <math.h>
#include <mha_text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 512, WIDEST = 4096 };

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", mha_context_error(ctx));
    exit(1);
}

/* The mean of the last hidden states of a text's tokens. */
static void embed(mha_context *ctx, mha_model *model, const mha_tokenizer *tokenizer, const char *text, int64_t M,
                  double *to)
{
    static int32_t ids[ROOM];
    static float rows[ROOM * WIDEST];
    int64_t T;
    must(ctx, mha_tokenizer_encode(ctx, tokenizer, ids, ROOM, &T, text, strlen(text), NULL));
    mha_model_inputs in = {.tokens = mha_tensor_2d(ids, MHA_INT32, 1, T)};
    mha_model_outputs out = {.logits = mha_tensor_3d(rows, MHA_FLOAT32, 1, T, M)};
    must(ctx, mha_model_run(ctx, model, &out, &in));
    for (int64_t i = 0; i < T * M; i++) to[i % M] += (double)rows[i] / (double)T;
}

int main(int argc, char **argv)
{
    static double vector[2][WIDEST];
    double dot[3] = {0, 0, 0};
    mha_context *ctx;
    mha_model *model;
    mha_tokenizer *tokenizer;
    mha_model_info about = {.size = sizeof about};
    if (argc != 4) return puts("usage: embed_text FOLDER TEXT TEXT"), 2;
    if (mha_context_create(&ctx, NULL)) return 1;
    must(ctx, mha_model_open(ctx, &model, argv[1], NULL));
    must(ctx, mha_tokenizer_open(ctx, &tokenizer, argv[1], NULL));
    must(ctx, mha_model_about(ctx, model, &about));
    if (about.head || !about.vocabulary || about.width > WIDEST) return puts("not an encoder without a head"), 1;

    for (int n = 0; n < 2; n++) embed(ctx, model, tokenizer, argv[2 + n], about.width, vector[n]);
    for (int64_t i = 0; i < about.width; i++)
        for (int n = 0; n < 3; n++) dot[n] += vector[n / 2][i] * vector[(n + 1) / 2][i];
    printf("%.4f\n", dot[1] / sqrt(dot[0] * dot[2]));

    mha_tokenizer_free(tokenizer);
    mha_model_free(model);
    mha_context_free(ctx);
}
