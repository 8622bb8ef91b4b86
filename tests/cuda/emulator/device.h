/* CUDA C for the compiler of the CPU: included before each file of src/cuda/kernels, in place of instructions.cuh. */
#ifndef EMULATOR_DEVICE_H
#define EMULATOR_DEVICE_H

#define MHA_CUDA_INSTRUCTIONS_CUH

#include <cuda_runtime.h>

#include "cuda/emulator/machine.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#undef __global__
#undef __device__
#undef __shared__
#undef __launch_bounds__
#undef __grid_constant__
#undef __noinline__
#undef __forceinline__
#undef __align__
#define __global__ __attribute__((visibility("default")))
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __noinline__    __attribute__((noinline))
#define __forceinline__ inline
#define __align__(n)    __attribute__((aligned(n)))

#include "inline.cuh"

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

/* ---- Numbers ---------------------------------------------------------------------------------------------------- */

#define OF_TWO(T)                                        \
    MHA_DEVICE T min(T a, T b) { return b < a ? b : a; } \
    MHA_DEVICE T max(T a, T b) { return a < b ? b : a; }
OF_TWO(int)
OF_TWO(unsigned)
OF_TWO(long)
OF_TWO(long long)
OF_TWO(unsigned long)
OF_TWO(unsigned long long)
#undef OF_TWO

MHA_DEVICE uint32_t __float_as_uint(float x)
{
    uint32_t y;
    return memcpy(&y, &x, 4), y;
}
MHA_DEVICE int __float_as_int(float x)
{
    int y;
    return memcpy(&y, &x, 4), y;
}
MHA_DEVICE float __uint_as_float(uint32_t x)
{
    float y;
    return memcpy(&y, &x, 4), y;
}
MHA_DEVICE float __int_as_float(int x)
{
    float y;
    return memcpy(&y, &x, 4), y;
}
MHA_DEVICE float __fmul_rn(float a, float b) { return a * b; }
MHA_DEVICE float __fadd_rn(float a, float b) { return a + b; }
MHA_DEVICE float __fsub_rn(float a, float b) { return a - b; }
MHA_DEVICE double __dmul_rn(double a, double b) { return a * b; }
MHA_DEVICE double __dadd_rn(double a, double b) { return a + b; }
MHA_DEVICE double __dsub_rn(double a, double b) { return a - b; }
MHA_DEVICE int __float2int_rn(float x)
{
    return x != x ? 0 : x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int)rintf(x);
}
MHA_DEVICE int __vimax3_s32(int a, int b, int c) { return max(max(a, b), c); }
MHA_DEVICE float __log2f(float x) { return log2f(x); }
MHA_DEVICE int __popc(uint32_t x) { return __builtin_popcount(x); }
MHA_DEVICE int __ffs(uint32_t x) { return __builtin_ffs((int)x); }
MHA_DEVICE int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
template <typename T> MHA_DEVICE T __ldcg(const T *p) { return *p; }

MHA_DEVICE float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? copysignf(0.0f, x) : x; }
/* As that of a GPU, whose result may be two bits off, and is not for integers. */
MHA_DEVICE float exp2_fast(float x)
{
    uint32_t bits = __float_as_uint(x) * 2654435761u;
    float y = exp2f(flushed(x)), off = x == rintf(x) ? 0 : ((float)(bits >> 8) * 0x1p-23f - 1) * 0x1p-22f;
    return flushed(y < INFINITY ? fmaf(y, off, y) : y);
}
MHA_DEVICE float log2_fast(float x) { return log2f(flushed(x)); }
MHA_DEVICE float inverse_fast(float x) { return flushed(1 / flushed(x)); }

MHA_DEVICE uint2 product_of(uint32_t x, uint32_t y)
{
    uint64_t both = (uint64_t)x * y;
    return make_uint2((uint32_t)both, (uint32_t)(both >> 32));
}

template <typename T> MHA_DEVICE uint32_t pack(float low, float high);
template <> MHA_DEVICE uint32_t pack<__nv_bfloat16>(float low, float high)
{
    return __bfloat16_as_ushort(__float2bfloat16_rn(low)) | (uint32_t)__bfloat16_as_ushort(__float2bfloat16_rn(high))
                                                                << 16;
}
template <> MHA_DEVICE uint32_t pack<__half>(float low, float high)
{
    return __half_as_ushort(__float2half_rn(low)) | (uint32_t)__half_as_ushort(__float2half_rn(high)) << 16;
}

/* ---- Memory ----------------------------------------------------------------------------------------------------- */

