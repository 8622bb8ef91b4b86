/* Locks on a platform with one thread: no lock is ever contended. */
#ifndef NN_IO_WASI_PTHREAD_H
#define NN_IO_WASI_PTHREAD_H

typedef char pthread_mutex_t;

static inline int pthread_mutex_init(pthread_mutex_t *mutex, const void *attributes)
{
    (void)attributes;
    return *mutex = 0;
}
static inline int pthread_mutex_destroy(pthread_mutex_t *mutex) { return *mutex = 0; }
static inline int pthread_mutex_lock(pthread_mutex_t *mutex) { return *mutex = 0; }
static inline int pthread_mutex_trylock(pthread_mutex_t *mutex) { return *mutex = 0; }
static inline int pthread_mutex_unlock(pthread_mutex_t *mutex) { return *mutex = 0; }

#endif
