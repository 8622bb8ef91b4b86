/* How many threads a context has by default: as many as the process may use processors. */
#include "support/contexts.h"
#include "core/processors.h"
#include "support/harness.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Limits of control groups, as files ------------------------------------------------------------------------- */

static char folder[] = "/tmp/mha-test-XXXXXX";

/* Writes one line into a file below the folder; makes the folders in between. */
static void put(const char *path, const char *line)
{
    char full[400];
    snprintf(full, sizeof full, "%s%s", folder, path);
    for (char *at = full + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        expect(!mkdir(full, 0755) || errno == EEXIST, "%s: %s", full, strerror(errno));
    }
    FILE *file = fopen(full, "w");
    if (!expect(file != NULL, "%s: %s", full, strerror(errno))) return;
    fputs(line, file);
    fclose(file);
}

#define V1_MOUNT "32 31 0:29 / /cg/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
#define V2_MOUNT "41 31 0:38 / /cg rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define OTHERS   "22 1 0:20 / /proc rw - proc proc rw\n35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n"

typedef struct machine {
    const char *what, *groups, *mounts;
    const char *files[4][2];
    int want;
} machine;

static const machine machines[] = {
    {"no control groups", NULL, NULL, {{0}}, INT_MAX},
    {"no limit", "0::/a\n", OTHERS V2_MOUNT, {{"/cg/a/cpu.max", "max 100000\n"}}, INT_MAX},
    {"two processors", "0::/a\n", OTHERS V2_MOUNT, {{"/cg/a/cpu.max", "200000 100000\n"}}, 2},
    {"rounded up", "0::/a\n", V2_MOUNT, {{"/cg/a/cpu.max", "250001 100000\n"}}, 3},
    {"less than one", "0::/a\n", V2_MOUNT, {{"/cg/a/cpu.max", "1000 100000\n"}}, 1},
    {"the parent's limit",
     "0::/a/b/c\n",
     V2_MOUNT,
     {{"/cg/a/b/c/cpu.max", "900000 100000\n"},
      {"/cg/a/b/cpu.max", "max 100000\n"},
      {"/cg/a/cpu.max", "300000 100000\n"}},
     3},
    {"of the top, as in a container", "0::/\n", V2_MOUNT, {{"/cg/cpu.max", "400000 100000\n"}}, 4},
    {"a group that cannot be seen", "0::/../a\n", V2_MOUNT, {{"/cg/cpu.max", "500000 100000\n"}}, 5},
    {"another group's limit", "0::/ab\n", V2_MOUNT, {{"/cg/a/cpu.max", "100000 100000\n"}}, INT_MAX},
    {"mounted from a group on",
     "0::/x/y\n",
     "41 31 0:38 /x /cg rw - cgroup2 cgroup2 rw\n",
     {{"/cg/y/cpu.max", "200000 100000\n"}, {"/cg/x/y/cpu.max", "100000 100000\n"}},
     2},
    {"not mounted from that group on",
     "0::/xz/y\n",
     "41 31 0:38 /x /cg rw - cgroup2 cgroup2 rw\n",
     {{"/cg/cpu.max", "700000 100000\n"}, {"/cg/z/y/cpu.max", "100000 100000\n"}},
     7},
    {"version 1",
     "4:memory:/m\n2:cpu,cpuacct:/a\n0::/\n",
     OTHERS V1_MOUNT,
     {{"/cg/cpu/a/cpu.cfs_quota_us", "150000\n"}, {"/cg/cpu/a/cpu.cfs_period_us", "50000\n"}},
     3},
    {"version 1 without a limit",
     "2:cpuacct,cpu:/a\n",
     V1_MOUNT,
     {{"/cg/cpu/a/cpu.cfs_quota_us", "-1\n"}, {"/cg/cpu/a/cpu.cfs_period_us", "100000\n"}},
     INT_MAX},
    {"version 1 in a container",
     "2:cpu:/docker/1f\n",
     "32 31 0:29 /docker/1f /cg/cpu ro - cgroup cgroup rw,cpu\n",
     {{"/cg/cpu/cpu.cfs_quota_us", "600000\n"}, {"/cg/cpu/cpu.cfs_period_us", "100000\n"}},
     6},
    {"version 1, names that begin alike",
     "3:cpuset:/a\n2:cpuacct:/a\n",
     "32 31 0:29 / /cg/cpu rw - cgroup cgroup rw,cpuset\n",
     {{"/cg/cpu/a/cpu.cfs_quota_us", "100000\n"}, {"/cg/cpu/a/cpu.cfs_period_us", "100000\n"}},
     INT_MAX},
    {"both versions, the smaller",
     "2:cpu:/a\n0::/a\n",
     V1_MOUNT V2_MOUNT,
     {{"/cg/cpu/a/cpu.cfs_quota_us", "300000\n"},
      {"/cg/cpu/a/cpu.cfs_period_us", "100000\n"},
      {"/cg/a/cpu.max", "200000 100000"}},
     2},
    {"nonsense", "0:\n\n:::\n0::/a", " - \n- cgroup2\n" V2_MOUNT, {{"/cg/a/cpu.max", "100000 0\n"}}, INT_MAX},
    {"huge", "0::/a\n", V2_MOUNT, {{"/cg/a/cpu.max", "9223372036854775807 1\n"}}, INT_MAX},
};

