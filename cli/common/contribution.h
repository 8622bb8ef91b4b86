/* What each part of a model adds to the logits of one image (mha_model_contributions).
 *
 *     contribution c;
 *     if (!contribution_make(&c, ctx, model, image)) puts(cli_reason(ctx));
 *     double x = contribution_of(&c, contribution_head(n), class);
 *     contribution_free(&c);
 */
#ifndef CONTRIBUTION_H
#define CONTRIBUTION_H

#include <mha_model.h>

typedef struct contribution {
    int64_t heads, blocks, classes;
    float *terms; /* (heads+blocks+2,classes): embedding, heads, MLPs, biases */
} contribution;

/* image (rows,columns): bytes, of the model's input size. Returns false on error, with the reason in the context; nothing
 * needs to be freed then. */
bool contribution_make(contribution *c, mha_context *ctx, mha_model *model, const unsigned char *image);
void contribution_free(contribution *c); /* a zeroed one is legal */

/* The rows: of the embedding, of head n counted through all blocks, of the MLP of a block, of the biases. */
enum { CONTRIBUTION_EMBEDDING = 0 };
static inline int64_t contribution_head(int64_t n) { return 1 + n; }
static inline int64_t contribution_mlp(const contribution *c, int64_t block) { return 1 + c->heads + block; }
static inline int64_t contribution_biases(const contribution *c) { return 1 + c->heads + c->blocks; }

static inline double contribution_of(const contribution *c, int64_t row, int64_t class)
{
    return (double)c->terms[row * c->classes + class];
}

/* The sum of `count` rows from `first` on. All rows: the logit. */
double contribution_sum(const contribution *c, int64_t first, int64_t count, int64_t class);

#endif
