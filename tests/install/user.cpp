// The same in C++, with every defaults macro: a row that sees no key is zeros.
#include <mha.h>
#include <cstring>

int main()
{
    float x[2] = {1, 2}, y[2] = {7, 7};
    const int64_t no_keys[1] = {0};
    mha_context_options context_options = MHA_CONTEXT_DEFAULTS;
    context_options.threads = 2;
    mha_context *ctx = nullptr;
    if (mha_context_create(&ctx, &context_options)) return 1;
    mha_tensor in = mha_tensor_4d(x, MHA_FLOAT32, 1, 1, 1, 2), out = mha_tensor_4d(y, MHA_FLOAT32, 1, 1, 1, 2);
    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    options.key_lengths = mha_tensor_1d(no_keys, MHA_INT64, 1);
    const mha_status status = mha_attention_forward(ctx, out, &extras, in, in, in, &options);
    mha_context_free(ctx);
    return status || y[0] != 0 || y[1] != 0 || std::strncmp(mha_version(), "0.", 2) != 0;
}
