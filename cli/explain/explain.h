/* The model of `mha explain`: the words of a sentence, one attention layer over them, and every number on the way.
 *
 * The letters are those of mha.h: T queries, K keys (of the same words, or of another sentence), M numbers per word, H
 * heads, D numbers per query, key or value of a head. */
#ifndef EXPLAIN_H
#define EXPLAIN_H

#include "cli/draw/flow.h"
#include "cli/draw/term.h"

#include <mha.h>

/* Output is MEASURE columns wide after INDENT spaces. */
enum { INDENT = 2, MEASURE = 76 };

enum { EXPLAIN_WORDS = 24, EXPLAIN_BYTES = 96, EXPLAIN_HEADS = 16, EXPLAIN_WIDTH = 64, EXPLAIN_NARROW = 6 };
_Static_assert((int)EXPLAIN_HEADS <= (int)FLOW_PARTS, "a diagram has room for all heads");

extern const char explain_text[]; /* the sentence with heads of its own */

/* ---- Words ------------------------------------------------------------------------------------------------------- */

typedef struct explain_sentence {
    int count;
    char word[EXPLAIN_WORDS][EXPLAIN_BYTES + 1];
    bool right_to_left; /* has letters of Hebrew, Arabic or a script like them */
} explain_sentence;

/* Splits a text at white space; Chinese and Japanese characters are words of their own. Prints an error that names the
 * option and returns false if there is no word, or too many, or if the text is not plain UTF-8. */
bool explain_split(explain_sentence *s, const char *option, const char *text);

/* A word cut to so many columns, with a mark if it was cut. Returns `out`. */
const char *explain_shorten(char out[EXPLAIN_BYTES + 8], const term *t, const char *word, int columns);

/* Whether two words are the same but for the case of ASCII letters and punctuation around them. */
bool explain_same(const char *a, const char *b);

/* ---- Model ------------------------------------------------------------------------------------------------------- */

typedef struct explain_head {
    const char *name;  /* short, for a row */
    const char *habit; /* what it attends to */
    const char *how;   /* how query and key achieve that */
} explain_head;

typedef struct explain_model {
    explain_sentence query, key; /* equal without --cross */
    bool cross, causal;
    bool own;     /* explain_text with heads that were written for it */
    int patterns; /* the number of hand-written heads; the others are random */
    int T, K, M, H, D;
    explain_head head[EXPLAIN_HEADS];
    char slot[EXPLAIN_WIDTH][16];     /* the names of the numbers of a word */
    const char *roles[EXPLAIN_WORDS]; /* of the words, if `own` */

    mha_layer *layer;
    mha_layer_parts weights_of; /* of the layer: rows are outputs */
    float *numbers;             /* the memory of all below */
    float *x, *z;               /* (T,M), (K,M): queries come from x, keys and values from z, which may be x */
    float *q, *k, *v;           /* (T,H,D), (K,H,D), (K,H,D) */
    float *raw;                 /* (H,T,K): q . k, then */
    float *scaled;              /* divided by sqrt(D), */
    float *masked;              /* -infinity where hidden, */
    float *weights;             /* after the softmax */
    float *concat;              /* (T,H,D): the results of all heads, side by side */
    float *y;                   /* (T,M) */
    double difference;          /* largest, of y from that of one mha_layer_forward */
} explain_model;

/* Computes a model whose sentences, sizes and flags are set. Projections are calls of mha_matmul, the stages of
 * attention come from mha_attention_forward. Returns an exit code of cli.h, after printing an error if memory ran out or
 * if y is not that of mha_layer_forward. Must be freed in either case. */
int explain_compute(explain_model *m);
void explain_free(explain_model *m);

/* Fills in the embeddings, the weights and the descriptions of heads. `m->layer` has initial random weights. */
void explain_fill(explain_model *m);

/* Element (n,d) of the matrix of head h that multiplies x from the right, of W_Q, W_K and W_V; element (e,n) of W_O. */
static inline float explain_in(const explain_model *m, const mha_tensor *w, int h, int n, int d)
{
    return ((const float *)w->data)[(h * m->D + d) * m->M + n];
}
static inline float explain_out(const explain_model *m, int e, int n)
{
    return ((const float *)m->weights_of.out_weight.data)[n * m->H * m->D + e];
}

/* Index of a score or weight; of a number of q, k, v or concat. */
static inline int explain_at(const explain_model *m, int h, int i, int j) { return (h * m->T + i) * m->K + j; }
static inline int explain_of(const explain_model *m, int t, int h, int d) { return (t * m->H + h) * m->D + d; }

/* The interpreted elements of y, if `own`. */
enum { EXPLAIN_DOER = 0, EXPLAIN_DEED = 1 };

/* ---- Output ------------------------------------------------------------------------------------------------------ */

/* A table of numbers, in groups of columns that fit. */
typedef struct explain_table {
    const char *corner;
    const explain_sentence *rows; /* names of the rows */
    int marked;                   /* a row in bold; -1 for none */
    int columns, most;            /* all, and at most per group */
    const char *(*name)(char out[16], const explain_model *m, int column);
    const float *values; /* rows are `stride` numbers apart */
    int stride;
} explain_table;
void explain_draw_table(const term *t, const explain_model *m, const explain_table *table);

/* Prints a number in a column, with fewer decimals the larger it is. */
void explain_number(const term *t, int width, term_style style, double value);

/* Prints the sentence, X, and the maps of all heads. */
void explain_draw_maps(const term *t, const explain_model *m, int word);

/* Prints the computation of one word in one head, from x to y. */
void explain_draw_steps(const term *t, const explain_model *m, int word, int head);

/* Prints all numbers as one JSON object. Returns false if memory ran out. */
bool explain_print_json(const explain_model *m);

/* The diagram of the flow, valid as long as the model. */
void explain_flow(flow *f, const explain_model *m);

#endif
