/* Continues a text with a language model, and prints it as it comes.
 *
 *     cc generate_text.c $(pkg-config --cflags --libs mha-model)
 *     cd ~/.cache/mha/stories15m && .../a.out stories15M.bin tokenizer.bin "Once upon a time"
 *
 * With this model, which `./dev data stories15m` downloads, it prints a story that begins:
 *
 *     Once upon a time, there was a boy named Timmy. Timmy loved to play with his toys and his friends. One day, Timmy and
 *     his friends were playing hide and seek. Timmy's friend, Billy, found a good hiding spot behind a big tree.
 *
 * A folder as the `transformers` library saves it is both MODEL and TOKENIZER. The options that are left out are those of its
 * generation_config.json.
 */
#include <mha_text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096 };

static void must(mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s\n", mha_context_error(ctx));
    exit(1);
}

static bool show(void *user, const mha_generation_event *event)
{
    (void)user;
    return fwrite(event->text, 1, event->length, stdout) == event->length && !fflush(stdout);
}

int main(int argc, char **argv)
{
    static int32_t ids[ROOM];
    int64_t starts[2] = {0, 0};
    mha_context *ctx;
    mha_model *model;
    mha_tokenizer *tokenizer;
    mha_generation *generation;
    if (argc != 4) return puts("usage: generate_text MODEL TOKENIZER TEXT"), 2;
    if (mha_context_create(&ctx, NULL)) return 1;
    must(ctx, mha_model_open(ctx, &model, argv[1], NULL));
    must(ctx, mha_tokenizer_open(ctx, &tokenizer, argv[2], NULL));
    must(ctx, mha_tokenizer_encode(ctx, tokenizer, ids, ROOM, &starts[1], argv[3], strlen(argv[3]), NULL));

    mha_generation_options options = MHA_GENERATION_DEFAULTS;
    options.method = MHA_GENERATE_SAMPLE, options.temperature = 0.8f, options.top_p = 0.95f;
    options.max_new_tokens = 100, options.tokenizer = tokenizer, options.callback = show;
    mha_generation_inputs prompt = {.count = 1, .tokens = ids, .starts = starts};
    must(ctx, mha_generation_create(ctx, &generation, model, &prompt, &options));
    printf("%s", argv[3]);
    must(ctx, mha_generation_run(ctx, generation));
    puts("");

    mha_generation_free(generation);
    mha_tokenizer_free(tokenizer);
    mha_model_free(model);
    mha_context_free(ctx);
}
