/* How many processors there are for this process. */
#ifndef MHA_CORE_PROCESSORS_H
#define MHA_CORE_PROCESSORS_H

/* The processors that the process may use: those that its affinity allows, or fewer where its control group has a
 * limit of processor time; at least 1. */
int mha_processors(void);

/* What the limits of the control groups leave, rounded up to whole processors; INT_MAX without a limit. `root` is put
 * before /proc/self/cgroup and the other paths that are read: "" but in tests. */
int mha_cgroup_processors(const char *root);

#endif
