/* What the files of the machine know of a thread. */
#ifndef EMULATOR_THREADS_H
#define EMULATOR_THREADS_H

#include "cuda/emulator/machine.h"

#include <deque>
#include <setjmp.h>
#include <vector>

namespace machine
{

/* Groups of what a thread has begun; the last one is open. */
template <typename T> class groups
{
    std::deque<std::vector<T>> all{1};

  public:
    void add(const T &x) { all.back().push_back(x); }
    void close(void) { all.emplace_back(); }
    void clear(void) { all.clear(), all.emplace_back(); }
    bool empty(void) const
    {
        for (const auto &group : all)
            if (!group.empty()) return false;
        return true;
    }

    const std::vector<T> &front(void) const { return all.front(); }
    void pop(void) { all.pop_front(); }

    /* Performs the first ones, until `pending` closed ones are left. */
    template <typename function> void wait(uint64_t pending, function perform)
    {
        for (; all.size() > pending + 1; all.pop_front())
            for (const T &x : all.front()) perform(x);
    }
};

struct bulk_store {
    CUtensorMap map;
    uint32_t from;
    int place[4];
};

struct piece_load {
    uint32_t to;
    const void *from;
    bool there;
};

/* What a thread waits for. */
enum reason { NOTHING, WARP_MEETS, BLOCK_MEETS, PHASE, PRODUCTS, ENDED };

struct thread {
    jmp_buf place;
    char *stack;
    reason why;
    uint32_t mask;                         /* WARP_MEETS: the lanes that meet */
    int number;                            /* BLOCK_MEETS: the barrier */
    uint32_t barrier, parity;              /* PHASE */
    uint64_t awaited;                      /* PRODUCTS: groups of them */
    uint64_t meetings, commits, performed; /* groups of products */
    bool waited;                           /* for the last kernel */
    groups<product> products;
    groups<bulk_store> stores;
    groups<piece_load> pieces;
};

extern thread threads[1024];
extern int current; /* the number of the thread that runs */

inline thread &self(void) { return threads[current]; }

/* Lets others run until what this thread waits for is there. */
void stop(reason why);

uint32_t random_number(void);

/* ---- Copies under way (engine.cpp) ------------------------------------------------------------------------------ */

void barrier_bytes(uint32_t barrier, int bytes); /* came */
bool copies_are_under_way(void);
bool copies_come(void);                           /* one of them; false: there is none */
bool products_begun(int thread, uint64_t groups); /* in all of its warpgroup */

} // namespace machine

#endif
