/* What mha prune says: a line a round, a summary or a JSON object, and a picture of the rounds. */
#ifndef PRUNE_PRINT_H
#define PRUNE_PRINT_H

#include "inspect/prune.h"
#include "cli/draw/term.h"

/* A round as it was told, with a copy of its own of which heads went. */
typedef struct prune_entry {
    nn_prune_round round;
    nn_prune_head *gone;
} prune_entry;

typedef struct prune_story {
    const char *file, *out, *data;
    const nn_mnist *set;
    const nn_vit_model *model; /* as it is now */
    int64_t heads, parameters; /* before the first round */
    int64_t *block_heads;      /* (depth) likewise */
    prune_entry *entries;      /* the first is of before any went */
    int64_t count;
    nn_trainer_score before, after; /* on the test set */
    double seconds;
    int threads;
    const char *isa;
    bool tunes; /* there is learning after each round */
    bool draws; /* standard error is a terminal: lines have a drawing of the heads that are left, and one moves */
    bool utf8;
    bool drawn;  /* a line that moves is there now */
    double last; /* of the clock, when it was drawn */
} prune_story;

/* To standard error: what the columns are; and the last of the entries. */
void prune_print_head(const prune_story *s);
void prune_print_round(prune_story *s);

/* On a terminal, what it is doing now, in place of the line before: but not more often than the eye reads, unless
 * `must`. And nothing in its place, before anything else is said. */
void prune_print_now(prune_story *s, const char *words, bool must);
void prune_print_clear(prune_story *s);

/* To standard output. */
void prune_print_text(const prune_story *s);
void prune_print_json(const prune_story *s);

/* Accuracy over the heads that are left, as an SVG, whole or not at all. False on error, with one line in `error`. */
bool prune_curve_write(const prune_story *s, const char *path, char *error, size_t error_size);

#endif
