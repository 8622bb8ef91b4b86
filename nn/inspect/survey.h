/* Statistics of every head of a Vision Transformer over a sample of images:
 *
 *     nn_survey s;
 *     if (!nn_survey_make(&s, ctx, &d, parameters, &examples, NULL, error, sizeof error)) puts(error);
 *     for (int64_t n = 0; n < s.count; n++) puts(s.heads[n].words);
 *     nn_survey_free(&s);
 *
 * Numbers are means over images and rows (query tokens). Entropy, effective and largest weight cover all images; maps,
 * and the distances and head pairs derived from them, cover a subset, and importance, which needs a backward pass, a
 * smaller one, all evenly spaced. Numbers are summed as integer multiples of 2^-36, so the order does not matter and
 * results are bitwise identical for any number of threads, each of which has its own sums.
 *
 * What the numbers and the words mean is said in mha_model.h, at mha_survey_head. */
#ifndef NN_INSPECT_SURVEY_H
#define NN_INSPECT_SURVEY_H

#include "train/examples.h"

enum { NN_SURVEY_WORDS = 80 };

typedef struct nn_survey_head {
    int64_t block, head;                /* from 0 */
    double entropy;                     /* of a row, in nats */
    double effective;                   /* 1 / sum of squares of a row */
    double largest;                     /* weight of a row */
    double distance;                    /* mean distance from patches to the patches they attend to, in patches */
    double self, previous, next, first; /* weight on the token itself, the ones before and after it, the first one */
    double place, position, content;    /* the parts above, in nats */
    double importance;                  /* importance.h */
    char words[NN_SURVEY_WORDS];

    /* The most similar head of the same block, from 0; -1 if there is no other. */
    int64_t nearest;
    double divergence; /* from it: Jensen-Shannon, in nats, 0 to log 2 */
    double cosine;     /* of the two maps */
} nn_survey_head;

typedef struct nn_survey {
    int64_t images, close_images, importance_images; /* for all; for maps; for importance */
    int64_t blocks, count;                           /* count: heads of all blocks */
    int64_t tokens, rows, columns;                   /* all tokens; the grid of patches */
    bool class_token;                                /* comes first */
    nn_survey_head *heads;                           /* (count), block after block */
    double *maps;                                    /* (count,tokens,tokens) the mean maps */
    double *divergence, *cosine;                     /* block after block (H,H), H heads of that block */
} nn_survey;

/* Numbers of images, evenly spaced over the part; 0 for the defaults below, or all if there are fewer. */
typedef struct nn_survey_options {
    int64_t images;            /* all */
    int64_t close_images;      /* 400, of the images above; rounded to slabs */
    int64_t importance_images; /* 400 */
} nn_survey_options;

/* The examples must have the model's inputs and classes; `options` may be NULL. Returns false on error, with one line
 * in `error`, of `error_size` bytes; nothing needs to be freed then. */
bool nn_survey_make(nn_survey *s, mha_context *ctx, const nn_description *d, float *parameters,
                    const nn_examples *examples, const nn_survey_options *options, char *error, size_t error_size);
void nn_survey_free(nn_survey *s); /* a zeroed one is legal */

/* Whether a head and the nearest one are nearly the same: their divergence is below 0.05. */
static inline bool nn_survey_alike(const nn_survey_head *h) { return h->nearest >= 0 && h->divergence < 0.05; }

/* The mean map of head n, and the number of heads of a block. */
static inline const double *nn_survey_map(const nn_survey *s, int64_t n) { return s->maps + n * s->tokens * s->tokens; }
int64_t nn_survey_block_heads(const nn_survey *s, int64_t block);

/* Computes the fields self to content and words from a head's distance, its mean map, and the entropy of single rows
 * over the same images. */
void nn_survey_describe(const nn_survey *s, nn_survey_head *h, const double *map, double entropy);

#endif
