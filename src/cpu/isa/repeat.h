/* A loop over i from 0 to a constant n that must leave no loop behind, or its arrays would not stay in registers.
 * The presets of the sanitizers define MHA_KEEP_LOOPS: unrolled, every access would carry its own check, and a file of
 * kernels would take minutes to compile. */
#ifndef MHA_CPU_REPEAT_H
#define MHA_CPU_REPEAT_H

/* A function that exists once, neither inlined nor copied for constant arguments: those of a kernel are many, and it is
 * large. */
#if defined(__clang__)
#define ALONE __attribute__((noinline))
#else
#define ALONE __attribute__((noinline, noclone))
#endif

#if defined(MHA_KEEP_LOOPS)
#define REPEAT(i, n) for (int i = 0; i < (n); i++)
#elif defined(__clang__)
#define REPEAT(i, n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n); i++)
#else
#define REPEAT(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

#endif
