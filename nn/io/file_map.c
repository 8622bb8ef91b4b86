#include "io/file_map.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void *nn_file_map(int descriptor, size_t size)
{
    void *map = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    return map == MAP_FAILED ? NULL : map;
}

void nn_file_unmap(void *map, size_t size)
{
    if (map) munmap(map, size);
}

void nn_file_map_forget(void *map, size_t size, const void *from, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)from, start = (uintptr_t)map;
    if (!map || begin < start || begin + bytes > start + size) return;
    size_t skipped = (size_t)(-begin & (page - 1)); /* the mapping starts with a page */
    if (bytes >= skipped + page)
        madvise((char *)map + (begin - start) + skipped, (bytes - skipped) / page * page, MADV_DONTNEED);
}
