/* Products of 16 x 8 numbers by one warp, whose factors lie in shared memory as rows of 16-bit numbers. */
#ifndef MHA_CUDA_MATRICES_CUH
#define MHA_CUDA_MATRICES_CUH

#include "hopper.cuh"

/* Four 8 x 8 matrices from shared memory; each lane gives the address of one row. */
MHA_DEVICE void load_matrices(uint32_t (&x)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

/* The same with rows and columns exchanged. */
MHA_DEVICE void load_matrices_turned(uint32_t (&x)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

/* sums (16,8) += a (16,16) b (16,8). */
template <typename T> MHA_DEVICE void multiply(float (&s)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

template <> MHA_DEVICE void multiply<__nv_bfloat16>(float (&s)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <> MHA_DEVICE void multiply<__half>(float (&s)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* 16 bytes from memory to shared memory, on their way until pieces_come; zeros unless `there`. */
MHA_DEVICE void copy_piece(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

MHA_DEVICE void pieces_come(void) { asm volatile("cp.async.wait_all;" ::: "memory"); }

#endif
