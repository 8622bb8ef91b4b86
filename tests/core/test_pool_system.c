/* The library's threads and the rest of the process: dlclose, a system that has no more threads, absurd numbers of them.
 * Always the right answer; never an exit, a hang or a crash.
 *
 * pthread_create and pthread_join are wrapped (-Wl,--wrap in programs.cmake): they count, and the first fails on
 * request. */
#include "support/loops.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/wait.h>

/* ---- A system without threads ----------------------------------------------------------------------------------- */

static atomic_int created, joined, allowed = INT_MAX;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg)
{
    if (atomic_load(&created) >= atomic_load(&allowed)) return EAGAIN;
    int error = __real_pthread_create(thread, attributes, start, arg);
    if (!error) atomic_fetch_add(&created, 1);
    return error;
}

int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);

int __wrap_pthread_join(pthread_t thread, void **result)
{
    atomic_fetch_add(&joined, 1);
    return __real_pthread_join(thread, result);
}

static void allow(int threads)
{
    atomic_store(&created, 0);
    atomic_store(&joined, 0);
    atomic_store(&allowed, threads);
}

TEST(fewer_threads_than_asked_for)
{
    end_within_minutes();
    for (int n = 0; n <= 7; n++) {
        allow(n);
        mha_context *ctx = pool_context(8, NULL);
        for (int again = 0; again < 3; again++)
            expect(answers(ctx), "%d threads to be had: %s", n, mha_context_error(ctx));
        atomic_int ran[100] = {0};
        mha_context_run(ctx, 100, count_task, ran);
        for (int i = 0; i < 100; i++) expect(ran[i] == 1, "%d threads to be had: task %d ran %d times", n, i, ran[i]);
        expect(created == n, "%d threads to be had, %d used", n, created);
        expect(all_meet(ctx, n + 1), "%d threads to be had: %d tasks never met", n, n + 1);
        expect(mha_context_threads(ctx) == 8, "now %d threads", mha_context_threads(ctx));
        mha_context_free(ctx);
    }
    allow(INT_MAX);
}

/* A shortage may pass: the pool asks again, but not in every loop. */
TEST(threads_are_asked_for_again)
{
    end_within_minutes();
    allow(1);
    mha_context *ctx = pool_context(3, NULL);
    atomic_int ran[3] = {0};
    mha_context_run(ctx, 3, count_task, ran);
    expect(created == 1, "%d threads", created);
    allow(INT_MAX);
    for (int n = 0; n < 10000 && !created; n++) mha_context_run(ctx, 3, count_task, ran);
    expect(created == 1 && all_meet(ctx, 3), "the second thread never came");
    mha_context_free(ctx);
}

/* ---- Too many threads ------------------------------------------------------------------------------------------- */

TEST(a_hundred_thousand_threads)
{
    static const int wishes[] = {1024, 1025, 100000, INT_MAX};
    end_within_minutes();
    for (int n = 0; n < 4; n++) {
        allow(INT_MAX);
        mha_context *ctx = pool_context(wishes[n], NULL);
        expect(mha_context_threads(ctx) == 1024, "%d asked for, %d threads", wishes[n], mha_context_threads(ctx));
        expect(answers(ctx), "%d threads: %s", wishes[n], mha_context_error(ctx));
        mha_context_free(ctx);
        ctx = context_make(NULL, wishes[n], parallel_reversed(), NULL);
        expect(answers(ctx), "%d threads, a loop of the caller's: %s", wishes[n], mha_context_error(ctx));
        mha_context_free(ctx);
    }
}

#ifdef __SANITIZE_THREAD__
enum { TO_BE_HAD = 200 }; /* on Arm, gcc's thread sanitizer ends a process that has had some hundred threads */
#else
enum { TO_BE_HAD = INT_MAX };
#endif

