/* How many processors the process may use.
 *
 * The affinity mask says on which processors a thread may run. On Linux a control group may also limit the processor
 * time of all its processes together, which is how containers are limited: version 2 has the limit in cpu.max ("200000
 * 100000": 200 ms of processor time in every 100 ms, so two processors), version 1 in cpu.cfs_quota_us and
 * cpu.cfs_period_us. A limit holds for all groups below, so the smallest one from the process's group up to the top of
 * the hierarchy counts.
 *
 * /proc/self/cgroup names the process's group in each hierarchy. /proc/self/mountinfo says where a hierarchy is mounted
 * and which group is at the top there: in a container that may be the container's own. */
#include "core/processors.h"
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__)
#include <fcntl.h>
#include <sched.h>

enum { LINE = 2048 }; /* bytes of a line with its end; the rest of a longer one is left out */

/* ---- Lines of a file -------------------------------------------------------------------------------------------- */

/* Without stdio, which allocates memory that is not the caller's allocator's. */
typedef struct reader {
    int file;
    size_t at, size; /* in `bytes` */
    char bytes[512], line[LINE];
} reader;

static bool reader_open(reader *r, const char *root, const char *folder, const char *name)
{
    char path[LINE];
    int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    r->file = length < LINE ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    r->at = r->size = 0;
    return r->file >= 0;
}

/* The next byte, or -1 at the end. */
static int next_byte(reader *r)
{
    if (r->at == r->size) {
        ssize_t size = read(r->file, r->bytes, sizeof r->bytes);
        r->at = 0;
        r->size = size > 0 ? (size_t)size : 0;
    }
    return r->at < r->size ? (unsigned char)r->bytes[r->at++] : -1;
}

/* The next line without its end, or NULL after the last one, when the file is closed. */
static char *next_line(reader *r)
{
    size_t length = 0;
    int byte = next_byte(r);
    if (byte < 0) {
        close(r->file);
        return NULL;
    }
    for (; byte >= 0 && byte != '\n'; byte = next_byte(r))
        if (length < LINE - 1) r->line[length++] = (char)byte;
    r->line[length] = 0;
    return r->line;
}

/* The first line of a file; NULL if there is none. */
static const char *only_line(reader *r, const char *root, const char *folder, const char *name)
{
    if (!reader_open(r, root, folder, name)) return NULL;
    const char *line = next_line(r);
    if (line) close(r->file);
    return line;
}

/* ---- Control groups --------------------------------------------------------------------------------------------- */

/* A hierarchy, as a folder and the place of the process's group below it. */
typedef struct hierarchy {
    int version;
    char group[LINE]; /* of the process */
    char top[LINE];   /* the group that is mounted */
    char point[LINE]; /* where */
} hierarchy;

/* Whether the list "cpu,cpuacct" has an item "cpu". */
static bool has_cpu(const char *list)
{
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == 3 && !strncmp(list, "cpu", 3)) return true;
    return false;
}

/* Lines are "4:cpu,cpuacct:/group" for version 1, "0::/group" for version 2. */
static bool find_group(hierarchy *h, const char *root)
{
    reader r;
    bool found = false;
    if (!reader_open(&r, root, "/proc/self", "cgroup")) return false;
    for (char *line; (line = next_line(&r));) {
        char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        if (found || !(h->version == 2 ? !strncmp(line, "0:", 2) && !list[1] : has_cpu(list + 1))) continue;
        snprintf(h->group, sizeof h->group, "%s", group);
        found = true;
    }
    return found;
}

/* Cuts the next word off a line. */
static char *next_word(char **line)
{
    char *word = *line + strspn(*line, " ");
    *line = word + strcspn(word, " ");
    if (**line) *(*line)++ = 0;
    return word;
}

/* Lines are "32 31 0:29 TOP POINT OPTIONS [FIELDS] - TYPE SOURCE OPTIONS". */
static bool find_mount(hierarchy *h, const char *root)
{
    reader r;
    bool found = false;
    if (!reader_open(&r, root, "/proc/self", "mountinfo")) return false;
    for (char *line; (line = next_line(&r));) {
        char *dash = strstr(line, " - "), *last = dash ? dash + 3 : NULL;
        if (found || !dash) continue;
        const char *type = next_word(&last);
        next_word(&last);
        if (strcmp(type, h->version == 2 ? "cgroup2" : "cgroup") != 0 || (h->version == 1 && !has_cpu(last))) continue;
        for (int n = 0; n < 3; n++) next_word(&line);
        snprintf(h->top, sizeof h->top, "%s", next_word(&line));
        snprintf(h->point, sizeof h->point, "%s", next_word(&line));
        found = true;
    }
    return found;
}

/* Processors that one group may use. */
static int group_limit(const hierarchy *h, const char *root, const char *folder)
{
    reader r;
    const char *line = only_line(&r, root, folder, h->version == 2 ? "cpu.max" : "cpu.cfs_quota_us");
    char *end = NULL;
    long long quota = line ? strtoll(line, &end, 10) : -1; /* "max": 0 */
    if (quota <= 0) return INT_MAX;
    if (h->version == 1) line = only_line(&r, root, folder, "cpu.cfs_period_us");
    long long period = line ? strtoll(h->version == 1 ? line : end, NULL, 10) : 0;
    if (period <= 0) return INT_MAX;
    long long processors = quota / period + (quota % period != 0);
    return processors < INT_MAX ? (int)processors : INT_MAX;
}

/* The smallest limit from the process's group up to the top. */
static int hierarchy_limit(hierarchy *h, const char *root)
{
    int least = INT_MAX;
    if (!find_group(h, root) || !find_mount(h, root)) return least;
    size_t length = strcmp(h->top, "/") != 0 ? strlen(h->top) : 0;
    const char *below = h->group + length;
    if (strncmp(h->group, h->top, length) != 0 || (*below && *below != '/')) below = "";
    char folder[2 * LINE];
    size_t point = (size_t)snprintf(folder, sizeof folder, "%s", h->point);
    snprintf(folder + point, sizeof folder - point, "%s", below);
    for (;;) {
        int limit = group_limit(h, root, folder);
        if (limit < least) least = limit;
        char *slash = strrchr(folder + point, '/');
        if (!slash) return least;
        *slash = 0;
    }
}

int mha_cgroup_processors(const char *root)
{
    int least = INT_MAX;
    for (int version = 1; version <= 2; version++) {
        hierarchy h = {.version = version};
        int limit = hierarchy_limit(&h, root);
        if (limit < least) least = limit;
    }
    return least;
}

/* ---- Affinity --------------------------------------------------------------------------------------------------- */

/* Room for more processors than the kernel can have. Where a set is too small, it refuses to fill it. */
static int affine_processors(void)
{
    cpu_set_t set[65536 / CPU_SETSIZE];
    return sched_getaffinity(0, sizeof set, set) ? 0 : CPU_COUNT_S(sizeof set, set);
}

#else

int mha_cgroup_processors(const char *root)
{
    (void)root;
    return INT_MAX;
}

static int affine_processors(void) { return 0; }

#endif

int mha_processors(void)
{
    int processors = affine_processors(), limit = mha_cgroup_processors("");
    if (processors < 1) processors = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (processors > limit) processors = limit;
    return processors < 1 ? 1 : processors;
}