#define ATOMIC(NAME, T, RESULT)   \
    MHA_DEVICE T NAME(T *to, T x) \
    {                             \
        T before = *to;           \
        *to = RESULT;             \
        return before;            \
    }
ATOMIC(atomicAdd, int, before + x)
ATOMIC(atomicAdd, unsigned, before + x)
ATOMIC(atomicAdd, unsigned long long, before + x)
ATOMIC(atomicAdd, float, before + x)
ATOMIC(atomicMin, int, x < before ? x : before)
ATOMIC(atomicMin, unsigned long long, x < before ? x : before)
ATOMIC(atomicOr, int, before | x)
ATOMIC(atomicOr, unsigned, before | x)
ATOMIC(atomicOr, unsigned long long, before | x)
#undef ATOMIC

template <int ALIGNMENT> MHA_DEVICE unsigned char *dynamic_memory(void) { return machine::shared; }
MHA_DEVICE uint32_t shared_address(const void *p) { return machine::address_of(p); }

template <typename T> MHA_DEVICE T get_from(uint32_t at)
{
    T x;
    return memcpy(&x, machine::at(at), sizeof x), x;
}
template <typename T> MHA_DEVICE void put_to(uint32_t at, const T &x)
{
    if (at % sizeof x) machine::fail("an address that is not a multiple of its size");
    memcpy(machine::at(at), &x, sizeof x);
}

MHA_DEVICE uint32_t get_shared(uint32_t at) { return get_from<uint32_t>(at); }
MHA_DEVICE float get_shared_float(uint32_t at) { return get_from<float>(at); }
MHA_DEVICE float2 get_shared_pair(uint32_t at) { return get_from<float2>(at); }
MHA_DEVICE uint4 get_piece(uint32_t at) { return get_from<uint4>(at); }
MHA_DEVICE void put_shared(uint32_t at, uint32_t x) { put_to(at, x); }
MHA_DEVICE void put_shared_pair(uint32_t at, float x, float y) { put_to(at, make_float2(x, y)); }
MHA_DEVICE void put_piece(uint32_t at, uint4 x) { put_to(at, x); }
MHA_DEVICE void clear_piece(uint32_t at) { put_to(at, make_uint4(0, 0, 0, 0)); }
MHA_DEVICE void add_float(float *to, float x) { *to += x; }
MHA_DEVICE void put_float(float *to, float x) { *to = x; }
MHA_DEVICE int count_one(int *counter) { return atomicAdd(counter, 1); }
MHA_DEVICE int look_at(const int *from) { return *from; }
MHA_DEVICE void forget_line(uintptr_t at) { memset((void *)at, 0xFF, 128); }

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

template <typename T> MHA_DEVICE T shuffle(uint32_t mask, T x, int lane)
{
    static_assert(sizeof x <= sizeof(machine::shown));
    machine::shown own = {};
    memcpy(&own, &x, sizeof x);
    memcpy(&x, &machine::meet(mask, own)[lane & 31], sizeof x);
    return x;
}

/* Among `width` lanes that follow each other. */
template <typename T> MHA_DEVICE T __shfl_sync(uint32_t mask, T x, int lane, int width = 32)
{
    return shuffle(mask, x, (int)(threadIdx.x % 32) / width * width + lane % width);
}
template <typename T> MHA_DEVICE T __shfl_xor_sync(uint32_t mask, T x, int lanes)
{
    return shuffle(mask, x, (int)threadIdx.x % 32 ^ lanes);
}
template <typename T> MHA_DEVICE T __shfl_up_sync(uint32_t mask, T x, int lanes)
{
    int lane = (int)threadIdx.x % 32;
    return shuffle(mask, x, lane < lanes ? lane : lane - lanes);
}
template <typename T> MHA_DEVICE T __shfl_down_sync(uint32_t mask, T x, int lanes)
{
    int lane = (int)threadIdx.x % 32;
    return shuffle(mask, x, lane + lanes > 31 ? lane : lane + lanes);
}

MHA_DEVICE uint32_t __ballot_sync(uint32_t mask, bool x)
{
    const machine::shown *all = machine::meet(mask, {{x}});
    uint32_t votes = 0;
    for (int n = 0; n < 32; n++)
        if (mask >> n & 1) votes |= all[n].x[0] << n;
    return votes;
}
MHA_DEVICE bool __any_sync(uint32_t mask, bool x) { return __ballot_sync(mask, x) != 0; }
MHA_DEVICE bool __all_sync(uint32_t mask, bool x) { return __ballot_sync(mask, x) == mask; }
MHA_DEVICE void __syncwarp(uint32_t mask = ~0u) { machine::meet(mask, {}); }

