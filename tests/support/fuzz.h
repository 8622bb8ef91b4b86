/* What the fuzz targets share. A target defines, before it includes this header,
 *
 *     static size_t make_seed(uint8_t *bytes, size_t room, unsigned which);   a valid file, any `which`; 0 if it does not fit
 *     static void repair(uint8_t *bytes, size_t size);                        makes changed bytes plausible again
 *     enum { SEEDS, FIXED };                   the number of seeds; bytes at the beginning that are changed by repair alone
 *     #define LIKED "..."                      bytes that the format cares about
 *
 * and LLVMFuzzerTestOneInput, which aborts if something is wrong.
 *
 *     cmake -B build/fuzz -G Ninja -DMHA_FUZZ=ON -DCMAKE_C_COMPILER=clang
 *     cmake --build build/fuzz --target fuzz_NAME && build/fuzz/tests/fuzz_NAME -max_total_time=60
 *
 * No corpus is stored: the mutator starts from the seeds. Without MHA_FUZZ the target is a plain program for any compiler:
 * it replays the files named on its command line (such as a crash that the fuzzer left), or, without any, mutates the
 * seeds some ten thousand times with a generator of its own. That runs as an ordinary test. */
#ifndef FUZZ_H
#define FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

#ifdef MHA_FUZZ

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t size, size_t room);
size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned seed);

size_t LLVMFuzzerCustomMutator(uint8_t *bytes, size_t size, size_t room, unsigned seed)
{
    if (size < FIXED + 2 || seed % 64 == 0) size = make_seed(bytes, room, seed / 64);
    size = LLVMFuzzerMutate(bytes, size, room);
    if (size > FIXED && seed % 8) repair(bytes, size);
    return size;
}

#else

static uint32_t draw(uint64_t *state) /* xorshift: good enough to shake bytes */
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)(*state >> 16);
}

/* Changes, removes or repeats a few bytes, often into ones that the format cares about. */
static size_t shake(uint8_t *bytes, size_t size, size_t room, uint64_t *state)
{
    for (uint32_t n = 1 + draw(state) % 4; n && size > FIXED + 1; n--) {
        size_t at = FIXED + draw(state) % (size - FIXED), rest = size - at;
        switch (draw(state) % 4) {
        case 0:
            bytes[at] = (uint8_t)draw(state);
            break;
        case 1:
            bytes[at] = (uint8_t)LIKED[draw(state) % (sizeof LIKED - 1)];
            break;
        case 2:
            memmove(bytes + at, bytes + at + 1, rest - 1);
            size--;
            break;
        default:
            if (size == room) break;
            memmove(bytes + at + 1, bytes + at, rest);
            size++;
        }
    }
    return size;
}

static int replay(const char *path)
{
    static uint8_t bytes[1 << 20];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 2;
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    LLVMFuzzerTestOneInput(bytes, size);
    printf("%s: %zu bytes, no harm\n", path, size);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    int worst = 0;
    for (int i = 1; i < argc; i++) {
        int rc = replay(argv[i]);
        worst = rc > worst ? rc : worst;
    }
    if (argc > 1) return worst;
    const char *wanted = getenv("MHA_SAMPLE"); /* one in so many, as in support/numbers.h */
    unsigned long sample = wanted ? strtoul(wanted, NULL, 10) : 1, rounds = 20000 / (sample ? sample : 1);
    for (unsigned round = 0; round < rounds; round++) {
        uint8_t seed[1024];
        size_t size = make_seed(seed, sizeof seed, round);
        if (round >= SEEDS) size = shake(seed, size, sizeof seed, &state);
        if (round >= SEEDS && round % 8) repair(seed, size);
        uint8_t *exact = malloc(size); /* of its exact length, for the address sanitizer */
        if (!exact) return 1;
        memcpy(exact, seed, size);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    printf("%lu files, no harm\n", rounds);
    return 0;
}

#endif

#endif
