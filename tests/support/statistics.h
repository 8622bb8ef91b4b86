/* Statistics of a problem's weights: memory for every one of them, the library's call, the oracle's answer, and how far
 * apart they may be. */
#ifndef STATISTICS_H
#define STATISTICS_H

#include "support/problem.h"

enum { STATISTICS = 11 };

typedef struct statistics {
    problem *p;
    store sets;
    store result[STATISTICS]; /* in the order of mha_stats */
    mha_stats want;           /* what the library is asked for */
    mha_stats_options options;
    ref_stats ref;
    double *error; /* (B,H,Tq,Tk) how far a weight may be off */
} statistics;

/* Of a case that has lse; what is asked for (sets, grid, sizes of the heatmap, N) is drawn from its seed. */
statistics *statistics_make(const attention_case *c);
void statistics_free(statistics *s);

/* All of them, as a call asks for them. */
mha_stats statistics_asked(const statistics *s);

/* Forward, then statistics. `only`: which one is asked for; -1: all of them. */
mha_status statistics_run(statistics *s, mha_context *ctx, int only);

/* Asks the oracle; then compares all results with it, and looks for writes where none belong. */
void statistics_solve(statistics *s);
bool statistics_check(const statistics *s, char *why, size_t size);

/* All bytes of result n. */
const char *statistics_name(int n);

#endif