MHA_DEVICE void __syncthreads(void) { machine::sync(0, 0, false); }
MHA_DEVICE int __syncthreads_or(int x) { return machine::sync(0, 0, x != 0); }
MHA_DEVICE void __threadfence(void) {}
MHA_DEVICE void group_sync(int number, int threads) { machine::sync(number, threads, false); }
MHA_DEVICE bool group_any(int number, int threads, bool x) { return machine::sync(number, threads, x); }
MHA_DEVICE void group_arrive(int number, int threads) { machine::arrive(number, threads); }

MHA_DEVICE void barrier_make(uint32_t barrier, int arrivals) { machine::barrier_make(barrier, arrivals); }
MHA_DEVICE void barriers_made(void) {}
MHA_DEVICE void barrier_arrive(uint32_t barrier) { machine::barrier_arrive(barrier); }
MHA_DEVICE void barrier_expect(uint32_t barrier, int bytes) { machine::barrier_expect(barrier, bytes); }
MHA_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity) { machine::barrier_wait(barrier, parity); }

MHA_DEVICE void wait_for_last(void) { machine::wait_for_last(); }
MHA_DEVICE void let_next_start(void) {}
template <int COUNT> MHA_DEVICE void registers_give(void) {}
template <int COUNT> MHA_DEVICE void registers_take(void) {}
MHA_DEVICE uint32_t thread_again(void) { return threadIdx.x; }
MHA_DEVICE uint32_t lane_again(void) { return threadIdx.x % 32; }
MHA_DEVICE float zero_here(void) { return 0; }
MHA_DEVICE void make_opaque(uint32_t &) {}
template <int N> MHA_DEVICE void keep(const uint32_t (&)[N]) {}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

MHA_DEVICE void fetch_map(const CUtensorMap *) {}
MHA_DEVICE void fetch_box(const CUtensorMap *, int, int, int, int) {}
MHA_DEVICE void copy_in(uint32_t to, const CUtensorMap *map, uint32_t barrier, int column, int row, int head, int batch)
{
    machine::copy_in(to, map, barrier, {column, row, head, batch});
}
MHA_DEVICE void copy_in_once(uint32_t to, const CUtensorMap *map, uint32_t barrier, int column, int row, int head,
                             int batch)
{
    machine::copy_in(to, map, barrier, {column, row, head, batch});
}
MHA_DEVICE void copy_out(const CUtensorMap *map, uint32_t from, int column, int row, int head, int batch)
{
    machine::copy_out(map, from, {column, row, head, batch});
}
MHA_DEVICE void copy_bytes(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    machine::copy_bytes(to, from, bytes, barrier);
}
MHA_DEVICE void copies_commit(void) { machine::copies_commit(); }
MHA_DEVICE void copies_read(void) { machine::copies_wait(0); }
template <int PENDING> MHA_DEVICE void copies_read_but(void) { machine::copies_wait(PENDING); }
MHA_DEVICE void copies_wait(void) { machine::copies_wait(0); }
MHA_DEVICE void publish_shared(void) {}
MHA_DEVICE void finish_loads(void) {}
MHA_DEVICE void copy_piece(uint32_t to, const void *from, bool there) { machine::fetch(to, from, there); }
MHA_DEVICE void pieces_come(void) { machine::fetches_commit(), machine::fetches_wait(0); }
MHA_DEVICE void fetch_piece(uint32_t to, const void *from) { machine::fetch(to, from, true); }
MHA_DEVICE void fetches_commit(void) { machine::fetches_commit(); }
MHA_DEVICE void fetches_wait_but_last(void) { machine::fetches_wait(1); }

/* ---- Matrices of 8 x 8 ------------------------------------------------------------------------------------------ */

/* Each lane has two neighbours of a row: those of lane / 4, and, of a matrix that is transposed, of a column. */
template <int N> MHA_DEVICE void load_matrices_of(uint32_t (&x)[N], uint32_t row, bool transposed)
{
    const machine::shown *all = machine::meet(~0u, {{row}});
    int lane = threadIdx.x % 32, line = lane / 4, first = lane % 4 * 2;
    for (int n = 0; n < N; n++) {
        uint16_t both[2];
        for (int k = 0; k < 2; k++)
            both[k] = get_from<uint16_t>(all[8 * n + (transposed ? first + k : line)].x[0] +
                                         2 * (transposed ? line : first + k));
        x[n] = both[0] | (uint32_t)both[1] << 16;
    }
}

