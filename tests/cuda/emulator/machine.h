/* A multiprocessor on the CPU. It has one block of a kernel at a time, whose threads run in turns: each until it waits, for others of
 * its warp or block, for copies or for products. What goes on beside threads is early or late: bulk copies come in any order, other
 * copies at once or when somebody waits for them, products as a rule then. And some warps fall behind the others. So a kernel that does
 * not wait, or writes over what is still read, has other results. */
#ifndef EMULATOR_MACHINE_H
#define EMULATOR_MACHINE_H

#include <cuda.h>
#include <stdint.h>
#include <string.h>

namespace machine
{

enum { WARP = 32, GROUP = 128 };

/* Stops the program: a kernel does what it must not do. */
[[noreturn]] void fail(const char *why);

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

/* What a launch asks for, NaN at first; its addresses begin at 0. Variables in shared memory are anywhere, keep what the block before
 * left, and nobody looks whether they are written behind. */
extern unsigned char shared[227 * 1024];

inline void *at(uint32_t address) { return shared + (int32_t)address; }
inline uint32_t address_of(const void *p) { return (uint32_t)((const unsigned char *)p - shared); }

/* The same with the pieces of 16 bytes of a tile in the order of copies and products. */
inline uint32_t permuted(uint32_t address) { return address ^ (address >> 7 & 7) << 4; }

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

/* What a lane shows to its warp. */
struct shown {
    uint32_t x[8];
};

/* Waits until the lanes of `mask` are here. Returns what each lane of the warp showed; it stays until this one comes here again. */
const shown *meet(uint32_t mask, const shown &own);

/* Barriers of threads; `count` 0: all that have not ended. Returns whether `x` is true in one of them. */
bool sync(int number, int count, bool x);
void arrive(int number, int count);

/* Barriers in shared memory. */
void barrier_make(uint32_t barrier, int arrivals);
void barrier_arrive(uint32_t barrier);
void barrier_expect(uint32_t barrier, int bytes);
void barrier_wait(uint32_t barrier, uint32_t parity);

/* The kernel before this one has ended. */
void wait_for_last(void);

/* ---- Copies and products ---------------------------------------------------------------------------------------- */

/* A box of a tensor, or `bytes` from `from` on, into shared memory, and from there. */
void copy_in(uint32_t to, const CUtensorMap *map, uint32_t barrier, const int (&place)[4]);
void copy_bytes(uint32_t to, const void *from, int bytes, uint32_t barrier);
void copy_out(const CUtensorMap *map, uint32_t from, const int (&place)[4]);
void copies_commit(void);
void copies_wait(int pending); /* for groups of this thread, but the last ones */

/* 16 bytes; zeros unless `there`. */
void fetch(uint32_t to, const void *from, bool there);
void fetches_commit(void);
void fetches_wait(int pending);

/* A thread's share of sums (64,N) of products of 16 numbers each. */
struct product {
    float *sums;
    int count;
    bool half, add, a_transposed, b_transposed, in_registers;
    uint64_t a, b;            /* factors in shared memory */
    uint32_t registers[4][4]; /* a, of the four lanes that have this thread's rows */
};

void multiply(const product &p);
void products_commit(void);
void products_wait(int pending);

/* A number of 16 bits. */
extern float halves[65536];

inline float number(uint16_t bits, bool half)
{
    const uint32_t wide = (uint32_t)bits << 16;
    float x;
    return half ? halves[bits] : (memcpy(&x, &wide, sizeof x), x);
}

} // namespace machine

#endif
