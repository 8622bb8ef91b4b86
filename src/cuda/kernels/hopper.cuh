/* The instructions of compute capability 9.0 that CUDA C has no names for: barriers in shared memory, bulk copies of
 * tensors, and products of warpgroups.
 *
 * Tiles lie in shared memory as panels of 64 numbers of 16 bits: rows of 128 bytes whose 16-byte pieces are permuted
 * (piece ^ row % 8), as the copy engine writes and the tensor cores read them. A panel begins at a multiple of 1024. */
#ifndef MHA_CUDA_HOPPER_CUH
#define MHA_CUDA_HOPPER_CUH

#include "inline.cuh"
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

enum { PANEL = 64, ROW_BYTES = 128 };

MHA_DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* ---- Barriers --------------------------------------------------------------------------------------------------- */

MHA_DEVICE void barrier_make(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

MHA_DEVICE void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* Arrives, and says how many bytes the copies that complete on the barrier will bring. */
MHA_DEVICE void barrier_expect(uint32_t barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

MHA_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra come;\n"
                 "bra again;\n"
                 "come:\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Barriers of the block's threads, by number. */
MHA_DEVICE void group_sync(int number, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* The same; whether `x` is true in one of them. */
MHA_DEVICE bool group_any(int number, int threads, bool x)
{
    int any;
    asm volatile("{\n"
                 ".reg .pred in, out;\n"
                 "setp.ne.b32 in, %1, 0;\n"
                 "bar.red.or.pred out, %2, %3, in;\n"
                 "selp.b32 %0, 1, 0, out;\n"
                 "}"
                 : "=r"(any)
                 : "r"((int)x), "r"(number), "r"(threads)
                 : "memory");
    return any;
}

MHA_DEVICE void group_arrive(int number, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

/* Brings the description of a tensor nearer, for copies that come soon. */
MHA_DEVICE void fetch_map(const CUtensorMap *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

/* A box of a tensor (B,H,T,D), of which `map` is the description: 64 columns from `column` on, rows from `row` on. */
MHA_DEVICE void copy_in(uint32_t to, const CUtensorMap *map, uint32_t barrier, int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
                 "%5, %6}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

/* The same of what will not be read again soon: it is the first to leave the second cache. */
MHA_DEVICE void copy_in_once(uint32_t to, const CUtensorMap *map, uint32_t barrier, int column, int row, int head, int batch)
{
    uint64_t once;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(once)
                 : "memory");
}

/* Brings a box into the second cache. */
MHA_DEVICE void fetch_box(const CUtensorMap *map, int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(column), "r"(row),
                 "r"(head), "r"(batch)
                 : "memory");
}

MHA_DEVICE void copy_out(const CUtensorMap *map, uint32_t from, int column, int row, int head, int batch)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(from), "r"(column), "r"(row), "r"(head), "r"(batch)
                 : "memory");
}

MHA_DEVICE void copies_commit(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/* Until the copies out have read their shared memory. */
MHA_DEVICE void copies_read(void) { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

/* What ordinary stores wrote becomes visible to copies and products. */
MHA_DEVICE void publish_shared(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* What this thread read with ordinary loads has come, and copies may write over it. Without it an arrival at a barrier overtakes
 * loads that are on their way, and so does the copy that follows: decode read keys of a later tile in one call of 70. */
MHA_DEVICE void finish_loads(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* 128 bytes of global memory that nobody reads before they are written again: they are not written back from the cache. */
MHA_DEVICE void forget_line(uintptr_t at) { asm volatile("discard.global.L2 [%0], 128;" ::"l"(at) : "memory"); }

/* ---- Launches --------------------------------------------------------------------------------------------------- */

/* For kernels that are started early (mha_cuda_start_early): the kernel before this one in the stream has ended, and what it wrote
 * can be read; the one after it may be started early. */
MHA_DEVICE void wait_for_last(void) { asm volatile("griddepcontrol.wait;" ::: "memory"); }
MHA_DEVICE void let_next_start(void) { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

/* ---- Registers -------------------------------------------------------------------------------------------------- */

template <int COUNT> MHA_DEVICE void registers_give(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> MHA_DEVICE void registers_take(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* 2^x, for x far below 0 exactly 0. */
MHA_DEVICE float inverse_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

MHA_DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two numbers in one register, the first one in the low half. */
template <typename T> MHA_DEVICE uint32_t pack(float low, float high);

template <> MHA_DEVICE uint32_t pack<__nv_bfloat16>(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

template <> MHA_DEVICE uint32_t pack<__half>(float low, float high)
{
    uint32_t both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/* And back. */
template <typename T> struct pair_of;
template <> struct pair_of<__nv_bfloat16> {
    static MHA_DEVICE float2 get(uint32_t x)
    {
        return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000));
    }
};
template <> struct pair_of<__half> {
    static MHA_DEVICE float2 get(uint32_t x) { return __half22float2(*(const __half2 *)&x); }
};

/* Four 8 x 8 matrices to shared memory; each lane gives the address of one row. */
MHA_DEVICE void store_matrices(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}

/* A number that all threads of a warp have. The compiler then knows it, and keeps what depends on it, such as where a factor lies, in
 * registers of the warp. */
MHA_DEVICE uint32_t uniform(uint32_t x) { return __shfl_sync(~0u, x, 0); }

/* Zero, but the compiler does not know it: an address with it is computed by every thread, */
MHA_DEVICE uint32_t unknown_zero(void) { return threadIdx.x >> 30; }

/* and with this one, when x and y have come. */
MHA_DEVICE uint32_t zero_after(float x, float y) { return (__float_as_uint(x) | __float_as_uint(y)) & unknown_zero(); }

/* ---- Products --------------------------------------------------------------------------------------------------- */

/* Where a factor lies. `leading` is the distance of panels, for a factor whose rows are the summed axis. */
MHA_DEVICE uint64_t factor(uint32_t address, int leading)
{
    const uint64_t group = 8 * ROW_BYTES;
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 | (group >> 4) << 32 |
           UINT64_C(1) << 62;
}

/* The same of an address that is divided by 16, which has 14 bits, and one panel or rows that are not the summed axis. */
MHA_DEVICE uint64_t factor_at(uint32_t place) { return (uint64_t)((8 * ROW_BYTES >> 4) | 1u << 30) << 32 | place; }

MHA_DEVICE void products_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
MHA_DEVICE void products_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* Until at most PENDING groups of products are under way. The sums that are read next go through `touch`: the compiler
 * does not know that waiting changes them. */
template <int PENDING> MHA_DEVICE void products_wait(void)
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <int N> MHA_DEVICE void touch(float (&sums)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

#include "products.cuh"

#endif
