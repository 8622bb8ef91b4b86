/* Functions compiled for several instruction sets. A function marked NN_CLONES is compiled for AVX-512, AVX2 and
 * baseline x86-64, and the loader selects one when the program starts. Contraction is off and sums have a fixed order,
 * so all versions give the same bits. On 64-bit Arm every machine has NEON, and one version is enough.
 *
 * The selection uses an ifunc, which glibc supports and musl does not, and which runs before a sanitizer is
 * initialized. */
#ifndef NN_TRAIN_CLONES_H
#define NN_TRAIN_CLONES_H

#include <stdint.h> /* also defines __GLIBC__ */

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

/* For helpers of such functions: a helper must be compiled for the same instruction set as the clone that calls it. */
#define NN_INLINE static inline __attribute__((always_inline))

#endif
