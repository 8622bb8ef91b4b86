/* The demonstration's model: eight words, four heads built by hand, and everything that was computed from them.
 *
 * The letters are those of mha.h: T words, M numbers a word, H heads, D numbers of a query, key or value. */
#ifndef EXPLAIN_H
#define EXPLAIN_H

#include "cli/draw/term.h"

enum { T = 8, M = 8, H = 4, D = 2 };

/* The page: what is drawn stands in MEASURE columns after INDENT spaces. */
enum { INDENT = 2, MEASURE = 76 };

/* The slots of y that answer a question about the sentence. */
enum { DOER = 0, DEED = 1 };

typedef struct explain_word {
    const char *text;
    const char *brief;      /* at most four letters, for the head of a column */
    const char *word_class; /* one of explain_slots */
} explain_word;

typedef struct explain_head {
    const char *name;  /* one short word, for a row */
    const char *habit; /* what it looks at */
    const char *how;   /* how query and key bring that about */
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

/* Builds X and the weights, and computes the rest: the projections by plain loops, all four heads by one call of
 * mha_attention_forward. Returns an exit code of cli.h, having said what was wrong: the library refused, or its weights
 * and results are not those of a naive computation within 1e-6. */
int explain_compute(explain_model *model);

/* Draws the computation of one word in one head, from x to y. */
void explain_draw_steps(const term *t, const explain_model *model, int word, int head);

#endif
