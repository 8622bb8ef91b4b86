/* What a model loses with heads switched off, beside their importance: `mha heads --ablate`.
 *
 *     ablation a;
 *     if (ablation_make(&a, ctx, model, data, &survey, images, path)) ablation_print(&t, &a, &survey, &setting);
 *     ablation_free(&a);
 */
#ifndef HEADS_ABLATE_H
#define HEADS_ABLATE_H

#include "cli/heads/table.h"
#include "io/buffer.h"

typedef enum ablation_case {
    ABLATION_OFF,   /* the head is off */
    ABLATION_ALONE, /* all other heads of its block are off */
    ABLATION_BLOCK, /* all heads of a block are off */
    ABLATION_PAIR   /* the two most similar heads of a block are off */
} ablation_case;

typedef struct ablation {
    int64_t heads, blocks, classes;
    mha_score *scores; /* of the model, then heads in the first two cases, then blocks in the other two */
    int64_t *correct;  /* (scores,classes): correct predictions of each label */
    int64_t *pairs;    /* (blocks,2): the two most similar heads, counted through all blocks; -1: there is one head */
    int64_t *labels;   /* (classes): images of each label */
    int64_t different; /* cases that were computed: those of equal heads count once */
    double seconds;
    double by_loss, by_accuracy; /* Spearman's rank correlation of importance with the rise of loss and the drop of
                                    accuracy of heads that are off; NAN where one of the two has no ranks */
} ablation;

/* Over `images` test images, evenly spaced; 0 for all. The survey gives importance and similarity. `path` is the model's
 * file, for messages. Prints an error and returns false on failure; nothing needs to be freed then. */
bool ablation_make(ablation *a, mha_context *ctx, mha_model *model, const mha_data *data, const survey *s,
                   int64_t images, const char *path);
void ablation_free(ablation *a); /* a zeroed one is legal */

/* Where the score of head or block n in a case lies; the score of the model itself is the first. */
int64_t ablation_at(const ablation *a, ablation_case which, int64_t n);

/* What is lost against the model itself: accuracy from 0 to 1, of all images or of those with one label, and loss. NAN
 * for a label without images. */
double ablation_drop(const ablation *a, int64_t at);
double ablation_class_drop(const ablation *a, int64_t at, int64_t label);
double ablation_rise(const ablation *a, int64_t at);

/* The sum of the drops of the heads of a block, or of its most similar pair, each of which is off by itself. */
double ablation_sum(const ablation *a, const survey *s, ablation_case which, int64_t block);

/* Spearman's rank correlation of two lists; equal numbers share the mean of their ranks. NAN if a list has fewer than two
 * different numbers, or if out of memory. */
double ablation_rank_correlation(const double *x, const double *y, int64_t count);

/* The tables, in 80 columns. Returns false, without printing anything, if out of memory. */
bool ablation_print(const term *t, const ablation *a, const survey *s, const heads_setting *setting);

/* Appends the JSON object, without a newline. */
void ablation_json(nn_buffer *out, const ablation *a, const survey *s);

#endif
