/* Threads of the emulator, their barriers, and launches. */
#include "cuda/emulator/launch.h"
#include "cuda/emulator/threads.h"

#include "decode.h"
#include "small.h"
#include "stats.h"
#include "backward.h"
#include "forward.h"
#include "general.h"
#include "ops.h"
#include "product.h"
#include "rows.h"
#include "spans.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim; // NOLINT(cert-err58-cpp)

namespace machine
{

alignas(1024) unsigned char shared[227 * 1024];
thread threads[1024]; // NOLINT(cert-err58-cpp)
int current;

namespace
{

enum { STACK = 256 << 10, BARRIERS = 16 };

const emulator_launch *launch;
int alive; /* threads that have not ended */
jmp_buf scheduler;
shown showns[2][1024];         /* of meetings in turns */
uint32_t meeting[1024 / WARP]; /* lanes of warps that wait for others */

struct thread_barrier {
    int arrived, count;
    uint64_t round;
    bool any, result[2]; /* of this round; and of rounds in turns */
} barriers[BARRIERS];

} // namespace

void fail(const char *why)
{
    fprintf(stderr, "emulator: %s, block %u, thread %d: %s\n", launch->name, blockIdx.x, current, why);
    abort();
}

/* Those of MHA_SEED, or always the same. */
uint32_t random_number(void)
{
    static uint32_t x;
    if (!x) x = getenv("MHA_SEED") ? (uint32_t)strtoul(getenv("MHA_SEED"), NULL, 10) | 1 : 1;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return x;
}

void wait_for_last(void) { self().waited = true; }

/* ---- Warps ------------------------------------------------------------------------------------------------------ */

const shown *meet(uint32_t mask, const shown &own)
{
    const int first = current / WARP * WARP, side = (int)(self().meetings++ % 2);
    if (!(mask >> current % WARP & 1)) fail("a lane is not in the mask of its warp");
    showns[side][current] = own, self().mask = mask;
    uint32_t &here = meeting[first / WARP];
    here |= 1u << current % WARP;
    bool all = (here & mask) == mask;
    for (int n = 0; all && n < WARP; n++)
        if (mask >> n & 1 && first + n != current) all = threads[first + n].mask == mask;
    if (!all) stop(WARP_MEETS);
    else {
        here &= ~mask;
        for (int n = first; n < first + WARP; n++) {
            if (!(mask >> n % WARP & 1)) continue;
            if (threads[n].meetings % 2 != self().meetings % 2)
                showns[side][n] = showns[!side][n]; /* some met without it */
            threads[n].meetings = self().meetings, threads[n].why = NOTHING;
        }
    }
    return &showns[(self().meetings - 1) % 2][first];
}

/* ---- Barriers of threads ---------------------------------------------------------------------------------------- */

namespace
{

void look_at(int number)
{
    thread_barrier &b = barriers[number];
    const int count = b.count ? b.count : alive;
    if (b.arrived > count) fail("more threads at a barrier than it is for");
    if (!b.arrived || b.arrived < count) return;
    b.result[b.round % 2] = b.any, b.any = false;
    b.arrived = 0, b.round++;
    for (thread *t = threads; t < threads + blockDim.x; t++)
        if (t->why == BLOCK_MEETS && t->number == number) t->why = NOTHING;
}

thread_barrier &come(int number, int count)
{
    thread_barrier &b = barriers[number];
    if (b.arrived && b.count != count) fail("threads at a barrier do not agree on how many they are");
    b.count = count, b.arrived++;
    return b;
}

} // namespace

bool sync(int number, int count, bool x)
{
    thread_barrier &b = come(number, count);
    const uint64_t round = b.round;
    b.any |= x;
    self().number = number, self().why = BLOCK_MEETS;
    look_at(number);
    if (self().why == BLOCK_MEETS) stop(BLOCK_MEETS);
    return b.result[round % 2];
}

void arrive(int number, int count)
{
    come(number, count);
    look_at(number);
}

/* ---- Barriers in shared memory ---------------------------------------------------------------------------------- */

namespace
{

struct phase {
    uint16_t arrivals, missing;
    int32_t bytes : 31; /* to come */
    uint32_t parity : 1;
};

phase &phase_at(uint32_t barrier)
{
    static_assert(sizeof(phase) == 8, "the bytes of a barrier");
    if (barrier % 8) fail("a barrier whose address is not a multiple of 8");
    return *(phase *)at(barrier);
}

void look_at(phase &p)
{
    if (!p.missing && !p.bytes) p.missing = p.arrivals, p.parity ^= 1;
}

} // namespace

void barrier_make(uint32_t barrier, int arrivals)
{
    phase_at(barrier) = {(uint16_t)arrivals, (uint16_t)arrivals, 0, 0};
}

void barrier_bytes(uint32_t barrier, int bytes)
{
    phase_at(barrier).bytes -= bytes;
    look_at(phase_at(barrier));
}

void barrier_arrive(uint32_t barrier)
{
    if (!phase_at(barrier).missing--) fail("more threads arrive at a barrier than it is for");
    look_at(phase_at(barrier));
}

void barrier_expect(uint32_t barrier, int bytes)
{
    phase_at(barrier).bytes += bytes;
    barrier_arrive(barrier);
}

void barrier_wait(uint32_t barrier, uint32_t parity)
{
    self().barrier = barrier, self().parity = parity;
    if (phase_at(barrier).parity == parity) stop(PHASE);
}

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

void stop(reason why)
{
    self().why = why;
    if (!_setjmp(self().place)) _longjmp(scheduler, 1);
}

namespace
{

/* Kernels whose names begin so, and how one of them is called. */
struct family {
    const char *begins;
    size_t bytes;
    void (*call)(void *kernel, const void *parameter);
};

template <typename T> constexpr family row(const char *begins)
{
    return {begins, sizeof(T),
            [](void *kernel, const void *parameter) { ((void (*)(T))kernel)(*(const T *)parameter); }};
}

constexpr family families[] = {row<mha_cuda_spans>("forward_spans"), row<mha_cuda_general>("forward_f32"),
                               row<mha_cuda_forward>("forward_"),    row<mha_cuda_general>("backward_f32"),
                               row<mha_cuda_backward>("backward_"),  row<mha_cuda_decode>("decode_"),
                               row<mha_cuda_general>("general_"),    row<mha_cuda_small>("small_"),
                               row<mha_cuda_stats>("stats_"),        row<mha_cuda_product>("product_"),
                               row<mha_cuda_product>("rows_"),       row<mha_cuda_product>("plain_"),
                               row<mha_cuda_product>("few_"),        row<mha_cuda_norm>("norm_"),
                               row<mha_cuda_rotary>("rotary"),       row<mha_cuda_extra_keys>("extra_keys"),
                               row<mha_cuda_copy>("copy"),           row<mha_cuda_fill>("fill"),
                               row<mha_cuda_upload>("upload"),       row<mha_cuda_sequences>("clear"),
                               row<mha_cuda_sequences>("places"),    row<mha_cuda_sequences>("append"),
                               row<mha_cuda_pair>("gate"),           row<mha_cuda_pair>("clean"),
                               row<mha_cuda_pair>("average_heads"),  row<mha_cuda_column_sums>("column_sums"),
                               row<mha_cuda_add_sums>("add_sums"),   row<mha_cuda_activation>("activate"),
                               row<mha_cuda_dropout>("dropout"),     row<mha_cuda_embedding>("embed"),
                               row<mha_cuda_loss>("loss_")};

const family *of;
void *kernel;

/* Sets both; false if there is no such kernel in this library. */
bool find(const char *name)
{
    static void *library;
    if (!library) {
        Dl_info own;
        dladdr((void *)&emulator_run, &own);
        library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }
    kernel = dlsym(library, name);
    for (of = families; of < families + sizeof families / sizeof *families; of++)
        if (!strncmp(name, of->begins, strlen(of->begins))) return kernel != NULL;
    return false;
}

/* All of a thread. */
void live(void)
{
    of->call(kernel, launch->parameter);
    if (!self().products.empty() || !self().stores.empty() || !self().pieces.empty())
        fail("it ends, and does not wait for its copies or products");
    alive--;
    for (int n = 0; n < BARRIERS; n++)
        if (!barriers[n].count) look_at(n);
    stop(ENDED);
}

/* Gives a thread a stack, on which it lives again and again, and leaves it where it begins. */
void make_stack(void)
{
    static ucontext_t here, there;
    self().stack = (char *)malloc(STACK);
    getcontext(&there);
    there.uc_stack.ss_sp = self().stack, there.uc_stack.ss_size = STACK, there.uc_link = NULL;
    makecontext(
        &there,
        [] {
            for (stop(NOTHING);;) live();
        },
        0);
    if (!_setjmp(scheduler)) swapcontext(&here, &there);
}

void prepare(int n)
{
    current = n;
    thread &t = self();
    if (!t.stack) make_stack();
    t.why = NOTHING, t.waited = false, t.meetings = t.commits = t.performed = 0;
    t.products.clear(), t.stores.clear(), t.pieces.clear();
}

bool is_ready(thread &t)
{
    if ((t.why == PHASE && phase_at(t.barrier).parity != t.parity) ||
        (t.why == PRODUCTS && products_begun((int)(&t - threads), t.awaited)))
        t.why = NOTHING;
    return t.why == NOTHING;
}

void go_on(int n)
{
    current = n, threadIdx.x = (unsigned)n;
    if (!_setjmp(scheduler)) _longjmp(self().place, 1);
}

/* Warps in turns, from any one on; now and then some lanes fall behind the others of theirs. And some warps of a block are slow: they go
 * on when all others wait. */
void run_block(int count)
{
    alive = count;
    memset(barriers, 0, sizeof barriers);
    memset(meeting, 0, sizeof meeting);
    memset(shared, 0xFF, sizeof shared); /* NaN */
    for (int n = 0; n < count; n++) prepare(n);
    uint32_t slow = random_number();
    slow &= random_number(); /* one in four */
    for (bool others_wait = false; alive;) {
        bool any = false, fast = false;
        const int first = (int)(random_number() % (unsigned)count) / WARP * WARP;
        uint32_t lanes = 0;
        for (int k = 0; k < count; k++) {
            const int n = (first + k) % count;
            if (n % WARP == 0) lanes = random_number() % 4 ? ~0u : random_number();
            if (!is_ready(threads[n])) continue;
            any = true;
            if (slow >> n / WARP & 1 && !others_wait) continue;
            fast = fast || !(slow >> n / WARP & 1);
            if (lanes >> n % WARP & 1) go_on(n);
            if (copies_are_under_way() && random_number() % 8 == 0) copies_come();
        }
        others_wait = !fast;
        if (!any && !copies_come()) fail("its threads wait for each other");
    }
    if (copies_come()) fail("it ends before its copies have come");
    const size_t asked = launch->shared, behind = sizeof shared - asked;
    if (behind && (shared[asked] != 0xFF || memcmp(shared + asked, shared + asked + 1, behind - 1) != 0))
        fail("it writes behind its shared memory");
}

} // namespace

} // namespace machine

/* ---- Launches --------------------------------------------------------------------------------------------------- */

using namespace machine;

size_t emulator_parameter_bytes(const char *name) { return find(name) ? of->bytes : 0; }

const char *emulator_run(const emulator_launch *l)
{
    static std::mutex one_at_a_time;
    std::lock_guard<std::mutex> guard(one_at_a_time);
    bool all_waited = true;
    launch = l;
    if (!find(l->name) || l->shared > sizeof shared) return "no such kernel, or too much shared memory";
    gridDim = dim3(l->blocks), blockDim = dim3(l->threads);
    const uint32_t first = random_number();
    for (unsigned k = 0; k < l->blocks; k++) { /* from any one on, forward or backward */
        bool waited = false;
        blockIdx.x = (unsigned)((first / 2 % l->blocks + (first % 2 ? k : l->blocks - k)) % l->blocks);
        run_block((int)l->threads);
        for (unsigned n = 0; n < l->threads; n++) waited = waited || threads[n].waited;
        all_waited = all_waited && waited;
    }
    return l->early && !all_waited ? "starts early, and a block does not wait for the kernel before it" : NULL;
}
