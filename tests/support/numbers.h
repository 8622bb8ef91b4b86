/* Random numbers and the three float types, written here a second time so that a mistake of the library's conversions
 * cannot hide in the tests. */
#ifndef NUMBERS_H
#define NUMBERS_H

#include <mha.h>

/* ---- Random numbers: SplitMix64 --------------------------------------------------------------------------------- */

typedef struct rng {
    uint64_t state;
} rng;

/* The n-th generator of a seed; generators of neighbouring n have nothing in common. */
rng rng_make(uint64_t seed, uint64_t n);
uint64_t rng_bits(rng *r);
int64_t rng_between(rng *r, int64_t low, int64_t high); /* both ends included */
bool rng_chance(rng *r, double probability);
double rng_uniform(rng *r); /* [0,1) */
double rng_normal(rng *r);

/* ---- Element types ---------------------------------------------------------------------------------------------- */

/* Round to nearest, ties to even; overflow gives infinity. */
uint16_t bfloat16_from(double x);
uint16_t float16_from(double x);
double bfloat16_to(uint16_t bits);
double float16_to(uint16_t bits);

/* One element of any type, bool and int64 included. */
void element_set(void *memory, mha_type type, double value);
double element_get(const void *memory, mha_type type);

/* `value` rounded to a float type, and half the distance of its neighbours there: the error that rounding may make. */
double round_to(mha_type type, double value);
double half_ulp(mha_type type, double value);

/* A number from the environment, such as MHA_SEED. */
long long number_from(const char *name, long long otherwise);

/* Where a case takes long (under a sanitizer, under an emulator), MHA_SAMPLE=k asks for one case in k. Returns k, or 1
 * if all are to run. */
long long sample_size(void);

/* Whether the next case of a sweep is to run: the first call of a test returns true, and about one in k of the others,
 * always the same ones. The harness calls sample_restart before each test. */
bool sampled(void);
void sample_restart(void);

/* How many random cases to run: MHA_CASES, or one in k of the usual number. */
long long cases_from(long long usual);

/* `count` zeroed things; exits if there is no memory. */
void *array(int64_t count, size_t size);

#endif