MHA_DEVICE void load_matrices(uint32_t (&x)[4], uint32_t at) { load_matrices_of(x, at, false); }
template <int N> MHA_DEVICE void load_matrices_transposed(uint32_t (&x)[N], uint32_t at)
{
    load_matrices_of(x, at, true);
}

MHA_DEVICE void store_matrices_of(uint32_t row, const uint32_t (&x)[4], bool transposed)
{
    const machine::shown *all = machine::meet(~0u, {{row}});
    int lane = threadIdx.x % 32, line = lane / 4, first = lane % 4 * 2;
    for (int n = 0; n < 4; n++)
        for (int k = 0; k < 2; k++)
            put_to<uint16_t>(all[8 * n + (transposed ? first + k : line)].x[0] + 2 * (transposed ? line : first + k),
                             x[n] >> 16 * k);
    machine::meet(~0u, {}); /* all of a matrix is written at once */
}

MHA_DEVICE void store_matrices(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    store_matrices_of(row, {a, b, c, d}, false);
}
MHA_DEVICE void store_matrices_transposed(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    store_matrices_of(row, {a, b, c, d}, true);
}

/* Number n of two in a register. */
template <typename T> MHA_DEVICE float number_of(uint32_t both, int n)
{
    return machine::number((uint16_t)(both >> 16 * n), std::is_same<T, __half>::value);
}

template <typename T> MHA_DEVICE void multiply(float (&s)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const machine::shown *all = machine::meet(~0u, {{a[0], a[1], a[2], a[3], b0, b1}});
    int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        double sum = s[i];
        for (int k = 0; k < 16; k++)
            sum += (double)number_of<T>(all[row % 8 * 4 + k % 8 / 2].x[row / 8 + k / 8 * 2], k % 2) *
                   number_of<T>(all[column * 4 + k % 8 / 2].x[4 + k / 8], k % 2);
        s[i] = (float)sum;
    }
}

/* ---- Products of warpgroups ------------------------------------------------------------------------------------- */

MHA_DEVICE void products_begin(void) {}
MHA_DEVICE void products_commit(void) { machine::products_commit(); }
template <int PENDING> MHA_DEVICE void products_wait(void) { machine::products_wait(PENDING); }
template <int N> MHA_DEVICE void touch(float (&)[N]) {}

template <typename T, int COUNT>
MHA_DEVICE machine::product product_to(float (&s)[COUNT], uint64_t b, bool b_transposed, bool add)
{
    machine::product p = {};
    p.sums = s, p.count = COUNT, p.half = std::is_same<T, __half>::value, p.b = b, p.b_transposed = b_transposed,
    p.add = add;
    return p;
}

template <typename T, int COUNT>
MHA_DEVICE void product_in_shared(float (&s)[COUNT], uint64_t a, bool a_transposed, uint64_t b, bool b_transposed,
                                  bool add)
{
    machine::product p = product_to<T>(s, b, b_transposed, add);
    p.a = a, p.a_transposed = a_transposed;
    machine::multiply(p);
}

template <typename T, int COUNT>
MHA_DEVICE void product_in_registers(float (&s)[COUNT], const uint32_t *a, uint64_t b, bool b_transposed, bool add)
{
    machine::product p = product_to<T>(s, b, b_transposed, add);
    const machine::shown *all = machine::meet(~0u, {{a[0], a[1], a[2], a[3]}});
    p.in_registers = true;
    for (int n = 0; n < 4; n++) memcpy(p.registers[n], all[threadIdx.x % 32 / 4 * 4 + n].x, sizeof p.registers[n]);
    machine::multiply(p);
}

template <typename T, int COUNT> MHA_DEVICE void product_shared(float (&s)[COUNT], uint64_t a, uint64_t b, int add)
{
    product_in_shared<T>(s, a, false, b, false, add);
}
template <typename T, int COUNT> MHA_DEVICE void product_transposed(float (&s)[COUNT], uint64_t a, uint64_t b, int add)
{
    product_in_shared<T>(s, a, false, b, true, add);
}
template <typename T, int COUNT> MHA_DEVICE void product_rows(float (&s)[COUNT], const uint32_t *a, uint64_t b, int add)
{
    product_in_registers<T>(s, a, b, false, add);
}
template <typename T, int COUNT>
MHA_DEVICE void product_registers(float (&s)[COUNT], const uint32_t *a, uint64_t b, int add)
{
    product_in_registers<T>(s, a, b, true, add);
}
template <typename T, int COUNT, int A, int B> struct product_any {
    static MHA_DEVICE void run(float (&s)[COUNT], uint64_t a, uint64_t b) { product_in_shared<T>(s, a, A, b, B, true); }
};

#endif
