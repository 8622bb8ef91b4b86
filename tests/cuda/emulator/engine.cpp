/* Copies and products of the emulator: what goes on beside threads. */
#include "cuda/emulator/launch.h"
#include "cuda/emulator/threads.h"

#include <algorithm>
#include <math.h>
#include <string.h>

namespace machine
{

float halves[65536];

namespace
{

struct bulk_load {
    CUtensorMap map;
    uint32_t to, barrier;
    int place[4];
    const void *from; /* bytes in place of a box; or NULL */
    int bytes;
};

std::vector<bulk_load> loads;

/* Calls `use(address, memory, bytes)` for the pieces of 16 bytes of a box, of which `bytes` lie inside the tensor. */
template <typename function> void for_box(const CUtensorMap &map, uint32_t address, const int (&place)[4], function use)
{
    emulator_map m;
    memcpy(&m, &map, sizeof m);
    if (address % 128) fail("a tile whose address is not a multiple of 128");
    const int64_t each = m.bytes,
                  size[4] = {(int64_t)m.size[0], (int64_t)m.size[1], (int64_t)m.size[2], (int64_t)m.size[3]};
    const bool inside = place[2] >= 0 && place[2] < size[2] && place[3] >= 0 && place[3] < size[3];
    for (int n = 0; n < (int)m.rows * 8; n++) {
        const int64_t t = place[1] + n / 8, d = place[0] + n % 8 * (16 / each);
        int64_t bytes = 0;
        char *memory = NULL;
        if (inside && t >= 0 && t < size[1] && d >= 0 && d < size[0]) {
            memory = m.data + place[3] * (int64_t)m.stride[2] + place[2] * (int64_t)m.stride[1] +
                     t * (int64_t)m.stride[0] + d * each;
            bytes = (size[0] - d) * each < 16 ? (size[0] - d) * each : 16;
        }
        use(permuted(address + (uint32_t)n * 16), memory, (size_t)bytes);
    }
}

int perform(const bulk_load &l)
{
    int bytes = l.bytes;
    if (l.from) return memcpy(at(l.to), l.from, (size_t)bytes), bytes;
    for_box(l.map, l.to, l.place, [&](uint32_t to, const char *from, size_t count) {
        memset(at(to), 0, 16);
        if (count) memcpy(at(to), from, count);
        bytes += 16;
    });
    return bytes;
}

void perform(const bulk_store &s)
{
    for_box(s.map, s.from, s.place, [](uint32_t from, char *to, size_t count) {
        if (count) memcpy(to, at(from), count);
    });
}

void perform(const piece_load &p)
{
    memset(at(p.to), 0, 16);
    if (p.there) memcpy(at(p.to), p.from, 16);
}

enum { DEPTH = 16, LINES = 64, MOST = 256 }; /* numbers along the summed axis; rows and columns of a product */

/* A number of a line of a factor: lines are rows of tiles or, transposed, columns. */
float number_at(uint64_t factor, bool transposed, int line, int k, bool half)
{
    auto field = [&](int bit) { return (uint32_t)(factor >> bit & 0x3fff) << 4; };
    const uint32_t first = field(0), panel = field(16), eight = field(32);
    const uint32_t place =
        transposed ? (uint32_t)(line / 64) * panel + (uint32_t)(k / 8) * eight + (uint32_t)(k % 8 * 128 + line % 64 * 2)
                   : (uint32_t)(line / 8) * eight + (uint32_t)(line % 8 * 128 + k * 2);
    uint16_t bits;
    memcpy(&bits, at(permuted(first + place)), sizeof bits);
    return number(bits, half);
}

/* Calls `use(number, row, column)` for the sums that a thread has: of two rows that are eight apart, two neighbours of every eight
 * columns. */
template <typename function> void for_sums(const product &p, int own, function use)
{
    const int row = own / WARP * 16 + own % WARP / 4, column = own % 4 * 2;
    for (int n = 0; n < p.count; n++) use(n, row + n % 4 / 2 * 8, n / 4 * 8 + column + n % 2);
}

/* A product, of which each of `count` threads from number `first` on, warps of a warpgroup, has its part. */
void perform(const product *const (&parts)[GROUP], int first, int count)
{
    static float a[LINES][DEPTH], b[DEPTH][MOST], sums[LINES][MOST];
    const product &p = *parts[first];
    const int columns = 2 * p.count, low = first / WARP * 16, high = (first + count) / WARP * 16;
    for (int n = first; n < first + count; n++)
        if (parts[n]->a != p.a || parts[n]->b != p.b || parts[n]->count != p.count || parts[n]->add != p.add)
            fail("threads that do not agree on a product");
    if (p.b >> 62 != 1 || (!p.in_registers && p.a >> 62 != 1))
        fail("a factor whose pieces are not in the order of tiles");
    for (int k = 0; k < DEPTH; k++)
        for (int n = 0; n < columns; n++) b[k][n] = number_at(p.b, p.b_transposed, n, k, p.half);
    for (int row = low; row < high; row++)
        for (int k = 0; k < DEPTH; k++) {
            const product &q = *parts[row / 16 * WARP + row % 8 * 4];
            a[row][k] = p.in_registers
                            ? number((uint16_t)(q.registers[k % 8 / 2][row % 16 / 8 + k / 8 * 2] >> k % 2 * 16), p.half)
                            : number_at(p.a, p.a_transposed, row, k, p.half);
        }
    for (int n = first; n < first + count; n++)
        for_sums(p, n, [&](int i, int row, int column) { sums[row][column] = p.add ? parts[n]->sums[i] : 0; });
    for (int row = low; row < high; row++)
        for (int k = 0; k < DEPTH; k++)
            for (int n = 0; n < columns; n++) sums[row][n] += a[row][k] * b[k][n];
    for (int n = first; n < first + count; n++)
        for_sums(p, n, [&](int i, int row, int column) { parts[n]->sums[i] = sums[row][column]; });
}

/* The first group of products that these threads have begun, and that is not performed. */
void perform_group(thread *group, int first, int count)
{
    const size_t products = group[first].products.front().size();
    for (int n = first; n < first + count; n++)
        if (group[n].products.front().size() != products) fail("threads that do not agree on a group of products");
    for (size_t k = 0; k < products; k++) {
        const product *parts[GROUP];
        for (int n = first; n < first + count; n++) parts[n] = &group[n].products.front()[k];
        perform(parts, first, count);
    }
    for (int n = first; n < first + count; n++) group[n].products.pop(), group[n].performed++;
}

} // namespace

__attribute__((constructor)) static void fill_halves(void)
{
    for (int n = 0; n < 65536; n++) {
        const int exponent = n >> 10 & 31, fraction = n & 1023;
        const float x = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? ldexpf((float)(1024 + fraction), exponent - 25)
                                       : ldexpf((float)fraction, -24);
        halves[n] = n >> 15 ? -x : x;
    }
}

/* ---- Copies ----------------------------------------------------------------------------------------------------- */

bool copies_are_under_way(void) { return !loads.empty(); }

bool copies_come(void)
{
    if (loads.empty()) return false;
    const size_t n = random_number() % loads.size();
    const bulk_load load = loads[n];
    loads[n] = loads.back(), loads.pop_back();
    barrier_bytes(load.barrier, perform(load));
    return true;
}

void copy_in(uint32_t to, const CUtensorMap *map, uint32_t barrier, const int (&place)[4])
{
    loads.push_back({*map, to, barrier, {place[0], place[1], place[2], place[3]}, NULL, 0});
}

void copy_bytes(uint32_t to, const void *from, int bytes, uint32_t barrier)
{
    if (to % 16 || (uintptr_t)from % 16 || bytes % 16) fail("bytes of a copy that are not multiples of 16");
    loads.push_back({{}, to, barrier, {}, from, bytes});
}

void copy_out(const CUtensorMap *map, uint32_t from, const int (&place)[4])
{
    self().stores.add({*map, from, {place[0], place[1], place[2], place[3]}});
}

void copies_commit(void) { self().stores.close(); }

void copies_wait(int pending)
{
    self().stores.wait((uint64_t)pending, [](const bulk_store &s) { perform(s); });
}

void fetch(uint32_t to, const void *from, bool there)
{
    if (to % 16 || (uintptr_t)from % 16) fail("a piece whose address is not a multiple of 16");
    const piece_load piece = {to, from, there};
    if (random_number() % 2) perform(piece); /* as early as it can come; else as late */
    else self().pieces.add(piece);
}

void fetches_commit(void) { self().pieces.close(); }

void fetches_wait(int pending)
{
    self().pieces.wait((uint64_t)pending, [](const piece_load &p) { perform(p); });
}

/* ---- Products --------------------------------------------------------------------------------------------------- */

void multiply(const product &p) { self().products.add(p); }

/* Now and then a warp's products are as fast as they can be: when its last lane has begun them. */
void products_commit(void)
{
    self().products.close(), self().commits++;
    thread *const group = &threads[current / GROUP * GROUP];
    const int first = current % GROUP / WARP * WARP;
    for (int n = first; n < first + WARP; n++)
        if (group[n].commits != self().commits) return;
    if (self().performed + 1 == self().commits && random_number() % 4 == 0) perform_group(group, first, WARP);
}

bool products_begun(int thread, uint64_t groups)
{
    for (int n = thread / GROUP * GROUP; n < (thread / GROUP + 1) * GROUP; n++)
        if (threads[n].commits < groups) return false;
    return true;
}

/* Those that are left end for all threads of the warpgroup at once: others may then write over their factors. */
void products_wait(int pending)
{
    const uint64_t commits = self().commits;
    self().awaited = commits > (uint64_t)pending ? commits - (uint64_t)pending : 0;
    if (!products_begun(current, self().awaited)) stop(PRODUCTS);
    thread *const group = &threads[current / GROUP * GROUP];
    uint64_t least = self().performed;
    for (int first = 0; first < GROUP; first += WARP) least = std::min(least, group[first].performed);
    for (uint64_t n = least; n < self().awaited; n++) {
        int left[GROUP / WARP], count = 0;
        for (int first = 0; first < GROUP; first += WARP)
            if (group[first].performed == n) left[count++] = first;
        if (count == GROUP / WARP) perform_group(group, 0, GROUP);
        else
            for (int k = 0; k < count; k++) perform_group(group, left[k], WARP);
    }
}

} // namespace machine