static void remove_files(void)
{
    char line[300];
    snprintf(line, sizeof line, "rm -rf '%s'", folder);
    expect(!system(line), "cannot remove %s", folder);
}

TEST(limits_of_control_groups)
{
    if (!expect(mkdtemp(folder) != NULL, "%s: %s", folder, strerror(errno))) return;
    for (size_t n = 0; n < sizeof machines / sizeof *machines; n++) {
        const machine *m = &machines[n];
        char root[300];
        snprintf(root, sizeof root, "%s/%d", folder, (int)n);
        char path[400];
        for (int f = 0; f < 4 && m->files[f][0]; f++) {
            snprintf(path, sizeof path, "/%d%s", (int)n, m->files[f][0]);
            put(path, m->files[f][1]);
        }
        snprintf(path, sizeof path, "/%d/proc/self/cgroup", (int)n);
        if (m->groups) put(path, m->groups);
        snprintf(path, sizeof path, "/%d/proc/self/mountinfo", (int)n);
        if (m->mounts) put(path, m->mounts);
        int got = mha_cgroup_processors(root);
        expect(got == m->want, "%s: %d processors, not %d", m->what, got, m->want);
    }
    remove_files();
}

/* ---- Affinity --------------------------------------------------------------------------------------------------- */

static int default_threads(void)
{
    mha_context *ctx = context_make(NULL, 0, (mha_parallel){NULL, NULL}, NULL);
    int threads = mha_context_threads(ctx);
    mha_context_free(ctx);
    return threads;
}

TEST(threads_are_the_processors_of_the_process)
{
    cpu_set_t all, one;
    CPU_ZERO(&all);
    if (sched_getaffinity(0, sizeof all, &all)) {
        not_given("a machine of fewer than 1024 processors");
        return;
    }
    int count = CPU_COUNT(&all), limit = mha_cgroup_processors("");
    expect(default_threads() == (count < limit ? count : limit), "%d threads; %d processors, limit %d",
           default_threads(), count, limit);
    CPU_ZERO(&one);
    for (size_t n = 0; n < CPU_SETSIZE && !CPU_COUNT(&one); n++)
        if (CPU_ISSET(n, &all)) CPU_SET(n, &one);
    expect(!sched_setaffinity(0, sizeof one, &one), "%s", strerror(errno));
    expect(default_threads() == 1, "%d threads on one processor", default_threads());
    expect(!sched_setaffinity(0, sizeof all, &all), "%s", strerror(errno));
}

/* The variable of OpenMP is not the library's. */
TEST(variables_do_not_matter)
{
    int threads = default_threads();
    setenv("OMP_NUM_THREADS", threads == 3 ? "4" : "3", 1);
    expect(default_threads() == threads, "%d threads, %d without the variable", default_threads(), threads);
}
