/* Looks for leaks at the end of a program that was built with the address sanitizer of clang, where something may leak.
 *
 * On 64-bit Arm, the leak check of clang 14 takes 3 s of processor time even in an empty program: the allocator there has
 * 2^28 regions of 1 MiB, and the check visits all of them several times. A program that has freed everything that it
 * allocated cannot leak, so the hooks of the allocator count what is allocated, the C library returns what it keeps for
 * itself, and the check runs only if something is left. It then decides whether that is a leak, and prints where it was
 * allocated. What is left and still reachable costs time, but is no failure. */
#include <sanitizer/allocator_interface.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#include <stdatomic.h>
#include <stdio.h>

static atomic_long allocated;

/* The sanitizer calls these by name, from the first allocation on. */
void __sanitizer_malloc_hook(const volatile void *memory, size_t size)
{
    (void)memory, (void)size;
    atomic_fetch_add(&allocated, 1);
}

void __sanitizer_free_hook(const volatile void *memory)
{
    if (memory) atomic_fetch_sub(&allocated, 1);
}

/* No test expects this exit status of the command. */
const char *__asan_default_options(void) { return "leak_check_at_exit=0:exitcode=99"; }

/* Frees what the C library allocated for itself, such as the buffer of stdout; for programs that look for leaks. */
extern void __libc_freeres(void) __attribute__((weak));

/* After main and what it gave to atexit. */
__attribute__((destructor)) static void look_for_leaks(void)
{
    fflush(NULL);
    if (__libc_freeres) __libc_freeres();
    if (atomic_load(&allocated)) __lsan_do_leak_check();
}
