/* A loop over i from 0 to a constant n that must leave no loop behind, or its arrays would not stay in registers. */
#ifndef MHA_CPU_REPEAT_H
#define MHA_CPU_REPEAT_H

#if defined(__clang__)
#define REPEAT(i, n) _Pragma("clang loop unroll(full)") for (int i = 0; i < (n); i++)
#else
#define REPEAT(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)
#endif

#endif
