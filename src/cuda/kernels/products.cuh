/* sums (64,N) = or += a (64,16) b (16,N) by one warpgroup, asynchronously; `add` 0: from zero.
 *
 *   product_shared      a (64,16) and b (N,16) lie in shared memory, both in rows of the summed axis
 *   product_transposed      the same, but b (16,N) in rows of the other axis
 *   product_rows        a lies in registers, b (N,16) in shared memory in rows of the summed axis
 *   product_registers   the same, but b (16,N) in rows of the other axis
 *   product_any         both in shared memory; A and B say whether a (16,64) or b (16,N) lies in rows of the other axis
 *
 * The numbers of the operands are part of the instruction's text, hence the macros. */
#ifndef MHA_CUDA_PRODUCTS_CUH
#define MHA_CUDA_PRODUCTS_CUH

/* clang-format off */
#define SUMS_8_(s, i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3]), \
                     "+f"(s[i + 4]), "+f"(s[i + 5]), "+f"(s[i + 6]), "+f"(s[i + 7])
#define SUMS_8(s) SUMS_8_(s, 0)
#define SUMS_16(s) SUMS_8_(s, 0), SUMS_8_(s, 8)
#define SUMS_48(s) SUMS_32_(s, 0), SUMS_8_(s, 32), SUMS_8_(s, 40)
#define SUMS_96(s) SUMS_32_(s, 0), SUMS_32_(s, 32), SUMS_32_(s, 64)
#define SUMS_32_(s, i) SUMS_8_(s, i), SUMS_8_(s, i + 8), SUMS_8_(s, i + 16), SUMS_8_(s, i + 24)
#define SUMS_32(s) SUMS_32_(s, 0)
#define SUMS_40(s) SUMS_32_(s, 0), SUMS_8_(s, 32)
#define SUMS_56(s) SUMS_32_(s, 0), SUMS_8_(s, 32), SUMS_8_(s, 40), SUMS_8_(s, 48)
#define SUMS_64(s) SUMS_32_(s, 0), SUMS_32_(s, 32)
#define SUMS_128(s) SUMS_32_(s, 0), SUMS_32_(s, 32), SUMS_32_(s, 64), SUMS_32_(s, 96)

#define NUMBERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define NUMBERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NUMBERS_32 NUMBERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NUMBERS_40 NUMBERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define NUMBERS_48 NUMBERS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define NUMBERS_56 NUMBERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define NUMBERS_64 NUMBERS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define NUMBERS_96 NUMBERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
                   "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NUMBERS_128 NUMBERS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
                    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define PRODUCT_ANY(TA, TB, N, COUNT, T, TYPE, A, B)                                                               \
    template <> struct product_any<T, COUNT, TA, TB> {                                                             \
        static MHA_DEVICE void run(float (&s)[COUNT], uint64_t a, uint64_t b)                                      \
        {                                                                                                          \
            asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NUMBERS_##COUNT      \
                         "}, %" #A ", %" #B ", 1, 1, 1, " #TA ", " #TB ";"                                         \
                         : SUMS_##COUNT(s) : "l"(a), "l"(b));                                                      \
        }                                                                                                          \
    };
#define PRODUCT_ANY_SIDES(N, COUNT, T, TYPE, A, B)                                                                 \
    PRODUCT_ANY(0, 0, N, COUNT, T, TYPE, A, B)                                                                     \
    PRODUCT_ANY(0, 1, N, COUNT, T, TYPE, A, B)                                                                     \
    PRODUCT_ANY(1, 0, N, COUNT, T, TYPE, A, B)                                                                     \
    PRODUCT_ANY(1, 1, N, COUNT, T, TYPE, A, B)

#define PRODUCT_SHARED(NAME, TURNED, N, COUNT, T, TYPE, A, B, ADD)                                                 \
    template <> MHA_DEVICE void NAME<T>(float (&s)[COUNT], uint64_t a, uint64_t b, int add)                        \
    {                                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ADD ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NUMBERS_##COUNT "}, "    \
                     "%" #A ", %" #B ", p, 1, 1, 0, " #TURNED ";}"                                                 \
                     : SUMS_##COUNT(s) : "l"(a), "l"(b), "r"(add));                                                \
    }

