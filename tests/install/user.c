/* Every query sees the one key there is, so attention gives back its value. */
#include <mha.h>

int main(void)
{
    float q[4] = {1, 2, 3, 4}, v[2] = {5, 6}, out[4] = {0};
    mha_context *ctx;
    if (mha_context_create(&ctx, NULL)) return 1;
    mha_tensor y = mha_tensor_4d(out, MHA_FLOAT32, 1, 1, 2, 2), x = mha_tensor_4d(q, MHA_FLOAT32, 1, 1, 2, 2);
    mha_tensor one = mha_tensor_4d(v, MHA_FLOAT32, 1, 1, 1, 2);
    mha_status status = mha_attention_forward(ctx, y, NULL, x, one, one, NULL);
    mha_context_free(ctx);
    return status || out[0] != 5 || out[1] != 6 || out[2] != 5 || out[3] != 6;
}
