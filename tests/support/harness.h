/* A test program in one header: TEST blocks that register themselves, expectations that say what they saw, and a main.
 *
 *     TEST(rows_sum_to_one) { expect(fabs(sum - 1) < 1e-6, "row %d sums to %g", i, sum); }
 *
 * Run a program without arguments for all of its tests, with words to run the tests whose names contain one of them.
 * Prints a line a test, the failures under it, and closes with 'N passed, N failed'. Exit 1 if any failed. */
#ifndef HARNESS_H
#define HARNESS_H

#include "support/numbers.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct harness_test {
    const char *name;
    void (*run)(void);
    struct harness_test *next;
} harness_test;

static struct {
    harness_test *first, **last;
    int failures;        /* of the test that runs now */
    char not_given[200]; /* why the test that runs now could not be run, or "" */
} harness;

/* Declares a test and puts it at the end of the list before main starts. */
#define TEST(name)                                                 \
    static void test_##name(void);                                 \
    static harness_test entry_##name = {#name, test_##name, NULL}; \
    __attribute__((constructor)) static void register_##name(void) \
    {                                                              \
        if (!harness.last) harness.last = &harness.first;          \
        *harness.last = &entry_##name;                             \
        harness.last = &entry_##name.next;                         \
    }                                                              \
    static void test_##name(void)

/* Notes a failure and goes on; only the first ten of a test are printed. Returns whether the condition held. */
__attribute__((format(printf, 4, 5))) static inline bool harness_expect(bool held, const char *file, int line,
                                                                        const char *format, ...)
{
    if (held) return true;
    if (++harness.failures <= 10) {
        va_list args;
        va_start(args, format);
        printf("    %s:%d: ", file, line);
        vprintf(format, args);
        printf("\n");
        va_end(args);
    }
    return false;
}

#define expect(condition, ...) harness_expect((condition), __FILE__, __LINE__, __VA_ARGS__)

/* Says that this test needs something that was not given. It is then counted neither as passed nor as failed. */
static inline void not_given(const char *what) { snprintf(harness.not_given, sizeof harness.not_given, "%s", what); }

static inline bool harness_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i])) return true;
    return argc < 2;
}

int main(int argc, char **argv)
{
    int passed = 0, failed = 0, skipped = 0;
    for (harness_test *test = harness.first; test; test = test->next) {
        if (!harness_wanted(test->name, argc, argv)) continue;
        harness.failures = 0;
        harness.not_given[0] = 0;
        sample_restart();
        test->run();
        if (harness.failures > 10) printf("    and %d more\n", harness.failures - 10);
        if (harness.failures) {
            failed++;
            printf("FAILED  %s\n", test->name);
        } else if (harness.not_given[0]) {
            skipped++;
            printf("  -     %s: %s\n", test->name, harness.not_given);
        } else {
            passed++;
            printf("  ok    %s\n", test->name);
        }
        fflush(stdout);
    }
    printf("%d passed, %d failed", passed, failed);
    if (skipped) printf(", %d skipped", skipped);
    printf("\n");
    return failed || passed + skipped == 0;
}

#endif
