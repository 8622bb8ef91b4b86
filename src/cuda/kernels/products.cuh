/* sums (64,N) = or += a (64,16) b (16,N) by one warpgroup, asynchronously; `add` 0: from zero.
 *
 *   product_shared      a (64,16) and b (N,16) lie in shared memory, both in rows of the summed axis
 *   product_turned      the same, but b (16,N) in rows of the other axis
 *   product_registers   a lies in registers, b (16,N) in shared memory in rows of the other axis
 *
 * The numbers of the operands are part of the instruction's text, hence the macros. */
#ifndef MHA_CUDA_PRODUCTS_CUH
#define MHA_CUDA_PRODUCTS_CUH

/* clang-format off */
#define SUMS_8(s, i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), \
                     "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), "+f"(s[i + 7])
#define SUMS_32_(s, i) SUMS_8(s, i), SUMS_8(s, i + 8), SUMS_8(s, i + 16), SUMS_8(s, i + 24)
#define SUMS_32(s) SUMS_32_(s, 0)
#define SUMS_64(s) SUMS_32_(s, 0), SUMS_32_(s, 32)

#define NUMBERS_32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
                   "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_64 NUMBERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
                   "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

#define PRODUCT_SHARED(NAME, TURNED, N, COUNT, T, TYPE, A, B, ADD)                                                 \
    template <> MHA_DEVICE void NAME<T>(float (&s)[COUNT], uint64_t a, uint64_t b, int add)                        \
    {                                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ADD ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NUMBERS_##COUNT "}, "    \
                     "%" #A ", %" #B ", p, 1, 1, 0, " #TURNED ";}"                                                 \
                     : SUMS_##COUNT(s) : "l"(a), "l"(b), "r"(add));                                                \
    }

#define PRODUCT_REGISTERS(N, COUNT, T, TYPE, A0, A1, A2, A3, B, ADD)                                               \
    template <> MHA_DEVICE void product_registers<T>(float (&s)[COUNT], const uint32_t *a, uint64_t b, int add)    \
    {                                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ADD ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NUMBERS_##COUNT "}, "    \
                     "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, 1;}"                             \
                     : SUMS_##COUNT(s) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));              \
    }
/* clang-format on */

template <typename T, int COUNT> MHA_DEVICE void product_shared(float (&s)[COUNT], uint64_t a, uint64_t b, int add);
template <typename T, int COUNT> MHA_DEVICE void product_turned(float (&s)[COUNT], uint64_t a, uint64_t b, int add);
template <typename T, int COUNT>
MHA_DEVICE void product_registers(float (&s)[COUNT], const uint32_t *a, uint64_t b, int add);

PRODUCT_SHARED(product_shared, 0, 64, 32, __nv_bfloat16, "bf16", 32, 33, 34)
PRODUCT_SHARED(product_shared, 0, 64, 32, __half, "f16", 32, 33, 34)
PRODUCT_SHARED(product_shared, 0, 128, 64, __nv_bfloat16, "bf16", 64, 65, 66)
PRODUCT_SHARED(product_shared, 0, 128, 64, __half, "f16", 64, 65, 66)
PRODUCT_SHARED(product_turned, 1, 64, 32, __nv_bfloat16, "bf16", 32, 33, 34)
PRODUCT_SHARED(product_turned, 1, 64, 32, __half, "f16", 32, 33, 34)
PRODUCT_REGISTERS(64, 32, __nv_bfloat16, "bf16", 32, 33, 34, 35, 36, 37)
PRODUCT_REGISTERS(64, 32, __half, "f16", 32, 33, 34, 35, 36, 37)
PRODUCT_REGISTERS(128, 64, __nv_bfloat16, "bf16", 64, 65, 66, 67, 68, 69)
PRODUCT_REGISTERS(128, 64, __half, "f16", 64, 65, 66, 67, 68, 69)

#endif
