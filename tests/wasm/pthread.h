/* Threads for tests on a platform that has one: a thread does all of its work when it is made. */
#ifndef TESTS_WASM_PTHREAD_H
#define TESTS_WASM_PTHREAD_H

#include "../../nn/io/wasi/pthread.h"

typedef void *pthread_t;

static inline int pthread_create(pthread_t *thread, const void *attributes, void *(*work)(void *), void *argument)
{
    (void)attributes;
    *thread = work(argument);
    return 0;
}
static inline int pthread_join(pthread_t thread, void **result)
{
    if (result) *result = thread;
    return 0;
}

#endif
