/* Causal attention on an NVIDIA GPU (Hopper), forward and backward, in bfloat16.
 *
 *     cc cuda_attention.c $(pkg-config --cflags --libs mha) -I/usr/local/cuda/include -lcuda && ./a.out
 *
 * It prints:
 *
 *     NVIDIA H200, compute capability 9.0, 132 multiprocessors, 140 GiB
 *     kernel forward_bf16_128_causal: 512 pieces of 128 rows
 *     out[0] = 0.500, dv[0] = 1.000
 */
#include <cuda.h>
#include <mha.h>
#include <stdio.h>
#include <stdlib.h>

enum { B = 1, H = 16, T = 4096, D = 128 };

static void must(CUresult result)
{
    const char *text = "unknown error";
    if (!result) return;
    cuGetErrorString(result, &text);
    fprintf(stderr, "cuda: %s\n", text);
    exit(1);
}

static void check(const mha_context *ctx, mha_status status)
{
    if (!status) return;
    fprintf(stderr, "%s: %s\n", mha_status_name(status), mha_context_error(ctx));
    exit(1);
}

/* A tensor (B,H,T,D) on the GPU. All its numbers are equal, given as the 16 bits of a bfloat16. */
static mha_tensor make(unsigned short bits)
{
    CUdeviceptr data;
    must(cuMemAlloc(&data, (size_t)B * H * T * D * 2));
    must(cuMemsetD16(data, bits, (size_t)B * H * T * D));
    return mha_tensor_4d((const void *)data, MHA_BFLOAT16, B, H, T, D);
}

/* The first number of a tensor, on the host. */
static float first(mha_tensor t)
{
    union {
        unsigned bits;
        float number;
    } x = {0};
    unsigned short half;
    must(cuMemcpyDtoH(&half, (CUdeviceptr)t.data, sizeof half));
    x.bits = (unsigned)half << 16;
    return x.number;
}

int main(void)
{
    CUdevice gpu;
    CUcontext context;
    CUstream stream;
    char line[200];
    mha_status found = mha_device_describe("cuda:0", line, sizeof line);
    puts(line);
    if (found) return 1; /* the line says why */
    must(cuInit(0));
    must(cuDeviceGet(&gpu, 0));
    must(cuDevicePrimaryCtxRetain(&context, gpu)); /* the one that the library uses, too */
    must(cuCtxSetCurrent(context));
    must(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    mha_context_options where = MHA_CONTEXT_DEFAULTS;
    where.device = "cuda:0";
    where.stream = stream;
    where.error = line;
    where.error_size = sizeof line;
    mha_context *ctx;
    if (mha_context_create(&ctx, &where)) {
        fprintf(stderr, "%s\n", line);
        return 1;
    }

    enum { ZERO = 0x0000, HALF = 0x3f00, ONE = 0x3f80 };
    mha_tensor q = make(ZERO), k = make(ONE), v = make(HALF), out = make(ZERO), dout = make(ZERO);
    mha_tensor dq = make(ZERO), dk = make(ZERO), dv = make(ZERO), none = MHA_NO_TENSOR;
    CUdeviceptr rows;
    must(cuMemAlloc(&rows, (size_t)B * H * T * 2 * sizeof(float)));
    must(cuMemsetD16((CUdeviceptr)dout.data, ONE, D)); /* the loss depends on the first row, which sees the first key */
    must(cuCtxSynchronize());

    mha_attention_options options = MHA_ATTENTION_DEFAULTS;
    options.causal = true;
    mha_attention_extras extras = MHA_ATTENTION_NO_EXTRAS;
    extras.softmax = mha_tensor_4d((const void *)rows, MHA_FLOAT32, B, H, T, 2); /* spares backward a forward pass */
    mha_attention_plan plan;
    check(ctx, mha_attention_explain(ctx, &plan, out, &extras, q, k, v, &options));
    printf("kernel %s: %lld pieces of %lld rows\n", plan.kernel, (long long)plan.pieces, (long long)plan.tile_rows);

    /* Both calls only put kernels into the stream. */
    check(ctx, mha_attention_forward(ctx, out, &extras, q, k, v, &options));
    mha_attention_saved saved = {q, k, v, out, extras.softmax};
    mha_attention_gradients gradients = MHA_ATTENTION_NO_GRADIENTS;
    gradients.q = dq;
    gradients.k = dk;
    gradients.v = dv;
    check(ctx, mha_attention_backward(ctx, &gradients, &saved, dout, none, &options));
    must(cuStreamSynchronize(stream));
    printf("out[0] = %.3f, dv[0] = %.3f\n", (double)first(out), (double)first(dv));
    mha_context_free(ctx);
    return 0;
}
