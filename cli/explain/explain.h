/* The example model: eight words, four hand-written heads, and all computed values.
 *
 * The letters are those of mha.h: T words, M numbers per word, H heads, D numbers per query, key or value. */
#ifndef EXPLAIN_H
#define EXPLAIN_H

#include "cli/draw/term.h"

enum { T = 8, M = 8, H = 4, D = 2 };

/* Output is MEASURE columns wide after INDENT spaces. */
enum { INDENT = 2, MEASURE = 76 };

/* The interpreted elements of y. */
enum { DOER = 0, DEED = 1 };

typedef struct explain_word {
    const char *text;
    const char *brief;      /* at most four letters, for a column heading */
    const char *word_class; /* one of explain_slots */
} explain_word;

typedef struct explain_head {
    const char *name;  /* short, for a row */
    const char *habit; /* what it attends to */
    const char *how;   /* how query and key achieve that */
} explain_head;

extern const explain_word explain_words[T];
extern const explain_head explain_heads[H];
extern const char *const explain_slots[M]; /* the names of the numbers in x */

/* X (T,M) -> Q, K, V (H,T,D) -> scores, weights (H,T,T) -> out (T,H,D), which is the concat -> Y (T,M) */
typedef struct explain_model {
    float x[T][M];
    float w_q[H][M][D], w_k[H][M][D], w_v[H][M][D], w_o[H * D][M];
    float q[H][T][D], k[H][T][D], v[H][T][D];
    float scores[H][T][T], weights[H][T][T];
    float out[T][H][D];
    float y[T][M];
} explain_model;

/* Builds X and the weights, and computes the rest: the projections with plain loops, all four heads with one call of
 * mha_attention_forward. Returns an exit code of cli.h, after printing an error if the call failed or if its results
 * differ from a naive computation by more than 1e-6. */
int explain_compute(explain_model *model);

/* Prints the computation of one word in one head, from x to y. */
void explain_draw_steps(const term *t, const explain_model *model, int word, int head);

#endif
