/* One loop, several instruction sets. A function marked NN_CLONES is compiled for AVX-512, for AVX2 and for the plainest
 * x86-64, and the loader picks one when the program starts. Contraction is off and sums have a fixed order, so all of
 * them give the same bits. On 64-bit Arm every machine has NEON, and there is nothing to choose.
 *
 * The choice is an ifunc, which glibc has and musl has not, and which runs before a sanitizer is ready. */
#ifndef NN_OPS_CLONES_H
#define NN_OPS_CLONES_H

#include <stdint.h> /* also tells whether this is glibc */

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define NN_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NN_SANITIZED
#endif

#if defined(__has_attribute)
#if __has_attribute(target_clones) && defined(__x86_64__) && defined(__GLIBC__) && !defined(NN_SANITIZED)
#define NN_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#endif
#ifndef NN_CLONES
#define NN_CLONES
#endif

/* For what such functions are made of: a clone's helpers must be compiled for what the clone is compiled for. */
#define NN_INLINE static inline __attribute__((always_inline))

#endif
