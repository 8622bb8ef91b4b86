/* Output of mha prune: one line per round, a summary or a JSON object, and a plot of the rounds. */
#ifndef PRUNE_PRINT_H
#define PRUNE_PRINT_H

#include "cli/draw/term.h"
#include <mha_model.h>

/* A round, with its own copy of the list of removed heads. */
typedef struct prune_entry {
    mha_prune_round round;
    int64_t *gone;
} prune_entry;

typedef struct prune_report {
    const char *file, *out, *data;
    const char *data_name;
    bool synthetic;
    int64_t blocks, heads, parameters; /* before the first round */
    int64_t *block_heads;              /* (blocks) likewise */
    const mha_model *smaller;          /* after the last round */
    int64_t heads_left, parameters_left;
    prune_entry *entries; /* the first is the unpruned model */
    int64_t count;
    mha_score before, after; /* on the test set */
    double seconds;
    int threads;
    const char *isa;
    bool tunes; /* fine-tune after each round */
    bool draws; /* standard error is a terminal: lines show the remaining heads, and there is a status line */
    bool utf8;
    bool drawn;  /* the status line is on the screen */
    bool failed; /* there was no memory for a round */
    double last; /* time of the last redraw */
} prune_report;

/* Print to standard error: the column headings, and the last entry. */
void prune_print_head(const prune_report *s);
void prune_print_round(prune_report *s);

/* On a terminal, draw the status line, at most five times per second unless `must`; and clear it before other
 * output. */
void prune_print_now(prune_report *s, const char *words, bool must);
void prune_print_clear(prune_report *s);

/* Print to standard output. */
void prune_print_text(const prune_report *s);
void prune_print_json(const prune_report *s);

/* Writes an SVG plot of accuracy over the number of heads, atomically. Returns false on error, with one line in
 * `error`. */
bool prune_curve_write(const prune_report *s, const char *path, char *error, size_t error_size);

#endif