#define PRODUCT_REGISTERS(NAME, TURNED, N, COUNT, T, TYPE, A0, A1, A2, A3, B, ADD)                                 \
    template <> MHA_DEVICE void NAME<T>(float (&s)[COUNT], const uint32_t *a, uint64_t b, int add)                 \
    {                                                                                                              \
        asm volatile("{.reg .pred p; setp.ne.b32 p, %" #ADD ", 0;\n"                                               \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NUMBERS_##COUNT "}, "    \
                     "{%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1, " #TURNED ";}"                   \
                     : SUMS_##COUNT(s) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));              \
    }
/* clang-format on */

template <typename T, int COUNT> MHA_DEVICE void product_shared(float (&s)[COUNT], uint64_t a, uint64_t b, int add);
template <typename T, int COUNT> MHA_DEVICE void product_transposed(float (&s)[COUNT], uint64_t a, uint64_t b, int add);
template <typename T, int COUNT> MHA_DEVICE void product_rows(float (&s)[COUNT], const uint32_t *a, uint64_t b, int add);
template <typename T, int COUNT>
MHA_DEVICE void product_registers(float (&s)[COUNT], const uint32_t *a, uint64_t b, int add);

PRODUCT_SHARED(product_shared, 0, 16, 8, __nv_bfloat16, "bf16", 8, 9, 10)
PRODUCT_SHARED(product_shared, 0, 16, 8, __half, "f16", 8, 9, 10)
PRODUCT_SHARED(product_shared, 0, 32, 16, __nv_bfloat16, "bf16", 16, 17, 18)
PRODUCT_SHARED(product_shared, 0, 32, 16, __half, "f16", 16, 17, 18)
PRODUCT_SHARED(product_shared, 0, 64, 32, __nv_bfloat16, "bf16", 32, 33, 34)
PRODUCT_SHARED(product_shared, 0, 64, 32, __half, "f16", 32, 33, 34)
PRODUCT_SHARED(product_shared, 0, 80, 40, __nv_bfloat16, "bf16", 40, 41, 42)
PRODUCT_SHARED(product_shared, 0, 80, 40, __half, "f16", 40, 41, 42)
PRODUCT_SHARED(product_shared, 0, 96, 48, __nv_bfloat16, "bf16", 48, 49, 50)
PRODUCT_SHARED(product_shared, 0, 96, 48, __half, "f16", 48, 49, 50)
PRODUCT_SHARED(product_shared, 0, 112, 56, __nv_bfloat16, "bf16", 56, 57, 58)
PRODUCT_SHARED(product_shared, 0, 112, 56, __half, "f16", 56, 57, 58)
PRODUCT_SHARED(product_shared, 0, 128, 64, __nv_bfloat16, "bf16", 64, 65, 66)
PRODUCT_SHARED(product_shared, 0, 128, 64, __half, "f16", 64, 65, 66)
PRODUCT_SHARED(product_transposed, 1, 64, 32, __nv_bfloat16, "bf16", 32, 33, 34)
PRODUCT_SHARED(product_transposed, 1, 64, 32, __half, "f16", 32, 33, 34)
PRODUCT_REGISTERS(product_rows, 0, 64, 32, __nv_bfloat16, "bf16", 32, 33, 34, 35, 36, 37)
PRODUCT_REGISTERS(product_rows, 0, 64, 32, __half, "f16", 32, 33, 34, 35, 36, 37)
PRODUCT_REGISTERS(product_rows, 0, 128, 64, __nv_bfloat16, "bf16", 64, 65, 66, 67, 68, 69)
PRODUCT_REGISTERS(product_rows, 0, 128, 64, __half, "f16", 64, 65, 66, 67, 68, 69)
PRODUCT_REGISTERS(product_registers, 1, 64, 32, __nv_bfloat16, "bf16", 32, 33, 34, 35, 36, 37)
PRODUCT_REGISTERS(product_registers, 1, 64, 32, __half, "f16", 32, 33, 34, 35, 36, 37)
PRODUCT_REGISTERS(product_registers, 1, 96, 48, __nv_bfloat16, "bf16", 48, 49, 50, 51, 52, 53)
PRODUCT_REGISTERS(product_registers, 1, 96, 48, __half, "f16", 48, 49, 50, 51, 52, 53)
PRODUCT_REGISTERS(product_registers, 1, 128, 64, __nv_bfloat16, "bf16", 64, 65, 66, 67, 68, 69)
PRODUCT_REGISTERS(product_registers, 1, 128, 64, __half, "f16", 64, 65, 66, 67, 68, 69)
PRODUCT_REGISTERS(product_registers, 1, 192, 96, __nv_bfloat16, "bf16", 96, 97, 98, 99, 100, 101)
PRODUCT_REGISTERS(product_registers, 1, 192, 96, __half, "f16", 96, 97, 98, 99, 100, 101)
PRODUCT_REGISTERS(product_registers, 1, 256, 128, __nv_bfloat16, "bf16", 128, 129, 130, 131, 132, 133)
PRODUCT_REGISTERS(product_registers, 1, 256, 128, __half, "f16", 128, 129, 130, 131, 132, 133)

/* Onto sums that are there: the first product of a chain finds zeros. */
template <typename T, int COUNT, int A, int B> struct product_any;

PRODUCT_ANY(0, 0, 32, 16, __nv_bfloat16, "bf16", 16, 17)
PRODUCT_ANY(0, 0, 32, 16, __half, "f16", 16, 17)
PRODUCT_ANY(0, 0, 96, 48, __nv_bfloat16, "bf16", 48, 49)
PRODUCT_ANY(0, 0, 96, 48, __half, "f16", 48, 49)
PRODUCT_ANY_SIDES(64, 32, __nv_bfloat16, "bf16", 32, 33)
PRODUCT_ANY_SIDES(64, 32, __half, "f16", 32, 33)
PRODUCT_ANY_SIDES(128, 64, __nv_bfloat16, "bf16", 64, 65)
PRODUCT_ANY_SIDES(128, 64, __half, "f16", 64, 65)
PRODUCT_ANY_SIDES(192, 96, __nv_bfloat16, "bf16", 96, 97)
PRODUCT_ANY_SIDES(192, 96, __half, "f16", 96, 97)
PRODUCT_ANY_SIDES(256, 128, __nv_bfloat16, "bf16", 128, 129)
PRODUCT_ANY_SIDES(256, 128, __half, "f16", 128, 129)

#endif