/* A loop of the caller's may have any number of tasks; the pool still has no more threads than its context. */
TEST(a_hundred_thousand_tasks)
{
    enum { TASKS = 100000 };
    end_within_minutes();
    atomic_int *ran = calloc(TASKS, sizeof *ran);
    mha_context *ctx = pool_context(100000, NULL);
    allow(TO_BE_HAD);
    mha_context_run(ctx, TASKS, count_task, ran);
    expect(created <= 1023, "%d threads", created);
    int wrong = 0;
    for (int n = 0; n < TASKS; n++) wrong += ran[n] != 1;
    expect(!wrong, "%d tasks did not run once", wrong);
    mha_context_free(ctx);
    free(ran);
}

/* ---- The end ---------------------------------------------------------------------------------------------------- */

/* The threads of this process, -1 where the system does not list them. */
static int threads_here(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return -1;
    for (struct dirent *entry; (entry = readdir(folder));) count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

TEST(freeing_a_context_ends_its_threads)
{
    int before = threads_here();
    end_within_minutes();
    if (before < 0) {
        not_given("a list of the threads, /proc/self/task");
        return;
    }
    for (int n = 0; n < 50; n++) {
        allow(INT_MAX);
        mha_context *ctx = pool_context(4, NULL);
        expect(all_meet(ctx, 4) && threads_here() >= before + 3, "%d threads in a loop, %d before", threads_here(),
               before);
        if (n % 2) let_workers_sleep();
        mha_context_free(ctx);
        expect(created == 3 && joined == 3, "%d threads created, %d joined", created, joined);
    }
    for (int n = 0; n < 1000 && threads_here() > before; n++) let_workers_sleep(); /* the list lags behind */
    expect(threads_here() == before, "%d threads now, %d before", threads_here(), before);
}

/* ---- dlclose ---------------------------------------------------------------------------------------------------- */

/* The functions of a library that was opened; ISO C has no cast from what dlsym gives. */
typedef struct loaded {
    void *library;
    mha_status (*create)(mha_context **ctx, const mha_context_options *options);
    void (*run)(mha_context *ctx, int tasks, void (*task)(void *arg, int index), void *arg);
    void (*free)(mha_context *ctx);
} loaded;

static bool load(loaded *l)
{
    l->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!expect(l->library != NULL, "%s", dlerror())) return false;
    void *create = dlsym(l->library, "mha_context_create"), *run = dlsym(l->library, "mha_context_run");
    void *release = dlsym(l->library, "mha_context_free");
    memcpy(&l->create, &create, sizeof create);
    memcpy(&l->run, &run, sizeof run);
    memcpy(&l->free, &release, sizeof release);
    return expect(create && run && release, "%s has not all of its functions", LIBRARY);
}

/* Loads the library, runs loops with it and unloads it; with its threads awake or asleep, ended or not. */
static void load_and_unload(bool freed, bool asleep)
{
    loaded l;
    mha_context *ctx;
    mha_context_options options = MHA_CONTEXT_DEFAULTS;
    options.threads = 3;
    if (!load(&l)) return;
    expect(!l.create(&ctx, &options), "no context");
    meeting m = {.tasks = 3, .patience = 30};
    l.run(ctx, 3, meet, &m);
    expect(!m.late, "the tasks never met");
    if (asleep) let_workers_sleep();
    if (freed) l.free(ctx);
    expect(!dlclose(l.library), "%s", dlerror());
    let_workers_sleep(); /* threads whose code is gone crash now */
}

TEST(dlclose_after_the_context)
{
    end_within_minutes();
    for (int n = 0; n < 20; n++) load_and_unload(true, n % 2);
}

/* Threads live on; in a child, so that they end. */
TEST(dlclose_before_the_context)
{
    end_within_minutes();
    pid_t child = fork();
    if (!child) {
        alarm(200);
        for (int n = 0; n < 20; n++) load_and_unload(false, n % 2);
        _exit(harness.failures != 0);
    }
    int status = -1;
    expect(child > 0 && waitpid(child, &status, 0) == child, "no child");
    expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child ended with %#x", status);
}
