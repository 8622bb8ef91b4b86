/* The instructions of compute capability 9.0 that CUDA C has no names for: barriers in shared memory, copies of its engine, products
 * of warpgroups, and those that the compiler would not choose. All machine code by hand is here and in products.cuh. */
#ifndef MHA_CUDA_INSTRUCTIONS_CUH
#define MHA_CUDA_INSTRUCTIONS_CUH

#include "inline.cuh"
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

/* ---- Shared memory -------------------------------------------------------------------------------------------------- */

/* What the launch asked for, beside variables. */
template <int ALIGNMENT> MHA_DEVICE unsigned char *dynamic_memory(void)
{
    extern __shared__ __align__(ALIGNMENT) unsigned char memory[];
    return memory;
}

MHA_DEVICE uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

/* Numbers at an address. */
MHA_DEVICE uint32_t get_shared(uint32_t at)
{
    uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at));
    return x;
}

MHA_DEVICE float get_shared_float(uint32_t at)
{
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(at));
    return x;
}

MHA_DEVICE float2 get_shared_pair(uint32_t at)
{
    float2 x;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "r"(at) : "memory");
    return x;
}

MHA_DEVICE void put_shared(uint32_t at, uint32_t x) { asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(x) : "memory"); }

MHA_DEVICE void put_shared_pair(uint32_t at, float x, float y)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(x), "f"(y) : "memory");
}

/* Pieces of 16 bytes. */
MHA_DEVICE uint4 get_piece(uint32_t at)
{
    uint4 x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                 : "r"(at)
                 : "memory");
    return x;
}

MHA_DEVICE void put_piece(uint32_t at, uint4 x)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

MHA_DEVICE void clear_piece(uint32_t at)
{
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(0) : "memory");
}

/* ---- Global memory -------------------------------------------------------------------------------------------------- */

/* Adds without waiting for the number that was there; stores. The order of both is kept. */
MHA_DEVICE void add_float(float *to, float x) { asm volatile("red.global.add.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory"); }
MHA_DEVICE void put_float(float *to, float x) { asm volatile("st.global.f32 [%0], %1;" ::"l"(to), "f"(x) : "memory"); }

/* Adds 1, and returns what was there. What this thread knows to be written is written for those that count later. */
MHA_DEVICE int count_one(int *counter)
{
    int before;
    asm volatile("atom.acq_rel.gpu.global.add.s32 %0, [%1], 1;" : "=r"(before) : "l"(counter) : "memory");
    return before;
}

/* A number that another block writes, and what that block had written before. */
MHA_DEVICE int look_at(const int *from)
{
    int x;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(x) : "l"(from) : "memory");
    return x;
}

/* ---- Barriers --------------------------------------------------------------------------------------------------- */

MHA_DEVICE void barrier_make(uint32_t barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* The barriers that were made can be used by copies. */
MHA_DEVICE void barriers_made(void) { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

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

/* Bytes that lie side by side. */
MHA_DEVICE void copy_bytes(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
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

/* The same, but for the last PENDING groups of them. */
template <int PENDING> MHA_DEVICE void copies_read_but(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}

/* Until they have arrived. */
MHA_DEVICE void copies_wait(void) { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* What ordinary stores wrote becomes visible to copies and products. */
MHA_DEVICE void publish_shared(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* What this thread read with ordinary loads has come, and copies may write over it. Without it an arrival at a barrier overtakes
 * loads that are on their way, and so does the copy that follows: decode read keys of a later tile in one call of 70. */
MHA_DEVICE void finish_loads(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* 128 bytes of global memory that nobody reads before they are written again: they are not written back from the cache. */
MHA_DEVICE void forget_line(uintptr_t at) { asm volatile("discard.global.L2 [%0], 128;" ::"l"(at) : "memory"); }

/* 16 bytes from memory to shared memory, on their way until pieces_come or fetches_wait; zeros unless `there`. */
MHA_DEVICE void copy_piece(uint32_t to, const void *from, bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

MHA_DEVICE void pieces_come(void) { asm volatile("cp.async.wait_all;" ::: "memory"); }

MHA_DEVICE void fetch_piece(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

MHA_DEVICE void fetches_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Until all fetches of this thread but the last ones have come. */
MHA_DEVICE void fetches_wait_but_last(void) { asm volatile("cp.async.wait_group 1;" ::: "memory"); }

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

/* The number of a thread in its block, and of a lane in its warp, read again: the compiler does not keep them. */
MHA_DEVICE uint32_t thread_again(void)
{
    uint32_t thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

MHA_DEVICE uint32_t lane_again(void)
{
    uint32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* Zero that is made where it is needed, no earlier. */
MHA_DEVICE float zero_here(void)
{
    float x;
    asm volatile("mov.f32 %0, 0f00000000;" : "=f"(x));
    return x;
}

/* The compiler forgets what it knows of x. */
MHA_DEVICE void make_opaque(uint32_t &x) { asm volatile("" : "+r"(x)); }

/* What has been computed so far is computed here, not later. */
template <int N> MHA_DEVICE void keep(const uint32_t (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" ::"r"(x[i]) : "memory");
}

/* ---- Numbers -------------------------------------------------------------------------------------------------------- */

MHA_DEVICE float inverse_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 2^x, for x far below 0 exactly 0. */
MHA_DEVICE float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

MHA_DEVICE float log2_fast(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 64 bits, the lower ones first. From a product in C the compiler adds the parts that are 0. */
MHA_DEVICE uint2 product_of(uint32_t x, uint32_t y)
{
    uint2 both;
    asm("{\n\t.reg .u64 p;\n\tmul.wide.u32 p, %2, %3;\n\tmov.b64 {%0, %1}, p;\n\t}" : "=r"(both.x), "=r"(both.y) : "r"(x), "r"(y));
    return both;
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

/* ---- Matrices of 8 x 8, by one warp --------------------------------------------------------------------------------- */

/* Four 8 x 8 matrices from shared memory; each lane gives the address of one row. */
MHA_DEVICE void load_matrices(uint32_t (&x)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

/* The same with rows and columns exchanged. */
MHA_DEVICE void load_matrices_transposed(uint32_t (&x)[4], uint32_t at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}

/* Two of them; lanes 0 to 15 give the addresses of their rows. */
MHA_DEVICE void load_matrices_transposed(uint32_t (&x)[2], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(row));
}

/* Four 8 x 8 matrices to shared memory; each lane gives the address of one row. */
MHA_DEVICE void store_matrices(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b), "r"(c),
                 "r"(d)
                 : "memory");
}

MHA_DEVICE void store_matrices_transposed(uint32_t row, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b),
                 "r"(c), "r"(d)
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

/* ---- Products of warpgroups ----------------------------------------------------------------------------------------- */

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
