/* Causal attention on an NVIDIA GPU (Hopper), forward and backward, in bfloat16. It needs no CUDA to be compiled.
 *
 *     cc cuda_attention.c $(pkg-config --cflags --libs mha) && ./a.out
 *
 * It prints:
 *
 *     NVIDIA H200, compute capability 9.0, 132 multiprocessors, 140 GiB
 *     kernel forward_bf16_128_window: 512 pieces of 128 rows
 *     out[0] = 0.500, dv[0] = 1.000
 */
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 1, H = 16, T = 4096, D = 128, COUNT = B * H * T * D };

static mha_context *ctx;

static void check(mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), mha_context_error(ctx));
    exit(1);
}

/* A tensor (B,H,T,D) on the GPU: `first` numbers x, then zeros. Numbers are given as the 16 bits of a bfloat16. */
static mha_tensor make(unsigned short x, int first)
{
    unsigned short *numbers = calloc(COUNT, sizeof *numbers);
    void *data;
    if (!numbers) exit(1);
    for (int n = 0; n < first; n++) numbers[n] = x;
    check(mha_device_allocate(ctx, &data, COUNT * sizeof *numbers));
    check(mha_device_write(ctx, data, numbers, COUNT * sizeof *numbers));
    free(numbers);
    return mha_tensor_4d(data, MHA_BFLOAT16, B, H, T, D);
}

/* The first number of a tensor, on the host. Reading waits for the calls that compute it. */
static double first_of(mha_tensor t)
{
    union {
        unsigned bits;
        float number;
    } x = {0};
    unsigned short half;
    check(mha_device_read(ctx, &half, t.data, sizeof half));
    x.bits = (unsigned)half << 16;
    return (double)x.number;
}

int main(void)
{
    char line[200];
    mha_status found = mha_device_describe("cuda:0", line, sizeof line);
    puts(line);
    if (found) return 1; /* the line says why */
    mha_context_options where = MHA_CONTEXT_DEFAULTS;
    where.device = "cuda:0"; /* and where.stream, a CUstream, for programs that have their own */
    where.error = line;
    where.error_size = sizeof line;
    if (mha_context_create(&ctx, &where)) {
        fprintf(stderr, "%s\n", line);
        return 1;
    }

    enum { HALF = 0x3f00, ONE = 0x3f80 };
    mha_tensor q = make(0, 0), k = make(ONE, COUNT), v = make(HALF, COUNT), out = make(0, 0);
    mha_tensor dout = make(ONE, D); /* the loss depends on the first row, which sees the first key */
    mha_tensor dq = make(0, 0), dk = make(0, 0), dv = make(0, 0), none = MHA_NO_TENSOR;
    void *rows;
    check(mha_device_allocate(ctx, &rows, (size_t)B * H * T * 2 * sizeof(float)));

    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    options.causal = true;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.softmax = mha_tensor_4d(rows, MHA_FLOAT32, B, H, T, 2); /* spares backward a forward pass */
    mha_attention_plan plan;
    check(mha_attention_explain(ctx, &plan, out, &extras, q, k, v, &options));
    printf("kernel %s: %lld pieces of %lld rows\n", plan.kernel, (long long)plan.pieces, (long long)plan.tile_rows);

    /* Both calls only put kernels into the stream. */
    check(mha_attention_forward(ctx, out, &extras, q, k, v, &options));
    mha_attention_saved saved = {q, k, v, out, extras.softmax};
    mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
    gradients.q = dq;
    gradients.k = dk;
    gradients.v = dv;
    check(mha_attention_backward(ctx, &gradients, &saved, dout, none, &options));
    printf("out[0] = %.3f, dv[0] = %.3f\n", first_of(out), first_of(dv));

    void *all[] = {q.data, k.data, v.data, out.data, dout.data, dq.data, dk.data, dv.data, rows};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) mha_device_release(ctx, all[n]);
    mha_context_free(ctx);
    return 0;
}
