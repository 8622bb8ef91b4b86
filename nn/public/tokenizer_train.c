/* Training of byte-level BPE behind the public header. */
#include "public/check.h"
#include "public/tokenizer.h"
#include "text/files/load.h"
#include "text/train/bpe_train.h"

#include <string.h>

void mha_tokenizer_train_defaults(mha_tokenizer_train_options *options, size_t size)
{
    mha_tokenizer_train_options all = MHA_TOKENIZER_TRAIN_DEFAULTS;
    nn_public_defaults(options, size, &all, sizeof all);
}

static mha_status check_options(mha_context *ctx, const mha_tokenizer_train_options *o)
{
    mha_status status = nn_public_need(ctx, o->special, "options.special");
    if (status) return status;
    if (o->tokens < 257 || o->tokens > NN_VOCABULARY_MOST)
        return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.tokens: %lld must be from 257 to %d",
                              (long long)o->tokens, NN_VOCABULARY_MOST);
    if (o->least < 1) return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.least: must be at least 1");
    for (const char *c = o->special; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c > '~')
            return nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.special: must be printable ASCII");
    return strlen(o->special) < 2 && *o->special
               ? nn_public_fail(ctx, MHA_BAD_ARGUMENT, "options.special: must be \"\" or longer than one character")
               : MHA_OK;
}

mha_status mha_tokenizer_train(mha_context *ctx, const char *path, const char *text, size_t length,
                               const mha_tokenizer_train_options *options, int64_t *made)
{
    char error[500] = "";
    mha_tokenizer_train_options o = MHA_TOKENIZER_TRAIN_DEFAULTS;
    mha_status status;
    if (!ctx) return MHA_BAD_ARGUMENT;
    mha_context_fail(ctx, MHA_OK, "");
    if ((status = nn_public_need(ctx, path, "path")) ||
        (status = nn_public_options(ctx, &o, sizeof o, options, "MHA_TOKENIZER_TRAIN_DEFAULTS")) ||
        (status = check_options(ctx, &o)) || (status = nn_public_text(ctx, "text", text, length)))
        return status;
    nn_load l = {.to = {"tokenizer", error, sizeof error}};
    nn_steps splitter = {0};
    nn_buffer out = {0};
    int64_t count = 0;
    if ((status = nn_load_bytes(&l, &splitter, "training", false, true)))
        status = mha_context_fail(ctx, status == MHA_NO_MEMORY ? status : MHA_BAD_ARGUMENT, error);
    else if ((status = nn_train_bpe(&out, &count, &splitter, text, length,
                                    &(nn_train_options){o.tokens, o.least, o.special})))
        nn_public_fail(ctx, status,
                       status == MHA_NO_MEMORY ? "not enough memory to train a tokenizer"
                                               : "text: a line takes too many steps to be split");
    else if ((status = nn_buffer_save(&out, path, error, sizeof error))) mha_context_fail(ctx, status, error);
    if (!status && made) *made = count;
    nn_steps_free(&splitter);
    nn_buffer_free(&out);
    return status;
}
